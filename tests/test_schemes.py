"""Which component gets which format, in named schemes and in mappings."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.schemes import SCHEME_NAMES, scheme


def test_eight_experts_get_more_bits_for_attention() -> None:
    # Mixtral: keys and values in q8_0, attention output in q5_k, routers in f32
    named = scheme("q4_k_s")
    types = [named.format_of("attention", f"{name}_proj", 1024, 4096, experts=8).name for name in "qkvo"]
    assert types == ["q4_k", "q8_0", "q8_0", "q5_k"]
    assert named.format_of("router", "router", 8, 4096, experts=8).name == "f32"
    assert scheme("q6_k").format_of("attention", "k_proj", 1024, 4096, experts=8).name == "q8_0"


@pytest.mark.parametrize(
    ("name", "type_"),
    # src/llama-quant.cpp, llama_tensor_get_type, "attn_qkv.weight" (as of January 2026); others keep the base type
    [("q3_k_s", "q3_k"), ("q3_k_m", "q4_k"), ("q3_k_l", "q4_k"), ("q4_k_s", "q4_k"), ("q4_k_m", "q5_k"),
     ("q5_k_s", "q5_k"), ("q5_k_m", "q6_k"), ("q2_k", "q2_k"), ("iq4_xs", "iq4_xs"), ("q8_0", "q8_0")],
)  # fmt: skip
def test_one_tensor_of_queries_keys_and_values_has_one_type(name: str, type_: str) -> None:
    for layer in range(0, 40, 5):
        place = {"layer": layer, "layers": 40, "gqa": 4}
        types = {scheme(name).format_of("attention", f"{n}_proj", 64, 256, family="phi3", **place).name for n in "qkv"}
        assert types == {type_}


def test_falcon_has_a_head_of_eight_bits() -> None:
    named = scheme("q4_k_m")
    assert named.format_of("head", "lm_head", 65024, 8192, family="falcon").name == "q8_0"
    assert named.format_of("head", "lm_head", 65024, 8192).name == "q6_k"
    # of 64 layers: first sixteenth 0-3, first and last eighth 0-7 and 56-63, and every third between them, 10 first
    types = {
        i: named.format_of("mlp", "down_proj", 64, 256, layer=i, layers=64, family="falcon").name for i in range(64)
    }
    assert [types[i] for i in (0, 3, 4, 7, 8, 9, 10, 56)] == ["q6_k"] * 2 + ["q5_k"] * 2 + ["q4_k"] * 2 + ["q5_k"] * 2


def test_what_was_intended_before_the_fallback() -> None:
    named = scheme("q4_k_m")
    assert named.intended("mlp", "gate_proj", 1536, 576).name == "q4_k"
    assert named.format_of("mlp", "gate_proj", 1536, 576).name == "q5_0"


@pytest.mark.parametrize("name", SCHEME_NAMES)
def test_every_named_scheme_answers_for_every_component(name: str) -> None:
    for component in ("embedding", "head", "attention", "state", "mlp", "experts", "shared_experts", "router", "other"):
        assert scheme(name).format_of(component, "in_proj", 64, 100).matrix_bytes(64, 100) > 0


@pytest.mark.parametrize(
    ("name", "nominal", "vector"),
    [
        ("fp32", 4, "fp32"),
        ("bf16", 2, "bf16"),
        ("fp16", 2, "fp16"),
        ("fp8", 1, "bf16"),
        ("awq", 0.5, "bf16"),
        ("gptq-int8", 1, "bf16"),
        ("mxfp4", 0.5, "bf16"),
        ("f16", 2, "f32"),
        ("q4_k_m", 4.5 / 8, "f32"),
        ("q8_0", 8.5 / 8, "f32"),
    ],
)
def test_nominal_bytes_and_vectors(name: str, nominal: float, vector: str) -> None:
    assert scheme(name).nominal_bytes == nominal
    assert scheme(name).vector_format.name == vector


@pytest.mark.parametrize("name", ["awq", "gptq", "nf4", "fp8-block128", "mxfp4"])
def test_hugging_face_schemes_leave_embedding_head_and_router(name: str) -> None:
    named = scheme(name)
    for component in ("embedding", "head", "router", "other"):
        assert named.format_of(component, "any", 4096, 4096).name == "bf16"
    for component in ("attention", "state", "mlp", "experts", "shared_experts"):
        assert named.format_of(component, "any", 4096, 4096).name == named.format_of("mlp", "x", 8, 4096).name != "bf16"


def test_schemes_that_look_at_the_depth() -> None:
    deep = {name for name in SCHEME_NAMES if scheme(name).depends_on_depth}
    assert deep == {"q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m", "iq4_nl", "iq4_xs"}


@pytest.mark.parametrize("name", SCHEME_NAMES)
def test_depth_flag_is_true_exactly_when_layers_differ(name: str) -> None:
    named = scheme(name)
    kinds = {
        (tensor, named.format_of("mlp", tensor, 4096, 4096, layer=layer, layers=64).name)
        for tensor in ("v_proj", "o_proj", "down_proj", "up_proj")
        for layer in range(64)
    }
    assert named.depends_on_depth == (len(kinds) > 4)


def test_a_mapping_gives_components_their_own_format() -> None:
    named = scheme({"default": "bf16", "experts": "mxfp4"})
    assert named.format_of("experts", "up_proj", 2880, 2880).name == "mxfp4"
    assert named.format_of("attention", "q_proj", 4096, 2880).name == "bf16"
    assert named.vector_format.name == "bf16"
    assert named.nominal_bytes == 0.5
    assert named.name == "bf16 + mxfp4 experts"


def test_a_mapping_falls_back_on_a_scheme_that_looks_at_the_depth() -> None:
    named = scheme({"default": "q4_k_m", "embedding": "q8_0", "attention": "awq"})
    assert named.depends_on_depth
    assert named.format_of("embedding", "embed_tokens", 32000, 4096).name == "q8_0"
    assert named.format_of("attention", "q_proj", 4096, 4096).name == "awq-int4-g128"
    assert named.format_of("mlp", "down_proj", 4096, 11008, layer=0, layers=32).name == "q6_k"


def test_names_in_any_case_and_the_tools_own_aliases() -> None:
    assert scheme("Q4_K_M").name == scheme("q4_k").name == "q4_k_m"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("q4_km", r"unknown weight scheme 'q4_km'; did you mean .*'q4_k_m'"),
        ("int4", r"unknown weight scheme 'int4'.*known: fp32, bf16"),
        ({"default": "bf16", "expert": "mxfp4"}, r"unknown component 'expert'; did you mean 'experts'"),
        ({"default": "bf16", "experts": "mxfp"}, r"weights: experts: unknown format 'mxfp'; did you mean 'mxfp4'"),
        ({"experts": "mxfp4"}, r"'default' is missing"),
    ],
)
def test_mistakes_are_named(spec: str | dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scheme(spec)
