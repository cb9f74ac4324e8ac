"""A grid as a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvplan.arithmetic import NO_LIMIT
from kvplan.errors import MissingPackageError
from kvplan.planning.row import Labels

if TYPE_CHECKING:
    import pandas as pd

    from kvplan.planning.grid import Chunk


def frame(chunks: Iterable[Chunk]) -> pd.DataFrame:
    """One row a scenario, unknown figures as missing values; raises MissingPackageError without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingPackageError("to_frame() needs pandas: pip install 'kvplan[report]'") from None
    parts = [
        pd.DataFrame({name: _column(pd, value, chunk.rows) for name, value in chunk.columns.items()})
        for chunk in chunks
    ]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return whole.convert_dtypes()


def _column(pd: Any, value: Any, rows: int) -> Any:
    """A column of its own type, so that chunks with and without figures join without becoming floats."""
    if isinstance(value, Labels):
        return pd.Series(pd.Categorical.from_codes(value.codes, value.texts)).astype(object)
    if not hasattr(value, "dtype") or not value.ndim:
        return pd.Series([value] * rows, dtype=object)
    if value.dtype.kind in "iu":
        found = pd.Series(value, dtype="Int64")
        return found.mask(found == NO_LIMIT)
    return pd.Series(value)
