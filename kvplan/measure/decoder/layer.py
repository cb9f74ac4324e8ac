"""One layer: norms, attention, feed-forward, and what is added to the residual stream."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from kvplan.measure.decoder.attention import Attention, Turn
from kvplan.measure.decoder.latent import LatentAttention
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.mlp import Mlp
from kvplan.measure.decoder.moe import Moe
from kvplan.measure.decoder.norms import LayerNorm, RMSNorm, make_norm
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.parallel import Group
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.slots import Rows, Slot, column_slots, row_slots, whole
from kvplan.specs import layers as shape
from kvplan.specs.layers import Layer, Rope
from kvplan.specs.model import ModelSpec

HUB_NAMES = {  # of the norms of a layer with two parts, by their number; one norm serves both parts
    1: {"attention_in": "input_layernorm"},
    2: {"attention_in": "input_layernorm", "mlp_in": "post_attention_layernorm"},
    4: {
        "attention_in": "input_layernorm",
        "attention_out": "post_attention_layernorm",
        "mlp_in": "pre_feedforward_layernorm",
        "mlp_out": "post_feedforward_layernorm",
    },
}


def norm_roles(layer: Layer) -> tuple[str, ...] | None:
    """Which norms the layer has; None where the number fits no known arrangement."""
    mixer = layer.attention or layer.latent
    parts = [name for name, part in (("attention", mixer), ("mlp", layer.mlp or layer.moe)) if part]
    if layer.norms == 1:
        return (f"{parts[0]}_in",)
    ends = {0: (), len(parts): ("in",), 2 * len(parts): ("in", "out")}.get(layer.norms)
    return None if ends is None else tuple(f"{part}_{end}" for part in parts for end in ends)


class Block(nn.Module):
    """x + Attention(norm(x)), then x + FeedForward(norm(x)).

    One norm: both parts read the same normalised x, side by side. Four: each part's result is normalised as well.
    """

    def __init__(self, layer: Layer, model: ModelSpec, numerics: Numerics, place: Place, group: Group) -> None:
        super().__init__()
        hidden, m = model.hidden_size, layer.mlp
        self.group = group
        roles = norm_roles(layer) or ()
        norms = {role: make_norm(model.norm, hidden, numerics, place) for role in roles}
        self.attention_in, self.attention_out = norms.get("attention_in"), norms.get("attention_out")
        self.mlp_in, self.mlp_out = norms.get("mlp_in"), norms.get("mlp_out")
        self.norm_names = {role: HUB_NAMES.get(len(roles), {}).get(role, role) for role in roles}
        self.attention: Attention | LatentAttention | None = None
        if layer.attention:
            self.attention = Attention(layer.attention, hidden, numerics, place, group)
        elif layer.latent:
            rope = model.rope if isinstance(model.rope, Rope) else None
            self.attention = LatentAttention(layer.latent, hidden, numerics, place, group, rope=rope)
        self.mlp: Mlp | Moe | None = None
        if m:
            self.mlp = Mlp(hidden, m.intermediate_size, numerics.activation, place, gated=m.gated, bias=m.bias)
        elif layer.moe:
            self.mlp = Moe(layer.moe, hidden, numerics, place)
        self.side_by_side = bool(self.attention and self.mlp) and layer.norms == 1

    def forward(self, x: Tensor, turn: Turn) -> Tensor:
        """(B, T, M) to (B, T, M)."""
        if self.side_by_side and self.attention is not None and self.mlp is not None:
            normed = _maybe(self.attention_in, x)
            return x + self.attention(normed, turn) + self.group.sum(self.mlp(normed))
        if self.attention is not None:
            y = self.attention(_maybe(self.attention_in, x), turn)
            x = x + _maybe(self.attention_out, y)
        if self.mlp is not None:
            y = self.group.sum(self.mlp(_maybe(self.mlp_in, x)))
            x = x + _maybe(self.mlp_out, y)
        return x

    def slots(self, full: Layer) -> Iterator[tuple[str, Slot]]:
        """Where the whole model's tensors go."""
        for role, name in self.norm_names.items():
            norm = getattr(self, role)
            yield from ((f"{name}.{part}", whole(tensor)) for part, tensor in norm.named_parameters())
        if isinstance(self.attention, LatentAttention) and full.latent:
            yield from _prefixed("self_attn", self.attention.slots(full.latent))
        if isinstance(self.attention, Attention) and full.attention:
            yield from _prefixed("self_attn", self.attention.slots(full.attention))
        if isinstance(self.mlp, Mlp) and full.mlp:
            yield from _prefixed("mlp", mlp_slots(self.mlp, full.mlp.intermediate_size, self.group.rank))
        if isinstance(self.mlp, Moe) and full.moe:
            yield from _prefixed("mlp", moe_slots(self.mlp, full.moe, self.group.rank))


def _maybe(norm: RMSNorm | LayerNorm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _prefixed(prefix: str, slots: Iterator[tuple[str, Slot]]) -> Iterator[tuple[str, Slot]]:
    return ((f"{prefix}.{name}", slot) for name, slot in slots)


def mlp_slots(mlp: Mlp, inner: int, rank: int) -> Iterator[tuple[str, Slot]]:
    """Gate, up and down; widths that do not divide are rounded up and end in zeros."""
    names = ("gate_proj", "up_proj") if mlp.gated else ("up_proj",)
    yield from row_slots(mlp.up, [Rows(name, mlp.inner, rank * mlp.inner, inner) for name in names])
    yield from column_slots(mlp.down, "down_proj", rank, inner)


def moe_slots(moe: Moe, full: shape.Moe, rank: int) -> Iterator[tuple[str, Slot]]:
    """Router and gate whole on every rank, experts divided in width."""
    yield from _whole("gate", moe.router)
    if moe.choice_bias is not None:
        yield "gate.e_score_correction_bias", whole(moe.choice_bias)
    for index, expert in enumerate(moe.experts):
        yield from _prefixed(f"experts.{index}", mlp_slots(expert, full.intermediate_size, rank))
    if moe.shared is not None:
        yield from _prefixed("shared_expert", mlp_slots(moe.shared, full.shared_size, rank))
    if moe.shared_gate is not None:
        yield from _whole("shared_expert_gate", moe.shared_gate)


def _whole(name: str, linear: Linear) -> Iterator[tuple[str, Slot]]:
    return ((f"{name}.{part}", whole(tensor)) for part, tensor in linear.named_parameters())
