"""Which choices set rows apart: the inputs that differ, without those that only follow from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.report.words import Row


INPUTS = {
    "model": "model",
    "gpu": "GPU",
    "gpus": "GPUs",
    "engine": "engine",
    "engine_version": "version",
    "context_tokens": "context",
    "max_model_len": "max model len",
    "weight_scheme": "weights",
    "kv_dtype": "KV cache",
    "attention": "attention",
    "kv_heads": "KV heads",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "data_parallel": "dp",
    "expert_parallel": "ep",
    "memory_fraction": "fraction",
    "max_seqs": "max seqs",
    "max_batched_tokens": "batched tokens",
    "block_size": "block",
    "sessions": "asked",
    "reserve_bytes": "reserve",
    "lora_rank": "LoRA rank",
    "max_loras": "LoRAs",
    "draft_model": "draft",
    "shared_prefix_tokens": "prefix",
    "extras": "extras",
    "eager": "eager",
}


def same(rows: Sequence[Row], key: str) -> bool:
    """Whether every row that has the key holds the same; a refused row has only some keys."""
    values = [row[key] for row in rows if key in row]
    return all(value == values[0] for value in values)


def varying_inputs(rows: Sequence[Row]) -> list[str]:
    """The keys of the choices that differ between rows."""
    varying = [key for key in INPUTS if not same(rows, key)]
    follows = {
        "max_model_len": all(row.get("max_model_len") == row.get("context_tokens") for row in rows),
        "kv_heads": "attention" in varying or _one_each(rows, "model", "kv_heads"),
    }
    return [key for key in varying if not follows.get(key)]


def _one_each(rows: Sequence[Row], owner: str, key: str) -> bool:
    """Whether each owner goes with one value of the key."""
    pairs = {(row.get(owner), row[key]) for row in rows if key in row}
    return len(pairs) == len({name for name, _ in pairs})
