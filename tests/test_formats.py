"""Bytes of stored matrices against ggml's own table and against hand arithmetic for each other format."""

from __future__ import annotations

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.formats import FORMATS, weight_format

GGML_NAMES = {"mxfp4": "mxfp4-ggml", "nvfp4": "nvfp4-ggml"}
NOT_FOR_WEIGHTS = {"i8", "i16", "i32", "i64", "f64", "q1_0", "q8_1"}


def ggml_types() -> list[tuple[str, int, int]]:
    sizes = [(kind.name.lower(), *GGML_QUANT_SIZES[kind]) for kind in GGMLQuantizationType]
    return [(GGML_NAMES.get(name, name), block, size) for name, block, size in sizes if name not in NOT_FOR_WEIGHTS]


@pytest.mark.parametrize(("name", "block", "size"), ggml_types())
def test_ggml_types_match_the_gguf_package(name: str, block: int, size: int) -> None:
    assert weight_format(name).matrix_bytes(3, 5 * block) == 3 * 5 * size
    assert weight_format(name).nominal_bits == pytest.approx(8 * size / block)


def test_q8_1_has_two_half_precision_numbers() -> None:
    # ggml-common.h: block_q8_1 is d and s as fp16 and 32 int8 (the gguf package still has two fp32: 40)
    assert weight_format("q8_1").matrix_bytes(1, 32) == 2 + 2 + 32


# bits of a weight in a large matrix, from the ggml table of types
@pytest.mark.parametrize(
    ("name", "bits"),
    [("q4_k", 4.5), ("q6_k", 6.5625), ("q8_0", 8.5), ("q2_k", 2.625), ("iq1_s", 1.5625), ("iq4_xs", 4.25)],
)
def test_bits_per_weight(name: str, bits: float) -> None:
    assert weight_format(name).matrix_bytes(4096, 4096) * 8 / 4096**2 == bits


HAND = [
    # every count by hand for 4096 outputs of 4096 inputs; 4096^2 = 16777216
    pytest.param("fp32", 67_108_864, id="fp32"),
    pytest.param("bf16", 33_554_432, id="bf16"),
    pytest.param("fp8", 16_777_216 + 4, id="fp8: one fp32 scale"),
    pytest.param("fp8-channel", 16_777_216 + 16_384, id="fp8-channel: 4096 fp32"),
    pytest.param("fp8-block128", 16_777_216 + 4_096, id="fp8-block128: 32x32 fp32"),
    pytest.param("int8", 16_777_216 + 16_384, id="int8: 4096 fp32"),
    # qweight 8388608; scales 32x4096 fp16 = 262144; qzeros 32x512 int32 = 65536; g_idx 4096 int32 = 16384
    pytest.param("gptq-int4-g128", 8_388_608 + 262_144 + 65_536 + 16_384, id="gptq-int4-g128"),
    pytest.param("gptq-int4-g64", 8_388_608 + 524_288 + 131_072 + 16_384, id="gptq-int4-g64"),
    pytest.param("gptq-int4-g32", 8_388_608 + 1_048_576 + 262_144 + 16_384, id="gptq-int4-g32"),
    # zero points take a byte each: 32x1024 int32
    pytest.param("gptq-int8-g128", 16_777_216 + 262_144 + 131_072 + 16_384, id="gptq-int8-g128"),
    pytest.param("awq-int4-g128", 8_388_608 + 262_144 + 65_536, id="awq-int4-g128"),
    # an fp32 for each of 262144 runs of 64
    pytest.param("nf4", 8_388_608 + 1_048_576, id="nf4"),
    # a byte for each run, an fp32 for each 256 of those (1024), and the fp32 mean
    pytest.param("nf4-double", 8_388_608 + 262_144 + 4_096 + 4, id="nf4-double"),
    pytest.param("mxfp4", 8_388_608 + 524_288, id="mxfp4: 128 bytes a row"),
    pytest.param("nvfp4", 8_388_608 + 1_048_576 + 4, id="nvfp4: 256 bytes a row and one fp32"),
]


@pytest.mark.parametrize(("name", "expected"), HAND)
def test_square_matrix_by_hand(name: str, expected: int) -> None:
    assert weight_format(name).matrix_bytes(4096, 4096) == expected


