"""Values of vLLM's flags: counts with vLLM's own suffixes, fractions, JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from kvplan.units import MAX_BYTES

_COUNT = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?([kKmMgGtT]?)(i?)[bB]?")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def count(value: Any) -> int | None:
    """A whole number as vLLM reads it: 32k is 32,000 and 32K is 32,768; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 < value <= MAX_BYTES else None
    found = _COUNT.fullmatch(str(value).strip().replace("_", "").replace(",", ""))
    if not found:
        return None
    whole, decimals, suffix, binary = found.groups()
    factor = _FACTORS[suffix.upper() if binary else suffix]
    scaled, rest = divmod(int(whole + (decimals or "")) * factor, 10 ** len(decimals or ""))
    return scaled if rest == 0 and 0 < scaled <= MAX_BYTES else None


def fraction(value: Any) -> float | None:
    """A share above 0 and at most 1, else None."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if 0 < found <= 1 else None


def boolean(value: Any) -> bool | None:
    """A switch's value, also as a word."""
    return value if isinstance(value, bool) else _WORDS.get(str(value).strip().lower())


def structure(value: Any) -> dict[str, Any] | None:
    """A JSON object, or vLLM's older image=2,video=1; None for anything else."""
    if isinstance(value, dict):
        return value
    text = str(value).strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        pairs = {name.strip(): count_or_zero(number) for name, sign, number in parts if sign}
        return pairs if pairs and len(pairs) == len(parts) and None not in pairs.values() else None
    return found if isinstance(found, dict) else None


def count_or_zero(value: Any) -> int | None:
    """As `count`, with 0 allowed."""
    return 0 if str(value).strip() == "0" else count(value)
