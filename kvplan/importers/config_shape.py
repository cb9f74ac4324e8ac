"""What the builders of layers share: the fields, the family and the sizes that every part needs."""

from __future__ import annotations

from kvplan.importers.config_families import Family, Switch
from kvplan.importers.config_fields import MOST_HEADS, Fields
from kvplan.importers.config_rope import Ropes
from kvplan.records import Record
from kvplan.specs.order import MAX_LAYERS
from kvplan.specs.scalars import shown

_STATES_ALONE = ("mamba", "mamba2", "falcon_mamba")
_FALCON_NEW = "new_decoder_architecture"


class Shape(Record):
    """A config being imported."""

    f: Fields
    name: str  # of the family
    family: Family
    hidden: int
    layers: int
    heads: int  # 0 where no layer has softmax attention
    kv_heads: int
    head_dim: int
    ropes: Ropes
    mixers: tuple[str, ...]
    no_rope: tuple[bool, ...]

    def on(self, switch: Switch) -> bool:
        """Whether a switch of the family is on in this config."""
        if isinstance(switch, bool):
            return switch
        if switch.name == "noaux_tc":  # DeepSeek: this way of choosing experts has a bias for each
            method = self.f.text("topk_method")
            return switch.default if method is None else method == "noaux_tc"
        return self.f.flag(switch.name, switch.default)


def count_layers(f: Fields) -> int:
    """Layers: a number, or as many as a list of them names."""
    if f.value("layers") is None and isinstance(f.value("layers_block_type"), list):
        return f.whole("layers_block_type", len(f.value("layers_block_type")), 1, MAX_LAYERS)
    return f.size("layers", maximum=MAX_LAYERS)


def read_heads(f: Fields, name: str, hidden: int) -> tuple[int, int, int]:
    """Query heads, key-value heads and head width; zeros where there is no softmax attention at all."""
    if name in _STATES_ALONE:
        return 0, 0, 0
    if name == "openelm":  # it lists heads by layer
        return 0, 0, f.size("head_dim")
    heads = f.size("heads", maximum=MOST_HEADS)
    head_dim = f.maybe("head_dim", 1)
    if head_dim is None:
        if hidden % heads and not f.has("kv_lora_rank"):
            f.refuse(f.name("head_dim"), f"missing, and hidden size {hidden} does not divide by {heads} heads")
        head_dim = max(1, hidden // heads)
    kv_heads = _kv_heads(f, name, heads)
    if heads % kv_heads:
        f.refuse(f.name("kv_heads"), f"{heads} query heads do not divide by {kv_heads} key-value heads")
    return heads, kv_heads, head_dim


def _kv_heads(f: Fields, name: str, heads: int) -> int:
    """As many as the config says; one where queries share a pair (multi_query), else as many as query heads."""
    if name == "falcon" and not f.flag(_FALCON_NEW, _looks_new(f)):
        f.maybe("kv_heads")  # the code reads it only in the new architecture
        return 1 if f.flag("multi_query", True) else heads
    if name == "gpt_bigcode":
        f.maybe("kv_heads")
        return 1 if f.flag("multi_query", True) else heads
    if name == "chatglm" and not f.flag("multi_query_attention"):
        f.maybe("kv_heads")
        return heads
    f.flag("multi_query")
    return f.size("kv_heads", heads, maximum=MOST_HEADS)


def _looks_new(f: Fields) -> bool:
    """Older files of Falcon 40B name `n_head_kv` where newer ones have a switch."""
    return f.has("n_head_kv")


def layer_sections(f: Fields, layers: int) -> list[Fields]:
    """What `per_layer_config` changes in each layer, by the number of the layer; often nothing."""
    both = f.section("per_layer_config")
    changes = [Fields({}, f.source)] * layers
    for number in both.values if both else ():
        part = both.section(number) if both else None
        if part is None or not number.isdecimal() or int(number[:6]) >= layers:
            f.refuse("per_layer_config", f"'{shown(number)}' is not the number of one of {layers} layers")
        unknown = sorted(part.values.keys() - {"head_dim", "v_head_dim", "num_key_value_heads", "intermediate_size"})
        if unknown:
            part.refuse(unknown[0], "this field of a single layer is not known to kvplan")
        changes[int(number)] = part
    return changes
