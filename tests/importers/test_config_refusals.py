"""What an import refuses, and that no file, however mangled, ends in a traceback, a hang or an approximation."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_configs import HUB_CONFIGS

from kvplan.errors import KvplanError, SpecError
from kvplan.importers.config import import_config
from kvplan.importers.config_json import MAX_BYTES
from kvplan.specs.writer import to_yaml

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
M3 = json.loads((CONFIGS / "MiniMaxAI__MiniMax-M3.json").read_text(encoding="utf-8"))
QWEN35 = json.loads((CONFIGS / "Qwen__Qwen3.5-27B.json").read_text(encoding="utf-8"))


def refusal(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with pytest.raises(KvplanError) as error:
        import_config(path)
    return str(error.value).replace(f"{path}: ", "")


def without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


REFUSED: list[Any] = [
    (
        {**M3, "sparse_attention_config": {**M3["sparse_attention_config"], "sparse_disable_index_value": [0] * 60}},
        "sparse_attention_config.sparse_disable_index_value: an indexer with values of its own is not known",
    ),
    (
        {**M3, "sparse_attention_config": without(M3["sparse_attention_config"], "sparse_index_dim")},
        "sparse_attention_config.sparse_index_dim: missing",
    ),
    ({**LLAMA, "sparse_attention_config": {"use_sparse_attention": True}}, "sparse_attention_config: this field may"),
    (
        {**LLAMA, "model_type": "lama"},
        "model_type: the architecture 'lama' is not known to kvplan; did you mean 'llama'",
    ),
    ({**LLAMA, "model_type": "t5"}, "the architecture 't5' is not known"),
    (without(LLAMA, "model_type"), "model_type: missing"),
    (without(LLAMA, "hidden_size"), "hidden_size: missing; without it the shape is not known"),
    (without(LLAMA, "num_attention_heads"), "num_attention_heads: missing"),
    (without(LLAMA, "intermediate_size"), "intermediate_size: missing"),
    ({**LLAMA, "hidden_size": "1024"}, "hidden_size: expected a whole number from 1 to 2147483648, got 1024"),
    ({**LLAMA, "hidden_size": True}, "hidden_size: expected a whole number"),
    ({**LLAMA, "hidden_size": -1}, "hidden_size: expected a whole number"),
    ({**LLAMA, "hidden_size": 1000.5}, "hidden_size: expected a whole number"),
    ({**LLAMA, "hidden_size": 10**40}, "hidden_size: expected a whole number"),
    ({**LLAMA, "num_hidden_layers": 10**6}, "num_hidden_layers: expected a whole number from 1 to 4096"),
    ({**LLAMA, "num_attention_heads": 7, "num_key_value_heads": 7}, "head_dim: missing, and hidden size 1024 does not"),
    ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads: 8 query heads do not divide by 3"),
    ({**LLAMA, "attention_bias": 1}, "attention_bias: expected true or false, got 1"),
    ({**LLAMA, "n_layer": 5}, "n_layer: num_hidden_layers is 4 but n_layer is 5"),
    ({**LLAMA, "cross_layer_kv_dim": 64}, "cross_layer_kv_dim: this field may change the shape"),
    ({**LLAMA, "layer_types": ["full_attention"] * 3}, "layer_types: 3 values for 4 layers"),
    ({**LLAMA, "layer_types": ["full_attention", "retention"] * 2}, "layer_types: the kind of layer 'retention'"),
    ({**LLAMA, "layer_types": [1, 2, 3, 4]}, "layer_types: expected a list of texts"),
    ({**LLAMA, "sliding_window": 512}, "sliding_window: a window, but nothing says which layers have it"),
    ({**LLAMA, "rope_scaling": {"rope_type": "spiral", "factor": 2}}, "rope_type: the scaling 'spiral' of rotary"),
    ({**LLAMA, "rope_theta": -1}, "rope_theta: expected a number above 0, got -1"),
    ({**LLAMA, "torch_dtype": "int3"}, "torch_dtype: the format 'int3' is not known"),
    ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "is no model that writes text"),
    ({**LLAMA, "is_encoder_decoder": True}, "encoders and cross-attention are not known"),
    ({**LLAMA, "model_type": "ernie4_5_moe", "use_bias": True}, "use_bias: this field may change the shape"),
    ({**MIXTRAL, "num_experts_per_tok": 9}, "num_experts_per_tok: 9 experts a token uses, of 8"),
    (without(MIXTRAL, "num_experts_per_tok"), "num_experts_per_tok: missing"),
    ({**MIXTRAL, "moe_layer_freq": [1, 0]}, "moe_layer_freq: 2 values for 4 layers"),
    ({**HUB_CONFIGS["hunyuan-a13b"], "use_cla": True}, "use_cla: layers that share keys and values"),
    ({**HUB_CONFIGS["jamba-v0.1"], "mamba_proj_bias": True}, "mamba_proj_bias: biases on the projections of a state"),
    ({**HUB_CONFIGS["jamba-v0.1"], "mamba_inner_layernorms": "no"}, "mamba_inner_layernorms: this field may change"),
    ({**HUB_CONFIGS["kimi-linear"], "attention_bias": True}, "attention_bias: biases beside a latent"),
    ({**HUB_CONFIGS["command-r7b"], "use_parallel_block": 2}, "use_parallel_block"),
    (
        {**LLAMA, "model_type": "mpt", "max_seq_len": 64, "no_bias": False},
        "no_bias: biases are not known in this family",
    ),
    (HUB_CONFIGS["dbrx"] | {"ffn_config": None}, "ffn_config: missing"),
    ([1, 2], "expected a JSON object"),
    ("{", "not valid JSON"),
    ("", "not valid JSON"),
    ('{"model_type": "llama", "model_type": "qwen2"}', "key 'model_type' appears twice"),
    ('{"a": {"b": 1, "b": 2}}', "key 'b' appears twice"),
    ("[" * 100_000, "nested deeper than any config is"),
    ('{"a":' * 100_000, "nested deeper than any config is"),
    ('{"hidden_size": ' + "9" * 5000 + "}", "model_type: missing"),
]


@pytest.mark.parametrize(("content", "sentence"), REFUSED)
def test_refusals_name_the_field_and_the_reason(content: Any, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(tmp_path, content)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such file"):
        import_config(tmp_path)  # a folder without a config
    (tmp_path / "config.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(SpecError, match="not UTF-8 text"):
        import_config(tmp_path)
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(SpecError, match="larger than 32 MiB"):
        import_config(tmp_path)


def test_code_beside_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "modeling_evil.py").write_text("raise SystemExit", encoding="utf-8")
    config = {**LLAMA, "auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}, "trust_remote_code": True}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert import_config(tmp_path).hidden_size == 1024


def test_fields_that_change_nothing_are_named_in_a_note(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "flavour": "sweet", "eos_token_id": 2}))
    assert import_config(tmp_path).notes == "fields not used: flavour"


def test_an_unknown_wrapper_keeps_its_language_model(tmp_path: Path) -> None:
    config = {"model_type": "some_vl", "text_config": LLAMA, "vision_config": {"model_type": "some_vit", "depth": 3}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = import_config(tmp_path)
    assert (model.family, model.notes) == ("llama", "vision tower not counted")


def test_every_unknown_field_that_looks_structural_is_told_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, {**QWEN35, "text_config": {**QWEN35["text_config"], "moe_depth": 3, "kv_ratio": 2}})
    assert "has 2 problems" in message
    assert "text_config.moe_depth" in message


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53, 10**30, 1e308, float("inf"), float("nan"), 0.5, 3.7, "", "x", "auto",
    "re:(a+)+$", "*", "\ud800", [], [1], [None], ["x"], ["full_attention"], {}, {"a": 1}, [[1]], [-1, 2], [0] * 4096,
    {"type": "yarn", "factor": -1}, "1" * 5000,
]  # fmt: skip


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*place, name)
            yield from places(inner, (*place, name))
    elif isinstance(value, list) and value:
        yield (*place, len(value) // 2)
        yield from places(value[len(value) // 2], (*place, len(value) // 2))


def mutated(config: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The config with a few values dropped, renamed or replaced by something else."""
    for _ in range(chance.choice([1, 1, 2, 4])):
        *parents, last = chance.choice(list(places(config)))
        inner: Any = config
        for name in parents:
            inner = inner[name]
        action = chance.random()
        if action < 0.25 and isinstance(inner, dict):
            del inner[last]
        elif action < 0.35 and isinstance(inner, dict):
            inner[f"{last}_size"] = 7
        else:
            inner[last] = copy.deepcopy(chance.choice(JUNK))
        if not config:
            break
    return config


