"""Figures as the row of the command-line contract: stable keys, raw base units, None where unknown.

One scenario's figures are ints and give one row; a grid's are arrays and give the columns of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.arithmetic import NO_LIMIT, pick
from kvplan.engines.base import Budget
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.planning.figures import BANDED, LIMITS, Figures
from kvplan.planning.scenario import Scenario
from kvplan.planning.structure import Stage, kv_budgets_of

if TYPE_CHECKING:
    from kvplan.planning.estimate import Estimate


class Labels(NamedTuple):
    """A column of few texts: an index into them for each row."""

    codes: Any
    texts: tuple[str, ...]


WITH_ENDS = ("overhead_bytes", *BANDED)  # rows say how low and high they may be
KEYS = (
    "model", "gpu", "gpus", "engine", "engine_version", "checked", "context_tokens", "max_model_len", "weight_scheme",
    "kv_dtype", "kv_heads", "tensor_parallel", "pipeline_parallel", "data_parallel", "memory_fraction", "max_seqs",
    "max_batched_tokens", "block_size", "gpu_memory_bytes", "gpu_memory_source",
    "weights_bytes", "overhead_bytes", "kv_budget_bytes", "unrequested_bytes",
    "kv_bytes_per_token", "kv_bytes_per_session", "kv_bytes_per_session_logical",
    "parameters", "active_parameters", "kv_tokens", "max_sessions", "max_context_tokens", "model_max_context", "fits",
    "limited_by", *(f"{name}_{end}" for name in WITH_ENDS for end in ("low", "high")),
)  # fmt: skip


def row(e: Estimate) -> dict[str, Any]:
    """Inputs, results per GPU, results of the deployment, and the ledger."""
    found = columns(e.scenario, e.stages, e.budgets, e.figures)
    if found["max_context_tokens"] == NO_LIMIT:
        found["max_context_tokens"] = None
    if e.kv_low and e.kv_high:
        found |= band(e.budgets, e.figures, e.kv_low, e.kv_high)
    return {**found, "engine_detail": detail(e), "ledger": [line.to_dict() for line in e.ledger]}


def detail(e: Estimate) -> dict[str, Any]:
    """The engine's own figures of this scenario."""
    s = e.scenario
    kv_budgets = kv_budgets_of(s, e.stages, e.budgets)
    return s.engine.detail([stage.plan for stage in e.stages], kv_budgets, s.engine_options, s.own_tokens)


def band(budgets: Sequence[Budget | None], f: Figures, low: Figures, high: Figures) -> dict[str, Any]:
    """How low and how high the figures may be; overhead is that of the deciding GPU."""
    overhead = [budget.overhead for budget in budgets if budget]
    least = [sum(ln.bytes if ln.low is None else ln.low for ln in lines) for lines in overhead]
    most = [sum(ln.bytes if ln.high is None else ln.high for ln in lines) for lines in overhead]
    found = {"overhead_bytes_low": pick(least, f.stage), "overhead_bytes_high": pick(most, f.stage)}
    for end, figures in (("low", low), ("high", high)):
        for name in BANDED:
            found[f"{name}_{end}"] = getattr(figures, name)
    return found


def columns(s: Scenario, stages: Sequence[Stage], budgets: Sequence[Budget | None], f: Figures) -> dict[str, Any]:
    """The row without its ledger, in the contract's order (max_context_tokens with NO_LIMIT)."""
    return {**constants(s, stages), **results(stages, budgets, f)}


def constants(s: Scenario, stages: Sequence[Stage]) -> dict[str, Any]:
    """Every key in order, filled where the figure does not depend on numbers."""
    count = s.engine.parameters(stages[0].rank, parameters(s.model))
    known = {
        **inputs(s),
        "parameters": count,
        "active_parameters": min(count, active_parameters(s.model)),  # a nominal count may be the smaller
        "model_max_context": s.model.max_context,
    }
    return {key: known.get(key) for key in KEYS}


def inputs(s: Scenario) -> dict[str, Any]:
    """What was asked, under the keys of a row."""
    given = s.kv_budget is not None or s.gpu is None
    memory, source = (None, None) if given or s.gpu is None else s.engine.memory_bytes(s.gpu)
    options = s.engine_options
    return {
        "model": s.model.name,
        "gpu": s.gpu.name if s.gpu else None,
        "gpus": s.gpus,
        "engine": s.engine.name,
        "engine_version": s.engine.version,
        "checked": s.model.unverified is None and s.engine.checked(s.model, options),
        "context_tokens": s.context,
        "max_model_len": s.max_model_len,
        "weight_scheme": s.weights.name,
        "kv_dtype": s.kv_dtype,
        "kv_heads": kv_heads(s),
        "tensor_parallel": s.tp,
        "pipeline_parallel": s.pp,
        "data_parallel": s.dp,
        "memory_fraction": None if given else options.memory_fraction,
        "max_seqs": options.max_seqs,
        "max_batched_tokens": options.max_batched_tokens,
        "block_size": options.block_size,
        "gpu_memory_bytes": memory,
        "gpu_memory_source": source,
    }


def kv_heads(s: Scenario) -> int | None:
    """Key-value heads of the model; None where layers differ or keep a latent."""
    heads = {layer.attention.kv_heads for layer in s.model.stack if layer.attention}
    return heads.pop() if len(heads) == 1 and not any(layer.latent for layer in s.model.stack) else None


def _overhead(stage: Stage, budget: Budget | None) -> int:
    return sum(line.bytes for line in budget.overhead) if budget else stage.overhead_bytes


def results(stages: Sequence[Stage], budgets: Sequence[Budget | None], f: Figures) -> dict[str, Any]:
    """What depends on numbers: of the GPU that admits the fewest sessions, and of the deployment."""
    unrequested = [budget.unrequested.bytes for budget in budgets if budget]
    return {
        "weights_bytes": pick([stage.weights_bytes for stage in stages], f.stage),
        "overhead_bytes": pick([_overhead(*each) for each in zip(stages, budgets, strict=True)], f.stage),
        "kv_budget_bytes": f.kv_budget_bytes,
        "unrequested_bytes": pick(unrequested, f.stage) if unrequested else None,
        "kv_bytes_per_token": f.kv_bytes_per_token,
        "kv_bytes_per_session": f.kv_bytes_per_session,
        "kv_bytes_per_session_logical": f.kv_bytes_per_session_logical,
        "kv_tokens": f.kv_tokens,
        "max_sessions": f.max_sessions,
        "max_context_tokens": f.max_context_tokens,
        "fits": f.fits,
        "limited_by": LIMITS[f.limit] if isinstance(f.limit, int) else Labels(f.limit, LIMITS),
    }
