"""The llama.cpp mixtures against published GGUF files: bytes, counts of tensors and the tool's own table of sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kvplan.schemes import scheme

if TYPE_CHECKING:
    from kvplan.formats import Format

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model as llama.cpp sees it: `vectors` is the elements of all one-dimensional tensors."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    vectors: int
    tied: bool = False
    experts: int = 0

    def matrices(self) -> list[tuple[str, str, int, int, int, int]]:
        """(component, tensor, rows, columns, layer, copies) of each tensor."""
        q, kv, hidden, inner = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.hidden, self.intermediate
        found = [("embedding", "tied_embed_tokens" if self.tied else "embed_tokens", self.vocab, hidden, 0, 1)]
        if not self.tied:
            found.append(("head", "lm_head", self.vocab, hidden, 0, 1))
        mlp, copies = ("experts", self.experts) if self.experts else ("mlp", 1)
        for layer in range(self.layers):
            found += [
                ("attention", "q_proj", q, hidden, layer, 1),
                ("attention", "k_proj", kv, hidden, layer, 1),
                ("attention", "v_proj", kv, hidden, layer, 1),
                ("attention", "o_proj", hidden, q, layer, 1),
                (mlp, "gate_proj", inner, hidden, layer, copies),
                (mlp, "up_proj", inner, hidden, layer, copies),
                (mlp, "down_proj", hidden, inner, layer, copies),
            ]
            if self.experts:
                found.append(("router", "router", self.experts, hidden, layer, 1))
        return found

    def formats(self, name: str) -> list[Format]:
        """The format of each of `matrices`."""
        named, gqa = scheme(name), self.heads // self.kv_heads
        return [
            named.format_of(
                component, tensor, rows, columns, layer=layer, layers=self.layers, gqa=gqa, experts=self.experts
            )
            for component, tensor, rows, columns, layer, _ in self.matrices()
        ]

    def types(self, name: str) -> Counter[str]:
        return Counter(stored.name for stored in self.formats(name))

    def file_bytes(self, name: str) -> int:
        total = scheme(name).vector_format.matrix_bytes(1, self.vectors)
        for (_, _, rows, columns, _, copies), stored in zip(self.matrices(), self.formats(name), strict=True):
            total += copies * stored.matrix_bytes(rows, columns)
        return total


# vectors: two norms a layer and the last one, 64 rotary factors for Llama 3.1, biases of q, k and v for Qwen2.5
LLAMA_2_7B = Shape(
    layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, intermediate=11008, vocab=32000, vectors=65 * 4096
)
LLAMA_31_8B = Shape(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate=14336,
    vocab=128256,
    vectors=65 * 4096 + 64,
)
LLAMA_33_70B = Shape(
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128256,
    vectors=161 * 8192 + 64,
)
QWEN_25_05B = Shape(
    layers=24,
    hidden=896,
    heads=14,
    kv_heads=2,
    head_dim=64,
    intermediate=4864,
    vocab=151936,
    vectors=49 * 896 + 24 * (896 + 128 + 128),
    tied=True,
)
QWEN3_30B_A3B = Shape(
    layers=48,
    hidden=2048,
    heads=32,
    kv_heads=4,
    head_dim=128,
    intermediate=768,
    vocab=151936,
    vectors=97 * 2048 + 48 * 2 * 128,
    experts=128,
)


def test_bytes_of_published_files() -> None:
    # Qwen2.5-0.5B-Instruct Q4_K_M: 397,808,192 bytes, of which a loader counts 391,859,712 in tensors. Rows of 896 do
    # not divide by 256, so most of it is fallbacks.
    assert QWEN_25_05B.file_bytes("q4_k_m") == 391_859_712
    # llama.cpp loads Llama-3.1-8B-Instruct Q4_K_M as "CPU_Mapped model buffer size = 4685.30 MiB"
    assert round(LLAMA_31_8B.file_bytes("q4_k_m") / MIB, 2) == 4685.30
    # "file size = 17.28 GiB (4.86 BPW)" for Qwen3-30B-A3B Q4_K_M
    assert round(QWEN3_30B_A3B.file_bytes("q4_k_m") / GIB, 2) == 17.28


# a file is its tensors and a header, nearly all of it the vocabulary: 0.7 MB for 32,000 entries, 7.9 MB for 128,256
@pytest.mark.parametrize(
    ("shape", "name", "published", "header"),
    [
        pytest.param(LLAMA_2_7B, "q4_k_m", 4_081_004_224, 741_056, id="Llama-2-7B Q4_K_M"),
        pytest.param(LLAMA_2_7B, "q8_0", 7_161_089_728, 741_056, id="Llama-2-7B Q8_0"),
        pytest.param(LLAMA_31_8B, "q4_k_m", 4_920_739_232, 7_900_000, id="Llama-3.1-8B Q4_K_M"),
        pytest.param(LLAMA_33_70B, "q4_k_m", 42_520_398_816, 7_900_000, id="Llama-3.3-70B Q4_K_M, q5_k values"),
    ],
)
def test_files_are_tensors_and_a_header(shape: Shape, name: str, published: int, header: int) -> None:
    assert 0.98 * header < published - shape.file_bytes(name) <= header


# `llama-quantize --help` prints the size of each type for Llama-3-8B, in GiB with a header of 0.007
@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("q4_0", 4.34),
        ("q4_1", 4.78),
        ("q5_0", 5.21),
        ("q5_1", 5.65),
        ("q2_k", 2.96),
        ("q3_k_s", 3.41),
        ("q3_k_m", 3.74),
        ("q3_k_l", 4.03),
        ("q4_k_s", 4.37),
        ("q4_k_m", 4.58),
        ("q5_k_s", 5.21),
        ("q5_k_m", 5.33),
        ("q6_k", 6.14),
        ("q8_0", 7.96),
    ],
)
def test_sizes_that_llama_quantize_prints(name: str, gib: float) -> None:
    assert LLAMA_31_8B.file_bytes(name) / GIB + 0.007 == pytest.approx(gib, abs=0.0101)


# "- type q4_K: 193 tensors" and so on, as loaders print them
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(LLAMA_2_7B, {"q4_k": 193, "q6_k": 33}, id="Llama-2-7B"),
        pytest.param(LLAMA_31_8B, {"q4_k": 193, "q6_k": 33}, id="Llama-3.1-8B"),
        pytest.param(QWEN3_30B_A3B, {"q4_k": 289, "q6_k": 49, "f32": 48}, id="Qwen3-30B-A3B"),
    ],
)
def test_tensor_counts_of_q4_k_m_files(shape: Shape, expected: dict[str, int]) -> None:
    assert shape.types("q4_k_m") == expected


def test_tensor_counts_of_an_mla_file() -> None:
    # DeepSeek-Coder-V2-Lite Q4_K_M: 229 q4_K, 13 q6_K, 14 q5_0, 13 q8_0. Experts have rows of 1408 (down), which do
    # not divide by 256: q4_k became q5_0 and q6_k became q8_0; so did the dense first layer's rows of 10944.
    hidden, kv_b = 2048, 16 * (128 + 128)
    found = [("embedding", "embed_tokens", 102400, hidden, 0), ("head", "lm_head", 102400, hidden, 0)]
    for layer in range(27):
        found += [("attention", "q_proj", 16 * 192, hidden, layer), ("attention", "kv_a_proj", 576, hidden, layer)]
        found += [("attention", "kv_b_proj", kv_b, 512, layer), ("attention", "o_proj", hidden, 16 * 128, layer)]
        mlps = [("mlp", 10944)] if layer == 0 else [("experts", 1408), ("shared_experts", 2816)]
        for component, inner in mlps:
            found += [(component, "gate_proj", inner, hidden, layer), (component, "up_proj", inner, hidden, layer)]
            found += [(component, "down_proj", hidden, inner, layer)]
    named = scheme("q4_k_m")
    types = Counter(
        named.format_of(component, tensor, rows, columns, layer=layer, layers=27, gqa=1, experts=64).name
        for component, tensor, rows, columns, layer in found
    )
    assert types == {"q4_k": 229, "q6_k": 13, "q5_0": 14, "q8_0": 13}
