"""kvplan check: the deployments of a plan against what is expected of them, and against a baseline."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kvplan.cli import completion
from kvplan.cli import options as o
from kvplan.errors import InputError, SpecError, did_you_mean

if TYPE_CHECKING:
    from kvplan.planning.baseline import Baseline
    from kvplan.planning.check import Scenarios
    from kvplan.planning.plan import LoadedPlan

FORMATS = ("table", "json", "jsonl", "csv", "markdown", "junit", "github")

_FORMATS_HELP = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} (default: from --output, .xml for junit; else table)."


def command(
    plan: Annotated[Path, typer.Argument(help="Plan file.", show_default=False)],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", "-b", help="Compare with the figures kept in this file.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", help="Keep today's figures in this file.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Check this deployment; may be given several times.")
    ] = None,
    format: Annotated[  # noqa: A002 - the contract's name
        str | None, typer.Option("--format", "-f", help=_FORMATS_HELP, autocompletion=completion.check_formats)
    ] = None,
    output: o.Output = None,
) -> int:
    """Check the deployments of a plan: floors, ceilings, and what moved since a baseline. Exit 1 when one fails."""
    form = _format(format, output)
    _check_places(plan, baseline, write_baseline, output, only or [])
    try:
        return _run(plan, baseline, write_baseline, only or [], form, output)
    except SpecError as error:
        if form == "github" and output is None:
            from kvplan.report.github import problem_text

            sys.stdout.write(problem_text(error.problems, plan=_in_repository(error.source)))
        raise


def _run(
    plan: Path, baseline: Path | None, write_baseline: Path | None, only: list[str], form: str, output: Path | None
) -> int:
    from kvplan.planning.check import compute, select
    from kvplan.planning.plan import look_up
    from kvplan.report.output import open_output

    with open_output(output) as out, _optional(write_baseline) as kept:
        loaded = look_up(plan)
        stored = _stored(baseline)
        scenarios = compute(loaded, select(loaded, only))
        rows = _rows(loaded, scenarios, stored, only)
        if not rows and kept is None:
            advice = "give a deployment `expect`, or compare with --baseline"
            raise InputError(f"{plan}: there is nothing to check; {advice}")
        about = f"{baseline} (kvplan {stored.kvplan_version})" if stored else ""
        _write(rows, form, out, plan=str(plan), baseline=about)
        if kept:
            from kvplan.planning.baseline import baseline_text

            kept.write(baseline_text(scenarios.figures))
    for note in scenarios.notes:
        print(f"note: {note}", file=sys.stderr)
    if kept:
        from kvplan.report.words import counted

        print(f"note: {counted(len(scenarios.computed), 'scenario')} kept in {write_baseline}", file=sys.stderr)
    if output and rows:
        from kvplan.report.check_words import summary

        print(f"{summary(rows)}; see {output}", file=sys.stderr)
    return 0 if all(row["ok"] for row in rows) else 1


def _format(name: str | None, output: Path | None) -> str:
    if name is None:
        if output is not None and output.suffix.lower() == ".xml":
            return "junit"
        from kvplan.report.render import format_for

        name = format_for(None, output)
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or ";"
        raise InputError(f"unknown format '{name}'{hint} a check can be {', '.join(FORMATS)}")
    return name


def _check_places(
    plan: Path, baseline: Path | None, write_baseline: Path | None, output: Path | None, only: Sequence[str]
) -> None:
    """Refuse what would overwrite an input or mix two outputs."""
    if write_baseline is None:
        written = {"--output": output}
    else:
        written = {"--output": output, "--write-baseline": write_baseline}
        if only:
            raise InputError("--write-baseline keeps the whole plan; leave --only out")
        if output and os.path.realpath(output) == os.path.realpath(write_baseline):
            raise InputError(f"--output and --write-baseline are the same file, {output}; choose two")
    for option, path in written.items():
        if path and os.path.realpath(path) == os.path.realpath(plan):
            raise InputError(f"{option} {path} is the plan itself; choose another file")
    if output and baseline and os.path.realpath(output) == os.path.realpath(baseline):
        raise InputError(f"--output {output} is the baseline itself; choose another file")


def _optional(path: Path | None) -> AbstractContextManager[TextIO | None]:
    """The file for the baseline, opened before the work starts as every output is; nothing where none is asked for."""
    from kvplan.report.output import open_output

    return open_output(path, "--write-baseline") if path else nullcontext()


def _stored(baseline: Path | None) -> Baseline | None:
    """The baseline to compare with, and a note when another kvplan wrote it."""
    if baseline is None:
        return None
    from kvplan import __version__
    from kvplan.planning.baseline import read_baseline

    found = read_baseline(baseline)
    if found.kvplan_version != __version__:
        print(f"note: {baseline} was written by kvplan {found.kvplan_version}, this is {__version__}", file=sys.stderr)
    return found


def _rows(plan: LoadedPlan, scenarios: Scenarios, stored: Baseline | None, only: Sequence[str]) -> list[dict[str, Any]]:
    from kvplan.planning.check import baseline_rows, expectation_rows

    rows = expectation_rows(scenarios.computed)
    return rows + (baseline_rows(plan, scenarios, stored, only) if stored else [])


def _write(rows: list[dict[str, Any]], form: str, out: TextIO, *, plan: str, baseline: str) -> None:
    if form == "table":
        from kvplan.report.check_table import check_view
        from kvplan.report.console import show

        if rows:
            show(check_view(rows, plan=plan, baseline=baseline), out)
    elif form == "markdown":
        from kvplan.report.check_table import check_markdown

        out.write(check_markdown(rows, plan=plan, baseline=baseline))
    elif form == "junit":
        from kvplan.report.junit import junit_text

        out.write(junit_text(rows, plan=plan))
    elif form == "github":
        _write_github(rows, out, plan=plan, baseline=baseline)
    else:
        from kvplan.report.render import render

        out.write(render(rows, form))


def _write_github(rows: list[dict[str, Any]], out: TextIO, *, plan: str, baseline: str) -> None:
    """Annotations, and the summary where the job wants it."""
    from kvplan.report.github import github_summary, github_text

    shown = _in_repository(plan)
    out.write(github_text(rows, plan=shown))
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        try:
            with open(page, "a", encoding="utf-8", errors="replace") as file:
                file.write(github_summary(rows, plan=shown, baseline=baseline))
        except (OSError, ValueError) as error:
            print(f"note: no job summary: {getattr(error, 'strerror', None) or error}", file=sys.stderr)


def _in_repository(plan: str) -> str:
    """The plan's path from the top of the repository, which is what GitHub looks for."""
    top = os.environ.get("GITHUB_WORKSPACE")
    if not top:
        return plan
    found = os.path.relpath(os.path.realpath(plan), os.path.realpath(top))
    return plan if found.startswith("..") else found
