"""kvplan measure: the real decoder on this machine, predicted beside observed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.cli import options as o


def _option(*names: str, help: str) -> Any:  # noqa: A002 - Typer's word
    return typer.Option(*names, help=help, show_default=False)


Text = str | None


def command(
    model: o.Model,
    device: Annotated[str, _option("--device", help="auto (default), cpu, cuda, cuda:N or mps.")] = "auto",
    dtype: Annotated[str, _option("--dtype", help="bf16, fp16 or fp32 (default: bf16 if quick here).")] = "auto",
    batch: Annotated[Text, _option("--batch", "-b", help="Sessions decoded together, a list (default 1,4).")] = None,
    context: Annotated[Text, _option("--context", "-c", help="Lengths to run at, a list (default 512,2k).")] = None,
    layers: Annotated[Text, _option("--layers", help="Run the first N layers only.")] = None,
    memory_limit: Annotated[Text, _option("--memory-limit", help="Memory the run may take, e.g. 8GiB.")] = None,
    time_budget: Annotated[Text, _option("--time-budget", help="Time it may take, about (default 3m).")] = None,
    fill: Annotated[bool, _option("--fill", help="Allocate sessions until the device or the limit refuses.")] = False,
    compare_naive: Annotated[bool, _option("--compare-naive", help="Also generate without a cache.")] = False,
    mixed_lengths: Annotated[Text, _option("--mixed-lengths", help="Sessions of these lengths in both caches.")] = None,
    checkpoint: Annotated[Text, _option("--checkpoint", help="Folder with real weights (safetensors).")] = None,
    prompt: Annotated[Text, _option("--prompt", help="Text, or a file with it, that the checkpoint continues.")] = None,
    new_tokens: Annotated[Text, _option("--new-tokens", help="Tokens after the prompt (default 64).")] = None,
    attention: o.Attention = None,
    tp: Annotated[Text, _option("--tp", help="Processes that share the model, by torchrun.")] = None,
    threads: Annotated[Text, _option("--threads", help="CPU threads (default: PyTorch's choice).")] = None,
    repeats: Annotated[Text, _option("--repeats", help="Timed steps of each point (default 7).")] = None,
    tolerance: Annotated[Text, _option("--tolerance", help="Exit 1 when memory is off by more, e.g. 2%.")] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """Run the model's shapes here, with random weights, and print predicted beside observed."""
    given = {key: value for key, value in locals().items() if key not in ("format", "output")}
    return _run(given, format_name=format, output=output)


def _run(given: dict[str, Any], *, format_name: str | None, output: Path | None) -> int:
    from kvplan.measure.needs import check_torch
    from kvplan.measure.options import parse
    from kvplan.report.growing import GrowingResult
    from kvplan.report.render import format_for

    options, form = parse(given), format_for(format_name, output)
    result = GrowingResult(output, _renderer(form)) if os.environ.get("RANK", "0") == "0" else None
    check_torch()
    from kvplan.measure.rows import failed
    from kvplan.measure.session import run  # PyTorch loads here

    rows = []
    try:
        for row in run(options):
            rows.append(row)
            if result:
                result.add(row)
    finally:
        if result and rows:
            result.finish()
    return 1 if options.tolerance is not None and failed(rows) else 0


def _renderer(form: str) -> Any:
    from kvplan.report.render import render

    if form != "table":
        return lambda rows: render(rows, form)

    def table(rows: Any) -> str:
        from kvplan.report.console import WIDEST, plain
        from kvplan.report.measured import measured_view

        return plain(measured_view(rows), WIDEST)

    return table
