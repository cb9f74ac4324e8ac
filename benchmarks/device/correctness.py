"""The decoder on the device against the same weights on the CPU, in fp32: prompt, steps, captured graph, blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.paged import BlockPool
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.cuda_graph import GraphedDecode
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.parallel import copy_weights
from kvplan.measure.rows import Row, row
from kvplan.specs.layers import Attention, Latent, Layer, Mlp, Moe
from kvplan.specs.model import ModelSpec

BATCH, PROMPT, STEPS = 2, 40, 8
TOLERANCE = 2e-4  # of logits of a few units: kernels add in other orders; tf32 is off


def model_of(layer: Layer, name: str) -> ModelSpec:
    return ModelSpec(
        name=name, hidden_size=256, vocab_size=1000, layers=3, stack=(layer,) * 3, stack_kinds=("layer",) * 3
    )


def attention_of(heads: int, kv_heads: int, **more: Any) -> Attention:
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=64, v_head_dim=64, **more)


MLP = Mlp(intermediate_size=512)
MODELS = {
    "mha": Layer(attention=attention_of(4, 4), mlp=MLP),
    "gqa": Layer(attention=attention_of(8, 2), mlp=MLP),
    "mqa": Layer(attention=attention_of(6, 1), mlp=MLP),
    "window": Layer(attention=attention_of(8, 2, window=16), mlp=MLP),
    "qk-norm": Layer(attention=attention_of(8, 2, qk_norm="head"), mlp=MLP),
    "sinks": Layer(attention=attention_of(8, 2, sinks=True), mlp=MLP),
    "latent": Layer(latent=Latent(heads=8, q_rank=96, kv_rank=128, rope_dim=32, nope_dim=64, v_dim=64), mlp=MLP),
    "moe": Layer(attention=attention_of(8, 2), moe=Moe(experts=4, active=2, intermediate_size=256)),
}


def correctness_rows(device: str) -> Iterator[Row]:
    """The largest difference of any logit, for each kind of model and way of running it."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, layer in MODELS.items():
        model = model_of(layer, name)
        reference = build_decoder(model)
        there = build_decoder(model, device=device)
        copy_weights(reference, there)
        expected = _plain(reference)
        for way, run in (("contiguous", _plain), ("graph", _graphed), ("paged", _paged)):
            difference = float((run(there).cpu() - expected).abs().max())
            limit = TOLERANCE * max(1.0, float(expected.abs().max()))
            yield row(f"logits_{name}_{way}", "1", predicted=0, observed=difference, low=0, high=limit)


def _tokens(decoder: Decoder) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, decoder.model.vocab_size, (BATCH, PROMPT + STEPS), generator=generator)
    return tokens.to(decoder.place.device)


def _plain(decoder: Decoder) -> torch.Tensor:
    return _steps(decoder, ContiguousCache(decoder, batch=BATCH, capacity=PROMPT + STEPS))


def _steps(decoder: Decoder, cache: ContiguousCache) -> torch.Tensor:
    tokens = _tokens(decoder)
    found = [decoder.prefill(tokens[:, :PROMPT], cache)]
    found += [decoder.step(tokens[:, PROMPT + i], cache) for i in range(STEPS)]
    return torch.stack(found)


def _graphed(decoder: Decoder) -> torch.Tensor:
    tokens = _tokens(decoder)
    cache = StaticCache(decoder, batch=BATCH, capacity=PROMPT + STEPS)
    found = [decoder.prefill(tokens[:, :PROMPT], cache)]
    cache.seek(PROMPT)
    graph = GraphedDecode(decoder, cache)
    found += [graph.step(tokens[:, PROMPT + i]).clone() for i in range(STEPS)]
    return torch.stack(found)


def _paged(decoder: Decoder) -> torch.Tensor:
    tokens = _tokens(decoder)
    pool = BlockPool(decoder, blocks=BATCH * (PROMPT + STEPS))
    cache = pool.batch([pool.open() for _ in range(BATCH)])
    found = [decoder.prefill(tokens[:, :PROMPT], cache)]
    found += [decoder.step(tokens[:, PROMPT + i], cache) for i in range(STEPS)]
    return torch.stack(found)
