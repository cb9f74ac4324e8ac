"""Strict reading of spec files: YAML in, typed sections out, or every problem with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kvplan.errors import Problem, SpecError
from kvplan.specs.events import build
from kvplan.specs.fields import decode
from kvplan.specs.nodes import Node, merged, with_value

__all__ = ["Check", "Node", "decode", "load", "merged", "read_file", "read_text", "with_value"]

T = TypeVar("T")
Check = Callable[[Node, list[Problem]], object]

MAX_BYTES = 2**20


def read_file(path: Path, check: Check | None = None) -> Node:
    """The tree of a YAML file; SpecError tells all that is wrong with it (see `read_text` for `check`)."""
    source = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _file_problem(source, "there is no such file") from None
    except IsADirectoryError:
        raise _file_problem(source, "this is a directory; name a file in it") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _file_problem(source, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise _file_problem(source, "larger than 1 MiB, which no spec is; is this the right file?")
    try:
        return read_text(data.decode("utf-8-sig"), source, check)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = "not UTF-8 text; save the file as UTF-8, or name another"
        raise SpecError(source, [Problem(line, "file", message)]) from None


def read_text(text: str, source: str, check: Check | None = None) -> Node:
    """The tree of a YAML text. When the YAML itself has problems, `check` adds those of the content to the list."""
    problems: list[Problem] = []
    node = build(text, problems)
    if node is not None and problems and check is not None:
        check(node, problems)
    if node is None or problems:
        raise SpecError(source, problems)
    return node


def load(cls: type[T], node: Node, source: str) -> T:
    """A section made from a mapping; SpecError tells all that is wrong with it."""
    problems: list[Problem] = []
    value = decode(cls, node, problems)
    if value is None:
        raise SpecError(source, problems)
    return value


def _file_problem(source: str, message: str) -> SpecError:
    return SpecError(source, [Problem(None, "", message)])
