"""Mixtures of models whose GGUF files have queries, keys and values in one attn_qkv, against published files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvplan.loading import load_model
from kvplan.memory.weights import stored
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec

MIB, GIB, GB = 2**20, 2**30, 10**9


def file_bytes(model: ModelSpec, name: str) -> int:
    """Bytes of all tensors."""
    return sum(tensor.bytes for tensor in stored(shard(model)[0], scheme(name)))


def test_bytes_that_llama_cpp_loads() -> None:
    # Phi-3-mini-4k-instruct Q4_K_M: "CPU_Mapped model buffer size = 52.84 MiB" and "CUDA0 model buffer size = 2228.82
    # MiB", of which "type q4_K: 81 tensors", "type q5_K: 32 tensors" (attn_qkv) and "type q6_K: 17 tensors"
    assert round(file_bytes(load_model("phi-3-mini"), "q4_k_m") / MIB, 2) == 2281.66  # 52.84 + 2228.82
    # Phi-4-mini-instruct Q4_K_M: "file size = 2.31 GiB (5.18 BPW)"
    assert round(file_bytes(load_model("phi-4-mini"), "q4_k_m") / GIB, 2) == 2.31


# the tables of their model cards, in GB; the header takes up to 8 MB
@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        # bartowski/phi-4-GGUF
        pytest.param(
            "phi-4", {"q4_k_s": 8.44, "q4_k_m": 9.05, "q5_k_s": 10.15, "q5_k_m": 10.60, "q6_k": 12.03}, id="phi-4"
        ),
        # second-state/glm-4-9b-chat-GGUF; its Q4_K_M has 6,250,926,848 bytes
        pytest.param(
            "glm-4-9b", {"q2_k": 3.99, "q3_k_s": 4.59, "q3_k_m": 5.06, "q3_k_l": 5.28, "q4_k_m": 6.251}, id="glm-4-9b"
        ),
    ],
)
def test_published_sizes(model: str, sizes: dict[str, float]) -> None:
    spec = load_model(model)
    for name, gigabytes in sizes.items():
        assert -0.005 <= gigabytes - file_bytes(spec, name) / GB <= 0.013, name


def test_sizes_of_falcon() -> None:
    # TheBloke/Falcon-180B-Chat-GGUF; the file has the head beside the embedding, in q8_0
    untied = replace(load_model("falcon-180b"), tied=False)
    for name, gigabytes in {
        "q3_k_s": 77.77, "q3_k_l": 91.99, "q4_0": 101.48, "q4_k_s": 101.48, "q5_k_s": 123.80, "q5_k_m": 130.99,
        "q6_k": 147.52,
    }.items():  # fmt: skip
        assert abs(gigabytes - file_bytes(untied, name) / GB) < 0.011, name
    # Made in September 2023, when the first two of 80 layers got most bits for ffn_down, and not yet the first
    # sixteenth: three layers of 4 x 14848 x 14848 weights less in q5_k rather than q4_k, in q6_k rather than q5_k.
    down = 3 * 4 * 14848**2 / 8 / GB
    assert abs(85.18 + down * (5.5 - 4.5) - file_bytes(untied, "q3_k_m") / GB) < 0.011
    assert abs(108.48 + down * (6.5625 - 5.5) - file_bytes(untied, "q4_k_m") / GB) < 0.011


def types_of(model: str, name: str) -> dict[tuple[str, str], int]:
    """Tensors of each name and type."""
    found = stored(shard(load_model(model))[0], scheme(name))
    return {(tensor.name, tensor.format): tensor.times for tensor in found}


def test_types_of_starcoder() -> None:
    # StarCoder Q5_K_M: "type q6_K: 61 tensors" are attn_qkv of 40 layers, 20 of the ffn_down and the head
    types = types_of("starcoder", "q5_k_m")
    assert [types[f"{name}_proj", "q6_k"] for name in "qkv"] == [40, 40, 40]
    assert types["down_proj", "q6_k"] == types["down_proj", "q5_k"] == 20
    assert types["o_proj", "q5_k"] == 40


def test_sizes_of_gated_delta_net() -> None:
    # Qwen3.6-27B, by the model cards of sokann's Qwen3.6-27B-GGUF-5.076bpw and -4.256bpw: mradermacher's i1-Q4_K_M has
    # 15.401 GiB and i1-IQ4_XS 14.036. An importance matrix leaves the first eighth of ffn_down in iq4_xs.
    model = load_model("qwen3.6-27b")
    assert round(file_bytes(model, "q4_k_m") / GIB, 3) == 15.401
    down = 8 * 5120 * 17408 * (5.5 - 4.25) / 8
    assert round((file_bytes(model, "iq4_xs") - down) / GIB, 3) == 14.036
    # Qwen3.5-27B of February 2026, by the older rule for attn_qkv: mradermacher's files, with headers of 0.01 GiB, in
    # "Qwen3.5-27B Q4 Quantization Comparison" (r/LocalLLaMA)
    for name, gib in {"q4_k_m": 15.404, "q4_k_s": 14.499}.items():
        assert file_bytes(load_model("qwen3.5-27b"), name) / GIB == pytest.approx(gib, rel=0.001)


def test_types_of_gated_delta_net() -> None:
    # llama.cpp, src/llama-quant.cpp, use_more_bits of 64 attn_qkv and attn_v (every fourth layer) together: six bits
    # in the first and the last eight, and in every third between them from 10 on
    types = types_of("qwen3.6-27b", "q4_k_m")
    assert types["in_proj_qkv", "q6_k"] == types["in_proj_qkv", "q4_k"] == 6 + 12 + 6
    assert types["v_proj", "q6_k"] == types["v_proj", "q4_k"] == 2 + 4 + 2
    assert types["in_proj_z", "q4_k"] == types["in_proj_ba", "q4_k"] == types["out_proj", "q4_k"] == 48
    # iq4_xs: more bits with four query heads or more for each KV head; Qwen3.6-27B has six
    types = types_of("qwen3.6-27b", "iq4_xs")
    assert types["in_proj_qkv", "q5_k"] == types["in_proj_z", "iq4_xs"] == 48
