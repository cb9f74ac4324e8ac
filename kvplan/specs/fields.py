"""One place for each field of a spec file: the reader and the JSON Schema are both derived from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kvplan.specs.kinds import INVALID, Kind, Sentinel, boolean, choice, integer, nearest, number, raw, text
from kvplan.specs.nodes import Node, join, report
from kvplan.specs.scalars import shown

if TYPE_CHECKING:
    from kvplan.errors import Problem

__all__ = [
    "INVALID", "REQUIRED", "FieldSpec", "Kind",
    "boolean", "choice", "decode", "either", "field_specs", "integer", "key", "list_of", "mapping_of", "number",
    "one_or_more", "raw", "section", "text",
]  # fmt: skip

T = TypeVar("T")

REQUIRED: Final = Sentinel("REQUIRED")


class FieldSpec(NamedTuple):
    """One readable field of a dataclass."""

    kind: Kind
    help: str
    default: Any  # REQUIRED when the key must be there; MISSING when a factory makes it

    @property
    def required(self) -> bool:
        """Whether a file without the key is refused."""
        return self.default is REQUIRED


def key(kind: Kind, help: str, *, default: Any = REQUIRED) -> Any:  # noqa: A002 - the word that Typer uses
    """A dataclass field that is a key of the file; a callable default makes a new value each time."""
    metadata = {"kind": kind, "help": help}
    if default is REQUIRED:
        return field(metadata=metadata)
    if callable(default):
        return field(metadata=metadata, default_factory=default)
    return field(metadata=metadata, default=default)


@cache
def field_specs(cls: type) -> dict[str, FieldSpec]:
    """The keys of a section, in the order in which the class names them."""
    table = {}
    for f in fields(cls):
        if "kind" in f.metadata:
            required = f.default is MISSING and f.default_factory is MISSING
            table[f.name] = FieldSpec(f.metadata["kind"], f.metadata["help"], REQUIRED if required else f.default)
    return table


def decode(cls: type[T], node: Node, problems: list[Problem], path: str = "") -> T | None:
    """A section made from a mapping, or None with every problem of it in `problems`."""
    value = section(cls).parse(node, problems, path)
    return None if value is INVALID else value


def list_of(kind: Kind) -> Kind:
    """A list, read as a tuple."""
    return _ListOf(kind)


def one_or_more(kind: Kind) -> Kind:
    """One value or a list of at least one, read as a tuple."""
    return _OneOrMore(kind)


def mapping_of(kind: Kind) -> Kind:
    """A mapping from names of the user's own, read as a dict."""
    return _MappingOf(kind)


def section(cls: type) -> Kind:
    """A mapping with the keys of a dataclass."""
    return _Section(cls)


def either(*kinds: Kind) -> Kind:
    """The first of the kinds that takes the type of value that is there."""
    return _Either(kinds)


class _ListOf(Kind):
    takes = frozenset(("list",))

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.expected = f"a list (each item {kind.expected})"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        values = [self.kind.parse(item, problems, f"{path}[{n}]") for n, item in enumerate(node.items or ())]
        return INVALID if INVALID in values else tuple(values)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.kind.schema()}


class _OneOrMore(_ListOf):
    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.takes = kind.takes | {"list"}
        self.expected = f"{kind.expected}, or a list of such"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        if node.items is None:
            value = self.kind.parse(node, problems, path)
            return INVALID if value is INVALID else (value,)
        if not node.items:
            return self._refuse(node, problems, path, " that is empty")
        return super()._read(node, problems, path)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.kind.schema(), {**super().schema(), "minItems": 1}]}


class _MappingOf(Kind):
    takes = frozenset(("mapping",))

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.expected = f"a mapping (each value {kind.expected})"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        entries = (node.entries or {}).items()
        values = {name: self.kind.parse(value, problems, join(path, name)) for name, value in entries}
        return INVALID if INVALID in values.values() else values

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.kind.schema()}


class _Section(Kind):
    expected = "a mapping"
    takes = frozenset(("mapping",))

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        table, entries = field_specs(self.cls), node.entries or {}
        wrong = self._wrong_keys(node, problems, path)
        values = {n: f.kind.parse(entries[n], problems, join(path, n)) for n, f in table.items() if n in entries}
        if wrong or INVALID in values.values():
            return INVALID
        try:
            return self.cls(**values)
        except ValueError as error:  # a relation between fields, from __post_init__
            report(problems, node.line, path, str(error))
            return INVALID

    def _wrong_keys(self, node: Node, problems: list[Problem], path: str) -> bool:
        table, entries = field_specs(self.cls), node.entries or {}
        unknown = [name for name in entries if name not in table]
        missing = [name for name, f in table.items() if f.required and name not in entries]
        for name in unknown:
            near = nearest(name, table, problems)
            report(problems, node.key_lines.get(name, node.line), path, f"unknown key '{shown(name)}'{near}")
        for name in missing:
            report(problems, node.line, path, f"missing key '{name}' ({table[name].help})")
        return bool(unknown or missing)

    def schema(self) -> dict[str, Any]:
        table = field_specs(self.cls)
        return {
            "type": "object",
            "properties": {name: _described(f) for name, f in table.items()},
            "required": [name for name, f in table.items() if f.required],
            "additionalProperties": False,
        }


def _described(spec: FieldSpec) -> dict[str, Any]:
    shape = {"description": spec.help, **spec.kind.schema()}
    if isinstance(spec.default, bool | int | float | str):
        shape["default"] = spec.default
    return shape


class _Either(Kind):
    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds = tuple(kinds)
        self.takes = frozenset().union(*(kind.takes for kind in self.kinds))
        self.expected = " or ".join(kind.expected for kind in self.kinds)

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        return next(kind for kind in self.kinds if node.type in kind.takes).parse(node, problems, path)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [kind.schema() for kind in self.kinds]}
