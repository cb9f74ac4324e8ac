"""The fields of a config under their many names. Each read is remembered: what nobody asked for is looked at last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from kvplan.importers.config_json import problem
from kvplan.specs.nodes import join
from kvplan.specs.scalars import shown

LARGEST = 2**31  # of any width, count or vocabulary
MOST_HEADS = 2**16

# One meaning, the names that families give it. The first that is there counts; others must not contradict it.
NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocab_size": ("padded_vocab_size", "vocab_size"),
    "experts": (
        "num_experts",
        "n_routed_experts",
        "num_routed_experts",
        "num_local_experts",
        "moe_num_experts",
        "num_routed_expert",
    ),
    "active": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "experts_per_token",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "top_k_experts",
    ),
    "expert_size": ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_size": (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
    ),
    "dense_layers": ("first_k_dense_replace", "num_dense_layers"),
    "window": ("sliding_window", "sliding_window_size", "window_size"),
    "mtp_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    "dtype": ("dtype", "torch_dtype"),
    "conv": ("linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel", "conv_L_cache"),
    "state_size": ("ssm_state_size", "mamba_d_state", "state_size"),
}

# Of these the first is meant, whatever the others say.
CONTEXT_NAMES = (
    "model_max_length",  # Cohere: longer than the positions, and meant
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_context_length",
    "initial_context_length",
    "n_ctx",
)


class Fields:
    """One object of a config: typed reading, and a memory of what was read."""

    def __init__(self, values: Mapping[str, Any], source: str, where: str = "") -> None:
        self.values, self.source, self.where = values, source, where
        self.used: set[str] = set()

    def refuse(self, name: str, message: str) -> NoReturn:
        """Stop with a sentence about a field."""
        raise problem(self.source, join(self.where, name) if name else self.where, message)

    def has(self, *names: str) -> bool:
        """Whether a field is there and not null."""
        return any(self._found(name) is not None for name in names)

    def value(self, meaning: str) -> Any:
        """The value under any of its names, or None; two names that differ are refused."""
        found: dict[str, Any] = {}
        for name in NAMES.get(meaning, (meaning,)):
            value = self.values.get(name)
            self.used.add(name)
            if value is not None:
                found[name] = value
        names = list(found)
        for other in names[1:]:
            if found[other] != found[names[0]]:
                first, second = (f"{name} is {shown(str(found[name]))}" for name in (names[0], other))
                self.refuse(other, f"{first} but {second}; they mean the same, so one of them is wrong")
        return found[names[0]] if names else None

    def maybe(self, meaning: str, minimum: int = 1, maximum: int = LARGEST) -> int | None:
        """A whole number, or None where the field is absent or null."""
        value = self.value(meaning)
        return None if value is None else self.whole(meaning, value, minimum, maximum)

    def size(self, meaning: str, default: int | None = None, minimum: int = 1, maximum: int = LARGEST) -> int:
        """A whole number; a field that is absent or null takes the default, and without one is missed."""
        value = self.maybe(meaning, minimum, maximum)
        if value is not None:
            return value
        if default is None:
            self.refuse(self.name(meaning), "missing; without it the shape is not known")
        return default

    def whole(self, meaning: str, value: Any, minimum: int = 1, maximum: int = LARGEST) -> int:
        """A value checked to be a whole number within bounds."""
        exact = isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - NaN
        if not exact or abs(value) == float("inf") or value != int(value) or not minimum <= value <= maximum:
            got = shown(str(value))
            self.refuse(self.name(meaning), f"expected a whole number from {minimum} to {maximum}, got {got}")
        return int(value)

    def name(self, meaning: str) -> str:
        """The name under which a meaning is found here, or the usual one."""
        names = NAMES.get(meaning, (meaning,))
        return next((name for name in names if self._found(name) is not None), names[0])

    def number(self, name: str) -> float | int | None:
        """A finite number above 0, whole ones as int, or None."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            self.refuse(self.name(name), f"expected a number above 0, got {shown(str(value))}")
        return int(value) if value == int(value) else value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; absent or null is the default."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(self.name(name), f"expected true or false, got {shown(str(value))}")
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """Text, or None."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            self.refuse(self.name(name), f"expected text, got {shown(str(value))}")
        return value

    def items(self, name: str, length: int | None = None) -> list[Any] | None:
        """A list, of this length where one is asked for, or None."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list):
            self.refuse(self.name(name), f"expected a list, got {shown(str(value))}")
        if length is not None and len(value) != length:
            self.refuse(self.name(name), f"{len(value)} values for {length} layers")
        return value

    def texts(self, name: str, length: int | None = None) -> list[str] | None:
        """A list of texts, or None."""
        value = self.items(name, length)
        if value is not None and not all(isinstance(item, str) for item in value):
            self.refuse(self.name(name), "expected a list of texts")
        return value

    def indices(self, name: str, layers: int, first: int = 0) -> list[int] | None:
        """A list of layer numbers counted from `first`, as counted from 0, or None."""
        value = self.items(name)
        if value is None:
            return None
        return [self.whole(name, item, first, first + layers - 1) - first for item in value]

    def each(self, meaning: str, layers: int, default: int | None = None, minimum: int = 1) -> list[int]:
        """A number for every layer: one for all, or a list with one for each."""
        value = self.value(meaning)
        if isinstance(value, list):
            if len(value) != layers:
                self.refuse(self.name(meaning), f"{len(value)} values for {layers} layers")
            return [self.whole(meaning, item, minimum) for item in value]
        return [self.size(meaning, default, minimum)] * layers

    def section(self, name: str) -> Fields | None:
        """An object in this one, or None."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(name, f"expected an object, got {shown(str(value))}")
        return Fields(value, self.source, join(self.where, name))

    def _found(self, name: str) -> Any:
        return self.values.get(name)
