"""The tables in docs/ that are made from the code: options, keys of files, formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module

import click
import typer

from kvplan.cli.main import COMMANDS, app
from kvplan.formats import FORMATS
from kvplan.kv_formats import KV_FORMATS, KvFormat
from kvplan.specs.fields import FieldSpec, field_specs

SECTIONS = {
    "model": "kvplan.specs.model:ModelSpec",
    "per_layer_input": "kvplan.specs.model:PerLayerInput",
    "rope": "kvplan.specs.layers:Rope",
    "layer": "kvplan.specs.layers:Layer",
    "attention": "kvplan.specs.layers:Attention",
    "latent": "kvplan.specs.layers:Latent",
    "indexer": "kvplan.specs.layers:Indexer",
    "mamba1": "kvplan.specs.layers:Mamba1",
    "mamba2": "kvplan.specs.layers:Mamba2",
    "delta": "kvplan.specs.layers:Delta",
    "kimi_delta": "kvplan.specs.layers:KimiDelta",
    "lightning": "kvplan.specs.layers:Lightning",
    "short_conv": "kvplan.specs.layers:ShortConv",
    "mlp": "kvplan.specs.layers:Mlp",
    "moe": "kvplan.specs.layers:Moe",
    "gpu": "kvplan.specs.gpu:GpuSpec",
    "interconnect": "kvplan.specs.gpu:Interconnect",
    "mig slice": "kvplan.specs.gpu:MigSlice",
    "plan": "kvplan.specs.plan:Plan",
    "deployment": "kvplan.specs.plan:Deployment",
}


def table(name: str) -> str:
    """The Markdown of a table by its name in the document."""
    kind, _, what = name.partition(" ")
    return {"options": _options, "keys": _keys, "formats": _formats}[kind](what)


def command(name: str) -> click.Command:
    """A command as it is run."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def _options(name: str) -> str:
    options = [parameter for parameter in command(name).params if isinstance(parameter, click.Option)]
    rows = [(", ".join(f"`{each}`" for each in reversed(option.opts)), option.help or "") for option in options]
    return _markdown(("option", "meaning"), rows)


def _keys(name: str) -> str:
    module, _, cls = SECTIONS[name].partition(":")
    specs = field_specs(getattr(import_module(module), cls))
    rows = [
        (f"**`{key}`**" if spec.required else f"`{key}`", _value(spec), _default(spec), spec.help)
        for key, spec in specs.items()
    ]
    return _markdown(("key", "value", "default", "meaning"), rows)


def _value(spec: FieldSpec) -> str:
    """What the key takes, without the limits that no real file meets."""
    limits = r" of at least (1|-9007199254740992)(?=$|\W)| from 1 to 1000000000| and of at most \d+"
    words = re.sub(limits, "", spec.kind.expected)
    return re.sub(r"\ba (?=whole|number)", "", words.replace("one of none or", "none or"))


def _default(spec: FieldSpec) -> str:
    plain = isinstance(spec.default, bool | int | float | str) and (spec.default or spec.default is False)
    return f"`{str(spec.default).lower()}`" if plain else ""


def _formats(what: str) -> str:
    return _weight_formats() if what == "weights" else _kv_formats()


def _weight_formats() -> str:
    rows = []
    for form in FORMATS.values():
        size = form.matrix_bytes(4096, 4096)
        rows.append((f"`{form.name}`", f"`{form.formula(4096, 4096)}`", f"{size:,}", f"{8 * size / 4096**2:.4g}"))
    return _markdown(("format", "4096 rows of 4096 columns", "bytes", "bits a weight"), rows)


def _kv_formats() -> str:
    rows = [
        (f"`{form.name}`", f"`{formula}`", f"{size:,}", f"{8 * size / elements:.4g}")
        for form in KV_FORMATS.values()
        for formula, size, elements in [_kv_example(form)]
    ]
    return _markdown(("format", "keys of a token", "bytes", "bits a value"), rows)


def _kv_example(form: KvFormat) -> tuple[str, int, int]:
    if form.name == "fp8_ds_mla":
        return form.latent_formula(512, 64), form.latent_bytes(512, 64), 576
    return form.formula(8, 128), form.vector_bytes(8, 128), 8 * 128


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def command_names() -> list[str]:
    """Every command."""
    return list(COMMANDS)
