"""Weights in another order give the same results; where the machine cannot, nothing changes."""

from __future__ import annotations

import pytest
import torch
from hub_models import CASES, attention, dense, furthest, prompts, spec

from kvplan.measure.decoder import packing
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.layouts import LAYOUTS, Layout, obstacle, packed_elements
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.packing import choose_layouts, pack_linears
from kvplan.measure.decoder.place import Place
from kvplan.measure.observe_cpu import CpuObserver
from kvplan.specs.layers import Layer, Mlp

PLACES = {
    name: Place(torch.device("cpu"), dtype) for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
}
TOLERANCE = {"fp32": 1.7e-5, "bf16": 0.0}
ORDERS = [("fp32", "onednn"), ("fp32", "columns"), ("bf16", "onednn")]


def machine_with(layout: str, dtype: str) -> Place:
    """Skips where the processor or this PyTorch does not have the order."""
    if reason := obstacle(layout, PLACES[dtype]):
        pytest.skip(f"this machine does not have {layout} for {dtype}: {reason}")
    return PLACES[dtype]


@pytest.mark.parametrize(("dtype", "layout"), ORDERS)
@pytest.mark.parametrize("name", ["llama-mha", "qwen2-biases", "mixtral", "gemma", "deepseek-v3"])
def test_another_order_gives_the_same_logits(name, dtype, layout):
    place = machine_with(layout, dtype)
    plain, arranged = (build_decoder(CASES[name].model, dtype=place.dtype, seed=1) for _ in range(2))
    chosen = choose_layouts(arranged, layouts=[layout])
    assert pack_linears(arranged, chosen).names == (layout,)
    assert set(chosen) == {(m.rows, m.columns) for m in plain.modules() if isinstance(m, Linear)}
    for tokens in (prompts(1, 1), prompts(2, 9)):
        assert furthest(arranged(tokens), plain(tokens)) <= TOLERANCE[dtype]


@pytest.mark.parametrize("rows", [1, 9])
def test_products_in_fp32_are_nearer_to_the_exact_ones(rows):
    """A bf16 matrix is exact in fp16, products and sums are fp32, and the result is rounded to bf16 once."""
    place = machine_with("fbgemm", "bf16")
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(300, 770, generator=generator) * 0.02).to(place.dtype)
    x, bias = (torch.randn(n, generator=generator).to(place.dtype) for n in (rows * 770, 300))
    linear = Linear(300, 770, place, bias=True)
    linear.weight.copy_(weight), linear.bias.copy_(bias)
    LAYOUTS["fbgemm"].arrange(linear, 1)
    exact = x.view(rows, 770).double() @ weight.double().T + bias.double()
    error = (linear(x.view(rows, 770)).double() - exact).abs()
    assert linear.weight is None
    assert (error <= exact.abs() * 2.0**-8 + 1e-5).all()  # half a step of bf16's 8 bits, and fp32's own noise


def test_a_matrix_beyond_fp16_is_left_as_it_is():
    place = machine_with("fbgemm", "bf16")
    linear = Linear(16, 512, place)
    linear.weight.zero_()[3, 7] = 70_000.0  # fp16 ends at 65504
    LAYOUTS["fbgemm"].arrange(linear, 1)
    assert linear.product is None
    assert linear(torch.ones(1, 512, dtype=place.dtype))[0, 3] == linear.weight[3, 7]


@pytest.mark.parametrize(("rows", "columns"), [(1001, 770), (4096, 768), (512, 2048)])
def test_the_padding_is_what_the_machine_takes(rows, columns):
    place = machine_with("fbgemm", "bf16")
    observer = CpuObserver()
    plain = [Linear(rows, columns, place) for _ in range(8)]
    for linear in plain:
        linear.weight.zero_()
        LAYOUTS["fbgemm"].arrange(linear, 1) if linear is plain[0] else None
    before = observer.used()
    for linear in plain[1:]:
        LAYOUTS["fbgemm"].arrange(linear, 1)
    added = packed_elements("fbgemm", rows, columns) - rows * columns  # (1008 x 1024, 4096 x 1024, 512 x 2048)
    # the processor's pages, 4096 bytes, and the heap's own words
    assert observer.used() - before == pytest.approx(7 * 2 * added, abs=7 * 3 * 4096)


def test_the_plain_matrices_are_gone():
    machine_with("onednn", "fp32")
    decoder = build_decoder(dense(attention(4, 2)))
    bytes_before = decoder.weight_bytes
    done = pack_linears(decoder, choose_layouts(decoder, layouts=["onednn"]))
    left = sum(p.nbytes for p in decoder.parameters())
    # embedding 97 x 48, 2 norms a layer and the final one; every other matrix is packed, none twice
    assert (left, done.copied_bytes, decoder.weight_bytes) == ((97 + 5) * 48 * 4, 0, bytes_before)
    assert choose_layouts(decoder) == {}


