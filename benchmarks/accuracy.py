"""How far kvplan's vllm engine is from what servers printed: scores every logged run and writes docs/accuracy.md.

    python benchmarks/accuracy.py            # prints the page
    python benchmarks/accuracy.py --write    # writes docs/accuracy.md and docs/accuracy.svg

The runs are tests/data/vllm_logs.csv: figures copied out of public start-up logs, each with its source. The test
tests/evidence/test_accuracy.py fails when the page is not what this script computes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from accuracy_chart import Dot, chart
from accuracy_unseen import Held, Refit, held_out, refits, starts

from kvplan import __version__
from kvplan.engines.vllm.rules import version_name
from kvplan.evidence.runs import Run, read_runs
from kvplan.evidence.score import Score, Unscored, blind_scores, scores

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "data" / "vllm_logs.csv"
PAGE, CHART = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy.svg"
DATED = "Computed on "  # how the one line begins that is not compared

WORST = 10
# Why a row is far off, as far as it is known. The test asks for one for each of the worst rows.
REASONS = {
    ("V010", "kv"): "0.03 GiB: the largest vision profile of the three Gemma 3 sizes is planned that much low",
    ("V014", "kv"): "Granite 3 takes 0.2 GiB more outside PyTorch than every other model; cause not known",
    ("V025", "kv"): "two stages: the last one's figures are not in the log, 0.13 GiB are not explained",
    ("V045", "kv"): "0.02 GiB of a cache of 3 GiB",
    ("V059", "weights"): "INT8 multimodal checkpoint: 0.02 GiB that stay in 16 bit are not known",
    ("V071", "kv"): "0.01 GiB of a cache of 4 GiB: the log's last digit",
    ("V075", "kv"): "V0 engine, release not named (late 2024): its profile run is modelled roughly",
    ("V076", "kv"): "V0 engine, release not named (late 2024): its profile run is modelled roughly",
    ("V080", "weights"): "V0 with AWQ experts: 0.03 GiB of repacked scales",
    ("V101", "weights"): "a build between releases: 0.03 GiB less than the tensors of the checkpoint",
    ("V109", "kv"): "release not named; its band covers all, and two GPUs without NVLink rest on no other log",
    ("V126", "weights"): "0.006 GiB: one unit of the last digit that the log prints of a small model",
    ("V146", "weights"): "AWQ over two GPUs: 0.03 GiB",
    ("V148", "weights"): "LoRA slots: 0.03 GiB",
    ("V156", "kv"): "the vision profile of Qwen 3.5 (0.9 GiB) is 0.1 GiB high on this card",
    ("V158", "kv"): "0.09 GiB on a card of 22 GiB: CUDA graphs of few sequences, planned as 0.5 GiB",
    ("V159", "kv"): "0.31 on an A100: the sampler's earlier form fits this log; the band reaches to it",
    (
        "V165",
        "weights",
    ): "NVFP4 on a card without FP4 units (build of the main branch): repacked, 0.5 GiB more than in 0.19",
}


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


def compute(path: Path = RUNS) -> Result:
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
    return card and each.version is not None and _minor(each) < 21


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


def _minor(each: Score) -> int:
    return int(release(each).partition(".")[2]) if each.version else -1


# The page


def page(result: Result, today: str | None = None) -> str:
    """docs/accuracy.md."""
    date = today or datetime.now(UTC).date().isoformat()
    sections = (
        _intro(result, date), _headline(result), _by_line(result), _by_version(result), _by_kind(result),
        _unseen(result), _bands(result), _worst(result), _left_out(result), _again(),
    )  # fmt: skip
    return "\n\n".join(sections) + "\n"


def _intro(result: Result, date: str) -> str:
    runs, scored = len(result.runs), len({each.id for each in result.scores})
    return f"""# Accuracy of the `vllm` engine

<!-- written by benchmarks/accuracy.py --write; do not edit -->

{DATED}{date} with kvplan {__version__}.

