"""The activation formula against the allocator's events, for every kind of layer that it knows."""

# ruff: noqa: E402 - without PyTorch the rest cannot be imported
from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hub_models import INNER, attention, dense, spec

from kvplan.measure.activations import Pass, activation_line
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.layouts import obstacle
from kvplan.measure.decoder.packing import choose_layouts, pack_linears
from kvplan.measure.decoder.place import Place
from kvplan.measure.observe_cpu import allocator_peak
from kvplan.specs.layers import Latent, Layer, Mlp, Moe
from kvplan.specs.model import ModelSpec

WIDE = Mlp(intermediate_size=1200)


def latent(q_rank: int | None, v_dim: int) -> ModelSpec:
    """Wide enough that attention is the highest point."""
    m = Latent(heads=32, q_rank=q_rank, kv_rank=64, rope_dim=8, nope_dim=24, v_dim=v_dim)
    return spec(Layer(latent=m, mlp=Mlp(intermediate_size=INNER)))


MODELS = {
    "gated MLP": spec(Layer(attention=attention(6, 2), mlp=WIDE), hidden_size=48),
    "plain MLP": spec(Layer(attention=attention(6, 6), mlp=Mlp(intermediate_size=1200, gated=False, bias=True))),
    "wide attention": dense(attention(64, 8)),
    "norms of queries": dense(attention(64, 8, qk_norm="head")),
    "sinks": dense(attention(64, 8, sinks=True)),
    "sinks and a window": dense(attention(64, 8, sinks=True, window=40)),
    "sinks by two products": dense(replace(attention(12, 4, sinks=True), v_head_dim=12)),
    "sinks and a window by two products": dense(replace(attention(48, 4, sinks=True, window=40), v_head_dim=12)),
    "window": dense(attention(64, 8, window=40)),
    "attention alone": spec(Layer(attention=attention(48, 8), norms=1), Layer(mlp=WIDE, norms=1)),
    "side by side": spec(Layer(attention=attention(6, 2), mlp=WIDE, norms=1)),
    "four norms": spec(Layer(attention=attention(6, 2), mlp=WIDE, norms=4)),
    "no positions": dense(attention(64, 8), rope="none"),
    "large vocabulary": dense(attention(6, 2), vocab_size=40000),
    "latent": latent(q_rank=None, v_dim=24),
    "compressed queries": latent(q_rank=96, v_dim=32),  # values as wide as keys
    "shared expert": spec(
        Layer(attention=attention(6, 2), moe=Moe(experts=4, active=2, intermediate_size=16, shared_size=900))
    ),
}


@pytest.mark.parametrize(
    ("dtype", "layout"), [(torch.float32, "rows"), (torch.bfloat16, "rows"), (torch.bfloat16, "fbgemm")], ids=str
)
@pytest.mark.parametrize(("batch", "tokens"), [(1, 96), (3, 200), (1, 800)])
@pytest.mark.parametrize("name", MODELS)
def test_within_five_percent_of_the_events(name: str, batch: int, tokens: int, dtype: torch.dtype, layout: str) -> None:
    if reason := obstacle(layout, Place(torch.device("cpu"), dtype)):
        pytest.skip(f"this machine does not have {layout}: {reason}")
    decoder = build_decoder(MODELS[name], dtype=dtype)
    chosen = choose_layouts(decoder, layouts=[layout])
    pack_linears(decoder, chosen)
    in_fp32 = frozenset(chosen) if layout == "fbgemm" else frozenset()
    cache = ContiguousCache(decoder, batch=batch, capacity=tokens)
    prompt = torch.zeros(batch, tokens, dtype=torch.int64)

    def prefill() -> None:
        cache.seek(0)
        decoder.prefill(prompt, cache)

    prefill()
    observed = allocator_peak(prefill)
    line = activation_line(decoder.rank, Pass(batch, tokens, tokens, dtype.itemsize, "cpu", fp32_products=in_fp32))
    assert line.bytes == pytest.approx(observed, rel=0.05), line.source
    assert eval(line.formula, {}, dict(line.terms)) == line.bytes


def test_the_events_are_the_same_every_time() -> None:
    x = torch.ones(1000, 1000)
    (peak,) = {allocator_peak(lambda: (x + x) * 2) for _ in range(3)}
    assert peak == pytest.approx(2 * x.nbytes, abs=64)  # the sum lives while the product is made
