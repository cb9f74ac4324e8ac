"""Rows by the thousand as text: CSV, JSON lines, JSON and Markdown, the same bytes with and without pyarrow.

A row is cells between fixed texts. Cells that are the same in all rows of a part are joined to the texts around them:
only what changes is written row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvplan.report.stream_columns import Coded, Part, is_array, is_coded, is_single, values

FEW = 64  # rows that are quicker to write one by one
Types = Mapping[str, type]
Buffer = bytes | memoryview
Piece = str | list[str] | Any  # a fixed text, or the texts of each row: a list, or an Arrow array


class Layout(NamedTuple):
    """How rows become text."""

    head: str
    starts: Mapping[str, str]  # column -> the text before its cell
    end: str  # of a row
    tail: str
    cell: Callable[[str, Any], str]
    digits: bool  # whether whole numbers are just their digits
    between: str = ""  # in front of every row but the first


def layout(form: str, types: Types, human: bool) -> Layout:
    """The layout of a format for these columns."""
    return {"csv": _csv, "jsonl": _jsonl, "json": _json, "markdown": _markdown}[form](types, human)


def _csv(types: Types, human: bool) -> Layout:
    from kvplan.report.delimited import cell, line, quoted
    from kvplan.report.words import human as words

    def spoken(name: str, value: Any) -> str:
        return cell(value) if value is None or isinstance(value, str) else quoted(words(name, value))

    starts = {name: "," if index else "" for index, name in enumerate(types)}
    return Layout(
        line(list(types)), starts, "\n", "", spoken if human else lambda _, value: cell(value), digits=not human
    )


def _jsonl(types: Types, human: bool) -> Layout:  # noqa: ARG001 - every layout takes it
    return Layout("", _keys(types), "}\n", "", _json_cell, digits=True)


def _json(types: Types, human: bool) -> Layout:  # noqa: ARG001 - every layout takes it
    return Layout("[\n", _keys(types), "}", "\n]\n", _json_cell, digits=True, between=",\n")


def _keys(types: Types) -> dict[str, str]:
    from json import dumps

    return {name: f"{', ' if index else '{'}{dumps(name)}: " for index, name in enumerate(types)}


def _json_cell(name: str, value: Any) -> str:  # noqa: ARG001 - every layout's cell takes it
    from json import dumps

    return dumps(value, allow_nan=False)


def _markdown(types: Types, human: bool) -> Layout:
    from kvplan.report.markdown import escape, table, value_text

    right = {index for index, kind in enumerate(types.values()) if kind in (int, float)}
    return Layout(
        table(list(types), [], right),
        {name: " | " if index else "| " for index, name in enumerate(types)},
        " |\n",
        "",
        lambda name, value: escape(value_text(name, value, human)),
        digits=not human,
    )


def written(form: Layout, parts: Iterator[Part]) -> Iterator[Buffer]:
    """The text of all the parts, piece by piece."""
    yield form.head.encode()
    first = True
    for part in parts:
        text = rendered(form, part)
        if first and form.between:
            text = text[len(form.between) :]
        first = False
        yield text
    yield form.tail.encode()


def rendered(form: Layout, part: Part) -> Buffer:
    """The text of a part's rows."""
    arrow = _arrow() if part.rows > FEW else None
    pieces = list(_pieces(form, part, arrow_texts if arrow else plain_texts))
    if len(pieces) == 1:  # nothing changes: one fixed text
        return _bytes(str(pieces[0])) * part.rows
    if arrow:
        return _joined(arrow, pieces)
    row = "".join(piece.replace("%", "%%") if isinstance(piece, str) else "%s" for piece in pieces)
    cells = zip(*(piece for piece in pieces if not isinstance(piece, str)), strict=True)
    return _bytes("".join(map(row.__mod__, cells)))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # as files are written: what was not UTF-8 stays the bytes it was


def _pieces(form: Layout, part: Part, texts: Callable[[Layout, str, Any, int], Piece]) -> Iterator[Piece]:
    """Fixed texts and the cells between them; the first and the last are fixed."""
    fixed = form.between
    for name, start in form.starts.items():
        column = part.columns[name]
        fixed += start
        if is_single(column):
            fixed += form.cell(name, column)
        else:
            yield fixed
            yield texts(form, name, column, part.rows)
            fixed = ""
    yield fixed + form.end


def plain_texts(form: Layout, name: str, column: Any, rows: int) -> list[str]:
    """The cells of a column."""
    if is_coded(column):
        cells = [form.cell(name, text) for text in column.texts]
        return [cells[code] for code in column.codes.tolist()]
    return [form.cell(name, value) for value in values(column, rows)]


def arrow_texts(form: Layout, name: str, column: Any, rows: int) -> Any:
    """The cells of a column as an Arrow array."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_array(column) and column.dtype == bool and not np.ma.is_masked(column):
        column = Coded(np.asarray(column).astype(np.int8), (False, True))
    if is_coded(column):
        return _binary(form.cell(name, text) for text in column.texts).take(pa.array(column.codes))
    if not form.digits or column.dtype == bool:
        return _binary(plain_texts(form, name, column, rows))
    mask = np.ma.getmaskarray(column) if np.ma.is_masked(column) else None
    digits = pc.cast(pc.cast(pa.array(np.ma.getdata(column), mask=mask), pa.string()), pa.binary())
    return digits if mask is None else pc.fill_null(digits, _bytes(form.cell(name, None)))


def _binary(texts: Iterable[str]) -> Any:
    import pyarrow as pa

    return pa.array(map(_bytes, texts), pa.binary())


def _arrow() -> Any:
    try:
        import pyarrow.compute as pc
    except ImportError:
        return None
    return pc


def _joined(compute: Any, pieces: Sequence[Piece]) -> Buffer:
    """Each row's pieces one after the other, which is how Arrow keeps texts."""
    rows = compute.binary_join_element_wise(*(_bytes(p) if isinstance(p, str) else p for p in pieces), b"")
    _, offsets, data = rows.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)]]
