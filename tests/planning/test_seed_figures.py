"""The worked figures the project started from, through the public API. Arithmetic in the comments; GB = 10^9 bytes."""

from __future__ import annotations

import pytest

from kvplan import estimate

# A whiteboard model: only what the cache needs is asked of it.
SHAPE = """
name: shape
hidden_size: {hidden}
vocab_size: 32000
layers: {layers}
layer:
  attention: {{heads: {heads}, kv_heads: {kv_heads}, head_dim: {head_dim}}}
  mlp: {{intermediate_size: 11008}}
"""


@pytest.mark.parametrize(
    ("model", "attention", "context", "session_bytes"),
    [
        pytest.param("llama-2-70b", None, 4096, 1_342_177_280, id="M1: 2 x 80 x 8 x 128 x 4096 x 2"),
        pytest.param("llama-2-70b", "mha", 4096, 10_737_418_240, id="M2: 2 x 80 x 64 x 128 x 4096 x 2, 8 times M1"),
        pytest.param("llama-2-7b", None, 4096, 2_147_483_648, id="M5: 2 x 32 x 32 x 128 x 4096 x 2, 2.0 GiB"),
        pytest.param("llama-2-7b", "gqa:8", 4096, 536_870_912, id="M6: a quarter of M5, 512.0 MiB"),
    ],
)
def test_bytes_of_a_conversation(model, attention, context, session_bytes):
    found = estimate(model, kv_budget="80GiB", attention=attention, context=context)
    assert found.kv_bytes_per_session == session_bytes


@pytest.mark.parametrize(
    ("layers", "heads", "kv_heads", "head_dim", "context", "session_bytes"),
    [
        pytest.param(40, 32, 4, 128, 8192, 671_088_640, id="M3: 2 x 40 x 4 x 128 x 8192 x 2 = 0.671 GB"),
        pytest.param(24, 16, 16, 64, 2048, 201_326_592, id="M4: 2 x 24 x 16 x 64 x 2048 x 2 = 192.0 MiB"),
    ],
)
def test_bytes_of_a_shape(tmp_path, layers, heads, kv_heads, head_dim, context, session_bytes):
    path = tmp_path / "shape.yaml"
    path.write_text(
        SHAPE.format(hidden=heads * head_dim, layers=layers, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    )
    assert estimate(path, kv_budget="80GiB", kv_dtype="fp16", context=context).kv_bytes_per_session == session_bytes


@pytest.mark.parametrize(
    ("attention", "sessions"),
    [
        # 80 GB - 10 % - 7e9 x 2 B = 58 GB; 58e9 / (2 x 32 x 8 x 128 x 4096 x 2 = 536,870,912) = 108.03
        pytest.param(None, 108, id="M7"),
        # a KV head instead of eight, the same nominal weights: 58e9 / 67,108,864 = 864.27
        pytest.param("mqa", 864, id="M8"),
    ],
)
def test_textbook_mistral(attention, sessions):
    found = estimate("mistral-7b", "a100-80g", engine="textbook", attention=attention)
    assert found.kv_budget_bytes == 58_000_000_000
    assert found.max_sessions == sessions


def test_attention_changes_the_real_parameters():
    # 7 of 8 key-value heads less: 2 x 32 layers x 7 heads x 128 x 4096 = 234,881,024 parameters. Taken from the
    # nominal count this would be (72e9 - 2 x (7e9 - 234,881,024)) / 67,108,864 = 871 sessions; M8 keeps it: 864.
    grouped, single = (estimate("mistral-7b", kv_budget="80GiB", attention=a).parameters for a in ("gqa:8", "mqa"))
    assert grouped - single == 234_881_024
    assert (72_000_000_000 - 2 * (7_000_000_000 - 234_881_024)) // 67_108_864 == 871


@pytest.mark.parametrize(
    ("attention", "context", "sessions"),
    [
        pytest.param(None, 4096, 30, id="M9: 60 GiB / 2.0 GiB"),
        pytest.param("gqa:8", 4096, 120, id="M10: 60 GiB / 512 MiB"),
        pytest.param("gqa:8", 8192, 60, id="M11: 60 GiB / 1.0 GiB"),
    ],
)
def test_sessions_in_sixty_gib(attention, context, sessions):
    assert estimate("llama-2-7b", kv_budget="60GiB", attention=attention, context=context).max_sessions == sessions


def test_nominal_weights():
    # M12: 7e9 parameters x 2 B = 14 GB = 13.04 GiB
    found = estimate("mistral-7b", "a100-80g", engine="textbook", weights="fp16")
    assert found.stage.weights_bytes == 14_000_000_000
    assert round(found.stage.weights_bytes / 2**30, 2) == 13.04


def test_eight_of_thirty_two_heads_keep_a_quarter():
    # M13
    grouped, multi = (estimate("mistral-7b", kv_budget="60GiB", attention=a) for a in ("gqa:8", "mha"))
    assert 4 * grouped.kv_bytes_per_session == multi.kv_bytes_per_session
