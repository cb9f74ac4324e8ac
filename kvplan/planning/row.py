"""Figures as the row of the command-line contract: stable keys, raw base units, None where unknown.

One scenario's figures are ints and give one row; a grid's are arrays and give the columns of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvplan.arithmetic import NO_LIMIT, pick
from kvplan.engines.base import Budget
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.planning.figures import LIMITS, Figures
from kvplan.planning.scenario import Scenario
from kvplan.planning.structure import Stage

if TYPE_CHECKING:
    from kvplan.planning.estimate import Estimate

BANDED = ("overhead_bytes", "kv_budget_bytes", "kv_tokens", "max_sessions")  # rows say how low and high they may be


def row(e: Estimate) -> dict[str, Any]:
    """Inputs, results per GPU, results of the deployment, and the ledger."""
    found = columns(e.scenario, e.stages, e.budgets, e.figures)
    if found["max_context_tokens"] == NO_LIMIT:
        found["max_context_tokens"] = None
    return {**found, "engine_detail": {}, "ledger": [line.to_dict() for line in e.ledger]}


def columns(s: Scenario, stages: Sequence[Stage], budgets: Sequence[Budget | None], f: Figures) -> dict[str, Any]:
    """The row without its ledger; figures that are arrays become columns (max_context_tokens with NO_LIMIT)."""
    return {**inputs(s), **_per_gpu(stages, budgets, f), **_deployment(s, stages, f), **_bands()}


def inputs(s: Scenario) -> dict[str, Any]:
    """What was asked, under the keys of a row."""
    given = s.kv_budget is not None or s.gpu is None
    memory, source = (None, None) if given or s.gpu is None else s.engine.memory_bytes(s.gpu)
    fraction = s.engine.memory_fraction if s.memory_fraction is None else s.memory_fraction
    return {
        "model": s.model.name,
        "gpu": s.gpu.name if s.gpu else None,
        "gpus": s.gpus,
        "engine": s.engine.name,
        "engine_version": s.engine.version,
        "checked": s.model.unverified is None,
        "context_tokens": s.context,
        "max_model_len": s.max_model_len,
        "weight_scheme": s.weights.name,
        "kv_dtype": s.kv_dtype,
        "kv_heads": kv_heads(s),
        "tensor_parallel": s.tp,
        "pipeline_parallel": s.pp,
        "data_parallel": s.dp,
        "memory_fraction": None if given else fraction,
        "max_seqs": s.max_seqs,
        "max_batched_tokens": s.max_batched_tokens,
        "block_size": s.block_size,
        "gpu_memory_bytes": memory,
        "gpu_memory_source": source,
    }


def kv_heads(s: Scenario) -> int | None:
    """Key-value heads of the model; None where layers differ or keep a latent."""
    heads = {layer.attention.kv_heads for layer in s.model.stack if layer.attention}
    return heads.pop() if len(heads) == 1 and not any(layer.latent for layer in s.model.stack) else None


def _per_gpu(stages: Sequence[Stage], budgets: Sequence[Budget | None], f: Figures) -> dict[str, Any]:
    unrequested = [budget.unrequested.bytes for budget in budgets if budget]
    return {
        "weights_bytes": pick([stage.weights_bytes for stage in stages], f.stage),
        "overhead_bytes": pick([stage.overhead_bytes for stage in stages], f.stage),
        "kv_budget_bytes": f.kv_budget_bytes,
        "unrequested_bytes": pick(unrequested, f.stage) if unrequested else None,
        "kv_bytes_per_token": f.kv_bytes_per_token,
        "kv_bytes_per_session": f.kv_bytes_per_session,
        "kv_bytes_per_session_logical": f.kv_bytes_per_session_logical,
    }


def _deployment(s: Scenario, stages: Sequence[Stage], f: Figures) -> dict[str, Any]:
    return {
        "parameters": s.engine.parameters(stages[0].rank, parameters(s.model)),
        "active_parameters": active_parameters(s.model),
        "kv_tokens": f.kv_tokens,
        "max_sessions": f.max_sessions,
        "max_context_tokens": f.max_context_tokens,
        "model_max_context": s.model.max_context,
        "fits": f.fits,
        "limited_by": pick(LIMITS, f.limit),
    }


def _bands() -> dict[str, Any]:
    """Low and high of what an engine's rules cannot give exactly; None where it is exact by definition."""
    return {f"{name}_{end}": None for name in BANDED for end in ("low", "high")}
