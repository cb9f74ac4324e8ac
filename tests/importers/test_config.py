"""Every config.json at hand becomes the zoo's model to the parameter, or is refused for the right reason."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from hub_configs import HUB_CONFIGS

from kvplan.errors import KvplanError
from kvplan.importers.config import import_config
from kvplan.loading import load_model
from kvplan.memory.cache_groups import CacheGroup, cache_groups
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.sharding import shard
from kvplan.specs import zoo
from kvplan.specs.model import ModelSpec

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(path for path in (DATA / "configs").glob("*.json") if not path.name.endswith(".hf_quant.json"))
COUNTS = {
    row["name"]: row
    for row in csv.DictReader(
        line for line in (DATA / "model_counts.csv").read_text(encoding="utf-8").splitlines() if line[:1] != "#"
    )
}

REFUSED = {
    "deepseek-ai__DeepSeek-V4-Flash": "kvplan has no cache of that form",
    "deepseek-ai__DeepSeek-V4-Pro": "kvplan has no cache of that form",
    "sgl-project__DeepSeek-V4-Pro-FP8": "kvplan has no cache of that form",
    "stepfun-ai__Step-3.7-Flash-FP8": "num_sliding_attention_heads: missing",  # 96 in the zoo; the file is cut short
}
# Where the zoo has no such model: published counts of models of the same shape.
TEXT_PARAMETERS = {
    "Qwen__Qwen3-VL-2B-Instruct": 1_720_574_976,  # as Qwen3-1.7B
    "Qwen__Qwen3-VL-4B-Instruct": 4_022_468_096,  # as Qwen3-4B
    "Qwen__Qwen3-VL-8B-Instruct": 8_190_735_360,  # as Qwen3-8B
    "Qwen__Qwen3-VL-32B-Instruct": 32_762_123_264,  # as Qwen3-32B
    "Qwen__Qwen3-VL-32B-Thinking": 32_762_123_264,
    "MiniMaxAI__MiniMax-M2.7": 228_689_764_864,  # as MiniMax-M2.5
    "allenai__Olmo-3.1-32B-Instruct": 32_233_522_176,  # as Olmo-3-32B
}


# Checkpoints of another maker, or of another name, with the shape of one in the zoo.
TWINS = {
    "deepseek-ai/DeepSeek-V3.2": "deepseek-v3",  # what the file holds is the config of DeepSeek-V3, without an indexer
    "nvidia/Gemma-4-31B-IT-NVFP4": "gemma-4-31b",
    "nvidia/Kimi-K2.6-NVFP4": "kimi-k2.5",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "nemotron-3-nano",
}


def hub_id(path: Path) -> str:
    return re.sub(r"(?<=[bB])\.2$", "", path.stem).replace("__", "/")  # a second copy of the same file


def zoo_name(path: Path) -> str | None:
    name = hub_id(path)
    bare = re.sub(r"-(FP8|NVFP4|FP8-Static-PerTensor)$", "", name)
    if name in TWINS:
        return TWINS[name]
    tries = (name, bare, f"{bare}-BF16", bare.replace("nvidia/", ""), bare.replace("nvidia/", "deepseek-ai/"))
    return next((found for one in tries if (found := zoo.lookup("models", one))), None)


def elements(model: ModelSpec) -> tuple[int, int, int, int]:
    """Cached elements: of a token over all layers, full and windowed; of a session, state and convolution."""
    groups: list[CacheGroup] = cache_groups(shard(model)[0])
    growing = [g for g in groups if g.kind in ("full", "latent")]
    held = [g for g in groups if g.kind in ("window", "chunk")]
    return (
        sum(g.layers * g.elements_per_token for g in growing),
        sum(g.layers * g.elements_per_token for g in held),
        sum(g.layers * g.state_elements for g in groups),
        sum(g.layers * g.conv_elements for g in groups),
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_imports_exactly_or_is_refused_with_its_reason(path: Path) -> None:
    if path.stem in REFUSED:
        with pytest.raises(KvplanError, match=re.escape(REFUSED[path.stem])):
            import_config(path)
        return
    model, known = import_config(path), zoo_name(path)
    assert parameters(model) == (TEXT_PARAMETERS.get(path.stem) or int(COUNTS[str(known)]["parameters"]))
    if known is None:
        return
    row, twin = COUNTS.get(known), load_model(known)
    if row and row["active"]:
        assert active_parameters(model) == int(row["active"])
    assert model.stack == twin.stack
    assert elements(model) == elements(twin)
    assert {name: getattr(model, name) for name in ("hidden_size", "vocab_size", "tied", "norm", "state_dtype")} == {
        name: getattr(twin, name) for name in ("hidden_size", "vocab_size", "tied", "norm", "state_dtype")
    }


def test_minimax_m3_within_a_config_with_its_tower(tmp_path: Path) -> None:
    # as the hub has it: the language part bears the name of MiniMax M2, whose fields are others
    text = json.loads((DATA / "configs" / "MiniMaxAI__MiniMax-M3.json").read_text(encoding="utf-8"))
    whole = {"model_type": "minimax_m3_vl", "vision_config": {"hidden_size": 1280}, "text_config": text}
    text["model_type"] = "minimax_m2"
    (tmp_path / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    model, twin = import_config(tmp_path), load_model("minimax-m3")
    assert model.family == twin.family == "minimax_m3"
    assert model.stack == twin.stack
    assert (model.rope, model.max_context) == (twin.rope, twin.max_context)
    caches = {group.kind: group.layers * group.elements_per_token for group in cache_groups(shard(model)[0])}
    assert caches == {"full": 60 * 4 * (128 + 128), "indexer": 57 * 128}


def test_few_files_are_without_a_twin() -> None:
    alone = {path.stem for path in FILES if zoo_name(path) is None} - REFUSED.keys() - TEXT_PARAMETERS.keys()
    assert not alone, alone


@pytest.mark.parametrize("name", HUB_CONFIGS)
def test_configs_as_the_hub_has_them_become_the_models_of_the_zoo(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(HUB_CONFIGS[name]), encoding="utf-8")
    model, twin = import_config(path.parent), load_model(name)
    assert model.name == name
    assert parameters(model) == parameters(twin)
    assert active_parameters(model) == active_parameters(twin)
    assert model.stack == twin.stack
    assert (model.tied, model.norm, model.head_bias) == (twin.tied, twin.norm, twin.head_bias)
    counted = {part: size for part, size in twin.extras.items() if part in model.extras}
    assert model.extras == counted


EXTRAS = {
    "Qwen__Qwen3.5-27B": {"vision_tower": 460_730_096, "mtp": 424_699_392},
    "Qwen__Qwen3.5-397B-A17B": {"vision_tower": 456_010_480, "mtp": 6_595_568_128},
    "XiaomiMiMo__MiMo-7B-Base": {"mtp": 210_790_400},
    "deepseek-ai__DeepSeek-R1": {"mtp": 11_610_068_224},
    "google__gemma-4-26B-A4B": {"vision_tower": 569_550_384, "projector": 3_244_032},
    "moonshotai__Kimi-K2.5": {"vision_tower": 416_866_032, "projector": 54_277_888},  # 471143920 together
    "moonshotai__Kimi-K3": {"vision_tower": 401_214_464, "projector": 46_144_512},
    "nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": {"mtp": 2_942_325_248},
    "nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": {"mtp": 11_215_610_368},
    "nvidia__Qwen3.5-122B-A10B-NVFP4": {"vision_tower": 451_290_864, "mtp": 2_523_679_232},
    "zai-org__GLM-5.2": {"mtp": 9_952_920_576},
}


@pytest.mark.parametrize("stem", EXTRAS)
def test_towers_and_prediction_layers_are_the_rest_of_the_published_totals(stem: str) -> None:
    assert import_config(DATA / "configs" / f"{stem}.json").extras == EXTRAS[stem]


def test_what_is_not_counted_is_said() -> None:
    notes = import_config(DATA / "configs" / "MiniMaxAI__MiniMax-M2.7.json").notes
    assert notes == "prediction layers not counted"


CONTEXTS = {
    "deepseek-ai__DeepSeek-R1": 163_840,
    "meta-llama__Llama-3.2-3B": 131_072,
    "mistralai__Devstral-2-123B-Instruct-2512": 262_144,
    "mosaicml__mpt-7b": 2048,
    "openai__gpt-oss-120b": 131_072,
    "tiiuae__falcon-40b": 2048,
    "zai-org__GLM-5": 202_752,
}


@pytest.mark.parametrize("stem", CONTEXTS)
def test_the_longest_context(stem: str) -> None:
    assert import_config(DATA / "configs" / f"{stem}.json").max_context == CONTEXTS[stem]


def test_rotary_positions_of_every_kind() -> None:
    def rope(stem: str) -> object:
        found = import_config(DATA / "configs" / f"{stem}.json")
        return found.rope if isinstance(found.rope, str) else vars(found.rope) if found.rope else None

    assert rope("mosaicml__mpt-7b") == "none"
    assert rope("deepseek-ai__DeepSeek-R1") == {
        "theta": 10000, "dim": None, "scaling": "yarn", "factor": 40, "original_context": 4096
    }  # fmt: skip
    assert rope("meta-llama__Llama-3.2-3B") == {
        "theta": 500000, "dim": None, "scaling": "llama3", "factor": 32, "original_context": 8192
    }  # fmt: skip
    assert rope("Qwen__Qwen3-Next-80B-A3B-Instruct") == {
        "theta": 10000000, "dim": 64, "scaling": None, "factor": None, "original_context": None
    }  # fmt: skip
    gemma = import_config(DATA / "configs" / "google__gemma-4-26B-A4B.json")
    local, full = gemma.stack[0].attention, gemma.stack[5].attention
    assert local is not None
    assert full is not None
    assert local.rope is not None
    assert full.rope is None
    assert "theta=10000" in repr(local.rope)
    assert "dim=128" in repr(gemma.rope)  # a quarter of 512, the width of the global heads


def test_names_and_what_they_state() -> None:
    model = import_config(DATA / "configs" / "Qwen__Qwen3-235B-A22B-FP8.json")
    assert model.name == "qwen3-235b-a22b-fp8"
    assert model.nominal_parameters == 235 * 10**9
    scout = import_config(DATA / "configs" / "meta-llama__Llama-4-Scout-17B-16E-Instruct.json")
    assert scout.nominal_parameters is None  # 17B names the active ones
