"""The order of layers as people write it: `32`, `10 (5 local, global), 2 local`, `3 (mamba mlp), attention`."""

from __future__ import annotations

import re

from kvplan.specs.scalars import shown

MAX_LAYERS = 4096
MAX_DEPTH = 8
_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_][\w-]*)|([(),]))")


def parse_order(text: str) -> tuple[str, ...]:
    """Names of the layers in order; raises ValueError with a sentence. Nothing is expanded beyond MAX_LAYERS."""
    tokens = _tokens(text)
    names, rest = _sequence(tokens, 0, depth=0)
    if rest != len(tokens):
        raise ValueError("a ')' has no '(' before it")
    if not names:
        raise ValueError("the order of layers is empty")
    return names


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if not found:
            unclear = shown(text[position:].strip()[:20])
            raise ValueError(f"'{unclear}' is not part of an order of layers, such as '3 (a, b), a'")
        tokens.append(found.group().strip())
        position = found.end()
    return tokens


def _sequence(tokens: list[str], start: int, depth: int) -> tuple[tuple[str, ...], int]:
    if depth > MAX_DEPTH:
        raise ValueError(f"brackets are nested more than {MAX_DEPTH} deep")
    names: tuple[str, ...] = ()
    while start < len(tokens) and tokens[start] != ")":
        if tokens[start] == ",":
            start += 1
            continue
        item, start = _item(tokens, start, depth)
        names += item
        if len(names) > MAX_LAYERS:
            raise ValueError(f"more than {MAX_LAYERS} layers")
    return names, start


def _item(tokens: list[str], start: int, depth: int) -> tuple[tuple[str, ...], int]:
    count = 1
    if tokens[start].isdigit():
        count = int(tokens[start][:6])
        start += 1
        if not 1 <= count <= MAX_LAYERS:
            raise ValueError(f"a count of layers is from 1 to {MAX_LAYERS}")
    following = tokens[start] if start < len(tokens) else ""
    if following in ("", ")", ","):
        raise ValueError("a count must be followed by a kind of layer or by brackets")
    if following.isdigit():
        raise ValueError(f"two counts in a row: '{tokens[start - 1]} {following}'")
    if following != "(":
        return (following,) * count, start + 1
    inner, end = _sequence(tokens, start + 1, depth + 1)
    if end == len(tokens):
        raise ValueError("a bracket is not closed")
    if len(inner) * count > MAX_LAYERS:
        raise ValueError(f"more than {MAX_LAYERS} layers")
    return inner * count, end + 1
