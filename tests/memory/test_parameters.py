"""Counts worked by hand for small models; the zoo's published totals check the rest (tests/specs/test_model_zoo.py)."""

from __future__ import annotations

import pytest

from kvplan.loading import load_model
from kvplan.memory.parameters import active_parameters, distinct_layers, edge_tensors, parameters, widths_of
from kvplan.memory.tensors import layer_tensors, stored_tensors
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec, load_model_node
from kvplan.specs.reader import read_text

HEAD = "name: m\nhidden_size: 64\nvocab_size: 100\n"


def load(text: str) -> ModelSpec:
    return load_model_node(read_text(HEAD + text, "m.yaml"), "m.yaml")


# hidden 64, vocabulary 100: an embedding is 6400, a norm vector 64. Everything is written out as rows * columns.
ATTENTION = 64 * 64 + 2 * (16 * 64) + 64 * 64  # 4 heads of 16, 1 KV head
MLP = 3 * 96 * 64
EDGE = 6400 + 64 + 6400
DENSE = "layers: 2\nlayer: {attention: {heads: 4, kv_heads: 1%s}, mlp: {intermediate_size: 96%s}}\n"

BY_HAND = [
    pytest.param(DENSE % ("", ""), EDGE + 2 * (ATTENTION + MLP + 128), id="gqa-untied"),
    pytest.param("tied: true\n" + DENSE % ("", ""), EDGE - 6400 + 2 * (ATTENTION + MLP + 128), id="tied"),
    pytest.param("norm: none\n" + DENSE % ("", ""), EDGE - 64 + 2 * (ATTENTION + MLP), id="norms-without-weights"),
    pytest.param("norm: layer\n" + DENSE % ("", ""), EDGE + 64 + 2 * (ATTENTION + MLP + 256), id="layer-norm"),
    pytest.param(
        DENSE % (", qkv_bias: true, out_bias: true", ", gated: false, bias: true"),
        EDGE + 2 * (ATTENTION + 64 + 16 + 16 + 64 + 2 * 96 * 64 + 96 + 64 + 128),
        id="biases-and-plain-mlp",
    ),
    pytest.param(DENSE % (", qk_norm: head", ""), EDGE + 2 * (ATTENTION + 32 + MLP + 128), id="norm-of-a-head"),
    pytest.param(DENSE % (", qk_norm: full", ""), EDGE + 2 * (ATTENTION + 80 + MLP + 128), id="norm-of-all-heads"),
    pytest.param(
        DENSE % (", head_dim: 16, v_head_dim: 8", ""),
        EDGE + 2 * (64 * 64 + 16 * 64 + 8 * 64 + 64 * 32 + MLP + 128),
        id="narrow-values",
    ),
    pytest.param(
        "learned_positions: 50\nhead_bias: true\nfinal_norm: false\n" + DENSE % ("", ""),
        EDGE + 50 * 64 + 100 - 64 + 2 * (ATTENTION + MLP + 128),
        id="positions-and-head-bias",
    ),
    pytest.param(
        "tied: true\nembedding_size: 32\n" + DENSE % ("", ""),
        3200 + 64 + 2 * 64 * 32 + 2 * (ATTENTION + MLP + 128),
        id="narrow-embedding",
    ),
    pytest.param(
        "layers: 1\nlayer: {latent: {heads: 2, kv_rank: 8, rope_dim: 4, nope_dim: 6, v_dim: 5}, norms: 1}\n",
        EDGE + 2 * 10 * 64 + 12 * 64 + 8 + 2 * 11 * 8 + 64 * 10 + 64,
        id="latent",
    ),
    pytest.param(
        "layers: 1\nlayer: {mamba2: {heads: 4, head_dim: 8, state: 16, conv: 4}, norms: 1}\n",
        # input: gate 32, x 32, B and C 2*16, time step 4; kernel and bias of 64 channels; A, D, dt; norm; output
        EDGE + (32 + 64 + 4) * 64 + 64 * 5 + 12 + 32 + 64 * 32 + 64,
        id="mamba2",
    ),
    pytest.param("layers: 1\nlayer: {short_conv: {conv: 3}}\n", EDGE + 4 * 64 * 64 + 3 * 64 + 128, id="convolution"),
    pytest.param("layers: 3\nlayer: {norms: 1}\n", EDGE + 3 * 64, id="layers-without-a-mixer"),
]


