"""What a piece of work takes of Python's memory at its highest."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


class Peak:
    """Bytes, known once the block has ended."""

    bytes = 0


@contextmanager
def traced_peak() -> Iterator[Peak]:
    """By tracemalloc, from the start of the block on."""
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
