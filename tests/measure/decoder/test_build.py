"""From model files to decoders: parameters to the last one, and refusals that name the kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hub_models import CASES, attention, dense, furthest, prompts, spec

from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.measure.decoder.build import build_decoder, with_layers
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.parallel import Group
from kvplan.memory.parameters import parameters
from kvplan.sharding import shard
from kvplan.specs.layers import Attention, Layer, Mlp, Moe, Rope
from kvplan.specs.model import ModelSpec

# one of every arrangement that runs: norms 1, 2, 4, layer norms with and without biases or parameters, biases,
# learned positions, a norm after the embedding, partial rotation, no positions, per-layer shapes, shared experts,
# latents with and without compressed queries, sinks with values as wide as keys and not
ZOO = (
    "llama-3.2-1b mistral-7b-v0.1 qwen2-0.5b qwen3-0.6b mixtral-8x7b qwen3-30b-a3b gemma-2b gemma-2-2b gemma-3-1b "
    "qwen1.5-moe-a2.7b gpt2 openelm-270m olmo-1b olmo-2-1b phi-2 smollm3-3b falcon-7b falcon-40b bloom-560m opt-125m "
    "command-r command-r-plus llama-4-scout stablelm-2-12b minimax-m2 glm-4.5-air starcoder2-3b gpt-j-6b mpt-7b "
    "deepseek-v2-lite deepseek-v3 kimi-k2 glm-4.7-flash moonlight-16b-a3b minicpm3-4b "
    "gpt-oss-20b mimo-v2-flash"
)


def shrunk(model: ModelSpec) -> ModelSpec:
    """A model of the same kinds of layers, small enough to build: widths and counts cut, relations kept."""
    small = {id(layer): _small(layer) for layer in model.stack[:6]}
    cut = with_layers(model, min(6, len(model.stack)))
    return replace(
        cut,
        stack=tuple(small[id(layer)] for layer in cut.stack),
        hidden_size=32,
        vocab_size=61,
        learned_positions=model.learned_positions and 64,
        rope=_small_rope(model.rope),
    )


def _small(layer: Layer) -> Layer:
    a, m, mlp, moe = layer.attention, layer.latent, layer.mlp, layer.moe
    return replace(
        layer,
        attention=a and _small_attention(a),
        latent=m and replace(m, heads=3, q_rank=m.q_rank and 24, kv_rank=20, rope_dim=4, nope_dim=12, v_dim=8),
        mlp=mlp and replace(mlp, intermediate_size=24),
        moe=moe and replace(moe, experts=5, here=5, active=2, intermediate_size=12, shared_size=moe.shared_size and 20),
    )


def _small_attention(a: Attention) -> Attention:
    kv_heads = min(a.kv_heads, 2)
    return replace(
        a,
        heads=kv_heads * min(a.heads // a.kv_heads, 3),
        kv_heads=kv_heads,
        head_dim=16,
        v_head_dim=16,
        window=a.window and 5,
        chunk=a.chunk and 5,
        rope=_small_rope(a.rope),
    )


def _small_rope(rope: Rope | str | None) -> Rope | str | None:
    return replace(rope, dim=rope.dim and 8) if isinstance(rope, Rope) else rope


@pytest.fixture(params=ZOO.split())
def tiny(request):
    return shrunk(load_model(request.param))


def test_parameters_are_those_of_the_estimate(tiny):
    assert sum(p.numel() for p in build_decoder(tiny).parameters()) == parameters(tiny)


def test_slots_cover_every_parameter_once(tiny):
    decoder = build_decoder(tiny)
    assert sum(slot.target.numel() for _, slot in decoder.slots()) == parameters(tiny)


def test_steps_give_what_recomputing_gives(tiny):
    decoder, tokens = build_decoder(tiny), prompts(2, 14) % 61
    cache = ContiguousCache(decoder, batch=2, capacity=14)
    whole = decoder(tokens)
    found = [decoder.prefill(tokens[:, :8], cache)] + [decoder.step(tokens[:, i], cache) for i in range(8, 14)]
    assert furthest(torch.stack(found, dim=1), whole[:, 7:]) < 5e-5 * max(1.0, float(whole.abs().max()))


def test_a_whole_small_model_of_the_zoo():
    model = load_model("smollm2-135m")
    decoder = build_decoder(model, layers=2, dtype=torch.bfloat16)
    cut = with_layers(model, 2)
    # by hand: 49,152 x 576 embedding, 576 final norm, and 2 layers of 3 x 576 x 1536 MLP, (576 + 2 x 192) x 576 for
    # queries, keys and values, 576 x 576 output and 2 x 576 norms
    by_hand = 49152 * 576 + 576 + 2 * (3 * 576 * 1536 + 960 * 576 + 576 * 576 + 2 * 576)
    assert sum(p.numel() for p in decoder.parameters()) == parameters(cut) == by_hand
    assert decoder.weight_bytes == 2 * by_hand


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (build_decoder(CASES["llama-mha"].model, seed=seed) for seed in (1, 1, 2))
    tokens = prompts(1, 5)
    assert torch.equal(first(tokens), again(tokens))
    assert not torch.equal(first(tokens), other(tokens))


def test_random_matrices_keep_the_variance():
    weight = build_decoder(dense(attention(4, 4), vocab_size=5000)).embedding
    assert float(weight.var()) == pytest.approx(1 / 48, rel=0.02)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("deepseek-v3.2", "sparse attention with an indexer (DeepSeek-V3.2)"),
        ("minimax-m3", "sparse attention with an indexer (MiniMax M3)"),
        ("kimi-linear", "recurrent state (kimi delta)"),
        ("falcon-h1-0.5b", "recurrent state (mamba2)"),
        ("qwen3-next-80b-a3b", "recurrent state (delta)"),
        ("lfm2-1.2b", "recurrent state (short conv)"),
        ("gemma-3n-e2b", "per-layer inputs (Gemma 3n, Gemma 4)"),
        ("opt-350m", "a projected embedding (OPT-350m)"),
        ("phi-4-mini", "rotary scaling 'longrope'"),
    ],
)
def test_kinds_that_are_not_run(model, kind):
    with pytest.raises(InputError) as refused:
        build_decoder(load_model(model))
    assert str(refused.value) == f"{model} has {kind}, which kvplan's own decoder does not run"


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (dense(attention(4, 4, value_from_key=True)), "values taken from the keys"),
        (dense(attention(4, 4, cache_of="layer")), "layers that read another layer's cache"),
        (dense(attention(4, 4, output_gate=True, qkv_bias=True)), "an output gate together with biases"),
        (spec(Layer(attention=attention(4, 4), norms=3)), "layers with 3 norms"),
        (spec(Layer(norms=1)), "empty layers"),
        (dense(attention(4, 4), rope=Rope(scaling="yarn", factor=4.0)), "rotary scaling 'yarn' without its factor and"),
        (spec(Layer(moe=Moe(experts=4, active=2, intermediate_size=8, latent_size=8))), "experts in a latent width"),
    ],
)
def test_shapes_that_are_not_run(model, kind):
    with pytest.raises(InputError, match=f"^tiny has {kind}".replace("(", r"\(")):
        build_decoder(model)


def test_full_width_norms_cannot_be_divided():
    model = dense(attention(4, 4, qk_norm="full"))
    with pytest.raises(InputError, match="norms over the full width, which tp would divide"):
        build_decoder(shard(model, 2)[0], group=Group(0, 2))


@pytest.mark.parametrize("layers", [0, 3])
def test_layers_outside_the_model(layers):
    with pytest.raises(InputError, match=f"--layers {layers}: tiny has 2 layers, so it is from 1 to that"):
        build_decoder(dense(attention(4, 4)), layers=layers)


def test_learned_positions_end():
    decoder = build_decoder(dense(attention(4, 4), rope="none", learned_positions=8))
    with pytest.raises(InputError, match="tiny has learned positions for 8 tokens, not 9"):
        ContiguousCache(decoder, capacity=9)


def test_an_output_gate_and_norms_for_each_head():
    model = dense(attention(4, 2, output_gate=True, qk_norm="each"))
    decoder, tokens = build_decoder(model), prompts(1, 6)
    assert sum(p.numel() for p in decoder.parameters()) == parameters(model)
    cache = ContiguousCache(decoder, capacity=6)
    decoder.prefill(tokens[:, :5], cache)
    assert furthest(decoder.step(tokens[:, 5], cache), decoder(tokens)[:, -1]) < 5e-5


def test_an_mlp_may_stand_alone():
    model = spec(Layer(attention=attention(4, 2), norms=1), Layer(mlp=Mlp(intermediate_size=16, gated=False), norms=1))
    assert sum(p.numel() for p in build_decoder(model).parameters()) == parameters(model)
