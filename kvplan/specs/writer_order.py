"""The order of layers as a person would write it: repeats found, brackets where they save words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby

_LONGEST = 160  # runs of equal layers that are searched for repeats; more are listed
Run = tuple[str, int]


def order_text(kinds: Sequence[str]) -> str:
    """The shortest text found: `10 (5 local, global), 2 local`."""
    runs = tuple((name, len(list(group))) for name, group in groupby(kinds))
    if len(runs) > _LONGEST:
        return ", ".join(_run_text(run) for run in runs)
    return _Search(runs).text(0, len(runs))


def _run_text(run: Run) -> str:
    name, count = run
    return name if count == 1 else f"{count} {name}"


class _Search:
    """Every part of the order in its shortest text, from the shortest parts up."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        self.text = cache(self._text)

    def _text(self, start: int, end: int) -> str:
        """The shortest text of runs `start` up to `end`: one run, a repeat in brackets, or two parts."""
        if end - start == 1:
            return _run_text(self.runs[start])
        found = [f"{count} ({self.text(start, start + period)})" for period, count in self._repeats(start, end)]
        if found:
            return min(found, key=_cost)
        return min((f"{head}, {tail}" for head, tail in self._splits(start, end)), key=_cost)

    def _repeats(self, start: int, end: int) -> list[tuple[int, int]]:
        """Periods of the whole part, each with how often it comes."""
        length, runs = end - start, self.runs
        periods = [period for period in range(1, length // 2 + 1) if length % period == 0]
        return [
            (period, length // period) for period in periods if runs[start : end - period] == runs[start + period : end]
        ]

    def _splits(self, start: int, end: int) -> list[tuple[str, str]]:
        """A first run or a first repeat, and what follows it."""
        ends = {start + 1}
        for period in range(1, (end - start) // 2 + 1):
            stop = start + period
            while stop + period <= end and self.runs[stop : stop + period] == self.runs[start : start + period]:
                stop += period
                if stop < end:
                    ends.add(stop)
        return [(self.text(start, middle), self.text(middle, end)) for middle in sorted(ends)]


def _cost(text: str) -> tuple[int, int, int]:
    return len(text), text.count("("), text.find("(")  # a repeat first, where both ways are as short
