"""Parquet: row groups of typed columns, texts as dictionaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from kvplan.errors import MissingPackageError
from kvplan.report.stream_columns import Part, gathered, is_array, is_coded

GROUP_ROWS = 262_144


def check_parquet() -> None:
    """Raise MissingPackageError, with the install command, where there is no pyarrow."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError("--format parquet needs pyarrow: pip install 'kvplan[report]'") from None
    del pyarrow


def write_parquet(parts: Iterable[Part], types: Mapping[str, type], stream: BinaryIO) -> None:
    """Write all rows; memory holds one row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.dictionary(pa.int32(), pa.string())
    }  # fmt: skip
    schema = pa.schema([(name, kinds[kind]) for name, kind in types.items()])
    with pq.ParquetWriter(stream, schema) as writer:
        for part in gathered(parts, GROUP_ROWS):
            arrays = [_array(part.columns[field.name], part.rows, field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _array(column: Any, rows: int, kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    if is_array(column):
        mask = np.ma.getmaskarray(column) if np.ma.is_masked(column) else None
        return pa.array(np.ma.getdata(column), kind, mask=mask)
    if column is None:
        return pa.nulls(rows, kind)
    texts, codes = (column.texts, column.codes) if is_coded(column) else ((column,), np.zeros(rows, dtype=np.int32))
    if not pa.types.is_dictionary(kind):
        return pa.array(texts, kind).take(pa.array(codes))
    unknown = np.array([text is None for text in texts])
    indices = pa.array(codes, pa.int32(), mask=unknown[codes] if unknown.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array([_utf8(text) for text in texts], pa.string()))


def _utf8(text: str | None) -> str:
    """Parquet has no place for bytes of names that are not UTF-8: they are written as escapes."""
    return (text or "").encode(errors="backslashreplace").decode()
