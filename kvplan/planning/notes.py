"""Sentences beside the figures: warnings and facts that change how a figure is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvplan.memory.lora import not_adapted
from kvplan.specs.layers import Rope
from kvplan.units import human_bytes

if TYPE_CHECKING:
    from kvplan.planning.estimate import Estimate


def notes(e: Estimate) -> list[str]:
    """Everything worth saying, the most consequential first."""
    return [
        *context_notes(e),
        *_start_notes(e),
        *_pool_notes(e),
        *_fallback_notes(e),
        *_unused_notes(e),
        *_lora_notes(e),
        *_model_notes(e),
        *_prefix_notes(e),
    ]


def context_notes(e: Estimate) -> list[str]:
    """A context above what the model was made for, with the rope scaling factor that it would need."""
    s = e.scenario
    limit, asked = s.model.max_context, max(s.context, s.max_model_len)
    if limit is None or asked <= limit:
        return []
    rope = s.model.rope if isinstance(s.model.rope, Rope) else None
    trained = (rope.original_context if rope else None) or limit
    if s.model.rope == "none" or s.model.learned_positions:
        return [f"context {asked} is above {s.model.name}'s maximum of {limit}, which no rope scaling can extend"]
    scaling = f"rope scaling by a factor of {asked / trained:g} from {trained}"
    return [f"context {asked} is above {s.model.name}'s maximum of {limit}: it needs {scaling}"]


def _start_notes(e: Estimate) -> list[str]:
    """An engine that checks one request of its whole length before it starts, and would refuse."""
    from kvplan.planning.row import detail

    s = e.scenario
    if detail(e).get("starts", True):
        return []
    asked = f"{s.engine.name} refuses to start with a max_model_len of {s.max_model_len}"
    return [f"{asked}: its pool does not hold one request of that length; lower --max-model-len"]


def _pool_notes(e: Estimate) -> list[str]:
    """A number of blocks in place of what the memory leaves, which an engine takes without looking at the memory."""
    units = e.stage.plan.units
    if units is None:
        return []
    found = [f"the cache has the {units:,} blocks that were given, whatever the memory leaves"]
    given = [b for b in e.budgets if b and "left_for_the_cache" in b.unrequested.terms]
    over = max((b.kv.bytes - int(b.unrequested.terms["left_for_the_cache"]) for b in given), default=0)
    if over > 0:
        more = human_bytes(over)
        found.append(f"they take {more} more than the requested memory leaves: the server may run out of memory")
    return found


def _fallback_notes(e: Estimate) -> list[str]:
    seen = {
        (t.fallback_from, t.columns, t.format): t.name for stage in e.stages for t in stage.tensors if t.fallback_from
    }
    return [
        f"{wanted} does not divide rows of {columns} elements ({name}): {used} is used there, as llama.cpp does"
        for (wanted, columns, used), name in seen.items()
    ]


def _unused_notes(e: Estimate) -> list[str]:
    s = e.scenario
    unset: tuple[Any, ...] = (None, False, {}, 1)  # 1: of ep
    ignored = [name for name in s.engine.unused if getattr(s, name) not in unset]
    found = [f"--{name.replace('_', '-')} has no effect with engine {s.engine.name}" for name in ignored]
    if s.kv_budget is not None:
        beside = [name for name in ("memory_fraction", "reserve", "lora_rank") if getattr(s, name) is not None]
        found += [f"--{name.replace('_', '-')} has no effect: the KV memory is given" for name in beside]
    return found


def _lora_notes(e: Estimate) -> list[str]:
    parts = not_adapted(e.scenario.model) if e.scenario.lora_rank else []
    return [f"LoRA slots do not count adapters on {' and '.join(parts)}"] if parts else []


def _model_notes(e: Estimate) -> list[str]:
    s = e.scenario
    found = s.engine.notes(s.model, s.engine_options)
    if s.model.unverified:
        found.append(f"{s.model.name} is not verified against a published count: {s.model.unverified}")
    if s.extras is None and "mtp" in s.model.extras:
        found.append(f"{s.model.name} has prediction layers (mtp), not loaded unless asked for: --extras all")
    return found


def _prefix_notes(e: Estimate) -> list[str]:
    s = e.scenario
    if not s.shared_prefix:
        return []
    size = human_bytes(e.prefix_bytes)
    return [
        f"the first {s.shared_prefix} tokens are stored once ({size}); a session is charged for {s.own_tokens} more"
    ]
