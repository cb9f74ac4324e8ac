"""The tensors vLLM allocates: several projections as one, each stored part by part, and what the allocator rounds.

Fusing: vllm/model_executor/layers/linear.py (QKVParallelLinear, MergedColumnParallelLinear) and fused_moe (w13, w2).
Rounding: c10/cuda/CUDACachingAllocator: a block of 10 MiB or more comes in steps of 2 MiB, and its end is given back
only when that is more than 1 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.formats import FORMATS
from kvplan.memory.parameters import distinct_layers, edge_tensors, widths_of
from kvplan.memory.tensors import Tensor, stored_tensors
from kvplan.schemes import Scheme
from kvplan.sharding import Rank
from kvplan.specs.layers import Layer
from kvplan.units import MIB

LARGE, STEP, KEPT = 10 * MIB, 2 * MIB, MIB

# (component, tensor) -> what it is part of
_FUSED = {
    **dict.fromkeys((("attention", name) for name in ("q_proj", "k_proj", "v_proj")), "attention qkv"),
    **dict.fromkeys((("attention", name) for name in ("q_a_proj", "kv_a_proj")), "attention qkv_a"),
    **dict.fromkeys((("state", name) for name in ("in_proj_qkv", "in_proj_z")), "state in_proj_qkvz"),
    **{
        (part, name): f"{part} gate_up"
        for part in ("mlp", "experts", "shared_experts")
        for name in ("gate_proj", "up_proj")
    },
}


class Allocation(NamedTuple):
    """One tensor as it is allocated, `times` over."""

    name: str
    bytes: int
    times: int
    packed: bool = False  # repacked after loading: mxfp4

    @property
    def rounding(self) -> int:
        """Bytes that the allocator adds to each."""
        rest = -self.bytes % STEP
        return rest if self.bytes >= LARGE and rest <= KEPT else 0


def allocations(rank: Rank, scheme: Scheme) -> Iterator[Allocation]:
    """The large tensors of a rank."""
    widths = widths_of(rank.model)
    for tensor in edge_tensors(rank):
        yield from _stored([tensor], scheme, tensor.name, 1, -1)
    for layer, count, index in _layers(rank, scheme):
        parts: dict[str, list[Tensor]] = {}
        for tensor in stored_tensors(layer, widths):
            if tensor.role != "vector":
                name = f"{tensor.component} {tensor.name}"
                parts.setdefault(_FUSED.get((tensor.component, tensor.name), name), []).append(tensor)
        for name, tensors in parts.items():
            yield from _stored(tensors, scheme, name, count, index)


def _layers(rank: Rank, scheme: Scheme) -> Iterator[tuple[Layer, int, int]]:
    if scheme.depends_on_depth:
        for index, layer in enumerate(rank.layers, rank.first_layer):
            yield layer, 1, index
    else:
        for layer, count in distinct_layers(rank.layers):
            yield layer, count, 0


def _stored(tensors: list[Tensor], scheme: Scheme, name: str, count: int, index: int) -> Iterator[Allocation]:
    """Packed weights, scales and zero points are tensors of their own; experts lie in one tensor."""
    sizes: dict[tuple[str, int], int] = {}
    packed = False
    for tensor in tensors:
        form = scheme.vector_format
        if tensor.role != "vector":
            form = scheme.format_of(tensor.component, tensor.name, tensor.rows, tensor.columns, at=index)
        packed = packed or form.name == "mxfp4"
        for place, part in enumerate(FORMATS[form.name].tensors):
            key = form.name, place
            sizes[key] = sizes.get(key, 0) + tensor.copies * part.size(tensor.rows, tensor.columns)
    for size in sizes.values():
        yield Allocation(name, size, count, packed)
