"""JSON as hubs keep it, read within bounds: its size, its depth, its keys and its numbers are checked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from kvplan.errors import Problem, SpecError
from kvplan.specs.scalars import shown

MAX_BYTES = 32 * 2**20  # a quantisation list that names every expert of every layer takes ten megabytes
_LONGEST_INTEGER = 20  # digits; longer ones are beyond any size


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; SpecError when it is none, too large, too deep or names a key twice."""
    source = str(path)
    text = _text(path, source)
    try:
        value = json.loads(text, object_pairs_hook=_Pairs(source), parse_int=_integer)
    except RecursionError:
        raise problem(source, "", "nested deeper than any config is") from None
    except json.JSONDecodeError as error:
        raise SpecError(source, [Problem(error.lineno, "", f"not valid JSON: {error.msg}")]) from None
    except ValueError as error:  # a number that Python will not convert
        raise problem(source, "", f"not valid JSON: {shown(str(error))}") from None
    if not isinstance(value, dict):
        raise problem(source, "", "expected a JSON object with the fields of a config")
    return value


def problem(source: str, path: str, message: str) -> SpecError:
    """A SpecError with one problem."""
    return SpecError(source, [Problem(None, path, message)])


def _text(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise problem(source, "file", "there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise problem(source, "file", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise problem(source, "file", f"larger than {MAX_BYTES >> 20} MiB, which no config is; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise problem(source, "file", "not UTF-8 text") from None


class _Pairs:
    """Makes the mapping of each object, and refuses one that has a key twice."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise problem(self.source, "", f"key '{shown(twice)}' appears twice")
        return made


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float("inf")
