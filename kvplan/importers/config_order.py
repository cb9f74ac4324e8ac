"""Which layer does what: the mixer and the feed-forward part of every layer, from all the ways to write an order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.importers.config_families import Family
from kvplan.importers.config_fields import Fields
from kvplan.specs.scalars import shown

# Mixers: full, window and chunk of softmax attention; state, whatever the family's is; both at once; or none.
_WORDS = {
    "full_attention": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "global": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "local": "window",
    "chunked_attention": "chunk",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "short_conv": "state",
    "hybrid": "hybrid",
    "moe": "moe",
    "mlp": "mlp",
}
_LETTERS = {"M": "state", "*": "full", "-": "mlp", "E": "moe"}  # Nemotron-H: one part a layer
# Other ways to say what a list of layers says; the reference implementations make the list from them.
_SAID_OTHERWISE = (
    "sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "full_attention_interval", "layer_switch",
    "global_attn_every_n_layers", "no_rope_layer_interval", "full_attn_idxs", "attn_layer_indices", "attn_layer_period",
    "hybrid_layer_ids", "attention_chunk_size", "use_sliding_window",
)  # fmt: skip
_ORDERS = ("layer_types", "layers_block_type", "attention_layers")


def mixers(f: Fields, family: Family, layers: int) -> list[str]:
    """The mixer of every layer."""
    for read in (_by_letters, _by_words, _by_flags, _by_lists, _by_periods):
        order = read(f, family, layers)
        if order is not None:
            return order
    return _by_windows(f, family, layers)


def order_words(f: Fields, name: str, layers: int | None) -> list[str] | None:
    """A list of layer kinds in the importer's words."""
    texts = f.texts(name, layers)
    if texts is None:
        return None
    unknown = next((text for text in texts if text not in _WORDS), None)
    if unknown is not None:
        f.refuse(name, f"the kind of layer '{shown(unknown)}' is not known")
    return [_WORDS[text] for text in texts]


def pattern_words(f: Fields, name: str) -> list[str] | None:
    """A pattern of letters, one a layer."""
    pattern = f.text(name)
    if pattern is None:
        return None
    unknown = next((letter for letter in pattern if letter not in _LETTERS), None)
    if unknown is not None:
        f.refuse(name, f"the layer '{shown(unknown)}' is not known (known: {' '.join(_LETTERS)})")
    return [_LETTERS[letter] for letter in pattern]


def _by_letters(f: Fields, family: Family, layers: int) -> list[str] | None:  # noqa: ARG001 - one signature
    words = pattern_words(f, "hybrid_override_pattern")
    if words is not None and len(words) != layers:
        f.refuse("hybrid_override_pattern", f"{len(words)} letters for {layers} layers")
    return words


def _by_words(f: Fields, family: Family, layers: int) -> list[str] | None:  # noqa: ARG001
    found = [order_words(f, name, layers) for name in _ORDERS]
    order = next((order for order in found if order is not None), None)
    if order is not None:
        f.used.update(_SAID_OTHERWISE)
    return order


def _by_flags(f: Fields, family: Family, layers: int) -> list[str] | None:
    """A number for every layer: MiMo-V2 counts 1 as windowed, MiniMax 1 as softmax attention."""
    if f.has("hybrid_layer_pattern"):
        flags = f.each("hybrid_layer_pattern", layers, minimum=0)
        if f.maybe("attention_chunk_size") not in (None, f.maybe("window")):
            f.refuse("attention_chunk_size", "chunks and windows of different lengths are not known in this family")
        return ["window" if flag else "full" for flag in flags]
    if f.has("attn_type_list"):
        flags = f.each("attn_type_list", layers, minimum=0)
        if not all(flags) and not family.state:
            f.refuse("attn_type_list", "layers without softmax attention are not known in this family")
        return ["full" if flag else "state" for flag in flags]
    return None


def _by_lists(f: Fields, family: Family, layers: int) -> list[str] | None:  # noqa: ARG001
    """The numbers of the layers with attention; Kimi counts from 1."""
    linear = f.section("linear_attn_config")
    if linear:
        full = set(linear.indices("full_attn_layers", layers, first=1) or ())
        kda = set(linear.indices("kda_layers", layers, first=1) or ())
        if full | kda != set(range(layers)) or full & kda:
            f.refuse("linear_attn_config", f"kda_layers and full_attn_layers do not name each of {layers} layers once")
        return ["full" if i in full else "state" for i in range(layers)]
    for name in ("attn_layer_indices", "full_attn_idxs"):
        if (found := f.indices(name, layers)) is not None:
            return ["full" if i in found else "state" for i in range(layers)]
    return None


def _by_periods(f: Fields, family: Family, layers: int) -> list[str] | None:
    if f.has("attn_layer_period"):
        period, offset = f.size("attn_layer_period"), f.size("attn_layer_offset", 0, 0)
        return ["full" if i % period == offset else "state" for i in range(layers)]
    if family.state == "delta":
        every = f.size("full_attention_interval", family.full_every)
        return ["state" if (i + 1) % every else "full" for i in range(layers)]
    if family.state and not f.has("heads"):
        return ["state"] * layers
    return None


