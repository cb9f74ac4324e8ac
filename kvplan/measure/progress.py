"""What is being done and how long the rest will take, on standard error."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TextIO

TRUST_S = 20.0  # the guesses count as much as this many seconds of experience


class Progress:
    """One line that is written over on a terminal, one line a step elsewhere."""

    def __init__(self, stream: TextIO | None = None, *, silent: bool = False) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.silent, self.since = silent, monotonic()
        self.left: list[tuple[str, float]] = []
        self.done_s = 0.0  # guessed seconds of what is done

    def plan(self, steps: list[tuple[str, float]]) -> None:
        """The steps to come, with a guess of the seconds of each."""
        self.left, self.done_s, self.since = list(steps), 0.0, monotonic()

    def begin(self, name: str) -> None:
        """A step begins; those planned before it are done."""
        while self.left and self.left[0][0] != name and any(step == name for step, _ in self.left):
            self.done_s += self.left.pop(0)[1]
        self._write(f"{name}{self._time_left()}")
        if self.left and self.left[0][0] == name:
            self.done_s += self.left.pop(0)[1]

    def note(self, text: str) -> None:
        """Something that the reader should know, on a line of its own."""
        if not self.silent:
            self.stream.write(f"{self._clear()}note: {text}\n")
            self.stream.flush()

    def end(self) -> None:
        """Nothing is left on the terminal's line."""
        if not self.silent:
            self.stream.write(self._clear())
            self.stream.flush()

    def _time_left(self) -> str:
        """Guesses corrected by how the finished ones turned out."""
        rest = sum(seconds for _, seconds in self.left)
        if not rest:
            return ""
        scale = (monotonic() - self.since + TRUST_S) / (self.done_s + TRUST_S)
        return f", about {_duration(rest * scale)} left"

    def _write(self, text: str) -> None:
        if self.silent:
            return
        end = "" if self.stream.isatty() else "\n"
        self.stream.write(f"{self._clear()}measure: {text}{end}")
        self.stream.flush()

    def _clear(self) -> str:
        return "\r\x1b[K" if self.stream.isatty() else ""


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    return f"{whole} s" if whole < 90 else f"{whole // 60}:{whole % 60:02d} min"
