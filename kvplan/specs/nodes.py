"""The values of a file as a tree whose nodes know their lines."""

from __future__ import annotations

from typing import Final, NamedTuple

from kvplan.errors import Problem
from kvplan.specs.scalars import classify, shown

MAX_PROBLEMS = 50  # listed of one file
_NO_LINES: Final[dict[str, int]] = {}  # shared: nodes are never changed


class Node(NamedTuple):
    """One value of a file: exactly one of `text`, `items` and `entries` is not None."""

    line: int
    text: str | None = None
    quoted: bool = False
    items: tuple[Node, ...] | None = None
    entries: dict[str, Node] | None = None
    key_lines: dict[str, int] = _NO_LINES
    flawed: bool = False  # a problem was reported already: nothing more to say about its value

    @property
    def type(self) -> str:
        """mapping, list, text, number, boolean, nothing or unclear."""
        if self.text is None:
            return "list" if self.entries is None else "mapping"
        return "text" if self.quoted else classify(self.text).type

    def __str__(self) -> str:
        """The value as an error message names it."""
        kind = self.type
        if kind in ("mapping", "list"):
            return f"a {kind}"
        if kind in ("nothing", "boolean"):
            return "nothing" if kind == "nothing" else str(self.text)
        return f"number {shown(self.text or '')}" if kind == "number" else f"text '{shown(self.text or '')}'"


def report(problems: list[Problem], line: int | None, path: str, message: str) -> None:
    """Add a problem; a file that has too many is not worth listing to the end."""
    if len(problems) < MAX_PROBLEMS:
        problems.append(Problem(line, path, message))
    elif len(problems) == MAX_PROBLEMS:
        last = max(line or 0, *(p.line or 0 for p in problems))
        problems.append(Problem(last, "", "there are more problems than these; mend them first"))


def join(path: str, key: str) -> str:
    """The dotted path of a key in the section at `path`."""
    return f"{path}.{shown(key)}" if path else shown(key)


def merged(base: Node, over: Node) -> Node:
    """Mappings merge key by key, all the way down; anything else is replaced by `over`."""
    if base.entries is None or over.entries is None:
        return over
    entries = dict(base.entries)
    for name, value in over.entries.items():
        entries[name] = merged(entries[name], value) if name in entries else value
    lines = {**base.key_lines, **over.key_lines}
    return Node(over.line, entries=entries, key_lines=lines, flawed=base.flawed or over.flawed)


def with_value(node: Node, dotted: str, value: Node) -> Node:
    """A copy with one key set, such as `attention.heads`; ValueError when the mapping it belongs in is missing."""
    name, _, rest = dotted.partition(".")
    if not name or node.entries is None:
        raise ValueError(f"'{shown(dotted)}' cannot be set: there is no mapping to hold it")
    if not rest and dotted == name:
        new = value
    elif name in node.entries:
        new = with_value(node.entries[name], rest, value)
    else:
        raise ValueError(f"'{shown(dotted)}' cannot be set: there is no '{shown(name)}' here")
    lines = {**node.key_lines, name: value.line if new is value else node.key_lines.get(name, new.line)}
    return node._replace(entries={**node.entries, name: new}, key_lines=lines)
