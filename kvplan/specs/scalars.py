"""What one plain YAML value means: YAML 1.2 numbers, and a refusal of whatever YAML readers disagree on."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_INTEGER = 2**53  # integers stay exact in JSON, CSV and float64
_LONGEST_NUMBER = 64  # characters; longer than any quantity, short enough to convert at once

_NUMBER = re.compile(r"([-+]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([-+]?[0-9]+))?")
# Rarely needed, so left for `re` to compile and keep when the first such value turns up.
_LEADING_ZERO = r"([-+]?)0+(?=[0-9])(.*)"
_OTHER_BASE = r"([-+]?)0([xXoObB])([0-9a-fA-F_]*)"
_BASE_60 = r"[-+]?[0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?"
_DATE = r"(?s)[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?"
_NOT_FINITE = r"(?i)[-+]?\.(?:inf|nan)"

_SPECIAL_START = frozenset("+-.0123456789=<_")
_SWITCHES = frozenset(("y", "n", "yes", "no", "on", "off"))
_BASES = {"x": 16, "o": 8, "b": 2}


class Meaning(NamedTuple):
    """The type of a plain scalar: text, number, boolean, nothing, or unclear with what to write instead."""

    type: str
    advice: str = ""


_TEXT, _NUMBER_MEANT, _BOOLEAN, _NOTHING = Meaning("text"), Meaning("number"), Meaning("boolean"), Meaning("nothing")


def classify(text: str) -> Meaning:
    """What an unquoted scalar means to every YAML reader, or `unclear` when they differ."""
    word = text.lower()
    if word in ("true", "false"):
        return _BOOLEAN if text == word else _unclear(text, f"write {word}")
    if word in ("", "~", "null"):
        return _NOTHING
    if word in _SWITCHES:
        return _unclear(text, "write true or false, or quote it if it is a name")
    if text[0] not in _SPECIAL_START:
        return _TEXT
    return _classify_special(text)


def _classify_special(text: str) -> Meaning:
    if _NUMBER.fullmatch(text):
        return _classify_number(text)
    if re.fullmatch(_NOT_FINITE, text):
        return Meaning("unclear", f"{text} is not a finite number; write one, or quote it if it is text")
    advice = _advice(text)
    return _unclear(text, advice) if advice else _TEXT


def _advice(text: str) -> str:
    """What to write instead of a value that YAML 1.1 and 1.2 read differently."""
    if found := re.fullmatch(_OTHER_BASE, text):
        return _in_decimal(*found.groups())
    if "_" in text and _NUMBER.fullmatch(text.replace("_", "")):
        return f"write {_without_leading_zeros(text.replace('_', ''))}"
    if re.fullmatch(_BASE_60, text):
        return f"{_from_base_60(text)}quote it if it is text"
    return "quote it" if re.fullmatch(_DATE, text) or text in ("=", "<<") else ""


def _classify_number(text: str) -> Meaning:
    if len(text) > _LONGEST_NUMBER:
        return Meaning("unclear", f"a number of {len(text)} characters is more than can be kept exactly")
    plain = _without_leading_zeros(text)
    if plain == text:
        return _NUMBER_MEANT
    digits = text.lstrip("+-")
    octal = f", or {int(digits, 8)} if octal was meant" if set(digits) <= set("01234567") else ""
    return _unclear(text, f"write {plain}{octal}")


def _without_leading_zeros(text: str) -> str:
    found = re.fullmatch(_LEADING_ZERO, text)
    return found[1] + found[2] if found else text


def _in_decimal(sign: str, base: str, digits: str) -> str:
    try:
        value = int(digits.replace("_", ""), _BASES[base.lower()])
    except ValueError:
        return "quote it if it is text"
    # A long one would be refused in decimal as well, and Python does not print beyond 4,300 digits.
    return f"write {sign}{value}" if value <= MAX_INTEGER else "write it in decimal"


def _from_base_60(text: str) -> str:
    if "." in text or len(text) > _LONGEST_NUMBER:
        return ""
    total = 0
    for part in text.lstrip("+-").replace("_", "").split(":"):
        total = total * 60 + int(part)
    return f"write {'-' if text[0] == '-' else ''}{total} if base 60 was meant, or "


def _unclear(text: str, advice: str) -> Meaning:
    return Meaning("unclear", f"{shown(text)} is not the same to all YAML readers; {advice}")


def shown(text: str) -> str:
    """Text as it goes into a message: short, on one line, safe for a terminal."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return short if short.isprintable() else short.encode("unicode_escape").decode()


def whole_number(text: str) -> int | None:
    """The exact integer that a number is (1e9 and 2.50e1 are), clipped just above 2^53, or None."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    sign, digits, exponent = found.groups()
    before, _, after = digits.partition(".")
    mantissa, shift = int(before + after), int(exponent or 0) - len(after)
    if mantissa == 0:
        return 0
    value: int
    if shift >= 0:
        value = mantissa * 10 ** min(shift, 20)  # 10^20 is beyond 2^53 already
    elif -shift > _LONGEST_NUMBER or mantissa % 10**-shift:
        return None
    else:
        value = mantissa // 10**-shift
    return min(value, MAX_INTEGER + 1) * (-1 if sign == "-" else 1)


def real_number(text: str) -> int | float | None:
    """An int when it is written as one, else a float; None when a float cannot hold it."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return None
    if text.lstrip("+-").isdecimal():
        value = int(text)
        return value if abs(value) <= MAX_INTEGER else None
    number = float(text)
    vanished = number == 0 and whole_number(text) != 0
    return None if vanished or number in (float("inf"), float("-inf")) else number
