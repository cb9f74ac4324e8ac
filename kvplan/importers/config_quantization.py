"""The quantisation of a checkpoint as `weights` of a model: a scheme, or formats for what departs from it."""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import Any, NamedTuple

from kvplan.importers.config_fields import Fields
from kvplan.importers.config_lists import Names
from kvplan.importers.config_methods import Method, method_of
from kvplan.importers.config_modules import edge_names, module_names
from kvplan.importers.config_text import Found
from kvplan.memory.parameters import distinct_layers, widths_of
from kvplan.memory.tensors import layer_tensors
from kvplan.scheme_keys import TENSORS, layer_ranges
from kvplan.schemes import BLOCK_COMPONENTS
from kvplan.specs.model import ModelSpec

Weights = str | dict[str, str]
Table = dict[tuple[str, str], dict[int, str]]  # component and matrix: the scheme that each layer's has

_PATIENCE_S = 10.0  # for patterns of a file that may be hostile
_NOT_LINEAR = ("head_gate",)
_NAMES_UNKNOWN = ("latent_down", "latent_up")  # outside Nemotron-H: taken as left alone, like all but the experts there


class Quantized(NamedTuple):
    """What a quantisation says of a model."""

    weights: Weights | None = None
    kv_dtype: str | None = None
    notes: tuple[str, ...] = ()


def read_quantization(found: Found, model: ModelSpec, beside: dict[str, Any] | None) -> Quantized:
    """The quantisation in a config, or in the file that ModelOpt writes beside it (which says more)."""
    q = found.text.section("quantization_config") or found.top.section("quantization_config")
    q = q or found.top.section("compression_config")
    if beside is not None:
        inner = Fields(beside, "hf_quant_config.json").section("quantization")
        q = inner or q
    if q is None:
        return Quantized()
    kv_dtype = _kv_dtype(q)
    if not q.has("quant_algo", "quant_method", "config_groups"):
        return Quantized(kv_dtype=kv_dtype)
    method = method_of(q)
    plain = model.weights if isinstance(model.weights, str) else "bf16"
    table = _formats(q, method, model, plain)
    return Quantized(_shortest(table, _edges(method, model), method, plain), kv_dtype, method.notes)


def _kv_dtype(q: Fields) -> str | None:
    """The cache's format, where the checkpoint has scales for one."""
    said = q.value("kv_cache_quant_algo") or q.value("kv_cache_scheme")
    if isinstance(said, dict):
        said = "FP8" if (said.get("type"), said.get("num_bits")) == ("float", 8) else str(said.get("num_bits"))
    if said is None or said == "none":
        return None
    if said != "FP8":
        q.refuse("kv_cache_scheme", f"a cache in {str(said)[:40]} is not known to kvplan")
    return "fp8"


def _formats(q: Fields, method: Method, model: ModelSpec, plain: str) -> Table:
    table: Table = {}
    start, widths = monotonic(), widths_of(model)
    matrices = {
        id(layer): [(t.component, t.name) for t in layer_tensors(layer, widths) if t.role == "linear"]
        for layer, _ in distinct_layers(model.stack)
    }
    everywhere: dict[tuple[str, str], str | None] = {}  # where no list names layers
    lists = [method.ignored, *(group.targets for group in method.groups)]
    _check_experts(q, lists, model)
    by_layer = any(names is not None and names.by_layer for names in lists)
    for index, layer in enumerate(model.stack):
        for matrix in matrices[id(layer)]:
            if matrix[0] not in TENSORS:
                continue
            if by_layer or matrix not in everywhere:
                everywhere[matrix] = _format_in_layer(q, method, model.family, matrix, index)
            table.setdefault(matrix, {})[index] = everywhere[matrix] or plain
        if monotonic() - start > _PATIENCE_S:
            q.refuse("ignore", "matching the patterns of this list takes too long")
    return table


def _check_experts(q: Fields, lists: list[Names | None], model: ModelSpec) -> None:
    """Experts named one by one are all named: a layer whose experts differ has no format here."""
    known = {layer.moe.experts for layer in model.stack if layer.moe}
    for names in lists:
        if names is not None and names.experts - known:
            q.refuse("ignore", "names some of the experts of a layer and not others")


def _format_in_layer(q: Fields, method: Method, family: str | None, matrix: tuple[str, str], index: int) -> str | None:
    component, tensor = matrix
    if tensor in _NOT_LINEAR or (method.experts_only and component != "experts"):
        return None
    if tensor in _NAMES_UNKNOWN and family != "nemotron_h":
        return None
    names = module_names(family, component, tensor)
    if method.ignored is not None and _listed(q, method.ignored, names, index):
        return None
    for group in method.groups:
        if group.targets is None or _listed(q, group.targets, names, index):
            return group.scheme
    return None


def _listed(q: Fields, names: Names, spellings: tuple[tuple[str, ...], ...], index: int) -> bool:
    """Whether a list names this matrix under any spelling; half of one matrix is refused."""
    for parts in spellings:
        found = [names.in_layer(index, part) for part in parts]
        if any(found):
            if not all(found):
                q.refuse("ignore", f"{' and '.join(parts)} of layer {index} have different formats")
            return True
    return False


def _edges(method: Method, model: ModelSpec) -> dict[str, str]:
    """The head, where it is quantised like a layer."""
    if model.tied or not method.head_too:
        return {}
    names = edge_names("head")
    if method.ignored is not None and any(method.ignored.match(name) for name in names):
        return {}
    for group in method.groups:
        if group.targets is None or any(group.targets.match(name) for name in names):
            return {"head": group.scheme}
    return {}


def _shortest(table: Table, edges: dict[str, str], method: Method, plain: str) -> Weights:
    """The mapping with the fewest entries that says the same; only a scheme where that is all."""
    bases = list(dict.fromkeys([plain, *(group.scheme for group in method.groups)]))
    written = [{"default": base, **_departures(table, base), **edges} for base in bases]
    best = min(written, key=len)
    return best["default"] if len(best) == 1 else best


def _departures(table: Table, base: str) -> dict[str, str]:
    """Entries for each component whose matrices are not all as the base has them."""
    entries: dict[str, str] = {}
    for component in BLOCK_COMPONENTS:
        tensors = {tensor: layers for (owner, tensor), layers in table.items() if owner == component}
        if not tensors:
            continue
        usual = Counter(name for layers in tensors.values() for name in layers.values()).most_common(1)[0][0]
        if usual != base:
            entries[component] = usual
        entries.update(_by_layer(component, tensors, usual))
    return entries


def _by_layer(component: str, tensors: dict[str, dict[int, str]], usual: str) -> dict[str, str]:
    """Matrices that depart in all their layers, then layers in which all matrices depart, then the rest."""
    entries: dict[str, str] = {}
    odd: dict[str, dict[int, str]] = {}
    for tensor, layers in tensors.items():
        if len(set(layers.values())) == 1:
            if (only := next(iter(layers.values()))) != usual:
                entries[f"{component}.{tensor}"] = only
        else:
            odd[tensor] = {index: name for index, name in layers.items() if name != usual}
    together = len(odd) == len(tensors) and len({tuple(sorted(part.items())) for part in odd.values()}) == 1
    groups = (
        {component: next(iter(odd.values()))} if together else {f"{component}.{t}": part for t, part in odd.items()}
    )
    for name, part in groups.items():
        for form in dict.fromkeys(part.values()):
            entries[f"{name}@{layer_ranges([i for i, value in part.items() if value == form])}"] = form
    return entries
