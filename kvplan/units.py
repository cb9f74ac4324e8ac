"""Human units at the edge: parsing what people type, printing what they read. Inside, everything is base units."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvplan.errors import InputError

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

SIZE_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "kB": KB, "KB": KB, "MB": MB, "GB": GB, "TB": TB}
TOKEN_UNITS = {"": 1, "k": KIB, "K": KIB, "m": MIB, "M": MIB}  # 8k tokens are 8192, as in model names
MAX_BYTES = 2**53  # integers stay exact in JSON, CSV and float64
MAX_TOKENS = 2**32  # with 2^30 bytes a token, int64 still holds a session

_NUMBER = r"((?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,9})?)"  # no leading zeros, which some read as octal
_SIZE = re.compile(_NUMBER + r"\s*([A-Za-z]*)")
_TOKENS = re.compile(_NUMBER + r"([kKmM]?)")


class Line(NamedTuple):
    """One line of a ledger. Evaluating `formula` with `terms` gives `bytes`; `source` says whose rule it is."""

    name: str
    bytes: int
    formula: str
    terms: dict[str, int | float]
    source: str
    low: int | None = None
    high: int | None = None

    def to_dict(self) -> dict[str, object]:
        """The line as an object of the row's `ledger`."""
        return self._asdict()


def parse_size(text: str) -> int:
    """Bytes of a size such as 58GB, 60GiB, 512MiB or 1048576B; raises InputError, also when the unit is missing."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise InputError(f"'{text}' is not a size; write for example 60GiB, 58GB, 512MiB or 1048576B")
    number, unit = found.groups()
    if not unit:
        raise InputError(f"'{text}' has no unit; write {number}GiB (2^30 bytes), {number}GB (10^9 bytes) or {number}B")
    if unit not in SIZE_UNITS:
        raise InputError(f"'{text}': unknown unit '{unit}'; expected one of {', '.join(SIZE_UNITS)}")
    return _bounded(text, number, SIZE_UNITS[unit], MAX_BYTES, "bytes")


def parse_tokens(text: str) -> int:
    """Tokens of a length such as 4096, 8k (8192) or 1M (1048576); raises InputError."""
    found = _TOKENS.fullmatch(text.strip())
    if not found:
        raise InputError(f"'{text}' is not a number of tokens; write for example 4096, 8k (8192) or 1M (1048576)")
    number, unit = found.groups()
    return _bounded(text, number, TOKEN_UNITS[unit], MAX_TOKENS, "tokens")


def _bounded(text: str, number: str, factor: int, limit: int, what: str) -> int:
    whole, _, decimals = number.partition(".")
    scale: int = 10 ** len(decimals)
    value, rest = divmod(int(whole + decimals) * factor, scale)  # exact: 0.1GiB must not pass through a float
    if rest or value <= 0:
        raise InputError(f"'{text}' is not a whole, positive number of {what}")
    if value > limit:
        raise InputError(f"'{text}' is more than {limit:,} {what}")
    return value


def human_bytes(count: int | float) -> str:
    """Binary units with enough digits to compare: 1.34 GiB, 512.00 MiB, 656 B."""
    for factor, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(count) >= factor:
            return f"{count / factor:,.2f} {unit}"
    return f"{count:,.0f} B"


def human_count(count: int | float) -> str:
    """Parameters and the like in decimal steps: 7.25 B (billion), 134.52 M, 3,072."""
    for factor, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if abs(count) >= factor:
            return f"{count / factor:,.2f} {unit}"
    return f"{count:,.0f}"
