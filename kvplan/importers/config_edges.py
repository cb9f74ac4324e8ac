"""What a model has outside its layers: embeddings, head, norms, positions, formats."""

from __future__ import annotations

from typing import Any

from kvplan.importers.config_fields import Fields
from kvplan.importers.config_shape import Shape
from kvplan.importers.config_text import Found
from kvplan.specs.model import PerLayerInput

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}
_FP8 = ("float8_e4m3fn", "float8_e5m2")


def edges(found: Found, s: Shape) -> dict[str, Any]:
    """The fields of a model that are not its layers, its name or its quantisation."""
    f, family = found.text, found.family
    values: dict[str, Any] = {
        "hidden_size": s.hidden,
        "vocab_size": f.size("vocab_size"),
        "rope": _rope(f, s),
        "weights": _dtype(found),
        "state_dtype": _state_dtype(f, s),
        "tied": _tied(found),
        "norm": family.norm,
        "head_bias": s.on(family.head_bias),
        "embedding_norm": s.name == "bloom",
        "learned_positions": _learned_positions(f, s),
        "attention_residuals": f.maybe("attn_res_block_size") is not None,
    }
    if s.name == "mpt":
        _check_mpt(f)
    if s.name == "opt":
        values.update(_opt(f, s))
    if f.maybe("hidden_size_per_layer_input", 0):
        rows, width = f.size("vocab_size_per_layer_input", f.size("vocab_size")), f.size("hidden_size_per_layer_input")
        values["per_layer_input"] = PerLayerInput(vocab_size=rows, width=width)
    if s.name == "gemma3n":
        values["altup_inputs"], values["laurel_rank"] = f.size("altup_num_inputs", 4, 2), f.size("laurel_rank", 64)
    return values


def _rope(f: Fields, s: Shape) -> Any:
    """None of the positions turn where a bias (ALiBi) or a table stands for them."""
    by_bias = f.flag("alibi") or (s.name == "baichuan" and s.hidden != 4096)  # its 13B has no field that says so
    kind = f.text("position_embedding_type") or ""
    if s.name == "mpt" and not isinstance(f.value("rope"), bool):
        return "none"
    if by_bias or kind == "nope" or (s.name == "granitemoehybrid" and not kind):
        return "none"
    return s.ropes.model


def _learned_positions(f: Fields, s: Shape) -> int | None:
    if s.name == "mpt" and not f.flag("alibi") and f.flag("learned_pos_emb", True):
        return f.size("max_seq_len")
    if not s.family.learned_positions:
        f.flag("learned_pos_emb")
        return None
    rows = next((n for name in ("n_positions", "max_position_embeddings", "n_ctx") if (n := f.maybe(name))), None)
    if rows is None:
        f.refuse("n_positions", "missing; without it the table of positions is not known")
    return rows + (2 if s.name == "opt" else 0)  # OPT keeps two rows before the first position


def _check_mpt(f: Fields) -> None:
    """MPT can be built with biases and norms of queries and keys; the published models are not."""
    if not f.flag("no_bias", True):
        f.refuse("no_bias", "biases are not known in this family")
    if f.flag("qk_ln") or f.value("qk_gn"):
        f.refuse("qk_ln", "norms of queries and keys are not known in this family")
    ffn = f.section("ffn_config")
    if ffn is not None and ffn.text("ffn_type") not in (None, "mptmlp"):
        ffn.refuse("ffn_type", "an MLP of another kind than mptmlp is not known in this family")
    f.used.add("embedding_fraction")  # scales gradients


def _opt(f: Fields, s: Shape) -> dict[str, Any]:
    first = f.flag("do_layer_norm_before", True)
    width = f.size("word_embed_proj_dim", s.hidden)
    if not f.flag("layer_norm_elementwise_affine", True):
        f.refuse("layer_norm_elementwise_affine", "norms without weights are not known in this family")
    last = first and not f.flag("_remove_final_layer_norm")
    return {"final_norm": last, "embedding_size": None if width == s.hidden else width}


def _dtype(found: Found) -> str:
    """The 16-bit or 32-bit format of what is not quantised; bf16 where nothing is said."""
    said = found.text.value("dtype") or found.top.value("dtype")
    if said is None or said == "auto":
        return "bf16"
    if not isinstance(said, str):
        found.text.refuse("dtype", "expected the name of a format, such as bfloat16")
    name = said.removeprefix("torch.")
    if name in _FP8:
        return "bf16"
    if name not in _DTYPES:
        found.text.refuse(
            found.text.name("dtype"), f"the format '{said[:40]}' is not known (known: {', '.join(_DTYPES)})"
        )
    return _DTYPES[name]


def _state_dtype(f: Fields, s: Shape) -> str | None:
    said = f.text("mamba_ssm_dtype") or f.text("mamba_ssm_cache_dtype")
    if said is None:
        return s.family.state_dtype
    if said not in _DTYPES:
        f.refuse("mamba_ssm_dtype", f"the format '{said[:40]}' is not known (known: {', '.join(_DTYPES)})")
    return _DTYPES[said]


def _tied(found: Found) -> bool:
    """The language part says it, else the whole config, else the family."""
    f = found.text
    for name in ("share_input_output_layers", "tie_word_embeddings", "tie_embedding"):
        if f.has(name):
            return f.flag(name)
    if found.nested and found.top.has("tie_word_embeddings"):
        return found.top.flag("tie_word_embeddings")
    return found.family.tied
