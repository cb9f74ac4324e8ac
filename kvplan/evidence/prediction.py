"""The plan for a logged start: what every printed figure should be, end to end and with the logged KV memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvplan.errors import InputError
from kvplan.evidence.conditions import Conditions
from kvplan.evidence.logs import EngineLog
from kvplan.planning.estimate import Estimate, estimate
from kvplan.records import Record
from kvplan.units import Line

_PARTS = {  # a printed figure -> beginnings of the ledger's lines that make it up
    "activation_bytes": ("overhead/activation", "overhead/expert", "overhead/vision"),
    "non_torch_bytes": ("overhead/non_torch",),
    "graphs_bytes": ("overhead/cuda_graphs",),
}
_STAGE = re.compile(r"PP(\d{1,4})_")  # in a rank's name, such as Worker_PP1_TP0
Band = tuple[float | None, float | None, str]


class Predicted(Record):
    """Values, bands and bases by quantity; `whole` is the plan, `given_kv` the one with the logged KV memory."""

    values: Mapping[str, float]
    bands: Mapping[str, Band]
    whole: Estimate | None = None
    given_kv: Estimate | None = None
    stage_rank: str = ""  # how ranks of the planned pipeline stage are called in a log
    notes: tuple[str, ...] = ()


def predict(conditions: Conditions, log: EngineLog) -> Predicted:
    """The plan under the log's conditions; parts that cannot be planned are left out with a note."""
    values: dict[str, float] = {}
    bands: dict[str, Band] = {}
    notes: list[str] = []
    options = dict(conditions.options)
    whole = None
    if conditions.card:
        whole = estimate(**options)
        _add_memory(_as_profiled(options, whole), log, values, bands)
        for name, value in _counts(whole).items():
            values[name] = value
            bands[name] = (None, None, "fitted on these points")
    else:
        notes.append("the log names neither GPU nor memory: give --gpu to compare the memory lines")
    deciding = whole is None or _stage_of_memory(log, whole.scenario.pp) == whole.figures.stage
    given = _with_logged_kv(options, log) if deciding else None
    if given:
        middle, low, high = given
        for name, value in _counts(middle).items():
            values[f"{name}_at_logged_kv"] = value
            bands[f"{name}_at_logged_kv"] = (_counts(low)[name], _counts(high)[name], "formula")
        if "weights_bytes" not in values:
            values["weights_bytes"] = middle.stage.weights_bytes
        if middle.max_context_tokens is not None:
            values["fitting_length"] = middle.max_context_tokens
    first = whole or (given[0] if given else None)
    if first is None:
        first = estimate(**{**options, "kv_budget": 2**30})
        values["weights_bytes"] = first.stage.weights_bytes
    values["kv_bytes_per_session"] = first.kv_bytes_per_session
    for name in ("block_tokens", "padding_layers"):
        if name in detail(first):
            values[name] = detail(first)[name]
    pp = first.scenario.pp
    return Predicted(
        values=values,
        bands=bands,
        whole=whole,
        given_kv=given[0] if given else None,
        stage_rank=f"PP{first.figures.stage}_" if pp > 1 else "",
        notes=tuple(notes),
    )


def detail(found: Estimate) -> dict[str, Any]:
    """The engine's own figures."""
    shown: dict[str, Any] = found.to_dict()["engine_detail"]
    return shown


def _as_profiled(options: Mapping[str, Any], whole: Estimate) -> Estimate:
    """The plan with the pool that the memory leaves, which a log prints although a number of blocks replaces it."""
    if whole.stage.plan.units is None:
        return whole
    return estimate(**{**options, "flags": {**options["flags"], "num_gpu_blocks": None}})


def _add_memory(whole: Estimate, log: EngineLog, values: dict[str, float], bands: dict[str, Band]) -> None:
    row = whole.to_dict()
    stage = _logged_stage(whole, log)
    values["weights_bytes"] = whole.stages[stage].weights_bytes
    budget = whole.budgets[stage]
    if budget:
        values["requested_bytes"] = row["gpu_memory_bytes"] - budget.unrequested.bytes
        kv = (whole.budgets[_stage_of_memory(log, whole.scenario.pp)] or budget).kv
        values["kv_budget_bytes"] = kv.bytes
        bands["kv_budget_bytes"] = (kv.low, kv.high, "fitted on these points")
        for name, beginnings in _PARTS.items():
            lines = [line for line in budget.overhead if line.name.startswith(beginnings)]
            if lines:
                values[name] = sum(line.bytes for line in lines)
                bands[name] = (_end(lines, "low"), _end(lines, "high"), "fitted on these points")
    if log.all("consumed"):  # from 0.26 on the peak holds the estimate of the graphs
        values["consumed_bytes"] = values["weights_bytes"] + values.pop("non_torch_bytes", 0)
        values["activation_bytes"] = values.get("activation_bytes", 0) + values.pop("graphs_bytes", 0)
        bands.pop("activation_bytes", None)


def _end(lines: list[Line], end: str) -> int | None:
    if all(getattr(line, end) is None for line in lines):
        return None
    return sum(line.bytes if getattr(line, end) is None else getattr(line, end) for line in lines)


def _logged_stage(whole: Estimate, log: EngineLog) -> int:
    """The pipeline stage whose weights the log prints: the planned one where ranks are named, else the first."""
    if len(whole.stages) == 1 or any(f"PP{whole.figures.stage}_" in f"{seen.rank}_" for seen in log.all("weights")):
        return int(whole.figures.stage)
    return 0


def _stage_of_memory(log: EngineLog, pp: int) -> int:
    """The pipeline stage that printed the least memory for the cache; the first where no rank is named."""
    ranks = list(log.by_rank("available").values())
    least = min(ranks, key=lambda seen: seen.value, default=None)
    named = _STAGE.search(f"{least.rank}_") if least else None
    return min(int(named[1]), pp - 1) if named else 0


def _counts(found: Estimate) -> dict[str, float]:
    """Blocks, tokens and concurrency as the engine prints them."""
    own = detail(found)
    return {name: own[name] for name in ("num_blocks", "reported_tokens", "max_concurrency") if name in own}


def _with_logged_kv(options: Mapping[str, Any], log: EngineLog) -> tuple[Estimate, Estimate, Estimate] | None:
    """The plan with the KV memory that the log prints, and with the least and the most that rounds to it."""
    ranks = list(log.by_rank("available").values())
    least = min(ranks, key=lambda seen: seen.value, default=None)
    if least is None or least.value <= 0:
        return None
    half = int(least.step / 2)
    try:
        found = [estimate(**{**options, "kv_budget": max(1, least.value + shift)}) for shift in (0, -half, half)]
    except InputError:
        return None
    return found[0], found[1], found[2]
