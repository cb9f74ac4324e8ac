"""Logged runs beside what kvplan says of them: weights, KV memory end to end, and tokens at the logged KV memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median, quantiles
from typing import Any, NamedTuple

from kvplan.errors import KvplanError
from kvplan.evidence.cards import find_card
from kvplan.evidence.runs import UNPREDICTABLE, Run, card_name, options_of
from kvplan.planning.estimate import estimate
from kvplan.units import GIB

_ROUNDING = 0.005 * GIB  # logs print two decimals


class Score(NamedTuple):
    """One figure of a run; error = predicted / logged - 1, `share` is the same against the requested memory."""

    id: str
    quantity: str  # weights | kv | tokens | concurrency | blocks
    version: str | None
    model: str
    gpu: str | None
    tp: int
    pp: int
    predicted: float
    logged: float
    low: float | None = None
    high: float | None = None
    requested: float | None = None

    @property
    def error(self) -> float:
        """Relative to what was logged."""
        return self.predicted / self.logged - 1

    @property
    def within(self) -> bool | None:
        """Whether the logged figure lies inside the band; None without one."""
        return None if self.low is None or self.high is None else self.low <= self.logged <= self.high

    @property
    def share(self) -> float | None:
        """Error as a part of the requested memory."""
        return None if self.requested is None else (self.predicted - self.logged) / self.requested


class Unscored(NamedTuple):
    """A run that cannot be planned, and why."""

    id: str
    reason: str


def scores(runs: Iterable[Run]) -> Iterator[Score | Unscored]:
    """Every figure of every run that can be compared."""
    for run in runs:
        if run["id"] in UNPREDICTABLE:
            yield Unscored(run["id"], UNPREDICTABLE[run["id"]])
            continue
        try:
            yield from score(run)
        except KvplanError as error:
            yield Unscored(run["id"], str(error))


def score(run: Run) -> list[Score]:
    """The figures of one run; raises KvplanError when its model or version is not known."""
    options = options_of(run)
    found = [*_weights(run, options), *_pool(run, options)]
    if _end_to_end(run, options):
        found.append(_budget(run, options))
    return found


def _weights(run: Run, options: Mapping[str, Any]) -> Iterator[Score]:
    if not run["weights_gib"]:
        return
    found = estimate(**{**options, "kv_budget": GIB})
    slots = sum(line.bytes for line in found.stages[0].overhead if line.name == "overhead/lora_slots")
    yield _scored(run, options, "weights", (found.stages[0].weights_bytes + slots) / GIB, float(run["weights_gib"]))


def _pool(run: Run, options: Mapping[str, Any]) -> Iterator[Score]:
    """Blocks, tokens and concurrency at the logged KV memory, and at the least and the most that rounds to it."""
    logged = run["deciding_kv_gib"] or run["available_kv_gib"]
    if not logged or float(logged) <= 0 or not run["check"].startswith("checks"):
        return
    size = float(logged) * GIB
    ends = [max(1, int(size + shift)) for shift in (0, -_ROUNDING, _ROUNDING)]
    middle, low, high = (estimate(**{**options, "kv_budget": end}).to_dict()["engine_detail"] for end in ends)
    columns = (("blocks", "num_blocks", "num_gpu_blocks"), ("tokens", "reported_tokens", "kv_cache_tokens"),
               ("concurrency", "max_concurrency", "max_concurrency"))  # fmt: skip
    for quantity, key, column in columns:
        if run[column] and (key != "max_concurrency" or run["max_model_len"]):
            shift = 0.005 if quantity == "concurrency" else 0
            band = (low[key] - shift, high[key] + shift)
            yield _scored(run, options, quantity, middle[key], float(run[column]), band=band)


def _end_to_end(run: Run, options: Mapping[str, Any]) -> bool:
    known = run["available_kv_gib"] and run["gpu_memory_utilization"] and options["engine_version"]
    return bool(known) and float(run["available_kv_gib"]) > 0 and bool(run["gpu"])


def _budget(run: Run, options: Mapping[str, Any]) -> Score:
    total = float(run["gpu_total_gib"]) * GIB if run["gpu_total_gib"] else None
    card = find_card(None, card_name(run), int(total) if total else None)
    if card is None:
        raise KvplanError(f"the card of {run['id']} is not known")
    found = estimate(**{**options, "gpu": card.gpu, "memory_fraction": float(run["gpu_memory_utilization"])})
    logged = float(run["deciding_kv_gib"] or run["available_kv_gib"])
    assert found.budget is not None  # a GPU was given and no KV memory
    line = found.budget.kv
    band = (_gib(line.low), _gib(line.high))
    requested = (line.terms["gpu_memory_bytes"] * line.terms["memory_fraction"]) / GIB
    return _scored(run, options, "kv", line.bytes / GIB, logged, band=band, requested=requested, gpu=card.gpu.name)


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _scored(
    run: Run,
    options: Mapping[str, Any],
    quantity: str,
    *figures: float,
    band: tuple[float | None, float | None] = (None, None),
    requested: float | None = None,
    gpu: str | None = None,
) -> Score:
    predicted, logged = figures
    gpu = gpu or run["gpu"] or None
    where = run["id"], quantity, options["engine_version"], options["model"], gpu, options["tp"], options["pp"]
    return Score(*where, predicted, logged, *band, requested)


class Summary(NamedTuple):
    """Absolute relative errors of several scores."""

    scores: int
    median: float
    p90: float
    worst: float


def summary(found: Iterable[Score]) -> Summary | None:
    """Median, 90th percentile and worst of the absolute errors; None without scores."""
    errors = sorted(abs(each.error) for each in found)
    if not errors:
        return None
    p90 = quantiles(errors, n=10, method="inclusive")[-1] if len(errors) > 1 else errors[0]
    return Summary(len(errors), median(errors), p90, errors[-1])
