"""Which architectures are known: other names of families, and what is refused with its reason."""

from __future__ import annotations

from kvplan.importers.config_families import FAMILIES, Family

# Names under which the same architecture goes in older or wrapping configs.
SAME_AS = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "Yi": "llama",
    "deci": "nemotron_nas",
    "hunyuan_v1_dense": "hunyuan",
    "hunyuan_v1_moe": "hunyuan",
    "hunyuan_moe": "hunyuan",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "mimo_v2_flash": "mimo_v2",
    "ministral": "mistral",
    "ministral3": "mistral",
    "minimax_m1": "minimax",
    "minimax_m3_vl": "minimax_m3",
    "minimax_text_01": "minimax",
    "MiniMaxText01": "minimax",
    "MiniMaxM1": "minimax",
    "nemotron-nas": "nemotron_nas",
    "qwen2_5_omni": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen3_omni_moe": "qwen3_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "stablelm_epoch": "stablelm",
}

# Of these the whole config names the architecture: the part within has the name of an older one.
NAMED_OUTSIDE = ("minimax_m3_vl",)

_COMPRESSED = (
    "its layers keep one key that is also the value in a window beside entries compressed 4 or 128 to 1;"
    " kvplan has no cache of that form"
)
_STEP = "the heads of its windowed layers and its gates are written in a way that an import does not read"
UNSUPPORTED = {
    "deepseek_v4": _COMPRESSED,
    "deepseek_ref": _COMPRESSED,
    "mllama_text_model": "its cross-attention layers cache the image's keys and values, which kvplan does not model",
    "step3p5": _STEP,
}


def family_of(model_type: str) -> tuple[str, Family | None]:
    """The family's name and what is known of it; `_text` and the like at the end of a name do not matter."""
    bare = model_type
    for ending in ("_text", "_thinker", "_llm"):
        bare = bare.removesuffix(ending)
    name = SAME_AS.get(bare, bare)
    return name, FAMILIES.get(name)
