"""Weights in another order give the same results; where the machine cannot, nothing changes."""

from __future__ import annotations

import pytest
import torch
from hub_models import CASES, attention, dense, furthest, prompts

from kvplan.measure.decoder import packing
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.packing import obstacle, pack_linears
from kvplan.measure.decoder.place import Place

PLACES = {
    name: Place(torch.device("cpu"), dtype) for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
}
TOLERANCE = {"fp32": 1.7e-5, "bf16": 0.0}
PACKED = ("packed",)


@pytest.mark.parametrize(("dtype", "layout"), [("fp32", "packed"), ("fp32", "columns"), ("bf16", "packed")])
@pytest.mark.parametrize("name", ["llama-mha", "qwen2-biases", "mixtral", "gemma"])
def test_another_order_gives_the_same_logits(name, dtype, layout):
    place = PLACES[dtype]
    if layout == "packed" and (reason := obstacle(place)):
        pytest.skip(f"this machine does not pack {dtype}: {reason}")
    plain, arranged = (build_decoder(CASES[name].model, dtype=place.dtype, seed=1) for _ in range(2))
    done = pack_linears(arranged, layouts=[layout])
    assert set(done.layouts.values()) == {layout}
    assert set(done.layouts) == {(m.rows, m.columns) for m in plain.modules() if isinstance(m, Linear)}
    for tokens in (prompts(1, 1), prompts(2, 9)):
        assert furthest(arranged(tokens), plain(tokens)) <= TOLERANCE[dtype]


def test_the_plain_matrices_are_gone():
    if reason := obstacle(PLACES["fp32"]):
        pytest.skip(reason)
    decoder = build_decoder(dense(attention(4, 2)))
    bytes_before = decoder.weight_bytes
    done = pack_linears(decoder, layouts=PACKED)
    left = sum(p.nbytes for p in decoder.parameters())
    # embedding 97 x 48, 2 norms a layer and the final one; every other matrix is packed, none twice
    assert (left, done.copied_bytes, decoder.weight_bytes) == ((97 + 5) * 48 * 4, 0, bytes_before)
    assert pack_linears(decoder).layouts == {}


@pytest.mark.parametrize(("tied_head", "copied"), [(True, 97 * 48 * 4), (False, 0)])
def test_a_tied_head_is_held_twice_or_left(tied_head, copied):
    if reason := obstacle(PLACES["fp32"]):
        pytest.skip(reason)
    decoder = build_decoder(dense(attention(4, 2), tied=True))
    before = decoder(prompts(1, 4))
    assert pack_linears(decoder, layouts=PACKED, tied_head=tied_head).copied_bytes == copied
    assert furthest(decoder(prompts(1, 4)), before) <= TOLERANCE["fp32"]


def test_a_tied_head_by_columns_stays_one_matrix():
    decoder = build_decoder(dense(attention(4, 2), tied=True))
    before, count = decoder(prompts(1, 4)), sum(p.numel() for p in decoder.parameters())
    assert pack_linears(decoder, layouts=["columns"]).copied_bytes == 0
    assert decoder.embedding is decoder.head.weight
    assert sum(p.numel() for p in decoder.parameters()) == count
    assert furthest(decoder(prompts(1, 4)), before) <= TOLERANCE["fp32"]


@pytest.mark.parametrize(
    ("seconds", "layout"),
    [
        ({"rows": 1.0, "columns": 0.9, "packed": 0.8}, "packed"),
        ({"rows": 1.0, "columns": 0.7, "packed": 0.8}, "columns"),
        ({"rows": 1.0, "columns": 0.96, "packed": 1.1}, "rows"),  # not worth it
    ],
)
def test_the_fastest_order_is_taken_for_each_shape(monkeypatch, seconds, layout):
    monkeypatch.setattr(packing, "trial_seconds", lambda *_: seconds)
    assert packing.fastest(PLACES["fp32"], (64, 32), 1, packing.LAYOUTS) == layout


def test_trials_are_timed(monkeypatch):
    monkeypatch.setattr(packing, "TRIAL_BYTES", 2**16)
    done = pack_linears(build_decoder(dense(attention(4, 2))))
    assert len(done.layouts) == 5  # queries, keys and values; output; gate and up; down; head
    assert set(done.layouts.values()) <= set(packing.LAYOUTS)


def test_columns_are_for_fp32():
    decoder = build_decoder(dense(attention(4, 2)), dtype=torch.bfloat16)
    assert pack_linears(decoder, layouts=["columns"]).layouts == {}


def test_without_the_operators_nothing_changes(monkeypatch):
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    decoder = build_decoder(dense(attention(4, 2)))
    before = decoder(prompts(1, 4))
    done = pack_linears(decoder, layouts=PACKED)
    assert (done.layouts, done.refused) == ({}, f"PyTorch {torch.__version__} has no packed linear layers")
    assert torch.equal(decoder(prompts(1, 4)), before)


def test_a_machine_that_refuses_is_believed(monkeypatch):
    def refuse(*_):
        raise RuntimeError("needs another CPU\nand a second line")

    monkeypatch.setattr(Linear, "pack", refuse)
    assert obstacle(PLACES["fp32"]) in ("needs another CPU", f"PyTorch {torch.__version__} has no packed linear layers")


def test_only_cpus_pack():
    assert obstacle(Place(torch.device("meta"), torch.float32)) == "weights are packed on a CPU only"


def test_packed_weights_cannot_be_loaded():
    if reason := obstacle(PLACES["fp32"]):
        pytest.skip(reason)
    decoder = build_decoder(dense(attention(4, 2)))
    pack_linears(decoder, layouts=PACKED)
    with pytest.raises(ValueError, match="load weights before packing"):
        dict(decoder.slots())
