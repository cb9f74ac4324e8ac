"""How fast grids are computed and written, as ratios within one run.

CPU time of the process (all its threads), which other work on the machine disturbs less than the clock; what is
compared runs interleaved (A B C A B C ...) and the median counts.

    python benchmarks/sweep.py             # kvplan[report] must be installed; polars too, to be compared with
    python benchmarks/sweep.py --quick     # a tenth of the rows, nothing is stored
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from sweep_report import installed, report, surroundings

from kvplan.arithmetic import NO_LIMIT
from kvplan.planning.estimate import estimate, numbers
from kvplan.planning.figures import figures
from kvplan.planning.grid import Grid
from kvplan.report.stream import Stream, write

RESULTS = Path(__file__).parent / "results" / "sweep.json"
TIMES, MILLIONS, MOST_OF_FASTEST, MOST_GB = 100, 20, 2.0, 1.5  # what we promise

# One grid for each kind of arithmetic; contexts are what changes fastest.
KINDS: dict[str, dict[str, Any]] = {
    "full attention": {"model": "mistral-7b", "gpu": "a100-80g"},
    "windows": {"model": "gemma-3-27b", "gpu": "a100-80g"},
    "a latent, tp 8": {"model": "deepseek-v3", "gpu": "8xh200-sxm"},
    "states": {"model": "nemotron-h-8b", "gpu": "a100-80g"},
    "two stages": {"model": "mistral-7b", "gpu": "a100-80g", "pp": 2},
    "blocks of 16": {"model": "mistral-7b", "gpu": "a100-80g", "block_size": 16},
    "three axes": {"model": "gemma-3-27b", "gpu": "a100-80g", "sessions": "1:64:+1", "max_seqs": "8:512:x2"},
}
WRITTEN: dict[str, Any] = {"model": "mistral-7b,gemma-3-27b", "gpu": "a100-80g,h100-sxm", "sessions": 100}


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def interleaved(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median CPU seconds of each, after one run that does not count."""
    for work in works.values():
        work()
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            samples[name].append(cpu_s(work))
    return {name: median(each) for name, each in samples.items()}


