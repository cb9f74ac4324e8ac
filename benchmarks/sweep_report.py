"""The result of benchmarks/sweep.py as Markdown, and where it was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("kvplan", "numpy", "pyarrow", "polars", "pandas")


def installed(name: str) -> bool:
    """Whether the package is there."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def surroundings() -> dict[str, Any]:
    """Where and with what it was measured."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_1_minute": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES if installed(name)},
    }


def report(found: dict[str, Any]) -> str:
    """The result as Markdown, which is readable on a terminal too."""
    where, memory = found["machine"], found["memory"]
    versions = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    kinds = [
        (
            r["kind"],
            f"{r['rows']:,}",
            f"{r['grid_per_s'] / 1e6:.1f}",
            f"{r['loop_per_s'] / 1e6:.3f}",
            f"{r['times']:,.0f}",
        )
        for r in found["arithmetic"]
    ]
    written = [(r["writer"], f"{r['cpu_s']:.2f}", f"{r['bytes'] / 1e6:.0f}") for r in found["csv"]]
    sizes = [(f"{r['rows']:,}", f"{r['cpu_s']:.3f}", f"{r['us_per_row']:.2f}") for r in found["growth"]]
    conditions = (
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, load {where['load_1_minute']} at the start, Python "
        f"{where['python']}; {versions}. CPU time, medians of {found['repeats']} interleaved runs. "
        "Written by `benchmarks/sweep.py`."
    )
    parts = [
        "# Sweeps",
        conditions,
        _table(("arithmetic", "rows", "million/s on a core", "a loop, million/s", "times"), kinds),
        _table((f"CSV of {found['csv'][0]['rows']:,} rows", "CPU s", "MB"), written),
        _table(("rows to CSV", "CPU s", "microseconds a row, beside the start"), sizes),
        f"{memory['rows']:,} rows to Parquet: {memory['peak_gb']:.2f} GB at most, {memory['cpu_s']:.1f} s of CPU.",
        "\n".join(f"- {'met' if goal['met'] else 'NOT met'}: {goal['goal']}" for goal in found["goals"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---", *["--:"] * (len(head) - 1)), *rows))
