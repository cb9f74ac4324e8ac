"""The terminal: views become plain text of a given width, or sparing colour where someone is looking."""

from __future__ import annotations

import os
import shutil
from io import StringIO
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WIDTH = 100  # of piped text
WIDEST = 120  # lines longer than this are hard to follow


def width_of(stream: TextIO) -> int:
    """Columns to fill: the terminal's up to WIDEST, or WIDTH where there is none."""
    return min(shutil.get_terminal_size().columns, WIDEST) if stream.isatty() else WIDTH


def coloured(stream: TextIO) -> bool:
    """Whether someone looks at a terminal that can show colour and does not object to it."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(view: RenderableType, width: int) -> str:
    """The view as text without colour or trailing spaces, the same on every machine."""
    from rich.console import Console

    buffer = StringIO()
    console = Console(
        file=buffer,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        highlight=False,
        legacy_windows=False,
    )
    console.print(view)
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().rstrip().split("\n"))


def show(view: RenderableType, stream: TextIO, width: int | None = None) -> None:
    """Write a view, in colour on a terminal and as plain text elsewhere."""
    columns = width or width_of(stream)
    if not coloured(stream):
        stream.write(plain(view, columns))
        return
    from rich.console import Console

    Console(file=stream, width=columns, highlight=False).print(view)


def grid(*headers: str, right: frozenset[int] = frozenset(), head: bool = True) -> Table:
    """An empty table of aligned columns two spaces apart, without lines; columns in `right` hold numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=head, header_style="bold")
    for index, header in enumerate(headers):
        number = index in right
        table.add_column(Text(header), justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table
