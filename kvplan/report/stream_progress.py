"""Progress on a terminal: how much is done and how long the rest takes, once the work takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TextIO

from kvplan.report.stream_columns import Chunk

PATIENCE_S = 1.0  # before the first line
EVERY_S = 0.2
_CLEAR = "\r\x1b[K"  # back to the start of the line, and nothing on it


def shown(
    chunks: Iterable[Chunk], total: int, stream: TextIO, clock: Callable[[], float] = monotonic
) -> Iterator[Chunk]:
    """The chunks as they come, with a line on the terminal that is gone at the end."""
    start, told, done = clock(), None, 0
    try:
        for chunk in chunks:
            yield chunk
            done += chunk.rows
            now = clock()
            if now - start >= PATIENCE_S and (told is None or now - told >= EVERY_S):
                told = now
                stream.write(_CLEAR + _line(done, total, now - start))
                stream.flush()
    finally:
        if told is not None:
            stream.write(_CLEAR)
            stream.flush()


def _line(done: int, total: int, seconds: float) -> str:
    left = _duration(seconds * (total - done) / done)
    return f"{done / total:4.0%}  {done:,} of {total:,} rows, {left} left"


def _duration(seconds: float) -> str:
    """9 s, 4 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