def grid_of(options: Mapping[str, Any], rows: int) -> Grid:
    """A grid of about so many rows: contexts from 1k on, in steps of one token."""
    others = Grid({**options, "context": 1024}).size
    return Grid({**options, "context": range(1024, 1024 + max(1, rows // others))})


def consume(grid: Grid) -> int:
    """Compute every row, and let it go."""
    return sum(chunk.rows for chunk in grid.chunks())


def arithmetic(rows: int, repeats: int) -> list[dict[str, Any]]:
    """Scenarios a second of each kind, and by a loop that computes one scenario's figures after the other."""
    made = []
    for name, options in KINDS.items():
        grid, few = grid_of(options, rows), max(1000, rows // 1000)
        seconds = interleaved({"grid": partial(consume, grid), "loop": _loop(options, few)}, repeats)
        rates = {"grid_per_s": grid.size / seconds["grid"], "loop_per_s": few / seconds["loop"]}
        made.append({"kind": name, "rows": grid.size, **rates, "times": rates["grid_per_s"] / rates["loop_per_s"]})
    return made


def _loop(options: Mapping[str, Any], count: int) -> Callable[[], object]:
    """The lines of an estimate with ints, the structure and the longest context known as the grid knows them."""
    fixed: dict[str, Any] = {name: value for name, value in options.items() if name not in ("sessions", "max_seqs")}
    e = estimate(**fixed | ({"max_seqs": 64, "sessions": 8} if "sessions" in options else {}))
    budgets = [budget.kv.bytes for budget in e.budgets if budget]
    asked, longest = numbers(e.scenario), e.figures.max_context_tokens

    def run() -> None:
        for context in range(1024, 1024 + count):
            figures(e.stages, budgets, asked._replace(own_tokens=context), longest)

    return run


def write_csv(grid: Grid, path: str | Path) -> None:
    """What `kvplan sweep --output x.csv` does."""
    with open(path, "w", encoding="utf-8", newline="") as out:
        write(grid.chunks(), Stream(grid.columns, "csv", nulls={"max_context_tokens": NO_LIMIT}), out)


def writers(rows: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    """A CSV of the same rows by kvplan, which computes them too, and by others, who find them in memory."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as pq

    grid = grid_of(WRITTEN, rows)
    with (folder / "rows.parquet").open("w") as out:
        write(grid.chunks(), Stream(grid.columns, "parquet", nulls={"max_context_tokens": NO_LIMIT}), out)
    stored = pq.read_table(folder / "rows.parquet")
    plain = [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in stored.columns]
    table = pa.table(plain, names=stored.column_names)
    frame = table.to_pandas()
    works: dict[str, Callable[[], object]] = {
        "kvplan": lambda: write_csv(grid, folder / "kvplan.csv"),
        "pyarrow": lambda: arrow_csv.write_csv(table, folder / "pyarrow.csv"),
        "pandas": lambda: frame.to_csv(folder / "pandas.csv", index=False),
    }
    if installed("polars"):
        data = import_module("polars").from_arrow(table)
        works["polars"] = lambda: data.write_csv(folder / "polars.csv")
    seconds = interleaved(works, repeats)
    sizes = {name: (folder / f"{name}.csv").stat().st_size for name in works}
    return [{"writer": name, "rows": grid.size, "cpu_s": seconds[name], "bytes": sizes[name]} for name in works]


def growth(sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """CPU seconds to compute and write as many rows as each size says, and beside the start; the text goes nowhere."""
    grids = [grid_of(WRITTEN, size) for size in (1, *sizes)]
    works = {str(grid.size): partial(write_csv, grid, os.devnull) for grid in grids}
    seconds = interleaved(works, repeats)
    start = seconds[str(grids[0].size)]
    return [
        {"rows": g.size, "cpu_s": seconds[str(g.size)], "us_per_row": (seconds[str(g.size)] - start) / g.size * 1e6}
        for g in grids[1:]
    ]


def parquet_memory(rows: int, folder: Path) -> dict[str, Any]:
    """The most memory that the command held at once, and its CPU time."""
    kvplan = str(Path(sys.executable).parent / "kvplan")
    grid = grid_of(WRITTEN, rows)
    contexts = grid.axes["context"]
    asked = ["--context", f"{contexts[0]}:{contexts[-1]}:+1", "--output", str(folder / "memory.parquet")]
    options = [part for name, value in WRITTEN.items() for part in (f"--{name}", str(value))]
    child = subprocess.Popen([kvplan, "sweep", *options, *asked], stderr=subprocess.PIPE)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"error: exit code {child.returncode}")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"rows": grid.size, "peak_gb": peak / 1e9, "cpu_s": usage.ru_utime + usage.ru_stime}


def goals(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What we promise, with the figures that decide it."""
    slowest = min(row["grid_per_s"] for row in found["arithmetic"]) / 1e6
    least = min(row["times"] for row in found["arithmetic"])
    cpu = {row["writer"]: row["cpu_s"] for row in found["csv"]}
    fastest = min((name for name in cpu if name != "kvplan"), key=lambda name: cpu[name])
    ratio = cpu["kvplan"] / cpu[fastest]
    memory, (*_, small, large) = found["memory"], found["growth"]
    steady = large["us_per_row"] / small["us_per_row"]
    judged = {
        f"arrays over a loop of the same lines: {least:.0f} times or more, at least {TIMES}": least >= TIMES,
        f"scenarios a second on a core: {slowest:.1f} million or more, at least {MILLIONS}": slowest >= MILLIONS,
        f"CSV, computed and written, over {fastest}'s writing alone: {ratio:.2f}, at most {MOST_OF_FASTEST}": (
            ratio <= MOST_OF_FASTEST
        ),
        f"a row among {large['rows']:,} over one among {small['rows']:,}: {steady:.2f}, from 0.67 to 1.5": (
            1 / 1.5 <= steady <= 1.5
        ),
        f"{memory['rows']:,} rows to Parquet: {memory['peak_gb']:.2f} GB, at most {MOST_GB}": memory["peak_gb"]
        <= MOST_GB,
    }
    return [{"goal": text, "met": met} for text, met in judged.items()]


def main() -> int:
    """Measure, print, and store the JSON with the Markdown beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; nothing is stored")
    parser.add_argument("--repeats", type=int, default=5, help="runs that count (default 5)")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    found: dict[str, Any] = {"machine": surroundings(), "repeats": options.repeats}
    with tempfile.TemporaryDirectory() as folder:
        # First: a child's peak begins with the memory of its parent.
        found["memory"] = parquet_memory(10_000_000 // scale, Path(folder))
        found["arithmetic"] = arithmetic(4_000_000 // scale, options.repeats)
        found["csv"] = writers(1_000_000 // scale, options.repeats, Path(folder))
        found["growth"] = growth([10**power // scale for power in (4, 5, 6, 7)], options.repeats)
    found["goals"] = goals(found)
    if not options.quick:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(report(found), encoding="utf-8")
    print(report(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
