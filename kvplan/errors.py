"""Errors that a user can meet: each is one sentence that says what is wrong and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class KvplanError(Exception):
    """Anything the user can put right; `exit_code` is what the process returns."""

    exit_code = 2


class InputError(KvplanError):
    """An option, a name or a combination of options that does not make sense."""


class MissingPackageError(KvplanError):
    """An optional package is not installed; the message holds the install command."""

    exit_code = 3


class NoDeviceError(KvplanError):
    """The device that was asked for is not on this machine."""

    exit_code = 3


class Problem(NamedTuple):
    """One mistake in a file: where it is, and what to do."""

    line: int | None
    path: str  # dotted key, "" for the top level
    message: str


class SpecError(KvplanError):
    """A file that cannot be used, with every problem found in it."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = sorted(problems, key=lambda p: p.line or 0)
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [_problem_text(self.source, p) for p in self.problems]
        if len(lines) == 1:
            return lines[0]
        return "\n".join([f"{self.source} has {len(lines)} problems", *(f"  {line}" for line in lines)])


def _problem_text(source: str, problem: Problem) -> str:
    if problem.line is None and not problem.path:
        return f"{source}: {problem.message}"
    place = source if problem.line is None else f"{source}:{problem.line}"
    return f"{place}: {problem.path or 'top level'}: {problem.message}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known names, or nothing when none is near (a list then goes on with ;)."""
    from difflib import get_close_matches  # loaded only on the way to an error

    near = get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    return "; did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
