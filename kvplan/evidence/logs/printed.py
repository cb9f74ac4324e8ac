"""Arguments as Python prints them: `{'model': ..., 'max_model_len': 8192}`, `Namespace(...)`, an engine's config."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from typing import Any

MAX_CHARACTERS = 65_536
_LONGEST = 4096  # characters of a value that is looked into
_DEEPEST = 4  # objects in objects that are looked into
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_KEY = re.compile(r"\s{0,9}(?:'([A-Za-z_]\w{0,80})'\s?:|([A-Za-z_]\w{0,80})=)\s?(.*)", re.DOTALL)
_INTEGER = re.compile(r"-?\d{1,18}")
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{0,18})?(?:e-?\d{1,2})?")
_WORDS = {"True": True, "False": False, "None": None}
_CALL = re.compile(r"\w{1,60}\(")


def printed_pairs(text: str, depth: int = 0) -> dict[str, Any]:
    """Keys and values of the first bracket of a text, or of a bare list; what cannot be read is its text."""
    found = {}
    for part in _parts(text[:MAX_CHARACTERS]):
        match = _KEY.match(part)
        if match:
            found[match[1] or match[2]] = _value(match[3].strip(), depth)
    return found


def closed(text: str) -> bool:
    """Whether the first bracket of a text closes again."""
    return _end(text[:MAX_CHARACTERS]) is not None


def _parts(text: str) -> Iterator[str]:
    """The pieces between the commas of the outermost level, in one pass."""
    start = len(text) - len(text.lstrip())
    inside = text[start : start + 1] in _OPEN or bool(_CALL.match(text, start))
    depth, quote, begun, escaped = 0, "", None if inside else start, False
    outer = 1 if inside else 0
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPEN:
            depth += 1
            begun = index + 1 if depth == outer and begun is None else begun
        elif character in _CLOSE:
            depth -= 1
            if depth < outer:
                break
        elif character == "," and depth == outer and begun is not None:
            yield text[begun:index]
            begun = index + 1
    else:
        index = len(text)
    if begun is not None and text:
        yield text[begun:index]


def _end(text: str) -> int | None:
    depth, quote, escaped = 0, "", False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
            if depth <= 0:
                return index
    return None


def _value(text: str, depth: int) -> Any:
    """A printed value: text, number, truth, list or object; anything else stays as it stands."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return _structure(text, depth) if len(text) <= _LONGEST else text


def _structure(text: str, depth: int) -> Any:
    if text[:1] in ("[", "{"):
        try:
            return literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return printed_pairs(text, depth + 1) if text[0] == "{" and depth < _DEEPEST else text
    inside = depth < _DEEPEST and _CALL.match(text) and text.endswith(")")
    return printed_pairs(text, depth + 1) if inside else text