What vLLM servers printed when they started, beside what kvplan plans for the same model, card, version and flags:
{runs} runs ([`tests/data/vllm_logs.csv`](../tests/data/vllm_logs.csv), each with its source), of which {scored} tell enough
to compare at least one figure. Errors are absolute. **Runs of one model, weight format, tp, pp and version have one vote**,
the median of their errors, so that a model that was started ten times counts once. A log rounds to two decimals: 0.005 GiB.

![Logged KV memory beside kvplan's band, one row a vote](accuracy.svg)

The chart has a row for each vote. Zero is the KV memory that was planned, the bar its band, the dot what the log
printed, in percent of the requested memory; bars are cut at 6 %."""


HEAD = "| {} | votes | median | 90th percentile | worst | inside the band | median width |"
RULE = "| --- | --: | --: | --: | --: | --: | --: |"


def _headline(result: Result) -> str:
    rows = (
        ("weights on a GPU", result.votes("weights", lambda e: not four_bit_floats(e))),
        ("weights, MXFP4 and NVFP4", result.votes("weights", four_bit_floats)),
        ("KV memory: H100 and A100 up to 0.20, version and flags known", result.votes("kv", settled)),
        ("KV memory: other cards, 0.21 and later, version not known", result.votes("kv", lambda e: not settled(e))),
        ("tokens in the pool, KV memory given", result.votes("tokens")),
        ("concurrency, KV memory given", result.votes("concurrency")),
    )
    return _section("In short", [HEAD.format("figure"), RULE, *(_row(name, found) for name, found in rows)])


def _by_line(result: Result) -> str:
    relative = ("weights", "kv", "blocks", "tokens", "concurrency")
    names = {
        "weights": "weights", "kv": "KV memory, end to end", "blocks": "blocks, KV memory given",
        "tokens": "tokens, KV memory given", "concurrency": "concurrency, KV memory given",
        "activation": "peak of the profile run", "non_torch": "memory outside PyTorch",
        "graphs": "CUDA graphs: the reserve beside what capture took",
    }  # fmt: skip
    rows = [_row(name, result.votes(quantity), gib=quantity not in relative) for quantity, name in names.items()]
    text = (
        "The three lines in GiB are where logs print them (0.11 to 0.20). vLLM takes its own estimate of the CUDA graphs off,\n"
        "from 0.21 on; logs print what capture took in the end, so that row mixes the error of both estimates. Figures with the\n"
        "KV memory given are inside when they follow from a memory that rounds to the logged one."
    )
    return _section("By line", [HEAD.format("line"), RULE, *rows], text)


def _by_version(result: Result) -> str:
    kv = result.votes("kv")
    releases = sorted({release(vote.first) for vote in kv}, key=lambda name: (name[0] != "0", len(name), name))
    rows = [_row(name, [vote for vote in kv if release(vote.first) == name]) for name in releases]
    return _section("KV memory by version", [HEAD.format("version"), RULE, *rows])


def _by_kind(result: Result) -> str:
    rows = []
    for quantity, what in (("weights", "weights"), ("kv", "KV memory")):
        found = result.votes(quantity)
        for kind in ("dense", "MoE", "sliding or chunked", "hybrid (state)", "MLA", "multimodal"):
            rows.append(_row(f"{kind}: {what}", [vote for vote in found if kind in vote.first.kinds]))
    text = "Dense is what is none of the others; a model of several kinds counts in each."
    return _section("By architecture", [HEAD.format("kind"), RULE, *rows], text)


def _unseen(result: Result) -> str:
    text = """What the weights are made of, how the pool is cut into blocks and how a request is charged are rules of vLLM's source with
nothing fitted. Fitted are the sampler's peak (three constants for each of its two forms) and the memory outside PyTorch (by
version and GPUs), on the very runs of this page: all of them are *seen*. The runs do not say which of them a constant came
from, so *unseen* is made here: constants are fitted again without the model of each run (all checkpoints of its shape) and the
run is planned with them. The work space of experts is a formula; vision profiles (three constants from five models), the size
of mxfp4 experts and the estimate of graphs stand on too few models to fit them again and are kept."""
    head = ["| figure | votes | | median | 90th percentile | worst |", "| --- | --: | --- | --: | --: | --: |"]
    return _section("Seen and unseen models", [*head, *_unseen_rows(result)], text)


def _unseen_rows(result: Result) -> list[str]:
    """Pairs of rows: as planned, and with constants that do not know the model."""
    rows = []
    for quantity, name in (
        ("activation", "peak of the profile run"),
        ("non_torch", "memory outside PyTorch"),
        ("kv", "KV memory"),
    ):
        pairs = [
            (each, _again_planned(each, result.refits.get(each.id)))
            for each in result.scores
            if each.quantity == quantity
        ]
        both = [(each, other) for each, other in pairs if other is not None]
        for how, found in (("seen", votes(a for a, _ in both)), ("unseen", votes(b for _, b in both))):
            gib = quantity != "kv"
            cells = _spread([vote.gib if gib else vote.error for vote in found], gib)
            rows.append(f"| {name} | {len(found)} | {how} | {' | '.join(cells)} |")
    return rows


def _again_planned(each: Score, refit: Refit | None) -> Score | None:
    if refit is None:
        return None
    if each.quantity == "kv":
        return each._replace(predicted=each.predicted + refit.kv_shift)
    again = refit.peak if each.quantity == "activation" else refit.non_torch
    return None if again is None else each._replace(predicted=again)


def _bands(result: Result) -> str:
    text = """Half widths are constants (`docs/vllm.md`). Where a log does not tell the version or `max_num_seqs`, the band takes
