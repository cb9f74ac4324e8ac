"""The answer of an estimate in words: how many conversations fit, how long one may grow, and what stops the next."""

from __future__ import annotations

from kvplan.report.words import LIMITS, Row, counted, exact
from kvplan.units import human_bytes


def answer(row: Row) -> str:
    """The one sentence that people look for."""
    if row["fits"]:
        return _fitting(row)
    return f"Does not fit: {_why_not(row)}"


def _fitting(row: Row) -> str:
    count, replicas = row["max_sessions"], row.get("data_parallel") or 1
    verb = "fits" if count == 1 else "fit"
    each = f", {exact(count // replicas)} on each of {replicas} replicas" if replicas > 1 else ""
    return f"{counted(count, 'conversation')} of {_length(row)} {verb}{each}{band(row, 'max_sessions')}"


def _length(row: Row) -> str:
    return counted(row["context_tokens"], "token")


def _why_not(row: Row) -> str:
    if row["max_sessions"]:
        return f"more is asked for than the {counted(row['max_sessions'], 'conversation')} of {_length(row)} that fit"
    budget, needed = row["kv_budget_bytes"], row["kv_bytes_per_session"]
    if row["limited_by"] == "weights":
        over = f"{exact(-budget)} bytes ({human_bytes(-budget)}) more than" if budget else "all of"
        what = "weights and overhead take" if row.get("overhead_bytes") else "the weights alone take"
        return f"{what} {over} the memory the engine may use"
    if row["limited_by"] == "context" and needed > budget:
        return f"one conversation of {_length(row)} takes {human_bytes(needed)}, the KV budget is {human_bytes(budget)}"
    return f"limited by {limit(row)}"


def details(row: Row) -> list[tuple[str, str]]:
    """What belongs to the answer: a word and its value each."""
    lines = [
        ("KV pool", f"{counted(row['kv_tokens'], 'token')}{_shared(row)}{band(row, 'kv_tokens')}"),
        ("longest", _longest(row)),
        ("limited by", limit(row)),
    ]
    if row.get("gpu_memory_bytes") is None:
        lines.insert(
            0, ("KV budget", f"{exact(row['kv_budget_bytes'])} bytes, {human_bytes(row['kv_budget_bytes'])}, as given")
        )
        lines.append(
            ("not counted", f"{exact(row['weights_bytes'])} bytes, {human_bytes(row['weights_bytes'])}, of weights")
        )
    return lines


def _shared(row: Row) -> str:
    replicas = row.get("data_parallel") or 1
    return f" in {replicas} pools" if replicas > 1 else ""


def _longest(row: Row) -> str:
    """The longest single conversation by memory, beside what the model itself can follow."""
    longest, own = row["max_context_tokens"], row.get("model_max_context")
    if longest == 0:
        return "no conversation of any length"
    text = "no limit from memory" if longest is None else f"one conversation of {counted(longest, 'token')}"
    if own is None:
        return text
    if longest is None or longest > own:
        return f"{text}; the model's own maximum is {exact(own)}"
    return (
        f"{text}, below the model's own maximum of {exact(own)}" if longest < own else f"{text}, all that the model can"
    )


def limit(row: Row) -> str:
    """What keeps the next conversation out, in words."""
    return LIMITS.get(row["limited_by"], str(row["limited_by"]))


def band(row: Row, key: str) -> str:
    """The low and high end of a figure that is not exact, or nothing."""
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    return "" if low is None or high is None or low == high else f" (between {exact(low)} and {exact(high)})"
