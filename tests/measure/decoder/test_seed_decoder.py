"""The project's worked figures D1 to D12, on the decoder's own modules."""

from __future__ import annotations

import math

import pytest
import torch
from hub_models import attention, dense, furthest, prompts
from torch.nn.functional import silu

from kvplan.arithmetic import ceil_div
from kvplan.loading import load_model
from kvplan.measure.decoder.attend import explicit, grouped, scores
from kvplan.measure.decoder.attention import Attention, Turn
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.mlp import Mlp
from kvplan.measure.decoder.norms import RMSNorm
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.parallel import ALONE
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.rope import RopeTable, cos_sin, frequencies, rotate
from kvplan.specs import layers as shape
from kvplan.specs.layers import Rope

HERE = Place(torch.device("cpu"), torch.float32)
UPI = [1.0, 1, 1, 0]
DOWN = [0.0, 2, 1, 1]
HEAD_1 = ([[1, 0], [0, 1], [1, 0], [0, 1]], [[1, 0], [0, 1], [0, 1], [1, 0]], [[1, 1], [0, 1], [1, 0], [0, 0]])
HEAD_2 = ([[1, 0], [1, 0], [1, 1], [0, 0]], [[1, 3], [0, 0], [0, 0], [1, 1]], [[1, 2], [0, 0], [0, 0], [3, 1]])


def two_words(heads, down):
    """Queries, keys, values of (down, UPI), and the block's output for UPI, which comes last and so sees both."""
    a = shape.Attention(heads=len(heads), head_dim=2, v_head_dim=2)
    block = Attention(a, 4, Numerics(), HERE, ALONE)
    parts = [torch.cat([torch.tensor(head[i], dtype=torch.float32).T for head in heads]) for i in range(3)]
    block.qkv.weight.copy_(torch.cat(parts))  # (3 x heads x 2, 4): all queries, all keys, all values
    block.o.weight = None
    block.o.forward = lambda x: x  # W_O is the identity; with one head the output has its width of 2
    turn, x = Turn([], None), torch.tensor([[down, UPI]])
    qk, v, _ = block.qkv(x).split(block.widths, dim=-1)
    q, k, v = block.heads_of(qk, v, turn)
    return q[0], k[0], v[0], block(x, turn)[0, 1]


def near(found, wanted, digits=4):
    assert found.tolist() == pytest.approx(wanted, abs=0.6 * 10**-digits)


def test_d1_one_head():
    q, k, v, out = two_words([HEAD_1], DOWN)
    assert q[:, 0].tolist() == [[1, 3], [2, 1]]  # down, UPI
    assert k[:, 0].tolist() == [[1, 3], [1, 2]]
    assert v[:, 0].tolist() == [[1, 2], [2, 2]]
    scaled = scores(q[1], k[:, 0]).flatten()
    near(scaled * math.sqrt(2), [5, 4])
    near(scaled, [3.5355, 2.8284])
    near(scaled.softmax(0), [0.6698, 0.3302])
    near(out, [1.3302, 2.0000])


def test_d2_a_second_head_and_the_concatenation():
    q, k, v, out = two_words([HEAD_1, HEAD_2], DOWN)
    assert q[1, 1].tolist() == [3, 1]
    assert k[:, 1].tolist() == [[1, 1], [1, 3]]
    assert v[:, 1].tolist() == [[3, 1], [1, 2]]
    scaled = scores(q[1, 1:], k[:, 1]).flatten()
    near(scaled * math.sqrt(2), [4, 6])
    near(scaled, [2.8284, 4.2426])
    near(scaled.softmax(0), [0.1956, 0.8044])
    near(out, [1.3302, 2.0000, 1.3911, 1.8044])


def test_d3_another_word_beside_it():
    q, k, v, out = two_words([HEAD_1], [0.0, 4, 1, 1])
    assert (k[0, 0].tolist(), v[0, 0].tolist()) == ([1, 5], [1, 4])
    scaled = scores(q[1], k[:, 0]).flatten()
    near(scaled * math.sqrt(2), [7, 4])
    near(scaled.softmax(0), [0.893, 0.107], digits=3)
    near(out, [1.107, 3.786], digits=3)


