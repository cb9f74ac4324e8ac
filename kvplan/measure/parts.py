"""Parts of a step and of a prefill timed on their own: what predictions of time are made of.

A decode step streams the weights once and each session's keys and values once, and starts a few dozen kernels a layer.
The three are measured apart: all matrices one after another, attention over all layers' caches, and a whole step at a
context so short that what remains is the fixed cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from kvplan.measure.decoder.attention import Attention, Turn, Used
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.latent import LatentAttention
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.mlp import Mlp
from kvplan.measure.decoder.moe import Moe
from kvplan.measure.rates import time_calls
from kvplan.specs.layers import Layer
from kvplan.speed.pairs import prefill_pairs

SHORT = 16  # tokens: so few that reading them takes no time
Synchronize = Callable[[], None]
Work = Callable[[], object]


def linears_call(decoder: Decoder, batch: int) -> Work:
    """Multiplies by every matrix that a step of this batch uses, once each, in order."""
    work = [(product, _filled(decoder, *size)) for product, size in _used(decoder, batch)]

    @torch.inference_mode()
    def run() -> None:
        for product, x in work:
            product(x)

    return graphed(run, decoder.place.device)


def _used(decoder: Decoder, batch: int) -> Iterator[Used]:
    """Matrices of a step with the size of what each multiplies; as many experts as a batch is expected to choose."""
    for block in decoder.layers:
        if block.attention is not None:
            yield from block.attention.used(batch)
        if isinstance(block.mlp, Mlp):
            yield from ((linear, (batch, linear.columns)) for linear in (block.mlp.up, block.mlp.down))
        elif isinstance(block.mlp, Moe):
            yield from ((linear, (rows, linear.columns)) for linear, rows in _experts(block.mlp, batch))
    yield decoder.head, (batch, decoder.head.columns)


def _experts(moe: Moe, batch: int) -> Iterator[tuple[Linear, int]]:
    yield moe.router, batch
    count = len(moe.experts)
    distinct = max(1, round(distinct_experts(count, moe.active, batch)))
    rows = max(1, batch * moe.active // distinct)
    for expert in list(moe.experts)[:distinct]:
        yield from ((expert.up, rows), (expert.down, rows))
    if moe.shared is not None:
        yield from ((moe.shared.up, batch), (moe.shared.down, batch))


def distinct_experts(experts: int, active: int, batch: int) -> float:
    """Experts that at least one of `batch` tokens chooses, if every choice is as likely: E (1 - (1 - k/E)^B)."""
    return experts * (1 - (1 - active / experts) ** batch)


def _filled(decoder: Decoder, *size: int) -> Tensor:
    return torch.full(size, 0.1, device=decoder.place.device, dtype=decoder.place.dtype)


def attention_call(decoder: Decoder, cache: ContiguousCache, context: int) -> Work:
    """Attends to `context` tokens in every layer's cache, one after another, as a step does."""
    cache.seek(context - 1)
    static = cache if isinstance(cache, StaticCache) else None
    if static is not None:
        static.begin(1)  # the masks
    work = []
    for attention in (block.attention for block in decoder.layers if block.attention is not None):
        slab = cache.layers[attention.layer_index]
        filled = slab.slots if static else slab.filled(context - 1)
        mask = static.steps[slab.slots, slab.chunked][1] if static else None
        size = (cache.batch, attention.kv_heads, attention.heads // attention.kv_heads, attention.head_dim)
        q = _filled(decoder, *size)  # (B, K, G, D)
        work.append((attention.decode, q, slab.keys[:, :, :filled], slab.values[:, :, :filled], mask))

    @torch.inference_mode()
    def run() -> None:
        for decode, *tensors in work:
            decode(*tensors)

    return graphed(run, decoder.place.device)


def graphed(call: Work, device: torch.device) -> Work:
    """On CUDA the call as a captured graph, since that is how a step runs; elsewhere, or if refused, as it is."""
    if device.type != "cuda":
        return call
    try:
        call()
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:
        torch.cuda.synchronize(device)
        return call
    return graph.replay


class LayerTime(NamedTuple):
    """One kind of layer in a prefill of `tokens`: seconds of everything but attention's core, and of the core."""

    layer: Layer
    layers: int
    tokens: int
    rest_s: float
    core_s: float

    def seconds(self, tokens: int) -> float:
        """Of all layers of the kind for another length: linear in tokens, and in the pairs that attention scores."""
        a, pairs = self.layer.attention, [0, 1]
        if a or self.layer.latent:
            reach = (a.window, a.chunk) if a else ()
            pairs = [prefill_pairs(n, *reach) for n in (tokens, self.tokens)]
        return self.layers * (self.rest_s * tokens / self.tokens + self.core_s * pairs[0] / pairs[1])


@torch.inference_mode()
def layer_times(decoder: Decoder, tokens: int, repeats: int, synchronize: Synchronize) -> list[LayerTime]:
    """One layer of each kind, timed alone."""
    decoder.reserve_positions(tokens)
    turn = Turn([table.at(slice(0, tokens)) for table in decoder.tables], None)
    x = _filled(decoder, 1, tokens, decoder.model.hidden_size)  # (1, T, M)
    found, stack = [], decoder.rank.layers
    for layer in dict.fromkeys(stack):
        block = decoder.layers[stack.index(layer)]
        whole = median(time_calls(lambda: block(x, turn), repeats, synchronize))  # noqa: B023 - called at once
        core = _core_s(block.attention, tokens, repeats, synchronize, decoder) if block.attention is not None else 0.0
        found.append(LayerTime(layer, stack.count(layer), tokens, max(0.0, whole - core), core))
    return found


def _core_s(
    attention: Attention | LatentAttention, tokens: int, repeats: int, sync: Synchronize, decoder: Decoder
) -> float:
    q, k, v = (_filled(decoder, 1, heads, tokens, width) for heads, width in attention.prompt_shapes)
    return median(time_calls(lambda: attention.core(q, k, v), repeats, sync))
