"""The kinds of single values a field can hold: what each accepts, its words for an error, its JSON Schema."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kvplan.errors import Problem, did_you_mean
from kvplan.specs.nodes import MAX_PROBLEMS, Node, report
from kvplan.specs.scalars import MAX_INTEGER, classify, real_number, shown, whole_number


class Sentinel:
    """A value that is no value; it prints as its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


INVALID: Final = Sentinel("INVALID")  # what `parse` returns once it has reported why

_SCALARS = frozenset(("text", "number", "boolean"))


def nearest(name: str, known: Collection[str], problems: list[Problem]) -> str:
    """A suggestion, unless the list of problems is full: searching is slow, and a file can hold 100,000 mistakes."""
    return did_you_mean(name[:60], known) if len(problems) <= MAX_PROBLEMS else ""


class Kind:
    """What a field may hold: `expected` in words, `takes` as the node types that are worth a closer look."""

    expected = "a value"
    takes: frozenset[str] = frozenset()

    def parse(self, node: Node, problems: list[Problem], path: str) -> Any:
        """The value of a node, or INVALID once the problem is in `problems`."""
        if node.flawed:
            return INVALID
        found = node.type
        if found == "unclear":  # only in a node that did not come from a file
            report(problems, node.line, path, classify(node.text or "").advice)
            return INVALID
        if found not in self.takes:
            hint = "; quote it" if "text" in self.takes and found in _SCALARS else ""
            return self._refuse(node, problems, path, hint)
        return self._read(node, problems, path)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what `parse` accepts."""
        raise NotImplementedError

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        raise NotImplementedError

    def _refuse(self, node: Node, problems: list[Problem], path: str, hint: str = "") -> Sentinel:
        got = shown(node.text or "") if node.type == "number" and "number" in self.takes else str(node)
        report(problems, node.line, path, f"expected {self.expected}, got {got}{hint}")
        return INVALID


def integer(minimum: int = 1, maximum: int = MAX_INTEGER) -> Kind:
    """A whole number; 1e9 is one."""
    return _Integer(minimum, maximum)


def number(minimum: float | None = None, above: float | None = None, maximum: float | None = None) -> Kind:
    """Any finite number: an int when it is written as one, else a float."""
    return _Number(minimum, above, maximum)


def boolean() -> Kind:
    """`true` or `false`, in no other spelling."""
    return _Boolean()


def text() -> Kind:
    """Text that is not blank; what some reader would take for something else must be quoted."""
    return _Text()


def choice(*names: str) -> Kind:
    """One of some names."""
    return _Choice(names)


def raw(schema: dict[str, Any]) -> Kind:
    """The node itself, for what only its owner can read."""
    return _Raw(schema)


class _Integer(Kind):
    takes = frozenset(("number",))

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum, self.maximum = minimum, maximum
        limit = f"of at least {minimum}" if maximum == MAX_INTEGER else f"from {minimum} to {maximum}"
        self.expected = f"a whole number {limit}"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        value = whole_number(node.text or "")
        if value is not None and self.minimum <= value <= self.maximum:
            return value
        too_big = value is not None and value > MAX_INTEGER
        return self._refuse(node, problems, path, "; the limit is 2^53" if too_big else "")

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


class _Number(Kind):
    takes = frozenset(("number",))

    def __init__(self, minimum: float | None, above: float | None, maximum: float | None) -> None:
        self.minimum, self.above, self.maximum = minimum, above, maximum
        limits = (("of at least", minimum), ("above", above), ("of at most", maximum))
        words = " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)
        self.expected = f"a number {words}".rstrip()

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        value = real_number(node.text or "")
        if value is None:
            whole = (node.text or "").lstrip("+-").isdecimal()
            return self._refuse(node, problems, path, f"; {'the limit is 2^53' if whole else 'no float can hold it'}")
        low = (self.minimum is not None and value < self.minimum) or (self.above is not None and value <= self.above)
        if low or (self.maximum is not None and value > self.maximum):
            return self._refuse(node, problems, path)
        return value

    def schema(self) -> dict[str, Any]:
        limits = {"minimum": self.minimum, "exclusiveMinimum": self.above, "maximum": self.maximum}
        return {"type": "number", **{name: limit for name, limit in limits.items() if limit is not None}}


class _Boolean(Kind):
    expected = "true or false"
    takes = frozenset(("boolean",))

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:  # noqa: ARG002
        return node.text == "true"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class _Text(Kind):
    expected = "text"
    takes = frozenset(("text",))

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        if node.text and not node.text.isspace():
            return node.text
        return self._refuse(node, problems, path, "; it must not be blank")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"\S"}


class _Choice(Kind):
    takes = frozenset(("text",))

    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)
        self.expected = f"one of {', '.join(self.names)}"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        name = node.text or ""
        return name if name in self.names else self._refuse(node, problems, path, nearest(name, self.names, problems))

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


class _Raw(Kind):
    takes = frozenset((*_SCALARS, "nothing", "list", "mapping"))

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:  # noqa: ARG002
        return node

    def schema(self) -> dict[str, Any]:
        return dict(self._schema)