def test_a_tied_head_is_held_twice():
    machine_with("onednn", "fp32")
    decoder = build_decoder(dense(attention(4, 2), tied=True))
    before = decoder(prompts(1, 4))
    assert pack_linears(decoder, choose_layouts(decoder, layouts=["onednn"])).copied_bytes == 97 * 48 * 4
    assert furthest(decoder(prompts(1, 4)), before) <= TOLERANCE["fp32"]


def test_a_tied_head_by_columns_stays_one_matrix():
    decoder = build_decoder(dense(attention(4, 2), tied=True))
    before, count = decoder(prompts(1, 4)), sum(p.numel() for p in decoder.parameters())
    assert pack_linears(decoder, choose_layouts(decoder, layouts=["columns"])).copied_bytes == 0
    assert decoder.embedding is decoder.head.weight
    assert sum(p.numel() for p in decoder.parameters()) == count
    assert furthest(decoder(prompts(1, 4)), before) <= TOLERANCE["fp32"]


@pytest.mark.parametrize(
    ("seconds", "layout"),
    [
        ({"rows": [1.0], "columns": [0.9], "onednn": [0.8]}, "onednn"),
        ({"rows": [1.0], "columns": [0.7], "onednn": [0.8]}, "columns"),
        ({"rows": [1.0], "columns": [0.96], "onednn": [1.1]}, "rows"),  # not worth it
        ({"rows": [1.0, 4.0], "columns": [0.7, 16.0], "onednn": [0.9, 4.0]}, "onednn"),  # means 2.0, 3.3, 1.9
    ],
)
def test_the_fastest_order_is_taken_for_each_shape(monkeypatch, seconds, layout):
    monkeypatch.setattr(packing, "trial_seconds", lambda *_: seconds)
    assert packing.fastest(PLACES["fp32"], (64, 32), (1, 8), tuple(LAYOUTS)) == layout


def test_matrices_that_blocks_would_swell_are_left(monkeypatch):
    """64 columns of 512, and 512 of 512: only the second may lie in FBGEMM's order."""
    place = machine_with("fbgemm", "bf16")
    monkeypatch.setattr(packing, "fastest", lambda _place, _shape, _batches, names: names[-1])
    model = spec(Layer(attention=attention(4, 2), mlp=Mlp(intermediate_size=512)), hidden_size=64)
    chosen = choose_layouts(build_decoder(model, dtype=place.dtype), layouts=["rows", "fbgemm"])
    assert chosen[64, 512] == "fbgemm"
    assert chosen[1024, 64] == "rows"


@pytest.mark.parametrize("dtype", PLACES)
def test_trials_are_timed(monkeypatch, dtype):
    monkeypatch.setattr(packing, "TRIAL_BYTES", 2**16)
    chosen = choose_layouts(build_decoder(dense(attention(4, 2)), dtype=PLACES[dtype].dtype), (1, 3))
    assert len(chosen) == 5  # queries, keys and values; output; gate and up; down; head
    assert set(chosen.values()) <= set(LAYOUTS)


def test_orders_for_other_formats_are_not_tried():
    decoder = build_decoder(dense(attention(4, 2)), dtype=torch.bfloat16)
    assert choose_layouts(decoder, layouts=["columns"]) == {}
    assert obstacle("columns", PLACES["bf16"]) == "not for bfloat16"
    assert obstacle("fbgemm", PLACES["fp32"]) == "not for float32"


def test_without_the_operators_nothing_changes(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    decoder = build_decoder(dense(attention(4, 2)))
    before = decoder(prompts(1, 4))
    assert pack_linears(decoder, choose_layouts(decoder, layouts=["onednn"])).names == ("rows",)
    assert obstacle("onednn", PLACES["fp32"]) == f"PyTorch {torch.__version__} does not have it"
    assert torch.equal(decoder(prompts(1, 4)), before)


def test_a_machine_that_refuses_is_believed(monkeypatch):
    def refuse(*_):
        raise RuntimeError("needs another CPU\nand a second line")

    monkeypatch.setitem(LAYOUTS, "columns", Layout(refuse, (torch.float32,)))
    assert obstacle("columns", PLACES["fp32"]) == "needs another CPU"


def test_only_cpus_have_other_orders():
    place = Place(torch.device("meta"), torch.float32)
    assert obstacle("onednn", place) == "weights are put in another order on a CPU only"
    assert obstacle("rows", place) is None


def test_packed_weights_cannot_be_loaded():
    machine_with("onednn", "fp32")
    decoder = build_decoder(dense(attention(4, 2)))
    pack_linears(decoder, choose_layouts(decoder, layouts=["onednn"]))
    with pytest.raises(ValueError, match="load weights before packing"):
        dict(decoder.slots())
