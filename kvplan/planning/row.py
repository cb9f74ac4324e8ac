"""An estimate as the row of the command-line contract: stable keys, raw base units, None where unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.planning.estimate import Estimate


def row(e: Estimate) -> dict[str, Any]:
    """Inputs, results per GPU, results of the deployment, and the ledger."""
    return {**_inputs(e), **_per_gpu(e), **_deployment(e), **_bands(e), "engine_detail": {}, "ledger": _ledger(e)}


def _inputs(e: Estimate) -> dict[str, Any]:
    s = e.scenario
    memory = s.engine.memory_bytes(s.gpu) if s.gpu and s.kv_budget is None else (None, None)
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
        "kv_heads": kv_heads(e),
        "tensor_parallel": s.tp,
        "pipeline_parallel": s.pp,
        "data_parallel": s.dp,
        "memory_fraction": e.memory_fraction,
        "max_seqs": s.max_seqs,
        "max_batched_tokens": s.max_batched_tokens,
        "block_size": s.block_size,
        "gpu_memory_bytes": memory[0],
        "gpu_memory_source": memory[1],
    }


def kv_heads(e: Estimate) -> int | None:
    """Key-value heads of the model; None where layers differ or keep a latent."""
    stack = e.scenario.model.stack
    heads = {layer.attention.kv_heads for layer in stack if layer.attention}
    return heads.pop() if len(heads) == 1 and not any(layer.latent for layer in stack) else None


def _per_gpu(e: Estimate) -> dict[str, Any]:
    stage = e.stage
    return {
        "weights_bytes": stage.weights_bytes,
        "overhead_bytes": stage.overhead_bytes,
        "kv_budget_bytes": e.kv_budget_bytes,
        "unrequested_bytes": e.budget.unrequested.bytes if e.budget else None,
        "kv_bytes_per_token": e.kv_bytes_per_token,
        "kv_bytes_per_session": e.kv_bytes_per_session,
        "kv_bytes_per_session_logical": e.kv_bytes_per_session_logical,
    }


def _deployment(e: Estimate) -> dict[str, Any]:
    return {
        "parameters": e.parameters,
        "active_parameters": e.active_parameters,
        "kv_tokens": e.kv_tokens,
        "max_sessions": e.max_sessions,
        "max_context_tokens": e.max_context_tokens,
        "model_max_context": e.scenario.model.max_context,
        "fits": e.fits,
        "limited_by": e.limited_by,
    }


def _bands(e: Estimate) -> dict[str, Any]:  # noqa: ARG001 - engines with residuals will fill it
    """Low and high of what an engine's rules cannot give exactly; None where it is exact by definition."""
    names = ("overhead_bytes", "kv_budget_bytes", "kv_tokens", "max_sessions")
    return {f"{name}_{end}": None for name in names for end in ("low", "high")}


def _ledger(e: Estimate) -> list[dict[str, Any]]:
    return [line.to_dict() for line in e.ledger]
