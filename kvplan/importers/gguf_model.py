"""The model that the keys and tensors of a GGUF file make."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kvplan.errors import did_you_mean
from kvplan.importers.gguf_architectures import ARCHITECTURES, UNSUPPORTED
from kvplan.importers.gguf_attention import Shape, columns, read_shape, rows
from kvplan.importers.gguf_header import GgufTensor, Value, refuse
from kvplan.importers.gguf_keys import Keys
from kvplan.importers.gguf_layers import layer_of
from kvplan.importers.gguf_names import HOST, Block, Part, blocks_of, is_known, mixer_of, part_of
from kvplan.importers.gguf_scheme import Stored, weights_of
from kvplan.specs.layers import STATE_MIXERS, Layer, Rope
from kvplan.specs.model import ModelSpec, PerLayerInput
from kvplan.specs.order import MAX_LAYERS
from kvplan.specs.scalars import shown
from kvplan.units import human_bytes

_SCALINGS = {"linear": "linear", "yarn": "yarn", "longrope": "longrope"}
_UNITS = {"M": 10**6, "B": 10**9, "T": 10**12}


def build(source: str, name: str, values: dict[str, Value], tensors: list[GgufTensor]) -> ModelSpec:
    """The model, or SpecError with what is not understood."""
    prefix = _architecture(source, values)
    keys = Keys(values, prefix, source)
    layers, predicted = _counts(keys)
    blocks, _ = blocks_of(tensors)
    _check_blocks(keys, blocks, layers)
    try:
        shape = read_shape(keys, ARCHITECTURES[prefix], layers)
        stack = _shared([layer_of(shape, index, blocks[index]) for index in range(layers)])
        model = _model(shape, tensors, stack)
    except ValueError as error:  # a relation that a section checks at birth
        refuse(source, str(error))
    mtp = sum(t.elements for index in range(layers, layers + predicted) for t in blocks.get(index, {}).values())
    return replace(model, name=name, extras={"mtp": mtp} if mtp else {})


def _architecture(source: str, values: dict[str, Value]) -> str:
    kind = values.get("general.type", "model")
    name = values.get("general.architecture")
    if not isinstance(name, str):
        refuse(source, "is missing: without it no other key can be read", "general.architecture")
    if kind not in ("model", "") and name in ARCHITECTURES:
        refuse(source, f"is '{shown(str(kind))}'; name the file of the model itself", "general.type")
    if name in UNSUPPORTED:
        refuse(source, f"'{name}' is not supported: {UNSUPPORTED[name]}", "general.architecture")
    if name not in ARCHITECTURES:
        near = did_you_mean(name[:60], ARCHITECTURES) or ";"
        advice = "write a model file in YAML for it (`kvplan schema model`)"
        refuse(source, f"'{shown(name)}' is not known to kvplan{near} {advice}", "general.architecture")
    return name


def _counts(keys: Keys) -> tuple[int, int]:
    """Layers of the model, and those after them that predict further tokens."""
    blocks, predicted = keys.size("block_count"), keys.size("nextn_predict_layers", 0, 0)
    if blocks > MAX_LAYERS or predicted >= blocks:
        keys.refuse(
            "block_count", f"{blocks} blocks with {predicted} for prediction: from 1 to {MAX_LAYERS} are possible"
        )
    return blocks - predicted, predicted


def _check_blocks(keys: Keys, blocks: dict[int, Block], layers: int) -> None:
    missing = [index for index in range(layers) if index not in blocks]
    if missing:
        keys.refuse("block_count", f"says {layers} layers, but the file has no tensors of layer {missing[0]}")


def _shared(layers: list[Layer]) -> list[Layer]:
    found: dict[Layer, Layer] = {}
    return [found.setdefault(layer, layer) for layer in layers]


def _model(s: Shape, tensors: list[GgufTensor], stack: list[Layer]) -> ModelSpec:
    blocks, edges = blocks_of(tensors)
    parts = [part for part in parts_of(tensors, s.layers) if part.component != "mtp"]
    stored, file_type = _stored(parts, "output.weight" not in edges), s.keys.values.get("general.file_type")
    recurrent = any(getattr(layer, mixer) for layer in stack for mixer in STATE_MIXERS if mixer != "short_conv")
    return ModelSpec(
        name=s.keys.prefix,
        source=(f"header of a GGUF file ({s.keys.prefix})",),
        family=s.keys.prefix,
        nominal_parameters=_nominal(s.keys.values.get("general.size_label")),
        hidden_size=s.hidden,
        max_context=s.keys.optional("context_length"),
        rope=_rope(s, stack, edges),
        weights=weights_of(stored, stack, s.keys.prefix, file_type),
        stored_bytes=_bytes(parts),
        state_dtype="fp32" if recurrent else None,  # llama.cpp keeps recurrent state in f32
        notes="; ".join(_notes(s, stack, parts)) or None,
        layers=len(stack),
        stack=tuple(stack),
        stack_kinds=tuple(_kinds(s, stack)),
        **_edges(s, edges, blocks[0]),
    )


def _edges(s: Shape, edges: Block, first: Block) -> dict[str, Any]:
    """What stands before and after the layers, by the tensors that are there."""
    table = edges.get("token_embd.weight")
    if table is None or columns(table) != s.hidden:
        refuse(s.keys.source, f"has no token_embd.weight with rows of {s.hidden}, the embedding_length")
    per_layer = edges.get("per_layer_token_embd.weight")
    altup = edges.get("altup_proj.weight")
    positions = edges.get("position_embd.weight")
    laurel = first.get("laurel_l.weight")
    has_final = "output_norm.weight" in edges
    layer_norm = "output_norm.bias" in edges or "attn_norm.bias" in first
    return {
        "vocab_size": rows(table),
        "tied": "output.weight" not in edges,
        "head_bias": "output.bias" in edges,
        "norm": "layer" if layer_norm else "layer-no-bias" if s.architecture.layer_norm else "rms",
        # LFM2 keeps its last norm under the embedding's name
        "final_norm": has_final or "token_embd_norm.weight" in edges,
        "embedding_norm": has_final and "token_embd_norm.weight" in edges,
        "learned_positions": rows(positions) if positions else None,
        "altup_inputs": altup.dimensions[-1] + 1 if altup and len(altup.dimensions) == 3 else None,
        "laurel_rank": rows(laurel) if laurel else None,
        "per_layer_input": None
        if per_layer is None
        else PerLayerInput(vocab_size=rows(per_layer), width=s.keys.size("embedding_length_per_layer_input")),
    }


def parts_of(tensors: list[GgufTensor], layers: int) -> list[Part]:
    """Every tensor with its component; those of layers for prediction are `mtp`."""
    blocks, edges = blocks_of(tensors)
    parts = [part_of(name, tensor, -1, "") for name, tensor in edges.items()]
    for index, block in blocks.items():
        mixer = mixer_of(block)
        own = [part_of(name, tensor, index, mixer) for name, tensor in block.items()]
        parts += own if index < layers else [Part(part.tensor, index, "mtp") for part in own]
    return parts


def _stored(parts: list[Part], tied: bool) -> list[Stored]:
    names = {"embed_tokens": "tied_embed_tokens"} if tied else {}
    return [
        Stored(part.component, names.get(matrix, matrix), part.block, columns(part.tensor), part.tensor.type)
        for part in parts
        for matrix in part.matrices
    ]


def _bytes(parts: list[Part]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.component] = sums.get(part.component, 0) + part.tensor.bytes
    return sums


def _kinds(s: Shape, stack: list[Layer]) -> list[str]:
    """Names for layers that differ: by mixer, by feed-forward part, or by both."""
    mixers = [_mixer_name(s, index, layer) for index, layer in enumerate(stack)]
    parts = ["sparse" if layer.moe else "dense" if layer.mlp else "" for layer in stack]
    alone = {"sparse": "moe", "dense": "mlp", "": "none"}
    if not all(mixers):
        named = [mixer or alone[part] for mixer, part in zip(mixers, parts, strict=True)]
        return named if len(set(named)) > 1 else [""] * len(stack)
    columns_ = [words for words in (mixers, parts) if len(set(words)) > 1]
    return ["_".join(words) for words in zip(*columns_, strict=True)] if columns_ else [""] * len(stack)


def _mixer_name(s: Shape, index: int, layer: Layer) -> str:
    if layer.attention and not layer.mamba2:
        reuse = "_reuse" if layer.attention.cache_of else ""
        if any(s.local):
            return ("local" if s.local[index] else "global") + reuse
        return ("own" + reuse if s.shared else "attention") if s.shared else "attention"
    states = {"mamba1": "mamba", "mamba2": "mamba", "delta": "linear", "kimi_delta": "delta", "short_conv": "conv"}
    return next((states.get(name, name) for name in ("latent", *states) if getattr(layer, name)), "")


def _rope(s: Shape, stack: list[Layer], edges: Block) -> Rope | str | None:
    theta = s.keys.number("rope.freq_base")
    widths = {layer.attention.head_dim for layer in stack if layer.attention}
    dim = s.keys.optional("rope.dimension_count")
    partial = dim if widths and dim and dim < min(widths) else None
    scaling = _SCALINGS.get(s.keys.text("rope.scaling.type") or "")
    if scaling is None and "rope_freqs.weight" in edges:
        scaling = "llama3"
    if theta is None and scaling is None and partial is None:
        return None
    return Rope(
        theta=theta or 10000.0,
        dim=partial,
        scaling=scaling,
        factor=s.keys.number("rope.scaling.factor") if scaling else None,
        original_context=s.keys.optional("rope.scaling.original_context_length") if scaling else None,
    )


def _nominal(label: Value | None) -> int | None:
    """The parameters of a size label such as 8B or 30B-A3B; 8x7B says less."""
    said = re.match(r"(\d{1,6}(?:\.\d{1,3})?)([MBT])(?:-|$)", label) if isinstance(label, str) else None
    return round(float(said[1]) * _UNITS[said[2]]) or None if said else None


def _notes(s: Shape, stack: list[Layer], parts: list[Part]) -> list[str]:
    notes = []
    host = sum(part.tensor.bytes for part in parts if part.tensor.name in HOST)
    notes.append(f"llama.cpp keeps token_embd and per-layer embeddings on the host: {human_bytes(host)}")
    if s.keys.get("attention.sliding_window") and not any(s.local):
        notes.append("the file declares a sliding window that llama.cpp does not use for this architecture")
    if any(layer.latent for layer in stack) and s.keys.get("attention.key_length_mla") is None:
        notes.append("made before llama.cpp had MLA: it caches keys and values of all heads; convert the model again")
    unknown = [
        p.tensor.name for p in parts if not is_known(p.tensor.name.split(".", 2)[-1] if p.block >= 0 else p.tensor.name)
    ]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        notes.append(f"tensors that are not understood, counted as bytes: {', '.join(map(shown, unknown[:3]))}{more}")
    return notes
