"""The keys of a `weights` mapping: `experts`, `attention.o_proj`, `mlp@0-2`, `state.in_proj@4,11`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from kvplan.errors import InputError, did_you_mean

MAX_LAYER = 4096

_GATED = ("gate_proj", "up_proj", "down_proj")

# The matrices that a key can name, by component; a test holds them against the tensors of layers.
TENSORS: dict[str, tuple[str, ...]] = {
    "attention": (
        "q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj", "kv_b_proj", "output_gate",
        "head_gate", "indexer_q_proj", "indexer_k_proj", "indexer_qk_proj", "indexer_weights",
    ),
    "state": (
        "in_proj", "x_proj", "dt_proj", "out_proj", "in_proj_qkv", "in_proj_z", "in_proj_ba", "q_proj", "k_proj",
        "v_proj", "g_proj", "f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj", "b_proj", "o_proj", "qkv_proj",
        "output_gate", "in_proj_qkvz",
    ),
    "mlp": (*_GATED, "latent_down", "latent_up"),
    "experts": _GATED,
    "shared_experts": _GATED,
}  # fmt: skip
# names for several matrices: Qwen3-Next's checkpoints have these two in one
_TOGETHER = {"in_proj_qkvz": ("in_proj_qkv", "in_proj_z")}


class Key(NamedTuple):
    """What a format is for: a component, one of its matrices, some layers (counted from 0), or both."""

    component: str
    tensor: str = ""
    layers: frozenset[int] | None = None

    def covers(self, component: str, tensor: str, layer: int) -> bool:
        """Whether a matrix is meant."""
        named = self.tensor in ("", tensor) or tensor in _TOGETHER.get(self.tensor, ())
        return component == self.component and named and (self.layers is None or layer in self.layers)

    @property
    def narrowness(self) -> tuple[bool, bool, bool]:
        """Sorts the keys that say more before those that say less."""
        return self.layers is None, not self.tensor, self.tensor in _TOGETHER


def parse_keys(spec: Collection[str], components: Collection[str]) -> dict[str, Key]:
    """The keys beside `default`; InputError when one is unknown, or two mean the same."""
    known = ("default", *components)
    keys = {text: _parsed(text, known) for text in spec}
    if keys.pop("default", None) is None:
        raise InputError("weights: 'default' is missing; it names the scheme of the components that are not listed")
    _check_apart(keys.values())
    return keys


def _parsed(text: str, components: Collection[str]) -> Key:
    name, at, ranges = text.partition("@")
    component, dot, tensor = name.partition(".")
    if component not in components:
        near = did_you_mean(component[:60], components)
        raise InputError(f"weights: unknown component '{component}'{near} (known: {', '.join(components)})")
    known = TENSORS.get(component, ())
    if dot and tensor not in known:
        near = did_you_mean(tensor[:60], known)
        raise InputError(f"weights: {component} has no matrix '{tensor}'{near} (known: {', '.join(known) or 'none'})")
    if at and component not in TENSORS:
        raise InputError(f"weights: '{text}': {component} is not in every layer, so it cannot have '@'")
    return Key(component, tensor, _layers(text, ranges) if at else None)


def _layers(text: str, ranges: str) -> frozenset[int]:
    layers: set[int] = set()
    for part in ranges.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        numbers = (first, last if dash else first)
        if not all(word.isascii() and word.isdigit() and len(word) <= 4 for word in numbers):
            raise InputError(f"weights: '{text}': write layers as numbers and ranges, such as mlp@0-2,5")
        start, end = map(int, numbers)
        if not start <= end < MAX_LAYER or layers & set(range(start, end + 1)):
            raise InputError(f"weights: '{text}': ranges of layers ascend, do not overlap and end below {MAX_LAYER}")
        layers.update(range(start, end + 1))
    return frozenset(layers)


def _check_apart(keys: Iterable[Key]) -> None:
    """Two keys alike may not mean the same layer: which one counts would be a guess."""
    taken: dict[tuple[str, str], set[int]] = {}
    for key in keys:
        if key.layers is not None:
            seen = taken.setdefault((key.component, key.tensor), set())
            both = seen & key.layers
            if both:
                name = f"{key.component}.{key.tensor}".rstrip(".")
                raise InputError(f"weights: two formats for {name} in layer {min(both)}; keep one")
            seen |= key.layers


def layer_ranges(layers: Collection[int]) -> str:
    """Layers as a key writes them: `0-2,5`."""
    texts: list[str] = []
    start = previous = -2
    for layer in [*sorted(layers), -2]:
        if layer != previous + 1:
            if start >= 0:
                texts.append(str(start) if start == previous else f"{start}-{previous}")
            start = layer
        previous = layer
    return ",".join(texts)
