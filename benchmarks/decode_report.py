"""The table of `decode_cpu.py`, and what is said of each goal."""

from __future__ import annotations

from typing import Any, NamedTuple

OURS, OURS_PLAIN, DYNAMIC, STATIC, LLAMA = "kvplan", "kvplan, plain weights", "DynamicCache", "StaticCache", "llama.cpp"
# bf16 at batch 1 against DynamicCache, StaticCache everywhere, one core's bandwidth at 1B bf16
GOALS = {"dynamic at 128": 2.0, "dynamic at 2048": 3.0, "static": 1.0, "bandwidth": 0.85, "llama.cpp": 1.0}


class Case(NamedTuple):
    """One comparison."""

    shape: str
    dtype: str
    batch: int
    context: int


HEAD = """# Decode on one core

{date}, {cpu}, one thread, torch {torch}, transformers {transformers}, llama.cpp by xllamacpp {xllamacpp}. Stream copy
{before:.1f} GB/s before and {after:.1f} GB/s after. {note}

Tokens a second, medians of cases in turn; the last columns say how many times as fast kvplan is.

| shape | dtype | batch | context | kvplan | GB/s | of the copy | x DynamicCache | x StaticCache | x llama.cpp |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
"""


def markdown(result: dict[str, Any]) -> str:
    about, rows = result["run"], result["rows"]
    copies = {name: about[f"copy_{key}bytes_per_s"] / 1e9 for name, key in (("before", ""), ("after", "after_"))}
    head = HEAD.format(**{**about, **about["versions"], **copies})
    return "\n".join([*(head.rstrip(), *map(_line, rows)), "", "Goals:", "", *(f"- {v}" for v in verdicts(result)), ""])


def _line(row: dict[str, Any]) -> str:
    ratios = [f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "-" for name in (DYNAMIC, STATIC, LLAMA)]
    cells = [row["shape"], row["dtype"], row["batch"], row["context"], f"{row['tokens_per_s'][OURS]:.1f}"]
    cells += [f"{row['bytes_per_s'] / 1e9:.1f}", f"{row['share_of_copy']:.0%}", *ratios]
    return f"| {' | '.join(map(str, cells))} |"


def verdicts(result: dict[str, Any]) -> list[str]:
    """Each goal with the worst figure of the cases that it is about."""
    rows = result["rows"]
    first = [row for row in rows if row["dtype"] == "bf16" and row["batch"] == 1]
    figures = {
        "dynamic at 128": [row["ratios"].get(DYNAMIC) for row in first if row["context"] == 128],
        "dynamic at 2048": [row["ratios"].get(DYNAMIC) for row in first if row["context"] == 2048],
        "static": [row["ratios"].get(STATIC) for row in rows],
        "bandwidth": [row["share_of_copy"] for row in first if row["shape"] == "1B" and row["context"] == 128],
        "llama.cpp": [row["ratios"].get(LLAMA) for row in first],
    }
    lines = []
    for name, goal in GOALS.items():
        known = [figure for figure in figures[name] if figure is not None]
        if known:
            lines.append(f"{name}: {min(known):.2f}, goal {goal}: {'met' if min(known) >= goal else 'missed'}")
    return lines
