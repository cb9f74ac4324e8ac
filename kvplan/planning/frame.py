"""A grid as a pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kvplan.arithmetic import NO_LIMIT
from kvplan.errors import MissingPackageError
from kvplan.planning.row import Labels

if TYPE_CHECKING:
    import pandas as pd

    from kvplan.planning.grid import Chunk

NUMBERS = {int: "int64", float: "float64", bool: "bool"}


def frame(chunks: Iterable[Chunk], types: Mapping[str, type]) -> pd.DataFrame:
    """One row a scenario, unknown figures as missing values; raises MissingPackageError without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingPackageError("to_frame() needs pandas: pip install 'kvplan[report]'") from None
    parts = list(chunks)
    return pd.DataFrame({name: _column(parts, name, kind) for name, kind in types.items()})


def _column(parts: list[Chunk], name: str, kind: type) -> Any:
    """A column of its own type, so that rows with and without figures join without becoming floats."""
    import numpy as np
    import pandas as pd

    rows = sum(part.rows for part in parts)
    found = np.zeros(rows, dtype=NUMBERS.get(kind, object))
    unknown = np.zeros(rows, dtype=bool)
    start = 0
    for part in parts:
        place = slice(start, start := start + part.rows)
        value = part.columns.get(name)
        if value is None:
            unknown[place] = True
        else:
            found[place] = np.array(value.texts, dtype=object)[value.codes] if isinstance(value, Labels) else value
    if name == "max_context_tokens":
        unknown |= found == NO_LIMIT
    if kind is str:
        found[unknown] = None
        return pd.array(found, dtype="string")
    arrays: dict[type, Any] = {
        int: pd.arrays.IntegerArray,
        float: pd.arrays.FloatingArray,
        bool: pd.arrays.BooleanArray,
    }
    return arrays[kind](found, unknown)
