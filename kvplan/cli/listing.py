"""Lists and single specs, rendered and written: what models, gpus and engines have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def show_list(rows: list[dict[str, Any]], format_name: str | None, output: Path | None) -> int:
    """One row for each entry."""
    from kvplan.report.listing import listing_table
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    form = format_for(format_name, output)
    with open_output(output) as out:
        out.write(listing_table(rows) if form == "table" else render(rows, form))
    return 0


def show_one(facts: dict[str, Any], format_name: str | None, output: Path | None) -> int:
    """All that is known of one entry."""
    from kvplan.report.listing import facts as facts_text
    from kvplan.report.output import open_output
    from kvplan.report.render import format_for, render

    form = format_for(format_name, output)
    with open_output(output) as out:
        out.write(facts_text(facts) if form == "table" else render([facts], form))
    return 0
