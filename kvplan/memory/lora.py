"""LoRA slots: memory an engine sets aside for adapters (Hu et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.errors import InputError
from kvplan.memory.parameters import distinct_layers, widths_of
from kvplan.memory.tensors import Tensor, layer_tensors
from kvplan.sharding import Rank
from kvplan.specs.layers import STATE_MIXERS, Layer
from kvplan.specs.model import ModelSpec
from kvplan.units import Line

ADAPTER_BYTES = 2  # adapters are kept in the 16-bit compute dtype


def lora_parameters(rank: Rank, lora_rank: int) -> int:
    """Elements of one adapter: rank x (inputs + outputs) for those of the seven projections that each layer has.

    On a divided layer the projection's own divided side is divided, the other whole (as in vLLM by default).
    """
    adapted = _adapted(rank.model, rank.layers)
    return sum(count * lora_rank * (tensor.rows + tensor.columns) for tensor, count in adapted)


def _adapted(model: ModelSpec, layers: tuple[Layer, ...]) -> Iterator[tuple[Tensor, int]]:
    widths = widths_of(model)
    for layer, count in distinct_layers(layers):
        for tensor in layer_tensors(layer, widths):
            if tensor.lora:
                yield tensor, count


def lora_line(rank: Rank, lora_rank: int, max_loras: int) -> Line:
    """The ledger line of `max_loras` slots; InputError where the model has nothing to adapt."""
    names = list(
        dict.fromkeys(tensor.name.removesuffix("_proj") for tensor, _ in _adapted(rank.model, rank.model.stack))
    )
    if not names:
        raise InputError(
            f"--lora-rank: {rank.model.name} has none of the projections that adapters are counted on"
            " (q, k, v, o, gate, up, down); leave it out, or set memory aside with --reserve"
        )
    elements = lora_parameters(rank, lora_rank)
    terms: dict[str, int | float] = {
        "max_loras": max_loras,
        "adapter_parameters": elements,
        "bytes_per_value": ADAPTER_BYTES,
    }
    formula = "max_loras * adapter_parameters * bytes_per_value"
    *first, last = names
    listed = f"{', '.join(first)} and {last}" if first else last
    source = f"rank {lora_rank} on {listed} (Hu et al. 2021)"
    return Line("overhead/lora_slots", max_loras * elements * ADAPTER_BYTES, formula, terms, source)


def not_adapted(model: ModelSpec) -> list[str]:
    """Parts of a model that adapters may train too, and that the slots do not count."""
    there = {
        "experts": any(layer.moe for layer in model.stack),
        "state layers": any(getattr(layer, mixer) for layer in model.stack for mixer in STATE_MIXERS),
        "the low-rank projections of latent attention": any(layer.latent for layer in model.stack),
    }
    return [part for part, has in there.items() if has]
