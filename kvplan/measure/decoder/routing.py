"""Which experts a token goes to, and how much each counts."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.measure.decoder.numerics import Numerics

GROUP_BEST = {"softmax": 1, "sigmoid": 2}  # experts whose scores make a group's (DeepSeek-V2, DeepSeek-V3)


def route(logits: Tensor, bias: Tensor | None, active: int, numerics: Numerics) -> tuple[Tensor, Tensor]:
    """Router logits (N, E) to the weights of each token's experts and their numbers, (N, active) both.

    Softmax over all experts of which the chosen are kept: renormalised, it is the softmax over the chosen. With
    sigmoid, every expert has a score of its own, and a bias that balances the load takes part in the choice only.
    """
    logits = logits.float()
    odds = torch.sigmoid(logits) if numerics.scoring == "sigmoid" else torch.softmax(logits, dim=-1)
    wanted = odds if bias is None else odds + bias
    if numerics.groups > 1:
        wanted = _in_best_groups(wanted, numerics)
    chosen = wanted.topk(active, dim=-1).indices
    weights = odds.gather(-1, chosen)
    if numerics.renormalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights * numerics.routed_scale, chosen


def _in_best_groups(wanted: Tensor, numerics: Numerics) -> Tensor:
    """-inf for experts outside a token's best groups, which keeps its experts on few devices."""
    grouped = wanted.unflatten(-1, (numerics.groups, -1))  # (N, groups, E / groups)
    best = grouped.topk(GROUP_BEST[numerics.scoring], dim=-1).values.sum(dim=-1).topk(numerics.active_groups, dim=-1)
    outside = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best.indices, value=False)
    return grouped.masked_fill(outside.unsqueeze(-1), -torch.inf).flatten(-2)
