"""From a model file to a decoder with random weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from kvplan.errors import InputError
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.numerics import Numerics, numerics_of
from kvplan.measure.decoder.parallel import ALONE, Group
from kvplan.measure.decoder.place import Place
from kvplan.measure.decoder.refusals import check_runs
from kvplan.sharding import Rank, shard
from kvplan.specs.model import ModelSpec

SAMPLES = 1_048_573  # a prime, so that no row of a matrix repeats another's numbers


def build_decoder(
    model: ModelSpec | Rank,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    layers: int | None = None,
    seed: int = 0,
    numerics: Numerics | None = None,
    group: Group = ALONE,
) -> Decoder:
    """The decoder of a model, or of one rank of it, with the first `layers` layers.

    Raises InputError for the kinds of models that it does not run.
    """
    rank = model if isinstance(model, Rank) else shard(model, group.size)[0]
    if rank.tp != group.size:
        raise ValueError(f"a rank of tp {rank.tp} needs a group of that size, not {group.size}")
    if layers is not None:
        rank = replace(rank, model=with_layers(rank.model, layers), layers=rank.layers[:layers])
    check_runs(rank)
    decoder = Decoder(rank, numerics or numerics_of(rank.model), Place(torch.device(device), dtype), group)
    fill_random(decoder, seed)
    return decoder.eval()


def with_layers(model: ModelSpec, layers: int) -> ModelSpec:
    """The model cut to its first layers."""
    if not 1 <= layers <= len(model.stack):
        raise InputError(f"--layers {layers}: {model.name} has {len(model.stack)} layers, so it is from 1 to that")
    return replace(model, stack=model.stack[:layers], stack_kinds=model.stack_kinds[:layers])


@torch.inference_mode()
def fill_random(decoder: Decoder, seed: int) -> None:
    """Matrices of variance 1 / columns, norms that change nothing, biases of zero.

    Drawing billions of numbers takes minutes on a CPU: one block is drawn and used again and again.
    """
    place, start = decoder.place, 0
    generator = torch.Generator(place.device).manual_seed(seed)
    block = torch.empty(SAMPLES, device=place.device, dtype=torch.float32).normal_(generator=generator)
    for name, parameter in decoder.named_parameters():
        if parameter.dim() > 1:
            start = _tile(parameter, block, start)
        else:
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1 - decoder.numerics.norm_offset)


def _tile(parameter: Tensor, block: Tensor, start: int) -> int:
    """Fill with the block's numbers from `start` on, again and again; where the next parameter goes on."""
    flat, done, scale = parameter.flatten(), 0, parameter.shape[1] ** -0.5
    while done < len(flat):
        piece = block[start : start + len(flat) - done]
        flat[done : done + len(piece)] = piece * scale
        done, start = done + len(piece), (start + len(piece)) % len(block)
    return start
