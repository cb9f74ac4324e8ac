"""The form of decode attention is the one that was fastest here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hub_models import attention, dense, furthest, prompts, spec

from kvplan.measure import decode_path, naive
from kvplan.measure.decode_path import Kind, choose_paths, fastest, use_path
from kvplan.measure.decoder.attend import DECODE_PATHS
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.place import Place
from kvplan.specs.layers import Layer, Mlp

CPU = Place(torch.device("cpu"), torch.bfloat16)
KIND = Kind(kv_heads=2, group=3, head_dim=16, v_head_dim=16, slots=40)


@pytest.mark.parametrize(
    ("seconds", "path"),
    [
        ({"grouped": 1.0, "explicit": 0.7}, "explicit"),
        ({"grouped": 1.0, "explicit": 0.96}, "grouped"),  # not worth it
    ],
)
def test_the_fastest_form_is_taken(monkeypatch, seconds, path):
    monkeypatch.setattr(decode_path, "trial_seconds", lambda *_: seconds)
    assert fastest(KIND, (1, 8), CPU, lambda: None) == path


def test_each_kind_of_layer_has_its_own(monkeypatch):
    forms = {20: "grouped", 64: "explicit"}  # a window of 20 tokens, and all 64
    monkeypatch.setattr(decode_path, "fastest", lambda kind, *_: forms[kind.slots])
    mlp = Mlp(intermediate_size=32)
    model = spec(Layer(attention=attention(4, 2, window=20), mlp=mlp), Layer(attention=attention(4, 2), mlp=mlp))
    decoder = build_decoder(model)
    assert choose_paths(decoder, [1], 64) == ("explicit", "grouped")
    taken = [block.attention.decode for block in decoder.layers]
    assert taken == [DECODE_PATHS["grouped"], DECODE_PATHS["explicit"]]


def test_a_trial_on_this_machine_keeps_the_logits():
    decoder = build_decoder(dense(attention(4, 2)))
    assert set(choose_paths(decoder, [1, 2], 30)) <= set(DECODE_PATHS)
    tokens = prompts(2, 12)
    cache = ContiguousCache(decoder, batch=2, capacity=12)
    decoder.prefill(tokens[:, :11], cache)
    assert furthest(decoder.step(tokens[:, 11], cache), decoder(tokens)[:, -1]) < 5e-5


def test_a_trial_takes_a_part_of_a_large_cache(monkeypatch):
    monkeypatch.setattr(
        decode_path, "TRIAL_BYTES", 2 * 2 * 32 * 100
    )  # 100 tokens of 2 heads, 32 elements, 2 bytes: x 1
    q, k, _ = KIND._replace(slots=1000).tensors(8, CPU)
    assert (q.shape, k.shape) == ((1, 2, 3, 16), (1, 2, 100, 16))
    q, k, _ = KIND.tensors(8, CPU)
    assert (q.shape, k.shape) == ((2, 2, 3, 16), (2, 2, 40, 16))  # 100 // 40 sessions


def test_operations_are_counted_whatever_form_was_taken(monkeypatch):
    monkeypatch.setattr(naive, "LENGTHS", (8, 16))
    decoder = build_decoder(dense(attention(4, 2)))
    use_path(decoder, "explicit")
    silent = SimpleNamespace(begin=lambda _: None, note=lambda _: None)
    setting = SimpleNamespace(rank=decoder.rank, options=SimpleNamespace(time_budget_s=1e6), progress=silent)
    rows = [row for row in naive.naive_rows(setting, decoder) if row["quantity"].endswith("attention_operations")]
    assert len(rows) == 4  # two ways, two lengths
    assert all(row["observed"] == pytest.approx(row["predicted"], rel=0.01) for row in rows)
