"""A result that grows: its file is valid after every row, whatever happens to the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kvplan.report.output import open_output
from kvplan.report.words import Row

Render = Callable[[Sequence[Row]], str]


class _NotYetError(Exception):
    """Leaves the check of a place without writing to it."""


class GrowingResult:
    """Rows written as one whole document again after each of them, so that the file on disk is never half a one."""

    def __init__(self, path: Path | None, render: Render) -> None:
        self.path, self.render = path, render
        self.rows: list[Row] = []
        self.replaceable = path is not None and (path.is_file() or not path.exists())
        if path is not None:
            with suppress(_NotYetError), open_output(path):
                raise _NotYetError  # a place that cannot be written is refused now, not in ten minutes

    def add(self, row: Row) -> None:
        """One more row; a file that can be replaced has it at once."""
        self.rows.append(row)
        if self.replaceable:
            self._write()

    def finish(self) -> None:
        """What cannot be replaced, such as a terminal or a pipe, gets everything once."""
        if not self.replaceable:
            self._write()

    def _write(self) -> None:
        with open_output(self.path) as out:
            out.write(self.render(self.rows))