the ends of all versions, and of one sequence; that is tried on the runs of which both are known, by withholding them."""
    rows = [_band_row("nothing", result.votes("kv", known))]
    rows += [_band_row(what, votes(found)) for what, found in result.blind.items()]
    rows.append(_band_row("version not in the log", result.votes("kv", lambda e: not known(e))))
    head = ["| withheld | votes | inside the band | median width | widest |", "| --- | --: | --: | --: | --: |"]
    sources = ["| source | runs | inside kvplan's band | half width the others ask for | inside that |"]
    sources += ["| --- | --: | --: | --: | --: |", *(_held_row(each) for each in result.held)]
    more = """One source left out: the half width that holds 9 of 10 runs of all *other* sources, and whether it would have held for this
one. Most runs are of one campaign on H100s, so the others rest on it: what they need beyond it (other cards, graphs from 0.21
on) cannot be learned from it, which is why the bands of those are wider by rule."""
    return "\n\n".join([_section("Bands", [*head, *rows], text), more, "\n".join(sources)])


def _band_row(what: str, found: list[Vote]) -> str:
    widths = [vote.width for vote in found if vote.width is not None]
    inside = sum(vote.within for vote in found)
    return f"| {what} | {len(found)} | {inside} of {len(found)} | {median(widths):.2%} | {max(widths):.2%} |".replace(
        "%", " %"
    )


def _held_row(each: Held) -> str:
    inside = f"{each.inside} of {each.runs} | {each.half_gib:.2f} GiB | {each.inside_half} of {each.runs}"
    return f"| {each.source} | {each.runs} | {inside} |"


def worst(result: Result) -> list[Score]:
    """The runs of weights and KV memory that are furthest off, relative to what was logged; one a vote."""
    found = [vote.first for quantity in ("weights", "kv") for vote in result.votes(quantity)]
    return sorted(found, key=lambda each: -abs(each.error))[:WORST]


def _worst(result: Result) -> str:
    head = ["| run | model | version | card | line | planned | logged | error | of the budget | inside | why |"]
    rows = [
        "| --- | --- | --- | --- | --- | --: | --: | --: | --: | --- | --- |",
        *(_worst_row(each) for each in worst(result)),
    ]
    return _section(f"The worst {WORST}", [*head, *rows], "Of weights and KV memory, relative to what was logged.")


def _worst_row(each: Score) -> str:
    share = "-" if each.share is None else f"{each.share:+.2%}"
    inside = {True: "yes", False: "no", None: "-"}[each.within]
    cells = (
        each.id, _setting(each), release(each), each.gpu or "-", each.quantity.replace("kv", "KV memory"),
        f"{each.predicted:.2f} GiB", f"{each.logged:.2f} GiB", f"{each.error:+.2%}".replace("%", " %"),
        share.replace("%", " %"), inside, REASONS.get((each.id, each.quantity), "not known"),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _setting(each: Score) -> str:
    split = "".join(f" {name} {count}" for name, count in (("tp", each.tp), ("pp", each.pp)) if count > 1)
    return f"{each.model} {each.format}{split}"


def _left_out(result: Result) -> str:
    logged = {run["id"]: run for run in result.runs}
    rows = [
        f"| {each.id} | {logged[each.id]['model']} | {logged[each.id]['engine_version'] or '-'} | {_reason(each)} |"
        for each in result.unscored
    ]
    text = (
        "*Memory end to end* is left out where weights, or tokens at the logged KV memory, are compared all the same."
    )
    return _section("Not predicted", ["| run | model | version | why |", "| --- | --- | --- | --- |", *rows], text)


def _reason(each: Unscored) -> str:
    return each.reason.split(";", maxsplit=1)[0].replace("unknown model", "not among the models:")


def _again() -> str:
    return """## How to compute it again

