"""kvplan models: the model zoo, listed, filtered, or one of it with its derived figures."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli import completion
from kvplan.cli import options as o
from kvplan.cli.listing import show_list, show_one


def command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A model, or part of a name to search for.", show_default=False, autocompletion=completion.models
        ),
    ] = None,
    format: o.Format = None,  # noqa: A002 - the contract's name
    output: o.Output = None,
) -> int:
    """List the models, search them, or show one with its source and derived figures."""
    from kvplan.loading import load_model
    from kvplan.planning.facts import model_catalog, model_facts
    from kvplan.specs import zoo

    if name and (zoo.is_path(name) or zoo.lookup("models", name)):
        return show_one(model_facts(load_model(name)), format, output)
    catalog = model_catalog()
    return show_list([catalog[each] for each in zoo.search("models", name)], format, output)
