"""A log file as lines: any encoding, any size, one line in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kvplan.errors import InputError
from kvplan.evidence.logs.clean import MAX_LINE
from kvplan.evidence.logs.model import EngineLog
from kvplan.evidence.logs.reader import read_log

_WIDE = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}  # what PowerShell's > writes
_PIECE = 4 * MAX_LINE


def read_log_file(path: Path) -> list[EngineLog]:
    """The engines of a file, or of standard input for `-`; InputError when it cannot be read or has none."""
    if str(path) == "-":
        found = read_log(lines(sys.stdin.buffer))
    else:
        try:
            with path.open("rb") as stream:
                found = read_log(lines(stream))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}; name a log file") from None
    if not found:
        raise InputError(
            f"{path}: no line of vLLM's start-up in it; a log has lines such as"
            " 'Available KV cache memory: ... GiB' or 'GPU KV cache size: ... tokens'"
        )
    return found


def lines(stream: BinaryIO) -> Iterator[str]:
    """Decoded lines, at most a few hundred kilobytes at once."""
    start = stream.readline(_PIECE)
    wide = _WIDE.get(start[:2])
    if wide:
        yield from _wide_lines(start[2:], stream, wide)
        return
    piece = start.removeprefix(b"\xef\xbb\xbf")
    while piece:
        yield piece.decode("utf-8", errors="replace").rstrip("\r\n")
        piece = stream.readline(_PIECE)


def _wide_lines(start: bytes, stream: BinaryIO, encoding: str) -> Iterator[str]:
    rest, data = "", start
    while data:
        if len(data) % 2:
            data += stream.read(1)
        text = rest + data.decode(encoding, errors="replace")
        *whole, rest = text.split("\n")
        yield from whole
        if len(rest) > _PIECE:
            yield rest
            rest = ""
        data = stream.read(_PIECE)
    if rest:
        yield rest
