"""Which component of a model gets which format: schemes of Hugging Face checkpoints, GGUF files and model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kvplan.errors import InputError, did_you_mean
from kvplan.formats import FORMATS, Format
from kvplan.scheme_keys import Key, parse_keys

BLOCK_COMPONENTS = ("attention", "state", "mlp", "experts", "shared_experts")
COMPONENTS = (*BLOCK_COMPONENTS, "embedding", "head", "router", "other")


class Matrix(NamedTuple):
    """What a scheme may look at: a matrix, and where in which model it stands."""

    component: str
    tensor: str
    columns: int
    layer: int
    layers: int
    gqa: int
    experts: int
    at: int = -1  # number of the layer in the model; -1 outside the layers
    family: str = ""  # of the model


class Scheme(NamedTuple):
    """Formats for the matrices of a model; vectors (norms, biases, convolutions) are kept in `vector_format`."""

    name: str
    nominal_bytes: float  # of a parameter on a whiteboard: 2 for bf16, 0.5 for 4-bit formats, 4.5/8 for q4_k_m
    vector_format: Format
    choose: Callable[[Matrix], Format]
    depends_on_depth: bool = False  # two layers alike in shape may get different formats

    def intended(
        self,
        component: str,
        tensor: str,
        rows: int,  # noqa: ARG002 - asked like format_of
        columns: int,
        *,
        layer: int = 0,
        layers: int = 1,
        gqa: int = 1,
        experts: int = 0,
        at: int = -1,
        family: str = "",
    ) -> Format:
        """The format that the scheme names for this matrix, whether or not its rows divide into blocks.

        `layer` of `layers` counts those that own such a tensor, `at` all; `gqa` is query heads for each KV head.
        """
        return self.choose(Matrix(component, tensor, columns, layer, layers, gqa, experts, at, family))

    def format_of(
        self,
        component: str,
        tensor: str,
        rows: int,  # noqa: ARG002 - asked like matrix_bytes
        columns: int,
        *,
        layer: int = 0,
        layers: int = 1,
        gqa: int = 1,
        experts: int = 0,
        at: int = -1,
        family: str = "",
    ) -> Format:
        """The format of this matrix; a ggml type gives way to another where rows do not divide into its blocks."""
        return self.choose(Matrix(component, tensor, columns, layer, layers, gqa, experts, at, family)).fallback(
            columns
        )


# Hugging Face: linear layers inside the layers are quantised, embedding, head and routers are not. That is what
# AutoGPTQ, AutoAWQ, bitsandbytes and the FP8, MXFP4 and NVFP4 recipes do, unless a checkpoint lists other modules:
# gpt-oss keeps only its routed experts in mxfp4, which its model file says with a mapping.
_BLOCK_FORMATS = {
    **{name: name for name in ("fp8", "fp8-channel", "fp8-block128", "int8", "nf4", "nf4-double", "nvfp4", "mxfp4")},
    "gptq": "gptq-int4-g128",
    "gptq-g64": "gptq-int4-g64",
    "gptq-g32": "gptq-int4-g32",
    "gptq-int8": "gptq-int8-g128",
    **{name: name for name in ("int4-g32", "int4-g64", "int4-g128")},
    "awq": "awq-int4-g128",
    "awq-g64": "awq-int4-g64",
    "awq-g32": "awq-int4-g32",
}
_WHOLE = ("fp32", "bf16", "fp16")


class Rule(NamedTuple):
    """`special` where the condition holds (see `_holds`), else `otherwise`, else the base type of the mixture."""

    special: str
    where: str = "always"
    otherwise: Rule | str = ""


class Mixture(NamedTuple):
    """A llama-quantize file type: the base type and what departs from it."""

    base: str
    v: Rule | None = None  # attn_v
    down: Rule | None = None  # ffn_down, dense or experts
    o: str = ""  # attn_output
    o_of_8: str = ""  # attn_output of a model with exactly eight experts
    qkv: str = ""  # attn_qkv


# src/llama-quant.cpp, llama_tensor_get_type_impl, without an importance matrix (one adds bits to the first ffn_down of
# q4_0 and q5_0 and takes them from iq4_nl and iq4_xs). attn_qkv is as in published files; since early 2026 (pull
# request 19770) it is taken for an attn_v, as here only that of gated DeltaNet is (see `_ROLES`).
_MIXTURES = {
    **{name: Mixture(name) for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q6_k")},
    "q2_k": Mixture("q2_k", Rule("q4_k", "gqa 4", "q3_k"), Rule("q3_k"), "q3_k", "q5_k"),
    "q3_k_s": Mixture("q3_k", o_of_8="q5_k"),
    "q3_k_m": Mixture(
        "q3_k", Rule("q5_k", "first 2", "q4_k"), Rule("q5_k", "first 16th", "q4_k"), "q4_k", "q5_k", "q4_k"
    ),
    "q3_k_l": Mixture("q3_k", Rule("q5_k"), Rule("q5_k"), "q5_k", qkv="q4_k"),
    "q4_k_s": Mixture("q4_k", Rule("q5_k", "first 4"), Rule("q5_k", "first 8th"), o_of_8="q5_k"),
    "q4_k_m": Mixture("q4_k", Rule("q6_k", "more"), Rule("q6_k", "more"), o_of_8="q5_k", qkv="q5_k"),
    "q5_k_s": Mixture("q5_k"),
    "q5_k_m": Mixture("q5_k", Rule("q6_k", "more"), Rule("q6_k", "more"), qkv="q6_k"),
    "iq4_nl": Mixture("iq4_nl", Rule("q5_k", "gqa 4"), Rule("q5_k", "first 8th"), o_of_8="q5_k"),
    "iq4_xs": Mixture("iq4_xs", Rule("q5_k", "gqa 4"), Rule("q5_k", "first 8th"), o_of_8="q5_k"),
}
# LLM_ARCH_FALCON, whose MLP has no gate: fewer bits for ffn_down and attn_output (and q8_0 for the head, see `_mixed`).
_FALCON = {
    "q2_k": _MIXTURES["q2_k"]._replace(o=""),
    "q3_k_m": _MIXTURES["q3_k_m"]._replace(down=Rule("q5_k", "first 16th", Rule("q4_k", "more")), o=""),
    "q3_k_l": _MIXTURES["q3_k_l"]._replace(down=Rule("q4_k"), o="q4_k"),
    "q4_k_s": _MIXTURES["q4_k_s"]._replace(down=None),
    "q4_k_m": _MIXTURES["q4_k_m"]._replace(down=Rule("q6_k", "first 16th", Rule("q5_k", "more"))),
}
_DEEP = ("first", "more")  # conditions that look at the layer begin so

# Tensors that have rules; all others get the base type. So does MLA: published files have attn_kv_b in the base type,
# and newer converters split it into attn_k_b and attn_v_b, which no rule names. Gated DeltaNet's in_proj_qkv is an
# attn_qkv too, here as the newer rule has it, which made the files of Qwen3.6; in_proj_z is attn_gate, without a rule.
_ROLES = {
    "v_proj": "v", "in_proj_qkv": "v", "k_proj": "k", "o_proj": "o", "down_proj": "down", "qkv_proj": "qkv",
}  # fmt: skip

# Families whose GGUF files keep queries, keys and values in one attn_qkv: gguf-py/gguf/tensor_mapping.py. Converters
# of others with one projection (baichuan, internlm2, bailing_moe) cut it in three. By model_type, and by the name
# that llama.cpp has for it where that is another.
FUSED_QKV = frozenset((
    "bailing_moe_v2", "bailingmoe2", "bloom", "chatglm", "dbrx", "falcon", "glm", "gpt2", "gpt_bigcode", "gpt_neox",
    "gptneox", "mpt", "openelm", "phi3", "qwen", "starcoder",
))  # fmt: skip


def counted_as(tensor: str) -> str:
    """The tensor that llama-quantize counts this one with: some rules want the first of them, or every third."""
    return "v_proj" if tensor == "in_proj_qkv" else tensor


SCHEME_NAMES = (*_WHOLE, *_BLOCK_FORMATS, "f16", *_MIXTURES, "mxfp4_moe")
_ALIASES = {"f32": "fp32", "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}  # llama-quantize knows these too


def scheme(spec: str | Mapping[str, str]) -> Scheme:
    """A named scheme, or a mapping with `default` (a scheme) and formats for what departs from it; InputError.

    A key is a component, one of its matrices, or either in some layers: `experts`, `attention.o_proj`, `mlp@0-2`,
    `state.in_proj@4,11`. The narrowest key counts: layers before matrices before whole components.
    """
    return _named(spec) if isinstance(spec, str) else _mapped(spec)


def _named(spec: str) -> Scheme:
    name = _ALIASES.get(spec.lower(), spec.lower())
    if name in _WHOLE or name in _BLOCK_FORMATS:
        blocks = FORMATS[_BLOCK_FORMATS.get(name, name)]
        compute = blocks if name in _WHOLE else FORMATS["bf16"]
        return Scheme(name, blocks.nominal_bits / 8, compute, partial(_blocks_or_compute, blocks, compute))
    vectors = FORMATS["f32"]  # the converters keep one-dimensional tensors and routers in f32
    if name == "f16":
        return Scheme(name, 2.0, vectors, _gguf_f16)
    if name == "mxfp4_moe":
        return Scheme(name, FORMATS["mxfp4-ggml"].nominal_bits / 8, vectors, _mxfp4_moe)
    if name in _MIXTURES:
        mixture = _MIXTURES[name]
        deep = any(rule is not None and rule.where.startswith(_DEEP) for rule in (mixture.v, mixture.down))
        choose = partial(_mixed, mixture, _FALCON.get(name, mixture))
        return Scheme(name, FORMATS[mixture.base].nominal_bits / 8, vectors, choose, deep)
    near = did_you_mean(name, SCHEME_NAMES)
    raise InputError(f"unknown weight scheme '{spec}'{near} (known: {', '.join(SCHEME_NAMES)})")


def _blocks_or_compute(blocks: Format, compute: Format, matrix: Matrix) -> Format:
    return blocks if matrix.component in BLOCK_COMPONENTS else compute


def _gguf_f16(matrix: Matrix) -> Format:
    return FORMATS["f32" if matrix.component == "router" else "f16"]


def _mxfp4_moe(matrix: Matrix) -> Format:
    if matrix.component == "router":
        return FORMATS["f32"]
    return FORMATS["mxfp4-ggml" if matrix.component == "experts" else "q8_0"]


def _mixed(usual: Mixture, of_falcon: Mixture, matrix: Matrix) -> Format:
    falcon = matrix.family == "falcon"
    mixture = of_falcon if falcon else usual
    if matrix.component == "router":
        return FORMATS["f32"]
    if matrix.component == "head" or matrix.tensor == "tied_embed_tokens":
        return FORMATS["q8_0"] if falcon else _output_format(FORMATS[mixture.base], matrix.columns)
    return FORMATS[_mixed_type(mixture, _role(matrix), matrix)]


def _output_format(base: Format, columns: int) -> Format:
    """`output.weight`, and a token embedding that doubles as it: six bits, or eight."""
    return FORMATS["q8_0" if base.name == "q8_0" or not base.accepts(columns) else "q6_k"]


def _role(matrix: Matrix) -> str:
    """What llama-quantize takes a tensor for."""
    fused = matrix.family in FUSED_QKV and matrix.component == "attention"
    return "qkv" if fused and matrix.tensor in ("q_proj", "k_proj", "v_proj") else _ROLES.get(matrix.tensor, "")


def _mixed_type(mixture: Mixture, role: str, matrix: Matrix) -> str:
    if matrix.experts == 8 and role in ("v", "k"):
        return "q8_0"  # small beside eight experts
    if role == "o":
        return (mixture.o_of_8 if matrix.experts == 8 else mixture.o) or mixture.base
    if role == "qkv":
        return mixture.qkv or mixture.base
    rule = {"v": mixture.v, "down": mixture.down}.get(role)
    chosen = mixture.base if rule is None else _ruled(rule, mixture.base, matrix)
    is_70b = matrix.layers == 80 and matrix.gqa > 1
    return "q5_k" if is_70b and role == "v" and chosen in ("q3_k", "q4_k") else chosen


def _ruled(rule: Rule, base: str, matrix: Matrix) -> str:
    if _holds(rule.where, matrix):
        return rule.special
    return _ruled(rule.otherwise, base, matrix) if isinstance(rule.otherwise, Rule) else rule.otherwise or base


def _holds(where: str, matrix: Matrix) -> bool:
    layer, layers = matrix.layer, matrix.layers
    return {
        "always": True,
        "gqa 4": matrix.gqa >= 4,
        "first 2": layer < 2,
        "first 4": layer < 4,
        "first 8th": layer < layers // 8,
        "first 16th": layer < layers // 16,
        # the first and the last eighth, and every third layer between them
        "more": layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2,
    }[where]


def _mapped(spec: Mapping[str, str]) -> Scheme:
    keys = parse_keys(spec, COMPONENTS)
    rest = _named(spec["default"])
    chosen = {key: _block_format(text, spec[text]) for text, key in keys.items()}
    # most parameters are in the experts, else in the MLPs: their format is the one that people name
    largest = chosen.get(Key("experts")) or chosen.get(Key("mlp"))
    nominal_bytes = largest.nominal_bits / 8 if largest else rest.nominal_bytes
    name = f"{spec['default']} + " + ", ".join(f"{spec[text]} {text}" for text in keys)
    deep = rest.depends_on_depth or any(key.layers is not None for key in chosen)
    ordered = sorted(chosen.items(), key=lambda item: item[0].narrowness)
    return Scheme(name, nominal_bytes, rest.vector_format, partial(_listed, ordered, rest), deep)


def _block_format(component: str, name: str) -> Format:
    """The format of this name, or the one that the scheme of this name gives to linear layers."""
    low = name.lower()
    found = FORMATS.get(_BLOCK_FORMATS.get(low, low))
    if found is None:
        known = list(dict.fromkeys((*FORMATS, *_BLOCK_FORMATS)))
        raise InputError(f"weights: {component}: unknown format '{name}'{did_you_mean(low, known)}")
    return found


def _listed(chosen: list[tuple[Key, Format]], rest: Scheme, matrix: Matrix) -> Format:
    found = (form for key, form in chosen if key.covers(matrix.component, matrix.tensor, matrix.at))
    return next(found, None) or rest.choose(matrix)
