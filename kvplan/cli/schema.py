"""kvplan schema: the JSON Schema of a file people write."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import completion
from kvplan.cli import options as o


def command(
    kind: Annotated[
        str, typer.Argument(help="model, gpu or plan.", show_default=False, autocompletion=completion.schema_kinds)
    ],
    output: o.Output = None,
) -> int:
    """Print the JSON Schema of model, GPU or plan files, for editors and checks."""
    import json

    from kvplan.report.output import open_output
    from kvplan.specs.schema import file_schema

    with open_output(output) as out:
        out.write(json.dumps(file_schema(kind), indent=2) + "\n")
    return 0
