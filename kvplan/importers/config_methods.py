"""What a `quantization_config` says: which format its matrices have, and which modules are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kvplan.importers.config_fields import Fields
from kvplan.importers.config_lists import Names, names_of
from kvplan.specs.scalars import shown


class Group(NamedTuple):
    """Modules with one format; all that are not ignored where `targets` is None."""

    scheme: str
    targets: Names | None = None


class Method(NamedTuple):
    """The groups in order of their say, what is left in 16 bit, and whether the head is a module like others."""

    groups: tuple[Group, ...]
    ignored: Names | None = None
    head_too: bool = False
    experts_only: bool = False
    notes: tuple[str, ...] = ()


def method_of(q: Fields) -> Method:
    """The method of a `quantization_config`; refused by name when it is not known."""
    name = q.text("quant_method") or ("modelopt" if q.has("quant_algo") else None)
    if name is None:
        q.refuse("quant_method", "missing; it names the kind of quantisation")
    known = _METHODS.get(name.lower())
    if known is None:
        q.refuse("quant_method", f"'{shown(name)}' is not known to kvplan (known: {', '.join(_METHODS)})")
    return known(q)


def _names(q: Fields, *fields: str) -> Names | None:
    """The modules that a list names, under the first field that is there."""
    for field in fields:
        entries = q.texts(field)
        if entries is not None:
            try:
                return names_of(entries)
            except ValueError as error:
                q.refuse(field, str(error))
    return None


def _fp8(q: Fields) -> Method:
    block = q.items("weight_block_size")
    if block is not None and block != [128, 128]:
        q.refuse("weight_block_size", f"blocks of {shown(str(block))} are not known to kvplan, which has 128 by 128")
    scheme = "fp8-block128" if block else "fp8"
    return Method((Group(scheme),), _names(q, "modules_to_not_convert", "ignored_layers"))


def _fbgemm(q: Fields) -> Method:
    return Method((Group("fp8-channel"),), _names(q, "modules_to_not_convert"))


def _gptq(q: Fields) -> Method:
    if q.value("dynamic") or q.value("modules_in_block_to_quantize"):
        q.refuse("dynamic", "formats that differ by module in a GPTQ checkpoint are not known to kvplan")
    group = Group(_packed(q, "gptq", q.size("bits"), q.value("group_size")))
    return Method((group,), _names(q, "modules_to_not_convert"), head_too=q.flag("lm_head"))


def _awq(q: Fields) -> Method:
    group = Group(_packed(q, "awq", q.size("bits", q.maybe("w_bit")), q.value("group_size") or q.value("q_group_size")))
    return Method((group,), _names(q, "modules_to_not_convert"))


def _packed(q: Fields, kind: str, bits: int, group: Any) -> str:
    """The scheme of a packed integer format, such as awq or gptq-g64."""
    if kind == "gptq" and (bits, group) == (8, 128):
        return "gptq-int8"
    if bits != 4 or group not in (32, 64, 128):
        what = f"{bits} bits in groups of {shown(str(group))}"
        q.refuse("group_size", f"{kind} with {what} is not known to kvplan (4 bits in groups of 32, 64 or 128 are)")
    return kind if group == 128 else f"{kind}-g{group}"


def _auto_round(q: Fields) -> Method:
    """AutoRound packs as GPTQ or AWQ; single modules may be left in 16 bit."""
    packing = f"{q.text('packing_format') or ''} {q.text('backend') or ''}"
    if q.text("data_type") not in (None, "int"):
        q.refuse("data_type", "formats other than int of AutoRound are not known to kvplan")
    left = []
    for module, choice in (q.value("extra_config") or {}).items() if isinstance(q.value("extra_config"), dict) else ():
        if not isinstance(choice, dict) or choice.get("bits", 16) != 16:
            q.refuse("extra_config", f"a format of its own for {shown(module)} is not known to kvplan")
        left.append(module)
    kind = "awq" if "awq" in packing else "gptq"
    return Method((Group(_packed(q, kind, q.size("bits"), q.value("group_size"))),), names_of(left) if left else None)


def _bitsandbytes(q: Fields) -> Method:
    left = _names(q, "llm_int8_skip_modules")
    if q.flag("load_in_8bit") or q.flag("_load_in_8bit"):
        return Method((Group("int8"),), left)
    if not (q.flag("load_in_4bit") or q.flag("_load_in_4bit")):
        q.refuse("load_in_4bit", "neither 4 nor 8 bits are chosen")
    return Method((Group("nf4-double" if q.flag("bnb_4bit_use_double_quant") else "nf4"),), left)


def _mxfp4(q: Fields) -> Method:
    """gpt-oss: the routed experts alone."""
    return Method((Group("mxfp4"),), _names(q, "modules_to_not_convert"), experts_only=True)


def _compressed(q: Fields) -> Method:
    """compressed-tensors: groups of modules, each with bits, a type and a strategy."""
    sparsity = q.section("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        sparsity.refuse("format", "sparse weights are not known to kvplan")
    groups = q.section("config_groups")
    if groups is None:
        q.refuse("config_groups", "missing; without it the formats are not known")
    found = []
    for name in groups.values:
        part = groups.section(name)
        weights = part.section("weights") if part else None
        if part is None or weights is None:
            continue  # the cache, or activations alone
        targets = part.texts("targets") or ["Linear"]
        everything = bool({"Linear", "*"} & set(targets))
        found.append(Group(_compressed_format(weights), None if everything else _names(part, "targets")))
    found.sort(key=lambda group: group.targets is None)  # the rest gets what no target names
    if not found:
        q.refuse("config_groups", "no group has weights")
    return Method(tuple(found), _names(q, "ignore"), head_too=True)


def _compressed_format(w: Fields) -> str:
    kind, bits, strategy = w.text("type") or "int", w.size("num_bits"), w.text("strategy")
    group, block = w.value("group_size"), w.items("block_structure")
    if strategy is None:  # ModelOpt leaves it out
        strategy = "group" if group else "tensor"
    if strategy == "block" and block not in (None, [128, 128]):
        w.refuse("block_structure", f"blocks of {shown(str(block))} are not known to kvplan, which has 128 by 128")
    size = group if strategy in ("group", "tensor_group") else None
    known = _FORMATS.get((kind, bits, strategy, size))
    if known is None and (kind, bits) == ("int", 4) and size in (32, 64, 128):
        known = f"int4-g{size}" if w.flag("symmetric", True) else ("awq" if size == 128 else f"awq-g{size}")
    if known is None:
        what = f"{kind} of {bits} bits by {shown(strategy)} {'' if size is None else shown(str(size))}".rstrip()
        w.refuse("", f"weights of {what} are not known to kvplan")
    return known


_FORMATS: dict[tuple[str, int, str, Any], str] = {
    ("float", 8, "tensor", None): "fp8",
    ("float", 8, "channel", None): "fp8-channel",
    ("float", 8, "block", None): "fp8-block128",
    ("float", 4, "group", 16): "nvfp4",
    ("float", 4, "tensor_group", 16): "nvfp4",
    ("float", 4, "group", 32): "mxfp4",
    ("int", 8, "channel", None): "int8",
}

_ALGORITHMS = {
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8-block128",
    "MXFP4": "mxfp4",
    "W4A16_MXFP4": "mxfp4",
}


def _modelopt(q: Fields) -> Method:
    """ModelOpt: one format with a list of modules left alone, or a format for each module."""
    name = q.text("quant_algo")
    ignored = _names(q, "exclude_modules", "ignore")
    if name == "MIXED_PRECISION":
        return Method(_by_layer(q), ignored, head_too=True)
    if name is None and q.has("config_groups"):
        return _compressed(q)
    group = Group(_algorithm(q, name, q.value("group_size")))
    if ignored is None:
        note = (
            "the quantisation names no modules left in 16 bit, so all linear layers inside the layers are taken as it"
        )
        return Method((group,), notes=(note,))
    return Method((group,), ignored, head_too=True)


def _by_layer(q: Fields) -> tuple[Group, ...]:
    layers = q.section("quantized_layers")
    if layers is None:
        q.refuse("quantized_layers", "missing; without it the formats are not known")
    named: dict[str, list[str]] = {}
    for module, choice in layers.values.items():
        if not isinstance(choice, dict):
            layers.refuse(module, "expected an object that names the algorithm")
        scheme = _algorithm(layers, choice.get("quant_algo"), choice.get("group_size"))
        named.setdefault(scheme, []).append(module)
    return tuple(Group(scheme, names_of(modules)) for scheme, modules in named.items())


def _algorithm(q: Fields, name: Any, group: Any) -> str:
    if name == "W4A16_AWQ":
        return _packed(q, "awq", 4, group)
    found = _ALGORITHMS.get(name) if isinstance(name, str) else None
    if found is None:
        q.refuse("quant_algo", f"'{shown(str(name))}' is not known to kvplan (known: {', '.join(_ALGORITHMS)})")
    if found == "nvfp4" and group not in (None, 16):
        q.refuse("group_size", f"NVFP4 has groups of 16, not {shown(str(group))}")
    return found


_METHODS: dict[str, Callable[[Fields], Method]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}