@pytest.mark.parametrize(("text", "count"), BY_HAND)
def test_parameters_worked_by_hand(text: str, count: int) -> None:
    spec = load(text)
    assert parameters(spec) == count
    assert active_parameters(spec) == count  # no experts, no shared blocks


def test_a_real_model_worked_by_hand() -> None:
    """Qwen3-0.6B: hidden 1024, 28 layers, 16 heads and 8 KV heads of 128, MLP 3072, vocabulary 151936, tied."""
    layer = 2 * 2048 * 1024 + 2 * 1024 * 1024 + 2 * 128 + 3 * 3072 * 1024 + 2 * 1024
    assert parameters(load_model("qwen3-0.6b")) == 151936 * 1024 + 28 * layer + 1024 == 596_049_920


def test_a_token_passes_through_the_experts_it_uses() -> None:
    spec = load("layers: 1\nlayer: {moe: {experts: 8, active: 2, intermediate_size: 32, shared_size: 16}, norms: 1}\n")
    expert, rest = 3 * 32 * 64, EDGE + 8 * 64 + 3 * 16 * 64 + 64  # router, shared expert, norm
    assert parameters(spec) == rest + 8 * expert
    assert active_parameters(spec) == rest + 2 * expert


def test_shared_weights_are_kept_once() -> None:
    block = ATTENTION + MLP + 128
    kinds = "layers: a, 2 again\nkinds:\n  a: {attention: {heads: 4, kv_heads: 1}, mlp: {intermediate_size: 96}}\n"
    spec = load(kinds + "  again: {weights_of: a}\n")
    assert parameters(spec) == EDGE + block
    assert active_parameters(spec) == EDGE + block


def test_what_each_use_of_a_shared_block_adds_is_kept_for_each() -> None:
    kinds = (
        "layers: a, 2 again\nkinds:\n  a: {mlp: {intermediate_size: 96}, use_projection: true, use_adapter_rank: 4}\n"
    )
    spec = load(kinds + "  again: {weights_of: a}\n")
    adapter = 64 * 64 + 4 * 64 + 2 * 96 * 4  # output projection; hidden to rank, rank to gate and up
    assert parameters(spec) == EDGE + MLP + 128 + 3 * adapter


def test_layers_that_read_a_cache_keep_their_own_weights() -> None:
    kinds = "layers: a, b\nlayer: {attention: {heads: 4, kv_heads: 1}}\nkinds: {a: {}, b: {attention: {cache_of: a}}}\n"
    assert parameters(load(kinds)) == EDGE + 2 * (ATTENTION + 128)


def test_distinct_layers_keep_their_order_and_number() -> None:
    spec = load("layers: 2 (2 a, b)\nkinds: {a: {norms: 1}, b: {norms: 3}}\n")
    assert [(layer.norms, count) for layer, count in distinct_layers(spec.stack)] == [(1, 4), (3, 2)]


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "deepseek-v3", "qwen3.5-9b", "gemma-3n-e4b", "zamba2-2.7b", "gpt-oss-20b"]
)
def test_stored_tensors_are_the_tensors_of_a_layer_unless_it_borrows(name: str) -> None:
    spec = load_model(name)
    (rank,) = shard(spec)
    widths = widths_of(spec)
    stored = sum(t.parameters for layer in rank.layers for t in stored_tensors(layer, widths))
    assert parameters(spec) == stored + sum(t.parameters for t in edge_tensors(rank))
    for layer in set(rank.layers):
        names = [(t.component, t.name) for t in layer_tensors(layer, widths)]
        assert len(names) == len(set(names)), "a tensor of a layer has a name of its own"
        assert layer.weights_of or list(stored_tensors(layer, widths)) == list(layer_tensors(layer, widths))


def test_pipeline_stages_hold_every_tensor_and_a_tied_head_once_more() -> None:
    for name, tied in (("llama-3.1-8b", False), ("llama-3.2-1b", True)):
        spec = load_model(name)
        widths = widths_of(spec)
        ranks = shard(spec, pp=2)
        held = sum(t.parameters for rank in ranks for layer in rank.layers for t in stored_tensors(layer, widths))
        held += sum(t.parameters for rank in ranks for t in edge_tensors(rank))
        assert held - parameters(spec) == (spec.vocab_size * spec.hidden_size if tied else 0)