# 3 outputs of 100 inputs: each tool's rounding
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("fp8-block128", 300 + 4, id="one ragged 128x128 block"),
        pytest.param("nf4", 150 + 5 * 4, id="300 weights in 5 runs over the flat matrix, not 2 a row"),
        pytest.param("nf4-double", 150 + 5 + 4 + 4, id="5 runs, one group of them"),
        pytest.param("mxfp4", 3 * (50 + 4), id="4 scales a row"),
        pytest.param("nvfp4", 3 * (50 + 7) + 4, id="7 scales a row"),
        # qweight ceil(100/8)=13 x 3 int32; one group: 3 fp16 scales, 3 zeros in one int32; 100 int32 indices
        pytest.param("gptq-int4-g128", 156 + 6 + 4 + 400, id="one ragged group"),
        # qweight 100 x ceil(3/8)=1 int32
        pytest.param("awq-int4-g128", 400 + 6 + 4, id="outputs packed"),
    ],
)
def test_ragged_matrix_by_hand(name: str, expected: int) -> None:
    assert weight_format(name).matrix_bytes(3, 100) == expected


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 20_000), st.integers(1, 20_000))
def test_formula_evaluates_to_the_bytes(name: str, rows: int, columns: int) -> None:
    stored = FORMATS[name].fallback(columns)
    if stored.accepts(columns) or not stored.fallback_name:
        assert eval(stored.formula(rows, columns)) == stored.matrix_bytes(rows, columns)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "text"),
    [
        ("bf16", 1024, 4096, "1024*4096*2"),
        ("q4_k", 4096, 4096, "4096*(4096//256)*144"),
        ("fp8", 8, 16, "8*16 + 4"),
        ("fp8-block128", 576, 7168, "576*7168 + ((576 + 127)//128)*(7168//128)*4"),
        ("gptq-int4-g128", 64, 256, "64*(256//8)*4 + 256*4 + 64*(256//128)*2 + (64//8)*(256//128)*4"),
        ("nf4", 64, 64, "(64*64//2) + (64*64//64)*4"),
    ],
)
def test_formula_reads_well(name: str, rows: int, columns: int, text: str) -> None:
    assert weight_format(name).formula(rows, columns) == text


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 4096), st.integers(1, 64))
def test_more_rows_are_never_fewer_bytes(name: str, rows: int, blocks: int) -> None:
    stored = FORMATS[name]
    assert stored.matrix_bytes(rows, 256 * blocks) < stored.matrix_bytes(rows + 8, 256 * blocks)


# src/llama-quant.cpp, tensor_type_fallback; 576 = 18 x 32 and not a multiple of 256, 100 not even of 32
@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("q4_k", 4096, "q4_k"),
        ("q4_k", 576, "q5_0"),
        ("q5_k", 576, "q5_1"),
        ("q6_k", 576, "q8_0"),
        ("q2_k", 576, "q4_0"),
        ("q3_k", 576, "q4_0"),
        ("tq1_0", 576, "q4_0"),
        ("iq4_xs", 576, "iq4_nl"),
        ("iq2_xxs", 576, "iq4_nl"),
        ("q4_k", 100, "f16"),
        ("q8_0", 100, "f16"),
        ("bf16", 100, "bf16"),
        ("nf4", 100, "nf4"),
    ],
)
def test_fallback_for_rows_that_do_not_divide(name: str, columns: int, expected: str) -> None:
    assert weight_format(name).fallback(columns).name == expected


def test_a_row_that_does_not_divide_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"q4_k stores rows in blocks of 256, and 576 .* as q5_0"):
        weight_format("q4_k").matrix_bytes(10, 576)


def test_accepts_says_whether_rows_divide() -> None:
    assert weight_format("q4_k").accepts(512)
    assert not weight_format("q4_k").accepts(576)
    assert weight_format("fp8-block128").accepts(576)  # ragged blocks have scales of their own


def test_names_are_known_in_any_case_and_near_misses_are_named() -> None:
    assert weight_format("Q4_K") is FORMATS["q4_k"]
    with pytest.raises(InputError, match=r"unknown weight format 'mxpf4'; did you mean .*'mxfp4'.*known: fp32, bf16"):
        weight_format("mxpf4")


def test_symmetric_int4_by_hand():
    # Kimi-K2-Thinking, pack-quantized, group 32: 2048 x 7168 / 2 packed bytes and 2048 x 7168/32 bf16 scales
    assert weight_format("int4-g32").matrix_bytes(2048, 7168) == 2048 * 7168 // 2 + 2048 * 224 * 2
