"""The quantisation of checkpoints: module lists become formats by component, matrix and layer, and the bytes follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import SpecError
from kvplan.importers.config import import_config
from kvplan.importers.config_lists import names_of
from kvplan.memory.weights import stored
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
GIB = 2**30

DENSE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
    "num_attention_heads": 8, "vocab_size": 1000,
}  # fmt: skip
SPARSE: dict[str, Any] = {
    **DENSE, "model_type": "qwen3_moe", "head_dim": 128, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
}  # fmt: skip


def weight_bytes(model: ModelSpec) -> int:
    return sum(tensor.bytes for tensor in stored(shard(model)[0], scheme(model.weights)))


def imported(tmp_path: Path, config: dict[str, Any], quantization: dict[str, Any] | None = None) -> ModelSpec:
    whole = {**config, **({"quantization_config": quantization} if quantization else {})}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(whole), encoding="utf-8")
    return import_config(path)


WEIGHTS: dict[str, str | dict[str, str]] = {
    "openai__gpt-oss-120b": {"default": "bf16", "experts": "mxfp4"},
    "deepseek-ai__DeepSeek-R1": "fp8-block128",
    "Qwen__Qwen3-30B-A3B-FP8": "fp8-block128",
    "Qwen__Qwen3-32B-FP8-Static-PerTensor": "fp8",
    "mistralai__Devstral-2-123B-Instruct-2512": "fp8",
    "MiniMaxAI__MiniMax-M2.7": "fp8-block128",
    "moonshotai__Kimi-K2.5": {"default": "bf16", "experts": "int4-g32"},
    "moonshotai__Kimi-K3": {"default": "bf16", "experts": "mxfp4"},
    "zai-org__GLM-5.1-FP8": {"default": "fp8-block128", "attention.indexer_weights": "bf16"},
    "nvidia__DeepSeek-V3.1-NVFP4": {"default": "nvfp4", "attention": "bf16", "attention.o_proj": "nvfp4"},
    "nvidia__GLM-5.2-NVFP4": {"default": "bf16", "experts": "nvfp4"},
    "nvidia__Gemma-4-26B-A4B-NVFP4": {"default": "bf16", "experts": "nvfp4"},
    "nvidia__Gemma-4-31B-IT-NVFP4": {"default": "bf16", "mlp": "nvfp4"},
    "nvidia__Kimi-K2.6-NVFP4": {"default": "bf16", "experts": "nvfp4"},
    "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": {
        "default": "nvfp4", "attention": "bf16", "state@4,11,18,25,32,41": "bf16"
    },
    "nvidia__Qwen3-235B-A22B-NVFP4": "nvfp4",
    "nvidia__Qwen3.5-122B-A10B-NVFP4": {"default": "bf16", "experts": "nvfp4"},
    "nvidia__Qwen3.5-397B-A17B-NVFP4": {"default": "bf16", "experts": "nvfp4"},
    "nvidia__Qwen3.6-27B-NVFP4": {"default": "fp8", "state.in_proj_ba": "bf16", "mlp": "nvfp4", "head": "nvfp4"},
}  # fmt: skip


@pytest.mark.parametrize("stem", WEIGHTS)
def test_the_lists_of_real_checkpoints(stem: str) -> None:
    assert import_config(CONFIGS / f"{stem}.json").weights == WEIGHTS[stem]


@pytest.mark.parametrize(
    ("stem", "gib", "tolerance"),
    [
        # vLLM 0.19 log of a tune of Nemotron-3-Nano with the same recipe: 18.03 GiB
        pytest.param("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 18.03, 0.003, id="nemotron-3-nano"),
        # the log says 31.04 GiB with the tower (1.07 GiB) and what the engine pads
        pytest.param("nvidia__Gemma-4-31B-IT-NVFP4", 31.04 - 1.07, 0.03, id="gemma-4-31b"),
        # vLLM log of Qwen3.8-27B-NVFP4 of the same shape and recipe: 19.75 GiB with the tower (0.86 GiB)
        pytest.param("nvidia__Qwen3.6-27B-NVFP4", 19.75 - 0.86, 0.01, id="qwen3.6-27b"),
        # the index of openai/gpt-oss-120b: 65,248,815,744 bytes
        pytest.param("openai__gpt-oss-120b", 65_248_815_744 / GIB, 1e-12, id="gpt-oss-120b"),
        # the catalogue's 642.14 GiB with the prediction layer of 11.6e9 and its copies of embedding and head
        pytest.param("deepseek-ai__DeepSeek-R1", 642.14 - (11.61e9 * 1.0 + 1.853e9 * 2) / GIB, 0.002, id="deepseek-r1"),
        pytest.param("moonshotai__Kimi-K2.5", 554.32 - 0.88, 0.001, id="kimi-k2.5"),
    ],
)
def test_bytes_of_the_weights(stem: str, gib: float, tolerance: float) -> None:
    assert weight_bytes(import_config(CONFIGS / f"{stem}.json")) / GIB == pytest.approx(gib, rel=tolerance)


def test_a_format_for_every_module(tmp_path: Path) -> None:
    """ModelOpt names each of 5,981 modules of Nemotron 3.5 Lightning: experts in NVFP4, the states in FP8."""
    config = json.loads((CONFIGS / "nvidia__NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4.json").read_text())
    layers: dict[str, dict[str, Any]] = {"lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    for index, kind in enumerate(config["layers_block_type"]):
        if kind == "mamba":
            for name in ("in_proj", "out_proj"):
                layers[f"backbone.layers.{index}.mixer.{name}"] = {"quant_algo": "FP8"}
        if kind == "moe":
            experts = [f"experts.{n}" for n in range(config["n_routed_experts"])]
            for part in (*experts, "shared_experts"):
                for name in ("up_proj", "down_proj"):
                    module = f"backbone.layers.{index}.mixer.{part}.{name}"
                    layers[module] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
    quantization = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": layers}
    (tmp_path / "config.json").write_text(json.dumps(config))
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": quantization}))
    model = import_config(tmp_path)
    assert model.weights == {"default": "nvfp4", "attention": "bf16", "state": "fp8", "head": "nvfp4"}
    assert model.kv_dtype == "fp8"
    layers.pop("backbone.layers.1.mixer.experts.5.up_proj")
    beside.write_text(json.dumps({"quantization": quantization}))
    with pytest.raises(SpecError, match="some of the experts of a layer and not others"):
        import_config(tmp_path)


METHODS: dict[str, tuple[dict[str, Any], str | dict[str, str]]] = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}, "gptq"),
    "gptq-g32": ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq-g32"),
    "gptq-int8": ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-int8"),
    "gptq-head": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True},
        {"default": "gptq", "head": "gptq"},
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, "awq"),
    "awq-g64": ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq-g64"),
    "awq-left": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["self_attn"]},
        {"default": "bf16", "mlp": "awq"},
    ),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
    "nf4-double": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-double"
    ),
    "int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]}, "int8"),
    "fp8": ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
    "fbgemm": ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}, "fp8-channel"),
    "fp8-layers": (
        {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.down_proj", "model.layers.3.mlp"]},
        {"default": "fp8", "mlp.gate_proj@3": "bf16", "mlp.up_proj@3": "bf16", "mlp.down_proj@0,3": "bf16"},
    ),
    "auto-round": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 128, "packing_format": "auto_round:auto_gptq",
         "extra_config": {"model.layers.1.mlp.up_proj": {"bits": 16}}},
        {"default": "gptq", "mlp.up_proj@1": "bf16"},
    ),
    "modelopt": (
        {"quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.[0].*", "*o_proj"]},
        {"default": "fp8", "attention.o_proj": "bf16", "attention.q_proj@0": "bf16", "attention.k_proj@0": "bf16",
         "attention.v_proj@0": "bf16", "mlp@0": "bf16"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str, tmp_path: Path) -> None:
    quantization, expected = METHODS[name]
    model = imported(tmp_path, DENSE, quantization)
    assert model.weights == expected
    weight_bytes(model)


def compressed(weights: dict[str, Any], **rest: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"dynamic": False, **weights}, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"], **rest}


COMPRESSED: list[Any] = [
    pytest.param({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8-channel", id="fp8-dynamic"),
    pytest.param({"num_bits": 8, "type": "float", "strategy": "tensor"}, "fp8", id="fp8-static"),
    pytest.param(
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "fp8-block128", id="block"
    ),
    pytest.param({"num_bits": 8, "type": "int", "strategy": "channel"}, "int8", id="w8a8"),
    pytest.param({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, "int4-g128", id="w4a16"),
    pytest.param(
        {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}, "awq-g32", id="zeros"
    ),
    pytest.param({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4", id="nvfp4"),
    pytest.param({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, "mxfp4", id="mxfp4"),
]


@pytest.mark.parametrize(("weights", "expected"), COMPRESSED)
def test_compressed_tensors(weights: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert imported(tmp_path, DENSE, compressed(weights)).weights == expected


def test_compressed_tensors_by_group_and_pattern(tmp_path: Path) -> None:
    fp8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
    int4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": int4},
            "group_1": {"targets": ["re:.*self_attn.*"], "weights": fp8},
        },
        "ignore": ["lm_head", r"re:.*mlp\.gate$", r"re:model\.layers\.[03]\..*"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
    }
    model = imported(tmp_path, SPARSE, quantization)
    assert model.weights == {"default": "bf16", "attention@1-2": "fp8-channel", "experts@1-2": "int4-g128"}
    assert model.kv_dtype == "fp8"


REFUSED: list[Any] = [
    ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq with 4 bits in groups of -1 is not known"),
    ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "gptq with 3 bits"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:lm": {}}}, "formats that differ by module"),
    ({"quant_method": "aqlm"}, "'aqlm' is not known to kvplan"),
    ({"bits": 4, "quant_algo": "W4A8_AWQ"}, "quant_algo: 'W4A8_AWQ' is not known"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "weight_block_size: blocks of"),
    ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "expected a list"),
    ({"quant_method": "bitsandbytes"}, "neither 4 nor 8 bits"),
    (compressed({"num_bits": 3, "type": "int", "strategy": "group", "group_size": 128}), "weights of int of 3 bits"),
    (compressed({"num_bits": 8, "type": "int", "strategy": "tensor"}), "weights of int of 8 bits by tensor"),
    (compressed({"num_bits": 8}, sparsity_config={"format": "sparse-24-bitmask"}), "sparse weights"),
    (
        compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, ignore=["re:(a+)+$"]),
        "not one that an import",
    ),
    (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}, ignore=["re:["]), "no regular expression"),
    (compressed({"num_bits": 8, "type": "float"}, kv_cache_scheme={"num_bits": 4, "type": "int"}), "kv_cache_scheme"),
]


@pytest.mark.parametrize(("quantization", "sentence"), REFUSED)
def test_what_is_not_known_is_refused(quantization: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="quantization_config") as error:
        imported(tmp_path, DENSE, quantization)
    assert sentence in str(error.value)


def test_half_of_one_matrix_is_refused(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen__Qwen3.5-27B.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8", "modules_to_not_convert": ["model.language_model.layers.0.linear_attn.in_proj_a"]
    }  # fmt: skip
    with pytest.raises(SpecError, match=r"in_proj_b and .*in_proj_a of layer 0 have different formats"):
        imported(tmp_path, config)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("layers.0.linear_attn.in_proj_z", "state.in_proj_z@0"),
        ("layers.0.linear_attn.in_proj_qkv", "state.in_proj_qkv@0"),
    ],
)
def test_the_gate_of_a_delta_net_may_have_a_format_of_its_own(entry: str, key: str, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen__Qwen3.5-27B.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8", "modules_to_not_convert": [f"model.language_model.{entry}"]
    }  # fmt: skip
    assert imported(tmp_path, config).weights == {"default": "fp8", key: "bf16"}


def test_qwen3_next_names_projection_and_gate_as_one(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen__Qwen3-Next-80B-A3B-Instruct.json").read_text())
    config["quantization_config"] = {
        "quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.linear_attn.in_proj_qkvz"]
    }  # fmt: skip
    weights = {"default": "fp8", "state.in_proj_qkv@0": "bf16", "state.in_proj_z@0": "bf16"}
    assert imported(tmp_path, config).weights == weights


@pytest.mark.parametrize(
    ("entry", "index", "name", "expected"),
    [
        ("model.layers.0*", 0, "mlp.up_proj", True),
        ("model.layers.1*", 11, "mlp.up_proj", True),  # a shell's meaning: 1 and all that starts with it
        ("model.layers.1.*", 11, "mlp.up_proj", False),
        ("model.layers.3.mlp", 3, "mlp.up_proj", True),
        ("model.layers.3.mlp", 3, "mlp_other.up_proj", False),
        ("mtp.layers.0*", 0, "mlp.up_proj", False),
        ("model.visual.blocks.0.attn", 0, "attn.proj", False),
        ("gate", 5, "mlp.gate", True),
        ("gate", 5, "mlp.gate_proj", False),
        ("*.mlp.shared_expert.*", 2, "mlp.shared_expert.up_proj", True),
        ("re:.*shared_expert.*", 2, "mlp.shared_expert.up_proj", True),
    ],
)
def test_entries_of_lists(entry: str, index: int, name: str, expected: bool) -> None:
    assert names_of([entry]).in_layer(index, name) is expected