```sh
python benchmarks/accuracy.py --write
```

It needs a checkout with the development extra (`pip install -e '.[dev]'`) and takes a few seconds; no GPU, no network. Add a
run as a row of `tests/data/vllm_logs.csv` with its source. To try a log of your own, use `kvplan verify` ([verify](verify.md))."""


def _section(title: str, table: Sequence[str], text: str | None = None) -> str:
    return "\n\n".join(part for part in (f"## {title}", text, "\n".join(table)) if part)


def _row(name: str, found: Sequence[Vote], *, gib: bool = False) -> str:
    if not found:
        return f"| {name} | 0 | - | - | - | - | - |"
    judged = [vote for vote in found if vote.first.within is not None]
    inside = f"{sum(vote.within for vote in judged)} of {len(judged)}" if judged else "-"
    widths = [vote.width for vote in found if vote.width is not None]
    width = f"{median(widths):.2%}".replace("%", " %") if widths else "-"
    cells = _spread([vote.gib if gib else vote.error for vote in found], gib)
    return f"| {name} | {len(found)} | {' | '.join(cells)} | {inside} | {width} |"


def _spread(errors: Sequence[float], gib: bool) -> list[str]:
    values = (median(errors), percentile_90(errors), max(errors))
    return [f"{value:.3f} GiB" if gib else f"{value:.2%}".replace("%", " %") for value in values]


def picture(result: Result) -> str:
    """docs/accuracy.svg."""
    found = sorted(
        result.votes("kv"), key=lambda vote: (_minor(vote.first), vote.first.model, vote.first.tp, vote.first.pp)
    )
    title = "Logged KV memory less planned, and kvplan's band, in % of the requested memory"
    return chart(title, [_dot(vote.first) for vote in found])


def _dot(each: Score) -> Dot:
    requested = each.requested or 1
    assert each.low is not None  # memory end to end has a band
    assert each.high is not None
    low, high, logged = ((value - each.predicted) / requested * 100 for value in (each.low, each.high, each.logged))
    return Dot(f"{_setting(each)} | {each.gpu} | {release(each)}", low, high, logged)


def main() -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md and docs/accuracy.svg")
    result = compute()
    if not parser.parse_args().write:
        print(page(result), end="")
        return 0
    PAGE.write_text(page(result), encoding="utf-8")
    CHART.write_text(picture(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
