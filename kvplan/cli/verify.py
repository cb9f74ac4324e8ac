"""kvplan verify: an engine's start-up log, or its metrics page, beside the plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvplan.cli import options as o
from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.evidence.logs import EngineLog
    from kvplan.evidence.verify import Verdict

MAX_VERDICTS = 64
Log = Annotated[
    Path | None,
    typer.Argument(help="A start-up log of vLLM; - reads standard input.", show_default=False),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics", help="A running server's metrics page: an address or a saved file.", show_default=False),
]
Launch = Annotated[
    str | None,
    typer.Option("--launch", help="The server's own command line, for what the log leaves out.", show_default=False),
]
Tolerance = Annotated[
    str, typer.Option("--tolerance", help="Largest error that is no contradiction (default 2%).", show_default=False)
]
OptionalModel = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Zoo name, hub id or YAML file of a model.", show_default=False),
]
OptionalKvDtype = Annotated[str | None, typer.Option("--kv-dtype", help="Cache format, e.g. fp8.", show_default=False)]
OptionalEager = Annotated[bool, typer.Option("--eager", help="No CUDA graphs.", show_default=False)]


def command(
    log: Log = None,
    metrics: Metrics = None,
    model: OptionalModel = None,
    gpu: o.Gpu = None,
    engine_version: o.EngineVersion = None,
    launch: Launch = None,
    weights: o.Weights = None,
    kv_dtype: OptionalKvDtype = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    max_model_len: o.MaxModelLen = None,
    memory_fraction: o.MemoryFraction = None,
    max_seqs: o.MaxSeqs = None,
    max_batched_tokens: o.MaxBatchedTokens = None,
    block_size: o.BlockSize = None,
    eager: OptionalEager = False,
    extras: o.Extras = None,
    tolerance: Tolerance = "2%",
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """What an engine printed at its start beside what kvplan plans. Exit 1 beyond the tolerance."""
    taken = ("log", "metrics", "launch", "tolerance", "format", "output")
    given = {
        name: value for name, value in locals().items() if name not in (*taken, "taken") and value not in (None, False)
    }
    return _run(log, metrics, launch, given, share(tolerance), format, output)


def share(text: str) -> float:
    """A tolerance such as 2%, 0.5% or 0.02."""
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10:
        raise InputError(f"--tolerance '{text[:40]}': expected a share such as 2% or 0.02")
    return value


def _run(
    log: Path | None,
    metrics: str | None,
    launch: str | None,
    given: dict[str, Any],
    tolerance: float,
    format_name: str | None,
    output: Path | None,
) -> int:
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    if (log is None) == (metrics is None):
        raise InputError("name a log file, or a running server's page with --metrics; one of the two")
    options = single_values(given)
    form = format_for(format_name, output)
    with open_output(output) as out:
        verdicts, skipped = _verdicts(log, metrics, launch, options, tolerance)
        if form == "table":
            _show(verdicts, out)
        else:
            out.write(render([_flat(row, form) for verdict in verdicts for row in verdict.rows], form))
    for sentence in [*skipped, *(_sentences(verdicts) if form != "table" else [])]:
        print(f"note: {sentence}", file=sys.stderr)
    return 0 if all(verdict.within is not False for verdict in verdicts) else 1


def single_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as values; a list has no meaning here."""
    from kvplan.planning.axes import parse_axis

    found = {}
    for name, value in given.items():
        values = parse_axis(name, value) if isinstance(value, str) else [value]
        if len(values) > 1:
            raise InputError(f"--{name.replace('_', '-')}: a log was made under one value, not a list")
        found[name] = values[0]
    return found


def _verdicts(
    log: Path | None, metrics: str | None, launch: str | None, given: Mapping[str, Any], tolerance: float
) -> tuple[list[Verdict], list[str]]:
    """A verdict for each engine; one that cannot be verified becomes a note, unless it is the only one."""
    from kvplan.evidence.verify import verify_log

    if metrics is not None:
        from kvplan.evidence.metrics import read_metrics

        engines = read_metrics(metrics)
    else:
        from kvplan.evidence.logs.files import read_log_file

        engines = read_log_file(log or Path("-"))
    engines, repeated = _different(engines)
    verdicts: list[Verdict] = []
    skipped = repeated
    for number, engine in enumerate(engines, 1):
        try:
            verdicts.append(verify_log(engine, given, tolerance, launch=launch))
        except InputError as error:
            if len(engines) == 1:
                raise
            skipped.append(f"engine {number} of {len(engines)}: {error}")
    if not verdicts:
        raise InputError("\n".join(["no engine of the log can be verified", *(f"  {each}" for each in skipped)]))
    return verdicts, skipped


def _different(engines: Sequence[EngineLog]) -> tuple[list[EngineLog], list[str]]:
    """The starts that differ, newest last: a container that restarts for hours says the same each time."""
    found = {engine.said: engine for engine in engines}
    kept = list(found.values())[-MAX_VERDICTS:]
    if len(kept) == len(engines):
        return kept, []
    return kept, [f"{len(engines)} starts in the log; those that say the same are shown once, {len(kept)} in all"]


def _show(verdicts: Sequence[Verdict], out: Any) -> None:
    from kvplan.report.console import show, width_of
    from kvplan.report.verification import verification_view

    for number, verdict in enumerate(verdicts):
        if number:
            out.write("\n")
        shown = {
            "run": verdict.run,
            "rows": verdict.rows,
            "failures": verdict.failures,
            "fixes": verdict.fixes,
            "reasons": verdict.reasons,
            "notes": verdict.notes,
        }
        show(verification_view(shown), out, width_of(out))


def _flat(row: Mapping[str, Any], form: str) -> dict[str, Any]:
    """The row with its run, as one cell of text where a format has no objects."""
    if form in ("json", "jsonl"):
        return dict(row)
    import json

    return {**row, "run": json.dumps(row["run"])}


def _sentences(verdicts: Sequence[Verdict]) -> list[str]:
    found = [
        sentence
        for verdict in verdicts
        for sentence in (*verdict.failures, *(f"it would fit with {fix}" for fix in verdict.fixes), *verdict.reasons)
    ]
    return list(dict.fromkeys([*found, *(note for verdict in verdicts for note in verdict.notes)]))