@pytest.mark.parametrize("width", [64, 128])
def test_d4_scaled_scores_have_variance_1(width):
    q, k = torch.randn(2, 500, width, generator=torch.Generator().manual_seed(0))
    scaled = scores(q, k)  # 250,000 dot products
    assert float(scaled.std()) == pytest.approx(1, rel=0.02)
    assert float((q @ k.T).std()) == pytest.approx(math.sqrt(width), rel=0.02)


def test_d5_rotated_products_depend_on_the_distance_only():
    cos, sin = cos_sin(torch.tensor([0.3]), torch.arange(16))
    x = torch.tensor([[1.0, 0.0]])
    turned = [rotate(x, cos[m], sin[m]) for m in range(16)]
    near((turned[2] * turned[5]).sum(), 0.6216)  # cos(3 x 0.3)
    near((turned[10] * turned[13]).sum(), 0.6216)


@pytest.mark.parametrize("path", [grouped, explicit])
def test_d6_without_positions_rows_permute_with_the_input(path):
    x = torch.randn(1, 1, 9, 16, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
    permuted = x[:, :, order]
    assert furthest(path(permuted, permuted, permuted), path(x, x, x)[:, :, order]) < 1e-6


@pytest.mark.parametrize("rows", [1, 17])  # few rows take another way on a CPU
def test_d7_rms_norm_subtracts_no_mean(rows):
    norm = RMSNorm(4, Numerics(norm_eps=0.0), HERE)
    norm.weight.copy_(torch.tensor([1.0, 1, 1, 2]))
    # mean of squares (1 + 9 + 9 + 81) / 4 = 25, so each is divided by 5
    for row in norm(torch.tensor([1.0, 3, 3, 9]).expand(rows, 4)):
        near(row, [0.2, 0.6, 0.6, 3.6])


def test_d8_swiglu():
    mlp = Mlp(6, 10, "silu", HERE)
    gate, up, down = torch.randn(10, 6), torch.randn(10, 6), torch.randn(6, 10)
    mlp.up.weight.copy_(torch.cat((gate, up)))
    mlp.down.weight.copy_(down)
    x = torch.randn(3, 6)
    assert furthest(mlp(x), (silu(x @ gate.T) * (x @ up.T)) @ down.T) < 1e-4
    # two thirds of 4 x 4096 keep three matrices at the size of two: 10,923, up to a multiple of 256 11,008
    llama = load_model("llama-7b").stack[0].mlp
    assert llama is not None
    assert llama.intermediate_size == 256 * ceil_div(ceil_div(2 * 4 * 4096, 3), 256) == 11008


def test_d9_order_of_operations():
    decoder = build_decoder(dense(attention(6, 3)))
    block, x = decoder.layers[0], torch.randn(2, 5, 48)
    decoder.reserve_positions(5)
    turn = Turn([table.at(slice(0, 5)) for table in decoder.tables], None)
    middle = x + block.attention(block.attention_in(x), turn)
    assert torch.equal(block(x, turn), middle + block.mlp(block.mlp_in(middle)))


def test_d10_the_cache_gives_the_logits_of_full_recomputation():
    decoder, tokens = build_decoder(dense(attention(6, 3))), prompts(2, 12)
    cache = ContiguousCache(decoder, batch=2, capacity=12)
    for i in range(12):
        assert furthest(decoder.step(tokens[:, i], cache), decoder(tokens[:, : i + 1])[:, -1]) < 2e-5


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_d11_query_weights_do_not_depend_on_the_number_of_heads(heads):
    a = shape.Attention(heads=heads, head_dim=64 // heads, v_head_dim=64 // heads)
    slots = dict(Attention(a, 64, Numerics(), HERE, ALONE).slots(a))
    assert slots["q_proj.weight"].target.numel() == 64**2


def test_d12_positional_interpolation_scales_positions():
    rope = Rope(theta=10000.0, scaling="linear", factor=4.0)  # trained on a quarter of the wanted length
    table = RopeTable(rope, 16, HERE)
    table.reserve(64)
    cos, sin = cos_sin(frequencies(Rope(theta=10000.0), 16), torch.arange(64) / 4)
    assert furthest(table.cos, cos) < 1e-6
    assert furthest(table.sin, sin) < 1e-6
