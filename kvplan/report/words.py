"""The words and figures that every view shares: what a key is called, how its value reads, what a limit means."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from kvplan.units import human_bytes, human_count

Row = Mapping[str, Any]

LIMITS = {
    "weights": "the weights and what lies beside them: they leave no room for a KV cache",
    "context": "the context: not one conversation of this length fits",
    "kv": "KV memory: the next conversation would not find room",
    "state": "recurrent state, the larger part of what a conversation keeps",
    "max_seqs": "max_seqs, the engine's own limit; the memory would hold more",
    "ttft": "the time to the first token",
    "tpot": "the time for each further token",
}

_LAYOUT = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "data_parallel": "dp"}


def printable(text: str) -> str:
    """The text on one line, with everything that could move a terminal's cursor or colours shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def exact(value: int | float) -> str:
    """A number with all its digits and thousands separators: 14,496,047,104 or 0.9."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}"


def human(key: str, value: Any) -> str:
    """A value as people read it; the key says the unit. Unknown is '-'."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if "bytes" in key.split("_"):
            return human_bytes(value)
        return human_count(value) if key.endswith("parameters") else exact(value)
    if isinstance(value, list | tuple):
        return ", ".join(human(key, each) for each in value) or "-"
    return printable(str(value))


def counted(count: int, noun: str) -> str:
    """1 conversation, 2 conversations."""
    return f"{exact(count)} {noun}" if count == 1 else f"{exact(count)} {noun}s"


def subject(row: Row, apart: Container[str] = ()) -> list[str]:
    """What a row is about, in two lines; keys in `apart` are told elsewhere."""
    known = {key: value for key, value in row.items() if key not in apart}
    first = [part for part in (_model(known), _place(known)) if part]
    return [line for line in (" ".join(first), ", ".join(_service(known))) if line]


def _model(row: Row) -> str:
    facts = []
    if row.get("parameters") is not None:
        facts.append(f"{human_count(row['parameters'])} parameters")
        if row.get("active_parameters") not in (None, row["parameters"]):
            facts.append(f"{human_count(row['active_parameters'])} active")
    if row.get("weight_scheme"):
        facts.append(f"{printable(row['weight_scheme'])} weights")
    name = printable(str(row.get("model") or ""))
    return f"{name} ({', '.join(facts)})" if name and facts else name or ", ".join(facts)


def _place(row: Row) -> str:
    count = f"{row['gpus']} x " if "gpus" in row else ""  # told in the table where it varies
    gpu = f"on {count}{printable(row['gpu'])}" if row.get("gpu") else ""
    budget = row.get("kv_budget_bytes")
    if "gpu_memory_bytes" not in row or row["gpu_memory_bytes"] is not None or budget is None:
        return gpu
    each = " on each GPU" if row.get("gpus", 1) > 1 else ""
    return f"{gpu} with {human_bytes(budget)} of KV memory{each}".lstrip()


def _service(row: Row) -> list[str]:
    parts = []
    if row.get("engine"):
        parts.append(printable(f"engine {row['engine']} {row.get('engine_version') or ''}".rstrip()))
    layout = [f"{short} {row[key]}" for key, short in _LAYOUT.items() if row.get(key, 1) != 1]
    parts += [" ".join(layout)] if layout else []
    if row.get("context_tokens") is not None:
        longest = row.get("max_model_len")
        of = "" if longest in (None, row["context_tokens"]) else f" (configured for {exact(longest)})"
        parts.append(f"context {exact(row['context_tokens'])} tokens{of}")
    if row.get("kv_dtype"):
        parts.append(f"KV cache {printable(row['kv_dtype'])}")
    return parts