def _by_windows(f: Fields, family: Family, layers: int) -> list[str]:
    """Full or windowed, where one number or the family's habit says which."""
    no_rope, chunk = no_rope_layers(f, layers), f.maybe("attention_chunk_size")
    if chunk and no_rope and not family.rope_in_full:
        return ["full" if bare else "chunk" for bare in no_rope]
    on = f.flag("use_sliding_window", family.windows != "late")
    late = f.size("max_window_layers", layers, 0) if family.windows == "late" else 0
    if f.maybe("window", 0) is None or not on or f.maybe("window", 0) == 0:
        return ["full"] * layers
    pattern = f.value("sliding_window_pattern")
    if isinstance(pattern, str):
        return _repeated(f, pattern, layers)
    every = (
        f.maybe("_sliding_window_pattern")
        or f.maybe("global_attn_every_n_layers")
        or f.maybe("layer_switch")
        or family.full_every
    )
    every = f.whole("sliding_window_pattern", pattern) if pattern is not None else every
    if every:
        return ["window" if (i + 1) % every else "full" for i in range(layers)]
    if not family.windows:
        f.refuse(f.name("window"), "a window, but nothing says which layers have it")
    return ["window" if i >= late else "full" for i in range(layers)]


def _repeated(f: Fields, pattern: str, layers: int) -> list[str]:
    """EXAONE 4: `LLLG`, local and global layers in turn."""
    if not pattern or set(pattern) - {"L", "G"}:
        f.refuse("sliding_window_pattern", f"'{shown(pattern)}' is not a pattern of L and G")
    return ["window" if pattern[i % len(pattern)] == "L" else "full" for i in range(layers)]


def no_rope_layers(f: Fields, layers: int) -> list[bool] | None:
    """Layers without rotary positions: a flag for each (1: with), or every N-th."""
    flags = f.value("no_rope_layers")
    if isinstance(flags, list) and flags:
        f.used.add("no_rope_layer_interval")
        return [flag == 0 for flag in f.each("no_rope_layers", layers, minimum=0)]
    every = f.maybe("no_rope_layer_interval")
    return [(i + 1) % every == 0 for i in range(layers)] if every else None


def sparse_layers(f: Fields, layers: int) -> list[bool]:
    """Which layers have experts: each field that is there has its say."""
    if (types := f.texts("mlp_layer_types", layers)) is not None:
        if set(types) - {"dense", "sparse"}:
            f.refuse("mlp_layer_types", "a layer is dense or sparse")
        f.used.update(_RULES)
        return [kind == "sparse" for kind in types]
    sparse = [True] * layers
    for name, says in _RULES.items():
        if f.has(name):
            verdicts = says(f, name, layers)
            sparse = [old and new for old, new in zip(sparse, verdicts, strict=True)]
    return sparse


def _listed(f: Fields, name: str, layers: int) -> list[bool]:
    found = set(f.indices(name, layers) or ())
    return [i in found for i in range(layers)]


def _unlisted(f: Fields, name: str, layers: int) -> list[bool]:
    return [not listed for listed in _listed(f, name, layers)]


def _after(f: Fields, name: str, layers: int) -> list[bool]:
    first = f.size(name, minimum=0)
    return [i >= first for i in range(layers)]


def _flagged_or_every(f: Fields, name: str, layers: int) -> list[bool]:
    if isinstance(f.value(name), list):
        return [flag > 0 for flag in f.each(name, layers, minimum=0)]
    every = f.size(name)
    return [i % every == 0 for i in range(layers)]


def _last_of_every(f: Fields, name: str, layers: int) -> list[bool]:
    every = f.size(name)
    return [(i + 1) % every == 0 for i in range(layers)]


def _period(f: Fields, name: str, layers: int) -> list[bool]:
    period, offset = f.size(name), f.size("expert_layer_offset", 0, 0)
    return [i % period == offset for i in range(layers)]


def _edge(f: Fields, name: str, choose: Callable[[list[int]], int]) -> int:
    value: Any = f.value(name)
    values = value if isinstance(value, list) and value else [value]
    return choose([f.whole(name, item, -1) for item in values])


def _from_start(f: Fields, name: str, layers: int) -> list[bool]:
    start = _edge(f, name, min)
    return [i >= start for i in range(layers)]


def _to_end(f: Fields, name: str, layers: int) -> list[bool]:
    end = _edge(f, name, max)
    return [end == -1 or i <= end for i in range(layers)]


_RULES: dict[str, Callable[[Fields, str, int], list[bool]]] = {
    "first_k_dense_replace": _after,
    "num_dense_layers": _after,
    "moe_layer_freq": _flagged_or_every,
    "moe_layers": _listed,
    "mlp_only_layers": _unlisted,
    "interleave_moe_layer_step": _last_of_every,
    "decoder_sparse_step": _last_of_every,
    "expert_layer_period": _period,
    "moe_layer_start_index": _from_start,
    "moe_layer_end_index": _to_end,
    "moe_layer_interval": _last_of_every,
}
