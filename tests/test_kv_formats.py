"""Bytes of cached vectors against the engines' own numbers."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.kv_formats import KV_FORMATS, kv_pair

PLAIN = sorted(set(KV_FORMATS) - {"fp8_ds_mla"})


# eight heads of 128: 1024 elements
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp32", 4096),
        ("f32", 4096),
        ("bf16", 2048),
        ("f16", 2048),
        ("fp8", 1024),
        ("fp8_e5m2", 1024),
        pytest.param("int8", 8 * (128 + 4), id="int8: an fp32 for each head"),
        pytest.param("q8_0", 1024 * 34 // 32, id="q8_0: 34/32"),
        pytest.param("q4_0", 1024 * 18 // 32, id="q4_0: 18/32"),
        pytest.param("nvfp4", 8 * (64 + 8), id="nvfp4: half and a sixteenth"),
    ],
)
def test_one_token_in_one_layer(name: str, expected: int) -> None:
    assert kv_pair(name).key.vector_bytes(8, 128) == expected


@pytest.mark.parametrize("name", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
def test_ggml_types_match_the_gguf_package(name: str) -> None:
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name.upper()]]
    assert kv_pair(name).value.vector_bytes(3, 2 * block) == 3 * 2 * size


# llama.cpp prints the buffers: 28 layers of 8 heads of 128, 4096 cells: K q8_0 119 MiB, V f16 224 MiB
def test_keys_and_values_of_a_logged_run() -> None:
    pair = kv_pair("q8_0/f16")
    assert 4096 * 28 * pair.key.vector_bytes(8, 128) == 119 * 2**20
    assert 4096 * 28 * pair.value.vector_bytes(8, 128) == 224 * 2**20


def test_latents() -> None:
    # vLLM keeps 656 bytes for a DeepSeek-V3.2 token: 512 fp8, 4 fp32 scales, 64 bf16
    assert kv_pair("fp8_ds_mla").key.latent_bytes(512, 64) == 512 + 16 + 128 == 656
    assert kv_pair("bf16").key.latent_bytes(512, 64) == 1152
    # llama.cpp logs 60 layers of 576 elements in q8_0, 32768 cells: 36720 bytes a token
    assert 60 * kv_pair("q8_0").key.latent_bytes(512, 64) == 36720


@given(st.sampled_from(PLAIN), st.integers(1, 256), st.integers(1, 32))
def test_formula_evaluates_to_the_bytes(name: str, heads: int, blocks: int) -> None:
    stored = KV_FORMATS[name]
    assert eval(stored.formula(heads, 32 * blocks)) == stored.vector_bytes(heads, 32 * blocks)


@given(st.sampled_from(sorted(KV_FORMATS)), st.integers(1, 64), st.integers(1, 8))
def test_latent_formula_evaluates_to_the_bytes(name: str, ranks: int, ropes: int) -> None:
    stored = KV_FORMATS[name]
    assert eval(stored.latent_formula(32 * ranks, 32 * ropes)) == stored.latent_bytes(32 * ranks, 32 * ropes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bf16", "8*128*2"),
        ("fp8", "8*128"),
        ("int8", "8*(128 + 4)"),
        ("q8_0", "8*128//32*34"),
        ("nvfp4", "8*(128//16*9)"),
    ],
)
def test_formula_reads_well(name: str, text: str) -> None:
    assert KV_FORMATS[name].formula(8, 128) == text


def test_latent_formula_reads_well() -> None:
    assert KV_FORMATS["bf16"].latent_formula(512, 64) == "(512 + 64)*2"
    assert KV_FORMATS["fp8_ds_mla"].latent_formula(512, 64) == "512 + (512 + 127)//128*4 + 64*2"


def test_ggml_blocks_run_over_all_heads() -> None:
    assert kv_pair("q8_0").key.vector_bytes(4, 80) == 10 * 34  # 320 elements; one head of 80 would not divide
    with pytest.raises(InputError, match=r"q8_0 stores blocks of 32 .* a row of 240 .* use fp16"):
        kv_pair("q8_0").key.vector_bytes(3, 80)
    with pytest.raises(InputError, match=r"nvfp4 stores blocks of 16 .* a head of 72 "):
        kv_pair("nvfp4").key.formula(2, 72)


def test_latent_format_refuses_keys_and_values() -> None:
    with pytest.raises(InputError, match=r"fp8_ds_mla stores MLA latents only.* use fp8 or bf16"):
        kv_pair("fp8_ds_mla").key.vector_bytes(8, 128)
    with pytest.raises(InputError, match="MLA latents only"):
        kv_pair("fp8_ds_mla").key.formula(8, 128)


def test_pairs() -> None:
    assert [part.name for part in kv_pair("q8_0")] == ["q8_0", "q8_0"]
    assert [part.name for part in kv_pair("Q8_0/q4_0")] == ["q8_0", "q4_0"]


@pytest.mark.parametrize("name", ["auto", "", "q8_0/", "/q8_0", "q8_0/q4_0/q4_0"])
def test_unknown_pairs_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"unknown KV format .*known: fp32"):
        kv_pair(name)


def test_near_misses_are_named() -> None:
    with pytest.raises(InputError, match=r"'fp8_e4m2' in 'q8_0/fp8_e4m2'; did you mean .*'fp8_e4m3'"):
        kv_pair("q8_0/fp8_e4m2")


def test_indexer_key_of_deepseek_v3_2():
    # SGLang and vLLM keep 128 fp8 elements and one fp32 scale: 132 bytes; in 16 bit it would be 256
    assert kv_pair("fp8_ds_mla").key.indexer_bytes(128) == 132
    assert kv_pair("bf16").key.indexer_bytes(128) == 256
