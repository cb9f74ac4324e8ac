"""From the events of the YAML parser to a tree of nodes, with everything refused that a spec has no use for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kvplan.specs.nodes import MAX_PROBLEMS, Node, join, report
from kvplan.specs.scalars import classify, shown

if TYPE_CHECKING:
    from yaml import Mark, MarkedYAMLError

    from kvplan.errors import Problem

MAX_DEPTH, MAX_NODES = 20, 100_000

# The C1 range and the Unicode line separators end a line for some readers only.
_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"


def _control(text: str) -> re.Match[str] | None:
    """The first control character; nearly every text is told to have none without compiling the pattern."""
    return None if text.replace("\n", "").isprintable() else re.search(_CONTROL, text)


def build(text: str, problems: list[Problem]) -> Node | None:
    """The tree of a YAML text, or None when it could not be read to the end."""
    if found := _control(text):
        line = len(re.findall(r"\r\n|\r|\n", text[: found.start()])) + 1
        report(problems, line, "", f"control character U+{ord(found[0]):04X}; write the file as plain UTF-8 text")
        return None
    import yaml

    builder = _Builder(problems)
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return builder.read(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        report(problems, *_syntax_problem(error, text))
    except (yaml.YAMLError, ValueError, OverflowError):  # the last two: the pure Python parser, on absurd numbers
        report(problems, None, "", "this is not valid YAML")
    return None


# What the parser says, in a user's words; its two implementations phrase the same mistake differently.
_SYNTAX: Final = (
    ("nesting depth", f"nested more than {MAX_DEPTH} deep"),
    ("mapping values are not allowed", "a ': ' where no key can be; check the indentation, or quote the value"),
    ("cannot start any token", "a value cannot start with this character; quote it"),
    ("comment or", "a value cannot start with > or |; quote it, as in '>= 100'"),
    ("chomping or indentation", "a value cannot start with > or |; quote it, as in '>= 100'"),
    ("found unexpected end of stream", "a quote is opened and never closed"),
    ("could not find expected ':'", "a line that is not 'key: value'"),
    ("node content", "a value or a key is missing here"),
    ("flow sequence", "a list is opened with '[' and not closed"),
    ("flow mapping", "a mapping is opened with '{' and not closed"),
    ("block mapping", "a line that does not fit the keys around it; check the indentation"),
    ("block collection", "a line that does not fit the list around it; check the indentation"),
    ("unknown escape", "an unknown escape after a backslash; use single quotes for text with backslashes"),
)


def _syntax_problem(error: MarkedYAMLError, text: str) -> tuple[int | None, str, str]:
    said = f"{error.problem or ''} {error.context or ''}"
    if "cannot start any token" in said and error.problem_mark and _character_at(text, error.problem_mark) == "\t":
        sentence = "a tab where only spaces can be; indent with spaces"
    else:
        sentence = next((words for part, words in _SYNTAX if part in said), f"not valid YAML: {error.problem}")
    opened = "flow" in said or "quoted" in said  # the end of the file is of no help to find a missing bracket
    mark = (error.context_mark if opened else None) or error.problem_mark or error.context_mark
    return (mark.line + 1 if mark else None), "", sentence


def _character_at(text: str, mark: Mark) -> str:
    lines = text.splitlines()
    return lines[mark.line][mark.column : mark.column + 1] if mark.line < len(lines) else ""


class _LimitError(Exception):
    """A limit is passed; the problem is already reported."""


class _Open:
    """A list or mapping whose end has not been read; `key` is the one that waits for its value."""

    __slots__ = ("entries", "flawed", "items", "key", "key_lines", "line", "path", "skip")

    def __init__(self, line: int, path: str, is_mapping: bool, flawed: bool) -> None:
        self.line, self.path, self.flawed = line, path, flawed
        self.items: list[Node] = []
        self.entries: dict[str, Node] | None = {} if is_mapping else None
        self.key_lines: dict[str, int] = {}
        self.key: str | None = None
        self.skip = False  # the key is unusable: its value is read and dropped

    def place(self) -> str:
        """The path of the value that comes next."""
        if self.entries is None:
            return f"{self.path}[{len(self.items)}]"
        return self.path if self.key is None else join(self.path, self.key)

    def node(self) -> Node:
        if self.entries is None:
            return Node(self.line, items=tuple(self.items), flawed=self.flawed)
        return Node(self.line, entries=self.entries, key_lines=self.key_lines, flawed=self.flawed)


class _Builder:
    """Turns events into nodes with a stack of its own, so that no file can exhaust Python's."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.count = self.documents = 0

    def read(self, events: Iterable[Any]) -> Node | None:
        try:
            for event in events:
                self._event(event, type(event).__name__.removesuffix("Event"), event.start_mark.line + 1)
        except _LimitError:
            return None
        if self.documents == 0:
            report(self.problems, None, "", "the file is empty")
        return self.root

    def _event(self, event: Any, kind: str, line: int) -> None:
        if kind in ("Scalar", "Alias", "SequenceStart", "MappingStart"):
            self._value(event, kind, line)
        elif kind in ("SequenceEnd", "MappingEnd"):
            self._add(self.stack.pop().node())
        elif kind == "DocumentStart":
            self.documents += 1
            if event.version or event.tags:
                report(self.problems, line, "", "a % directive is not allowed; remove it")
            if self.documents > 1:
                self._stop(line, "a second document starts here; keep one to a file")

    def _value(self, event: Any, kind: str, line: int) -> None:
        self.count += 1
        if self.count > MAX_NODES:
            self._stop(line, f"more than {MAX_NODES:,} values in one file")
        path = self.stack[-1].place() if self.stack else ""
        flawed = self._decorated(event, kind, line, path)
        if kind == "Scalar":
            self._add(Node(line, text=event.value, quoted=event.style in ("'", '"', "|", ">"), flawed=flawed))
        elif kind == "Alias":
            self._add(Node(line, text="", flawed=True))
        elif len(self.stack) == MAX_DEPTH:
            self._stop(line, f"nested more than {MAX_DEPTH} deep")
        else:
            self.stack.append(_Open(line, path, kind == "MappingStart", flawed))

    def _decorated(self, event: Any, kind: str, line: int, path: str) -> bool:
        if event.anchor:
            report(self.problems, line, path, "anchors and aliases are not allowed; write the value out")
        tag = kind != "Alias" and event.tag
        if tag:
            report(self.problems, line, path, f"the tag {shown(tag)} is not allowed; remove it")
        if len(self.problems) > MAX_PROBLEMS:
            raise _LimitError
        return bool(event.anchor or tag)

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = self._checked(node, "")
            return
        top = self.stack[-1]
        if top.entries is None:
            top.items.append(self._checked(node, top.place()))
        elif top.key is None:
            self._key(top, node)
        else:
            if not top.skip:
                top.entries[top.key] = self._checked(node, top.place())
            top.key, top.skip = None, False

    def _checked(self, node: Node, path: str) -> Node:
        """The node, marked when its value cannot be told: that is reported once, here."""
        if node.text is None or node.flawed:
            return node
        meaning = None if node.quoted else classify(node.text)
        if meaning and meaning.type == "unclear":
            report(self.problems, node.line, path, meaning.advice)
        elif _control(node.text):  # quoted escapes can hold what the file itself cannot
            report(self.problems, node.line, path, "text with a control character; leave it out")
        else:
            return node
        return node._replace(flawed=True)

    def _key(self, top: _Open, node: Node) -> None:
        name = node.text
        top.key, top.skip = name or "?", True
        wrong = "" if node.flawed else _wrong_key(node)
        if not wrong and name in top.key_lines:
            wrong = f"key '{shown(name)}' appears twice (first on line {top.key_lines[name]})"
        if wrong:
            report(self.problems, node.line, top.path, wrong)
        elif name and not node.flawed:
            top.skip = False
            top.key_lines[name] = node.line

    def _stop(self, line: int, message: str) -> None:
        report(self.problems, line, "", message)
        raise _LimitError


def _wrong_key(node: Node) -> str:
    if node.text is None:
        return "a list or mapping cannot be a key; write a name"
    if not node.text:
        return "an empty key; write a name"
    if _control(node.text):
        return "a key with a control character; leave it out"
    meaning = None if node.quoted else classify(node.text)
    if meaning and meaning.type != "text":
        return f"key {shown(node.text)} is not text to all YAML readers; quote it"
    return ""
