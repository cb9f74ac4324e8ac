"""The short table: each goal with what was reached, and the main figures."""

from __future__ import annotations

from typing import Any

from kvplan.measure.rows import Row
from kvplan.report.measured import figure

# share of stream copy at batch 1, where the cache is most of what is read, and of the matrix product in prefill
GOALS = {"batch 1": 0.80, "cache dominates": 0.85, "prefill": 0.60}
CACHE_DOMINATES = 0.5  # of the bytes moved
SHOWN = (
    "weights", "kv_cache", "activations", "peak", "sessions", "ttft", "decode_step", "energy_per_token",
    "transformers_step",
)  # fmt: skip


def summary(rows: list[Row]) -> str:
    """Markdown."""
    about: dict[str, Any] = next((row["run"] for row in rows if "run" in row), {})
    head = f"{about.get('date')}, {about.get('device_name')}, driver {about.get('driver')}, torch {about.get('torch')}"
    lines = ["# On a device", "", head, "", *_goals(rows), "", *_correctness(rows), ""]
    lines += ["| quantity | batch | tokens | predicted | observed | error | share of copy | share of product |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [_line(row) for row in rows if row["quantity"] in SHOWN and "unit" in row]
    lines += ["", *(f"- {row.get('step')}: {row['quantity']}: {row['note']}" for row in rows if _is_gap(row))]
    return "\n".join(lines).rstrip() + "\n"


def _is_gap(row: Row) -> bool:
    return row["quantity"] in ("failed", "left_out")


def _goals(rows: list[Row]) -> list[str]:
    decode = [row for row in rows if row["quantity"] == "decode_step"]
    prompts = [row["share_of_product"] for row in rows if row["quantity"] == "ttft"]
    full = [row["share_of_copy"] for row in decode if _cache_share(row, decode) > CACHE_DOMINATES]
    figures = {"batch 1": [row["share_of_copy"] for row in decode if row["batch"] == 1], "cache dominates": full}
    figures["prefill"] = prompts
    return [
        f"- {name}: {max(figures[name]):.0%} at best, goal {goal:.0%}: "
        f"{'met' if max(figures[name]) >= goal else 'missed'}"
        for name, goal in GOALS.items()
        if figures[name]
    ]


def _cache_share(row: Row, decode: list[Row]) -> float:
    """What is not weights: at the smallest point nearly all is."""
    weights = min(each["bytes_moved"] for each in decode)
    return float(1 - weights / row["bytes_moved"])


def _correctness(rows: list[Row]) -> list[str]:
    logits = [row for row in rows if row["quantity"].startswith("logits_")]
    if not logits:
        return []
    good = sum(row["within"] is True for row in logits)
    worst = max(logits, key=lambda row: row["observed"])
    return [
        f"- logits as on the CPU in {good} of {len(logits)} ways; furthest {worst['quantity']}, {worst['observed']:.1e}"
    ]


def _line(row: Row) -> str:
    def share(key: str) -> str:
        return f"{row[key]:.0%}" if row.get(key) is not None else "-"

    error = "-" if row["error"] is None else f"{row['error']:+.2%}"
    cells: list[Any] = [row["quantity"], row.get("batch") or "-", row.get("context_tokens") or "-"]
    cells += [figure(row["predicted"], row["unit"]), figure(row["observed"], row["unit"]), error]
    return f"| {' | '.join(map(str, [*cells, share('share_of_copy'), share('share_of_product')]))} |"
