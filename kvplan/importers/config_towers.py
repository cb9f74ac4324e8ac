"""What is served beside the language model: vision towers, projectors, prediction layers, counted to the parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.importers.config_fields import Fields
from kvplan.importers.config_shape import Shape
from kvplan.importers.config_text import Found
from kvplan.memory.parameters import widths_of
from kvplan.memory.tensors import layer_tensors
from kvplan.specs.layers import Layer, Mlp
from kvplan.specs.model import ModelSpec

_PARTS = ("vision_config", "audio_config", "talker_config", "code2wav_config", "vision_tower_config", "speech_config")
Counts = dict[str, int]


def extras(found: Found, s: Shape, model: ModelSpec) -> tuple[Counts, list[str]]:
    """Parameters of what is beside the model, and sentences on what is there but not counted."""
    counts, notes = _towers(found, s.hidden)
    layers = found.text.maybe("mtp_layers", 0) or 0
    if layers:
        size = _prediction(s, model, layers)
        if size:
            counts["mtp"] = size
        else:
            notes.append("prediction layers not counted")
    elif found.text.flag("use_mtp") and found.text.maybe("num_mtp_modules", 0):
        notes.append("prediction layers not counted")
    return counts, notes


def _towers(found: Found, hidden: int) -> tuple[Counts, list[str]]:
    counts: Counts = {}
    notes = []
    for name in _PARTS:
        part = found.top.section(name)
        if part is None or not part.values:
            continue
        kind = part.text("model_type") or found.top.text("model_type") or ""
        count = _TOWERS.get(kind.removesuffix("_text").removesuffix("_vision")) if name == "vision_config" else None
        if count is None and name == "vision_config" and part.has("vt_hidden_size"):
            count = _moonvit
        sizes = count(part, hidden) if count else None
        if sizes is None:
            notes.append(f"{name.removesuffix('_config')} tower not counted")
        else:
            counts.update(sizes)
    return counts, notes


def _block(
    hidden: int, inner: int, *, gated: bool = False, bias: bool = True, norms: int = 2, attention: int = 0
) -> int:
    """A transformer layer of a tower; `bias` also stands for norms with one (layer norms)."""
    width = attention or hidden
    matrices = 4 * hidden * width + (3 if gated else 2) * hidden * inner
    biases = 3 * width + hidden + (2 if gated else 1) * inner + hidden if bias else 0
    return matrices + biases + norms * hidden * (2 if bias else 1)


def _qwen3(v: Fields, hidden: int) -> Counts | None:
    """Qwen3-VL and Qwen3.5: learned positions, mergers of patches into the language model's width."""
    h, inner, depth = v.size("hidden_size"), v.size("intermediate_size"), v.size("depth")
    merged = h * v.size("spatial_merge_size", 2) ** 2
    out = v.size("out_hidden_size", hidden)
    patch = v.size("in_channels", 3) * v.size("temporal_patch_size", 2) * v.size("patch_size") ** 2
    merger = merged * merged + merged + merged * out + out
    deep = len(v.items("deepstack_visual_indexes") or ())
    tower = patch * h + h + v.size("num_position_embeddings") * h + depth * _block(h, inner)
    return {"vision_tower": tower + 2 * h + merger + deep * (2 * merged + merger)}


