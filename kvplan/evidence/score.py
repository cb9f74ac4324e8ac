"""Logged runs beside what kvplan says of them: weights, memory end to end, and tokens at the logged KV memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median, quantiles
from typing import Any, NamedTuple

from kvplan.errors import KvplanError
from kvplan.evidence.cards import Card, find_card
from kvplan.evidence.kinds import kinds_of
from kvplan.evidence.runs import UNPREDICTABLE, Run, card_name, options_of
from kvplan.planning.estimate import Estimate, estimate
from kvplan.specs.model import ModelSpec
from kvplan.units import GIB, Line

_ROUNDING = 0.005 * GIB  # logs print two decimals
LINES = {  # a printed figure -> its column and the beginnings of the ledger's lines that make it up
    "activation": ("activation_peak_gib", ("overhead/activation", "overhead/expert", "overhead/vision")),
    "non_torch": ("non_torch_gib", ("overhead/non_torch",)),
    "graphs": ("cuda_graph_gib", ("overhead/cuda_graphs",)),
}


class Score(NamedTuple):
    """One figure of a run; error = predicted / logged - 1, `share` is the same against the requested memory."""

    id: str
    quantity: str  # weights | kv | activation | non_torch | graphs (GiB) | tokens | concurrency | blocks
    version: str | None
    model: str  # of the zoo
    format: str  # of the weights
    kinds: tuple[str, ...]
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

    @property
    def width(self) -> float | None:
        """Width of the band as a part of the requested memory."""
        if self.low is None or self.high is None or self.requested is None:
            return None
        return (self.high - self.low) / self.requested


class Unscored(NamedTuple):
    """A run, or the memory end to end of one, that cannot be planned, and why."""

    id: str
    reason: str


def scores(runs: Iterable[Run]) -> Iterator[Score | Unscored]:
    """Every figure of every run that can be compared."""
    for run in runs:
        if run["id"] in UNPREDICTABLE:
            yield Unscored(run["id"], UNPREDICTABLE[run["id"]])
            continue
        try:
            yield from score(run) or [Unscored(run["id"], "prints neither weights nor memory for the cache")]
        except KvplanError as error:
            yield Unscored(run["id"], str(error))


def score(run: Run) -> list[Score | Unscored]:
    """The figures of one run; raises KvplanError when its model or version is not known."""
    options = options_of(run)
    return [*_weights(run, options), *_pool(run, options), *_memory(run, options)]


def blind_scores(runs: Iterable[Run], *, version: bool = False, max_seqs: bool = False) -> Iterator[Score]:
    """KV memory end to end of runs whose version is known, planned as if it, or max_num_seqs, were not."""
    for run in runs:
        options = _known_options(run)
        if options is None:
            continue
        told = options["engine_version"]
        if version:
            options["engine_version"] = None
        if max_seqs:
            options["flags"] = {**options["flags"], "unknown": ("max_seqs",)}
            options.pop("max_seqs", None)
        for each in _memory(run, options):
            if isinstance(each, Score) and each.quantity == "kv":
                yield each._replace(version=told)


def _known_options(run: Run) -> dict[str, Any] | None:
    """The options of a run that can be planned end to end under a version that is known."""
    try:
        options = None if run["id"] in UNPREDICTABLE or _missing(run) else options_of(run)
    except KvplanError:
        return None
    return options if options and options["engine_version"] else None


def planned(run: Run, options: Mapping[str, Any]) -> Estimate:
    """The run end to end on its card."""
    card = _card(run)
    if card is None:
        raise KvplanError(f"the card of {run['id']} is not known")
    return estimate(**{**options, "gpu": card.gpu, "memory_fraction": float(run["gpu_memory_utilization"])})


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


def _memory(run: Run, options: Mapping[str, Any]) -> Iterator[Score | Unscored]:
    """Memory for the cache end to end, and what the log says was taken before it."""
    logged = run["deciding_kv_gib"] or run["available_kv_gib"]
    if not logged:
        return
    missing = _missing(run)
    if missing:
        yield Unscored(run["id"], f"memory end to end: {missing}")
        return
    found = planned(run, options)
    assert found.budget is not None  # a GPU was given and no KV memory
    line = found.budget.kv
    requested = line.terms["gpu_memory_bytes"] * line.terms["memory_fraction"] / GIB
    gpu = found.scenario.gpu.name if found.scenario.gpu else None
    more: dict[str, Any] = {"requested": requested, "gpu": gpu}
    yield _scored(run, options, "kv", line.bytes / GIB, float(logged), band=(_gib(line.low), _gib(line.high)), **more)
    for quantity, (column, beginnings) in LINES.items():
        lines = _lines(run, options, found, quantity, beginnings)
        if lines and run[column] and float(run[column]) > 0:
            size = sum(line.bytes for line in lines) / GIB
            yield _scored(run, options, quantity, size, float(run[column]), band=_band(lines), **more)


def _lines(
    run: Run, options: Mapping[str, Any], found: Estimate, quantity: str, beginnings: tuple[str, ...]
) -> list[Line]:
    """Lines of the first stage, which logs print; the estimate of graphs also where it is not taken off."""
    if quantity == "graphs" and not run["engine_version"].startswith(("0.17", "0.18", "0.19", "0.20")):
        return []
    if quantity == "graphs":
        found = planned(run, {**options, "flags": {**options["flags"], "graph_estimate": True}})
    budget = found.budgets[0]
    return [line for line in budget.overhead if line.name.startswith(beginnings)] if budget else []


def _missing(run: Run) -> str | None:
    """What a log does not tell without which its memory cannot be planned."""
    logged = run["deciding_kv_gib"] or run["available_kv_gib"]
    if not logged or float(logged) <= 0:
        return "no memory for the cache was found"
    if not run["gpu_memory_utilization"]:
        return "memory fraction not given"
    return None if run["gpu"] and _card(run) else "the card is not given"


def _card(run: Run) -> Card | None:
    total = int(float(run["gpu_total_gib"]) * GIB) if run["gpu_total_gib"] else None
    try:
        return find_card(None, card_name(run), total)
    except KvplanError:
        return None


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _band(lines: list[Line]) -> tuple[float, float]:
    low = sum(line.bytes if line.low is None else line.low for line in lines)
    return low / GIB, sum(line.bytes if line.high is None else line.high for line in lines) / GIB


def _scored(
    run: Run,
    options: Mapping[str, Any],
    quantity: str,
    predicted: float,
    logged: float,
    *,
    band: tuple[float | None, float | None] = (None, None),
    requested: float | None = None,
    gpu: str | None = None,
) -> Score:
    model: ModelSpec = options["model"]
    own = model.weights if isinstance(model.weights, str) else "/".join(sorted(set(model.weights.values())))
    return Score(
        id=run["id"],
        quantity=quantity,
        version=options["engine_version"],
        model=model.name,
        format=options.get("weights", own),
        kinds=kinds_of(model),
        gpu=gpu or run["gpu"] or None,
        tp=options["tp"],
        pp=options["pp"],
        predicted=predicted,
        logged=logged,
        low=band[0],
        high=band[1],
        requested=requested,
    )


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
