"""Which part of a model each GPU holds: tensor parallel divides heads and widths, pipeline parallel the layers.

All ranks of a tensor-parallel group hold the same shapes (widths are rounded up), so one rank a stage is enough.
Rules: Megatron-LM (Shoeybi et al. 2019) for projections and vocabulary; key-value heads are replicated when there are
more ranks than heads; a latent, a router and norms are whole on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from kvplan.arithmetic import ceil_div
from kvplan.errors import InputError
from kvplan.records import Record
from kvplan.specs.layers import Attention, Layer, Moe
from kvplan.specs.model import ModelSpec

MAX_TP = 1024


class Rank(Record):
    """One GPU of one pipeline stage: the model's own layers with divided heads and widths."""

    model: ModelSpec
    layers: tuple[Layer, ...]
    first_layer: int = 0  # index of layers[0] in the model
    stage: int = 0
    stages: int = 1
    tp: int = 1

    @property
    def holds_embedding(self) -> bool:
        """The first stage embeds the tokens."""
        return self.stage == 0

    @property
    def holds_head(self) -> bool:
        """The last stage computes the logits and samples."""
        return self.stage == self.stages - 1

    @property
    def vocab_rows(self) -> int:
        """Rows of the embedding and of the head on this rank."""
        rows: int = ceil_div(self.model.vocab_size, self.tp)
        return rows


def shard(model: ModelSpec, tp: int = 1, pp: int = 1, ep: int = 1) -> list[Rank]:
    """One rank for each pipeline stage; raises InputError when the model cannot be divided so."""
    check_tp(model, tp)
    sizes = stage_sizes(len(model.stack), pp)
    divided = {id(layer): _divided(layer, tp, ep, model.hidden_size) for layer in model.stack}
    ranks, start = [], 0
    for stage, size in enumerate(sizes):
        layers = tuple(divided[id(layer)] for layer in model.stack[start : start + size])
        ranks.append(Rank(model=model, layers=layers, first_layer=start, stage=stage, stages=pp, tp=tp))
        start += size
    if pp > 1:
        _check_cache_sharing(model, sizes)
    return ranks


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Layers of each stage: even, the remainder to the stages before the last (as vLLM's get_pp_indices)."""
    if not 1 <= pp <= layers:
        raise InputError(f"pp {pp} is not possible: the model has {layers} layers, so pp is from 1 to {layers}")
    sizes = [layers // pp] * pp
    for i in range(layers % pp):
        sizes[-(i + 2)] += 1
    return sizes


def check_tp(model: ModelSpec, tp: int) -> None:
    """Raise InputError, with the degrees that work for all layers together, when tp does not divide the heads."""
    reasons = [r for r in (_obstacle(layer, tp) for layer in dict.fromkeys(model.stack)) if r]
    if tp < 1 or reasons:
        valid = ", ".join(map(str, valid_tps(model)))
        reason = reasons[0] if reasons else "it must be at least 1"
        raise InputError(f"tp {tp} is not possible for {model.name}: {reason}; tp can be {valid}")


def valid_tps(model: ModelSpec) -> list[int]:
    """The tensor-parallel degrees that every layer allows."""
    layers = list(dict.fromkeys(model.stack))
    limit = max([n for layer in layers for _, n in _divisible(layer)], default=1)
    return [tp for tp in range(1, min(limit, MAX_TP) + 1) if not any(_obstacle(layer, tp) for layer in layers)]


def _obstacle(layer: Layer, tp: int) -> str | None:
    """Why this layer cannot be divided by tp, or None."""
    for name, count in _divisible(layer):
        if tp < 1 or count % tp:
            return f"it does not divide {count} {name}"
    for name, count in _replicable(layer):
        if count % tp and tp % count:
            return f"{count} {name} are neither a multiple nor a divisor of {tp}"
    return None


def _divisible(layer: Layer) -> Iterator[tuple[str, int]]:
    """Counts that must divide by tp."""
    for part, names in (
        (layer.attention, ("heads",)),
        (layer.latent, ("heads",)),
        (layer.mamba1, ("inner",)),
        (layer.mamba2, ("heads",)),
        (layer.delta, ("k_heads", "v_heads")),
        (layer.kimi_delta, ("heads",)),
        (layer.lightning, ("heads",)),
    ):
        for name in names if part else ():
            label = {"heads": "query heads", "inner": "inner channels"}.get(name, name.replace("_", " "))
            yield (
                label if part in (layer.attention, layer.latent) else label.replace("query", "state"),
                getattr(part, name),
            )


def _replicable(layer: Layer) -> Iterator[tuple[str, int]]:
    """Counts that are copied once there are more ranks than of them."""
    if layer.attention:
        yield "key-value heads", layer.attention.kv_heads
    if layer.mamba2:
        yield "state groups", layer.mamba2.groups


def _divided(layer: Layer, tp: int, ep: int, hidden_size: int) -> Layer:
    if tp == 1 and ep == 1:
        return layer
    return replace(
        layer,
        attention=layer.attention and _divided_attention(layer.attention, tp),
        latent=layer.latent and replace(layer.latent, heads=layer.latent.heads // tp),
        mamba1=layer.mamba1 and replace(layer.mamba1, inner=layer.mamba1.inner // tp),
        mamba2=layer.mamba2
        and replace(layer.mamba2, heads=layer.mamba2.heads // tp, groups=max(1, layer.mamba2.groups // tp)),
        delta=layer.delta
        and replace(layer.delta, k_heads=layer.delta.k_heads // tp, v_heads=layer.delta.v_heads // tp),
        kimi_delta=layer.kimi_delta and replace(layer.kimi_delta, heads=layer.kimi_delta.heads // tp),
        lightning=layer.lightning and replace(layer.lightning, heads=layer.lightning.heads // tp),
        short_conv=layer.short_conv and replace(layer.short_conv, channels=ceil_div(hidden_size, tp)),
        mlp=layer.mlp and replace(layer.mlp, intermediate_size=ceil_div(layer.mlp.intermediate_size, tp)),
        moe=layer.moe and _divided_moe(layer.moe, tp, ep),
    )


def _divided_attention(a: Attention, tp: int) -> Attention:
    return replace(a, heads=a.heads // tp, kv_heads=max(1, a.kv_heads // tp))


def _divided_moe(moe: Moe, tp: int, ep: int) -> Moe:
    """Routed experts lie on ep GPUs; what tp has beyond that divides their width. Shared experts follow tp."""
    width_ranks = tp // gcd(tp, ep)
    return replace(
        moe,
        here=ceil_div(moe.experts, ep),
        intermediate_size=ceil_div(moe.intermediate_size, width_ranks),
        shared_size=ceil_div(moe.shared_size, tp),
    )


def _check_cache_sharing(model: ModelSpec, sizes: list[int]) -> None:
    """A layer that reads another's cache must lie on the stage that holds it."""
    start = 0
    for stage, size in enumerate(sizes):
        held: set[str] = set()
        for kind, layer in zip(model.stack_kinds[start : start + size], model.stack[start : start + size], strict=True):
            target = layer.attention and layer.attention.cache_of
            if target and target not in held:
                raise InputError(
                    f"pp {len(sizes)} is not possible for {model.name}: layers of stage {stage + 1} "
                    f"read the cache of '{target}' layers on an earlier stage"
                )
            held.add(kind)
        start += size
