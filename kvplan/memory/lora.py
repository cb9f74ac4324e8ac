"""LoRA slots: memory an engine sets aside for adapters (Hu et al. 2021)."""

from __future__ import annotations

from kvplan.memory.parameters import distinct_layers, widths_of
from kvplan.memory.tensors import layer_tensors
from kvplan.sharding import Rank
from kvplan.units import Line

ADAPTER_BYTES = 2  # adapters are kept in the 16-bit compute dtype


def lora_parameters(rank: Rank, lora_rank: int) -> int:
    """Elements of one adapter: rank x (inputs + outputs) for each of the seven projections of every layer.

    On a divided layer the projection's own divided side is divided, the other whole (as in vLLM by default).
    """
    widths = widths_of(rank.model)
    return sum(
        count * lora_rank * (tensor.rows + tensor.columns)
        for layer, count in distinct_layers(rank.layers)
        for tensor in layer_tensors(layer, widths)
        if tensor.lora
    )


def lora_line(rank: Rank, lora_rank: int, max_loras: int) -> Line:
    """The ledger line of `max_loras` slots."""
    elements = lora_parameters(rank, lora_rank)
    terms: dict[str, int | float] = {
        "max_loras": max_loras,
        "adapter_parameters": elements,
        "bytes_per_value": ADAPTER_BYTES,
    }
    formula = "max_loras * adapter_parameters * bytes_per_value"
    source = f"rank {lora_rank} on q, k, v, o, gate, up and down (Hu et al. 2021)"
    return Line("overhead/lora_slots", max_loras * elements * ADAPTER_BYTES, formula, terms, source)
