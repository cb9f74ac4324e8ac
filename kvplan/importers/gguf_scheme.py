"""The scheme of a GGUF file: the types of its matrices as a name that people use, or as a mapping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kvplan.formats import FORMATS
from kvplan.importers.gguf_architectures import FILE_TYPES
from kvplan.memory.weights import gqa
from kvplan.scheme_keys import TENSORS, layer_ranges
from kvplan.schemes import SCHEME_NAMES, counted_as, scheme
from kvplan.specs.layers import Layer

_DEFAULT = "f16"  # of the schemes that keep vectors in f32, for files of types that have no scheme


class Stored(NamedTuple):
    """One matrix of a model file and the type that the file has for it."""

    component: str
    tensor: str
    layer: int  # -1 outside the layers
    columns: int
    type: str


def weights_of(
    found: Sequence[Stored], layers: Sequence[Layer], family: str, file_type: object
) -> str | dict[str, str]:
    """The named scheme that gives all these types, else the nearest with what departs from it."""
    known = [each for each in found if each.type in FORMATS]
    named = FILE_TYPES.get(file_type) if isinstance(file_type, int) else None
    common = [name for name, _ in Counter(each.type for each in known).most_common(2)]
    bases = (named, *(f"{name}{end}" for name in common for end in ("", "_m", "_s")), _DEFAULT)
    candidates = dict.fromkeys(name for name in bases if name in SCHEME_NAMES and name not in ("bf16", "fp16"))
    mappings = [_mapping(name, known, layers, family) for name in candidates if name]
    shortest = min(mappings, key=len)
    return shortest if len(shortest) > 1 else shortest["default"]


def _mapping(default: str, known: list[Stored], layers: Sequence[Layer], family: str) -> dict[str, str]:
    """A scheme and what departs from it."""
    mapping = {"default": default}
    for component in dict.fromkeys(each.component for each in _departing(default, known, layers, family)):
        mapping |= _entries(component, [each for each in known if each.component == component])
    return mapping


def _departing(name: str, found: Sequence[Stored], layers: Sequence[Layer], family: str) -> list[Stored]:
    """The matrices for which a scheme gives another type."""
    chosen = scheme(name)
    owners: dict[str, set[int]] = {}
    for each in found:
        owners.setdefault(counted_as(each.tensor), set()).add(each.layer)
    places = {key: {layer: place for place, layer in enumerate(sorted(where))} for key, where in owners.items()}
    wrong = []
    for each in found:
        where = places[counted_as(each.tensor)]
        layer = layers[each.layer] if each.layer >= 0 else None
        form = chosen.format_of(
            each.component,
            each.tensor,
            1,
            each.columns,
            layer=where[each.layer],
            layers=len(where),
            gqa=gqa(layer, layers) if layer else 1,
            experts=layer.moe.experts if layer and layer.moe else 0,
            at=each.layer,
            family=family,
        )
        if form.name != each.type and {form.name, each.type} != {"fp32", "f32"}:
            wrong.append(each)
    return wrong


def _entries(component: str, found: list[Stored]) -> dict[str, str]:
    """Keys for a component: one for all of it, for a matrix, or for some layers of a matrix."""
    usual = _usual(found)
    if len({each.type for each in found}) == 1 or component not in TENSORS:
        return {component: usual}
    entries = {component: usual}
    for tensor in dict.fromkeys(each.tensor for each in found if each.tensor in TENSORS[component]):
        own = [each for each in found if each.tensor == tensor]
        most = _usual(own)
        if most != usual:
            entries[f"{component}.{tensor}"] = most
        for other in dict.fromkeys(each.type for each in own if each.type != most):
            layers = {each.layer for each in own if each.type == other}
            entries[f"{component}.{tensor}@{layer_ranges(layers)}"] = other
    return entries


def _usual(found: list[Stored]) -> str:
    return Counter(each.type for each in found).most_common(1)[0][0]
