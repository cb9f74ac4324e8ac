"""Mixture of experts, routed token by token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.mlp import Mlp
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.routing import route
from kvplan.specs import layers as shape


class Moe(nn.Module):
    """The `active` experts that the router prefers, weighted by its scores; shared experts see every token."""

    def __init__(self, moe: shape.Moe, hidden: int, numerics: Numerics, place: Place) -> None:
        super().__init__()
        self.active, self.numerics = moe.active, numerics
        only_chooses = moe.router_bias and numerics.scoring == "sigmoid"
        self.router = Linear(moe.experts, hidden, place, bias=moe.router_bias and not only_chooses)
        self.choice_bias = place.empty(moe.experts) if only_chooses else None

        def block(inner: int, *, bias: bool) -> Mlp:
            return Mlp(hidden, inner, numerics.activation, place, gated=moe.gated, bias=bias)

        self.experts = nn.ModuleList(block(moe.intermediate_size, bias=moe.bias) for _ in range(moe.experts))
        self.shared = block(moe.shared_size, bias=False) if moe.shared_size else None
        self.shared_gate = Linear(1, hidden, place) if moe.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, M) to (B, T, M)."""
        tokens = x.flatten(0, 1)  # (N, M)
        out = self._routed(tokens)
        if self.shared is not None:
            shared = self.shared(tokens)
            out += shared if self.shared_gate is None else torch.sigmoid(self.shared_gate(tokens)) * shared
        return out.view_as(x)

    def _routed(self, tokens: Tensor) -> Tensor:
        weights, chosen = route(self.router(tokens), self.choice_bias, self.active, self.numerics)
        weights = weights.to(tokens.dtype)
        out = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            row, place = (chosen == expert).nonzero(as_tuple=True)
            out.index_add_(0, row, self.experts[expert](tokens[row]) * weights[row, place, None])
        return out