def _siglip(v: Fields, hidden: int) -> Counts | None:
    """SigLIP as Gemma 3 has it, and a projector of one matrix and one norm."""
    h, patch = v.size("hidden_size"), v.size("patch_size")
    positions = (v.size("image_size") // patch) ** 2
    blocks = v.size("layers") * _block(h, v.size("intermediate_size"))
    tower = 3 * patch**2 * h + h + positions * h + blocks + 2 * h
    return {"vision_tower": tower, "projector": h * hidden + h}


def _pixtral(v: Fields, hidden: int) -> Counts | None:
    """Pixtral as Mistral 3 has it: the merger of two by two patches counts with the tower."""
    h = v.size("hidden_size")
    blocks = v.size("layers") * _block(h, v.size("intermediate_size"), gated=True, bias=False)
    tower = v.size("num_channels", 3) * v.size("patch_size") ** 2 * h + h + blocks
    return {"vision_tower": tower + 4 * h * h + h, "projector": h * hidden + hidden * hidden}


def _gemma4(v: Fields, hidden: int) -> Counts | None:
    """Gemma 4: rotary positions beside two tables of them, norms of queries and keys, gated MLPs."""
    h, heads = v.size("hidden_size"), v.size("heads")
    width = heads * v.size("head_dim", h // heads)
    block = _block(h, v.size("intermediate_size"), gated=True, bias=False, norms=4, attention=width)
    tower = v.size("layers") * (block + 2 * (width // heads)) + 3 * v.size("patch_size") ** 2 * h
    tables = 2 * v.size("position_embedding_size") * h + (2 * h if v.flag("standardize") else 0)
    return {"vision_tower": tower + tables, "projector": h * hidden}


def _moonvit(v: Fields, hidden: int) -> Counts | None:
    """MoonViT as Kimi K2.5 (biases, layer norms) and K3 (neither, narrower attention) have it."""
    h, inner, layers = (v.size(f"vt_{name}") for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    bias = v.flag("linear_bias", True)
    table = v.size("init_pos_emb_height") * v.size("init_pos_emb_width") * h
    patch = 3 * v.size("patch_size") ** 2 * h + (h if v.flag("patch_embed_proj_bias", True) else 0)
    blocks = layers * _block(h, inner, bias=bias, attention=v.maybe("qkv_hidden_size") or 0)
    merged, out = 4 * h, v.size("text_hidden_size", hidden)
    norm = 2 * h if bias else out
    projector = norm + merged * merged + merged * out + (merged + out if bias else 0)
    return {"vision_tower": patch + table + blocks + h * (2 if bias else 1), "projector": projector}


_TOWERS: dict[str, Callable[[Fields, int], Counts | None]] = {
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "siglip_vision_model": _siglip,
    "pixtral": _pixtral,
    "gemma4": _gemma4,
}

_AS_LAST = ("deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "mimo")
_DENSE = {"exaone_moe": 3, "ernie4_5_moe": 2}  # one dense layer, and so many norms


def _prediction(s: Shape, model: ModelSpec, count: int) -> int | None:
    """Parameters of the layers that predict further tokens: a layer, a matrix of 2 H by H, norms around it."""
    joined = 2 * s.hidden * s.hidden
    if s.name in _AS_LAST:
        whole = [layer for layer in model.stack if layer.latent is None or layer.latent.indexer] or list(model.stack)
        return count * (_size(model, whole[-1]) + joined + 3 * s.hidden)
    if s.name in ("qwen3_5", "qwen3_5_moe", "qwen3_next"):
        full = [layer for layer in model.stack if layer.attention]
        return count * _size(model, full[-1]) + joined + 3 * s.hidden if full else None
    if s.name in _DENSE:
        width = s.f.value("intermediate_size")
        first = next((layer for layer in model.stack if layer.attention), None)
        if first is None or not isinstance(width, int):
            return None
        dense = Layer(attention=first.attention, mlp=Mlp(intermediate_size=width), norms=first.norms)
        return count * (_size(model, dense) + joined + _DENSE[s.name] * s.hidden)
    return _nemotron_prediction(s, model, count) if s.name == "nemotron_h" else None


def _nemotron_prediction(s: Shape, model: ModelSpec, count: int) -> int | None:
    """An attention layer and one of experts, each with its norm, as `mtp_hybrid_override_pattern` has them."""
    from kvplan.importers.config_order import order_words, pattern_words

    words = pattern_words(s.f, "mtp_hybrid_override_pattern") or order_words(s.f, "mtp_layers_block_type", None)
    by_word: dict[str, Any] = dict(zip(s.mixers, model.stack, strict=False))
    if not words or any(word not in by_word for word in words):
        return None
    inside = sum(_size(model, by_word[word]) for word in words)
    return count * (inside + 2 * s.hidden * s.hidden + 3 * s.hidden)


def _size(model: ModelSpec, layer: Layer) -> int:
    return sum(tensor.parameters for tensor in layer_tensors(layer, widths_of(model)))
