"""Mixture of experts, routed token by token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.mlp import Mlp
from kvplan.measure.decoder.numerics import Numerics
from kvplan.measure.decoder.place import Place
from kvplan.specs import layers as shape


class Moe(nn.Module):
    """The `active` experts with the highest router logits, weighted by softmax; shared experts see every token."""

    def __init__(self, moe: shape.Moe, hidden: int, numerics: Numerics, place: Place) -> None:
        super().__init__()
        self.active, self.renormalise = moe.active, numerics.renormalise
        self.router = Linear(moe.experts, hidden, place, bias=moe.router_bias)

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
        weights, chosen = self._route(tokens)  # (N, active) both
        out = torch.zeros_like(tokens)
        for expert in chosen.unique().tolist():
            row, place = (chosen == expert).nonzero(as_tuple=True)
            out.index_add_(0, row, self.experts[expert](tokens[row]) * weights[row, place, None])
        return out

    def _route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax over all experts, of which the chosen are kept: renormalised, it is the softmax over the chosen."""
        odds = torch.softmax(self.router(tokens), dim=-1, dtype=torch.float32)  # (N, E)
        weights, chosen = odds.topk(self.active, dim=-1)
        if self.renormalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights.to(tokens.dtype), chosen
