"""YAML as text: flow style where it fits on a line, values quoted where readers would differ."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kvplan.specs.scalars import classify

WIDTH = 120
_INDENT = 2
_SHORT = 60  # a mapping inside one that is wrapped
_SAFE = re.compile(r"[A-Za-z0-9_][\w ./()+;=@-]*")
_SAFE_IN_BLOCK = re.compile(r"[A-Za-z0-9_][\w ./()+;,=@-]*")


def scalar(value: object, flow: bool = True) -> str:
    """One value; text is quoted when it is not plain text to every reader."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(int(value) if value == int(value) else value)
    text = str(value)
    safe = _SAFE if flow else _SAFE_IN_BLOCK
    if safe.fullmatch(text) and not text.endswith(" ") and text.isascii() and classify(text).type == "text":
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return json.dumps(text)


def inline(value: object) -> str:
    """A value in flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(name)}: {inline(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return scalar(value)


def entry(name: str, value: Any, level: int, block: bool = False) -> list[str]:
    """The lines of a key and its value; mappings that do not fit on one become blocks."""
    start = " " * (_INDENT * level) + scalar(name, flow=False) + ":"
    if not isinstance(value, Mapping | list | tuple):
        return [f"{start} {scalar(value, flow=False)}"]
    line = f"{start} {inline(value)}"
    wide = isinstance(value, Mapping) and any("," in str(key) for key in value)
    if len(line) <= WIDTH and not block and not wide:
        return [line]
    if isinstance(value, Mapping):
        if not wide and not block and len(value) > 3 and all(len(inline(part)) <= _SHORT for part in value.values()):
            pieces = [f"{scalar(key)}: {inline(part)}" for key, part in value.items()]
            return _wrapped(start, pieces, level, "{}")
        lines = [start]
        for key, part in value.items():
            lines += entry(key, part, level + 1)
        return lines
    return _wrapped(start, [inline(item) for item in value], level, "[]")


def folded(start: str, text: str) -> list[str]:
    """Plain text over several lines, broken at commas; readers put it together again."""
    return _wrapped(start, text.split(", "), 0, ("", ""))


def _wrapped(start: str, items: list[str], level: int, brackets: str | tuple[str, str]) -> list[str]:
    """Items over several lines."""
    lines, line = [], f"{start} {brackets[0]}"
    for number, item in enumerate(items):
        piece = item + (brackets[1] if number == len(items) - 1 else ", ")
        if len(line) + len(piece.rstrip()) > WIDTH:
            lines.append(line.rstrip())
            line = " " * (_INDENT * (level + 1 + bool(brackets[0])))
        line += piece
    return [*lines, line]
