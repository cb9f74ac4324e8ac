"""A model as the short YAML that a person would write: no defaults, what layers share said once."""

from __future__ import annotations

from typing import Any

from kvplan.records import Record
from kvplan.specs.fields import field_specs
from kvplan.specs.model import ModelSpec
from kvplan.specs.writer_layers import Described, describe
from kvplan.specs.writer_text import entry, folded

_STACK = ("layers", "layer", "kinds", "per_layer")


def to_yaml(model: ModelSpec) -> str:
    """The text of a model file; reading it gives a model with the same layers and figures."""
    lines: list[str] = []
    for name, spec in field_specs(ModelSpec).items():
        value = getattr(model, name)
        default = {} if isinstance(value, dict) else spec.default
        if name in _STACK or (value == default and name != "name"):
            continue
        lines += entry(name, _plain(value), 0)
    return "\n".join([*lines, *_stack_lines(describe(model))]) + "\n"


def _plain(value: Any) -> Any:
    """Sections as mappings without their defaults, one-item lists as the item."""
    if isinstance(value, Record):
        return plain_section(value)
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return value


def plain_section(section: Record) -> dict[str, Any]:
    """The fields that differ from their defaults; the first one where all are alike."""
    kind: type = type(section)
    table = field_specs(kind)
    kept = {name: _plain(getattr(section, name)) for name, f in table.items() if getattr(section, name) != f.default}
    return kept or {name: getattr(section, name) for name in list(table)[:1]}


def _stack_lines(described: Described) -> list[str]:
    lines = folded("layers:", described.order)
    if described.layer or not (described.kinds or described.columns):
        lines += entry("layer", described.layer, 0, block=len(described.layer) > 1)
    if described.kinds:
        lines.append("kinds:")
        for name, part in described.kinds.items():
            lines += entry(name, part, 1)
    if described.columns:
        lines.append("per_layer:")
        for name, column in described.columns.items():
            lines += entry(name, column, 1)
    return lines
