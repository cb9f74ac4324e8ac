"""A checkpoint's config.json: its constants, and where it contradicts the model file. Knows nothing of PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvplan.errors import InputError
from kvplan.measure.decoder.numerics import Numerics
from kvplan.specs.layers import Rope
from kvplan.specs.model import ModelSpec

TYPES = (
    "deepseek_v2", "deepseek_v3", "gemma", "glm4_moe_lite", "kimi_k2", "llama", "mistral", "mixtral", "qwen2", "qwen3",
    "qwen3_moe",
)  # fmt: skip
LATENT_TYPES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2")
ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; InputError when there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected an object")
    return content


def checked_type(config: dict[str, Any], folder: Path) -> str:
    """The architecture, if its tensors are known here."""
    found = config.get("model_type")
    if found not in TYPES:
        raise InputError(f"{folder}: checkpoints of type '{found}' are not read; known are {', '.join(TYPES)}")
    return str(found)


def numerics_from(config: dict[str, Any]) -> Numerics:
    """The constants of a checked config."""
    eps = float(config.get("rms_norm_eps", 1e-6))
    if config["model_type"] == "gemma":  # whose early configs name another activation than the model was trained with
        scale = float(config["hidden_size"]) ** 0.5
        return Numerics(norm_eps=eps, norm_offset=1.0, embedding_scale=scale, activation="gelu_tanh")
    activation = config.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise InputError(f"config.json: unknown hidden_act '{activation}'; known are {', '.join(ACTIVATIONS)}")
    if config["model_type"] in LATENT_TYPES:
        return Numerics(norm_eps=eps, activation=ACTIVATIONS[activation], **_deepseek(config))
    renormalise = config["model_type"] != "qwen3_moe" or bool(config.get("norm_topk_prob", False))
    return Numerics(norm_eps=eps, activation=ACTIVATIONS[activation], renormalise=renormalise)


def _deepseek(config: dict[str, Any]) -> dict[str, Any]:
    """Routing and rotary positions of DeepSeek-V2, DeepSeek-V3 and what descends from them."""
    second, rope = config["model_type"] == "deepseek_v2", _rope(config)
    in_groups = not second or config.get("topk_method") == "group_limited_greedy"
    stretched = rope.get("mscale") and rope.get("mscale_all_dim")  # one without the other is ignored
    return {
        "scoring": "softmax" if second else "sigmoid",
        "renormalise": not second and bool(config.get("norm_topk_prob", True)),
        "routed_scale": float(config.get("routed_scaling_factor", 1.0)),
        "groups": int(config.get("n_group") or 1) if in_groups else 1,
        "active_groups": int(config.get("topk_group") or 1) if in_groups else 1,
        "interleaved": bool(config.get("rope_interleave", True)),
        "mscale": float(rope["mscale"]) if stretched else 1.0,
        "mscale_all_dim": float(rope["mscale_all_dim"]) if stretched else 0.0,
    }


def disagreements(config: dict[str, Any], model: ModelSpec) -> Iterator[str]:
    """What tensors cannot tell: rotary positions, windows, experts a token uses."""
    ours = model.rope if isinstance(model.rope, Rope) else Rope()
    first = model.stack[0]
    rope = _rope(config)
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    for name, theirs, mine in (
        ("rope theta", float(rope.get("rope_theta", 10000.0)), ours.theta),
        ("rope type", _scaling(rope), ours.scaling),
        ("rope factor", rope.get("factor"), ours.factor),
        ("sliding window", window, first.attention.window if first.attention else None),
        ("experts a token", _active(config, model), next((x.moe.active for x in model.stack if x.moe), None)),
    ):
        if theirs != mine:
            yield f"config.json: {name} {_word(theirs)}, expected {_word(mine)}"


def _active(config: dict[str, Any], model: ModelSpec) -> int | None:
    """Experts a token uses, unless only the leading dense layers are run."""
    dense = config.get("first_k_dense_replace") or 0
    return None if 0 < len(model.stack) <= dense else config.get("num_experts_per_tok")


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """Rotary parameters, in one object (transformers 5) or two keys (4)."""
    if isinstance(config.get("rope_parameters"), dict):
        return dict(config["rope_parameters"])
    return {"rope_theta": config.get("rope_theta", 10000.0), **(config.get("rope_scaling") or {})}


def _scaling(rope: dict[str, Any]) -> str | None:
    kind = rope.get("rope_type", rope.get("type"))
    return None if kind == "default" else kind


def _word(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