def outcome(path: Path) -> str:
    try:
        return to_yaml(import_config(path))
    except KvplanError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(8))
def test_mangled_configs_give_a_model_or_a_sentence(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    given = [json.loads(path.read_text()) for path in CONFIGS.glob("*.json") if path.stat().st_size < 20_000]
    configs = [*HUB_CONFIGS.values(), *given]
    path = tmp_path / "config.json"
    for _ in range(40):
        path.write_text(json.dumps(mutated(copy.deepcopy(chance.choice(configs)), chance)), encoding="utf-8")
        assert outcome(path).replace("\n", "").isprintable()


def test_a_list_of_ten_megabytes_takes_seconds_at_most(tmp_path: Path) -> None:
    names = [f"model.layers.{n % 4}.mlp.experts.{n}.up_proj" for n in range(200_000)]
    quantization = {"quant_method": "fp8", "modules_to_not_convert": names}
    start = time.perf_counter()
    refusal(tmp_path, {**MIXTRAL, "quantization_config": quantization})
    assert time.perf_counter() - start < 20


def test_patterns_that_never_end_are_not_run(tmp_path: Path) -> None:
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}},
    }
    for pattern in ("re:(.*)*x", "re:.*.*.*.*.*.*x", "re:(a|a)+(a|a)+$", "re:((a+)b)+", r"re:(\w+)\1+"):
        start = time.perf_counter()
        refusal(tmp_path, {**LLAMA, "quantization_config": {**quantization, "ignore": [pattern]}})
        assert time.perf_counter() - start < 5
