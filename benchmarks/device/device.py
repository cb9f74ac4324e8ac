"""What only a GPU can tell: correctness against the CPU, memory to the last session, and shares of the device's peaks.

Steps run in the order of their worth and stop when the time is up; results are written after each of them, as JSON
(every row with its samples), CSV and a short table.

    benchmarks/device/run.sh                     on an NVIDIA GPU of 80 to 144 GB
    benchmarks/device/run.sh --dry-run /tmp/x    on the CPU, with a tiny shape, in a test
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parent))
from correctness import correctness_rows
from rival import rival_rows
from summary import summary

from kvplan.measure.options import Options, parse
from kvplan.measure.rows import Row
from kvplan.measure.session import run
from kvplan.report.render import render

RESULTS = Path(__file__).resolve().parents[1] / "results"
TINY = """
name: tiny
hidden_size: 64
vocab_size: 512
layers: 2
layer:
  attention: {heads: 4, kv_heads: 2, head_dim: 16}
  mlp: {intermediate_size: 128}
"""


class Plan(NamedTuple):
    """What is run, and until when a step may begin, in seconds."""

    device: str
    model: str
    dtype: str
    first: dict[str, str]  # options of the main run
    second: dict[str, str]  # of larger batches
    deadline_s: float


def plan_of(dry_run: bool, folder: Path) -> Plan:
    if dry_run:
        path = folder / "tiny.yaml"
        path.write_text(TINY, encoding="utf-8")
        quick = {"repeats": "2", "time_budget": "20s", "threads": "1"}
        first = {"batch": "1,2", "context": "32,64", "fill": "yes", "memory_limit": "700MiB", **quick}
        return Plan("cpu", str(path), "fp32", first, {"batch": "4", "context": "64", **quick}, 120.0)
    first = {"batch": "1,8", "context": "512,4096,32768", "fill": "yes", "repeats": "15", "time_budget": "200s"}
    second = {"batch": "64,256", "context": "512,4096,32768", "repeats": "9", "time_budget": "150s"}
    return Plan("cuda", "llama-3.1-8b", "bf16", first, second, 330.0)


def options_of(plan: Plan, given: dict[str, str]) -> Options:
    texts: dict[str, Any] = {"model": plan.model, "device": plan.device, "dtype": plan.dtype, **given}
    texts["fill"] = given.get("fill") == "yes"
    return parse(texts)


def steps(plan: Plan, dry_run: bool) -> list[tuple[str, Any]]:
    """Names and what gives their rows."""
    return [
        ("correctness", lambda: correctness_rows(plan.device)),
        ("batches 1 and 8", lambda: run(options_of(plan, plan.first))),
        ("larger batches", lambda: run(options_of(plan, plan.second))),
        ("transformers", lambda: rival_rows(plan.device, tiny=dry_run)),
    ]


def measured(plan: Plan, dry_run: bool, folder: Path) -> list[Row]:
    """All rows; a step that fails is a row that says so, and the next one begins."""
    rows: list[Row] = []
    start = time.monotonic()
    for name, make in steps(plan, dry_run):
        if time.monotonic() - start > plan.deadline_s:
            rows.append({"quantity": "left_out", "step": name, "note": "no time left"})
            continue
        print(f"== {name} ({time.monotonic() - start:.0f} s)", flush=True)
        for row in guarded(name, make):
            rows.append({"step": name, **row})
            write(rows, folder)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    rows.append({"quantity": "duration", "unit": "s", "step": "all", "observed": time.monotonic() - start})
    write(rows, folder)
    return rows


def guarded(name: str, make: Any) -> Iterator[Row]:
    try:
        yield from make()
    except Exception as error:  # a GPU's minutes are few: the other steps still run
        print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        yield {"quantity": "failed", "note": f"{type(error).__name__}: {error}"}


def write(rows: list[Row], folder: Path) -> None:
    without_run = [{key: value for key, value in row.items() if key not in ("run", "samples")} for row in rows]
    (folder / "device.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / "device.csv").write_text(render(without_run, "csv"), encoding="utf-8")
    (folder / "device.md").write_text(summary(rows), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with a tiny shape")
    options = parser.parse_args(argv)
    if not options.dry_run and not torch.cuda.is_available():
        print("error: PyTorch finds no CUDA device here; --dry-run needs none", file=sys.stderr)
        return 3
    if options.dry_run:
        torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = measured(plan_of(options.dry_run, options.folder), options.dry_run, options.folder)
    print((options.folder / "device.md").read_text(encoding="utf-8"))
    return 1 if any(row["quantity"] == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
