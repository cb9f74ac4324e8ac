"""Logged runs, scored and gathered into votes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kvplan.engines.vllm.rules import version_name
from kvplan.evidence.runs import Run, read_runs
from kvplan.evidence.score import Score, Unscored, blind_scores, scores
from scoring.unseen import Held, Refit, held_out, refits, starts


class Vote(NamedTuple):
    """Runs of one model, format, tp, pp and version: they count once, with the median of their errors."""

    scores: tuple[Score, ...]

    @property
    def first(self) -> Score:
        """For what the runs have in common."""
        return self.scores[0]

    @property
    def error(self) -> float:
        """Relative."""
        return median(abs(each.error) for each in self.scores)

    @property
    def gib(self) -> float:
        """Off by so much."""
        return median(abs(each.predicted - each.logged) for each in self.scores)

    @property
    def within(self) -> bool:
        """Whether every run lies inside its band."""
        return all(each.within is not False for each in self.scores)

    @property
    def width(self) -> float | None:
        """Of the band, as a part of the requested memory."""
        widths = [each.width for each in self.scores if each.width is not None]
        return median(widths) if widths else None


class Result(NamedTuple):
    """Everything that the page shows."""

    runs: Sequence[Run]
    scores: Sequence[Score]
    unscored: Sequence[Unscored]
    blind: Mapping[str, Sequence[Score]]  # KV memory with something withheld
    refits: Mapping[str, Refit]
    held: Sequence[Held]

    def votes(self, quantity: str, *wanted: Callable[[Score], bool]) -> list[Vote]:
        """One vote for each setting, among the scores that all conditions want."""
        return votes(each for each in self.scores if each.quantity == quantity and all(is_so(each) for is_so in wanted))


def compute(path: Path) -> Result:
    """Every shipped run, scored."""
    runs = read_runs(path)
    found = list(scores(runs))
    scored = [each for each in found if isinstance(each, Score)]
    kv = [each for each in scored if each.quantity == "kv"]
    blind = {
        "version": list(blind_scores(runs, version=True)),
        "`max_num_seqs`": list(blind_scores(runs, max_seqs=True)),
        "both": list(blind_scores(runs, version=True, max_seqs=True)),
    }
    again = refits(starts(runs, scored))
    return Result(runs, scored, [u for u in found if isinstance(u, Unscored)], blind, again, held_out(runs, kv))


def votes(found: Iterable[Score]) -> list[Vote]:
    """Scores of one quantity, gathered by setting."""
    groups: dict[tuple[object, ...], list[Score]] = {}
    for each in found:
        groups.setdefault((each.model, each.format, each.tp, each.pp, release(each)), []).append(each)
    return [Vote(tuple(group)) for group in groups.values()]


def release(each: Score) -> str:
    """0.19 of 0.19.1; a build of the main branch counts as the release after it."""
    return version_name(each.version) if each.version else "not known"


def settled(each: Score) -> bool:
    """H100 and A100 up to 0.20, version known: what the rules were made on."""
    card = (each.gpu or "").startswith(("h100", "a100"))
    return card and each.version is not None and minor(each) < 21


def known(each: Score) -> bool:
    """Version known, whatever the card."""
    return each.version is not None


def four_bit_floats(each: Score) -> bool:
    """MXFP4 and NVFP4 checkpoints, where what stays in 16 bit is a list of its own."""
    return "fp4" in each.format


def percentile_90(values: Iterable[float]) -> float:
    """With linear interpolation."""
    ordered = sorted(values)
    place = 0.9 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def minor(each: Score) -> int:
    return int(release(each).partition(".")[2]) if each.version else -1


def setting(each: Score) -> str:
    """Model, format and how it is split."""
    split = "".join(f" {name} {count}" for name, count in (("tp", each.tp), ("pp", each.pp)) if count > 1)
    return f"{each.model} {each.format}{split}"
