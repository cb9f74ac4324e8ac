"""One measured figure: predicted, observed, how far apart, and on what the prediction rests."""

from __future__ import annotations

from typing import Any

FORMULA, FITTED, BOUND, EXTRAPOLATED = "formula", "fitted on these points", "datasheet bound", "extrapolated"

Row = dict[str, Any]


def row(
    quantity: str,
    unit: str,
    *,
    predicted: float | None = None,
    observed: float | None = None,
    low: float | None = None,
    high: float | None = None,
    basis: str | None = FORMULA,
    tolerance: float | None = None,
    memory: bool = False,
    **more: Any,
) -> Row:
    """The contract's keys; `within` is judged where there is a tolerance, or a range, and both figures.

    `memory` marks the predictions that `--tolerance` judges.
    """
    error = predicted / observed - 1 if predicted and observed else None
    within: bool | None = None
    if predicted is not None and observed is not None:
        if low is not None and high is not None:
            within = low <= observed <= high
        elif tolerance is not None:
            within = abs(predicted - observed) <= tolerance * abs(observed)
    return {
        "quantity": quantity,
        "unit": unit,
        "predicted": predicted,
        "predicted_low": low,
        "predicted_high": high,
        "observed": observed,
        "error": error,
        "within": within,
        "basis": basis if predicted is not None else None,
        "memory": memory,
        **more,
    }


def failed(rows: list[Row]) -> list[Row]:
    """Memory predictions that missed."""
    return [each for each in rows if each["memory"] and each["within"] is False]
