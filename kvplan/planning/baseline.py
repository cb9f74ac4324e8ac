"""Figures kept in a file, and what has moved since: by how much, for better or worse, and by which ledger line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from kvplan import __version__
from kvplan.errors import InputError
from kvplan.planning.expect import comparable
from kvplan.planning.row import KEYS
from kvplan.specs.expectations import EXACT, Tolerance

FORMAT_VERSION = 1
MAX_BYTES = 2**26
MAX_FIGURE = 2**63  # nothing that is planned comes near, and shares of it are floats

MORE_IS_BETTER = frozenset((
    "max_sessions", "max_sessions_low", "max_sessions_high", "kv_tokens", "kv_tokens_low", "kv_tokens_high",
    "kv_budget_bytes", "kv_budget_bytes_low", "kv_budget_bytes_high", "max_context_tokens", "fits",
))  # fmt: skip
LESS_IS_BETTER = frozenset((
    "weights_bytes", "overhead_bytes", "overhead_bytes_low", "overhead_bytes_high", "kv_bytes_per_token",
    "kv_bytes_per_session", "kv_bytes_per_session_logical",
))  # fmt: skip
_CARD = "gpu_memory"
_SESSION = ("session/",)
_MEMORY = ("weights/", "overhead/", "unrequested", _CARD)
_PARTS: Final[dict[str, tuple[str, ...]]] = {  # the ledger lines that can move a figure
    "weights_bytes": ("weights/",),
    "overhead_bytes": ("overhead/",),
    "unrequested_bytes": ("unrequested", _CARD),
    "kv_budget_bytes": _MEMORY,
    "kv_bytes_per_token": _SESSION,
    "kv_bytes_per_session": _SESSION,
    "kv_bytes_per_session_logical": _SESSION,
    **dict.fromkeys(("kv_tokens", "max_sessions", "max_context_tokens", "fits"), (*_SESSION, *_MEMORY)),
}


class Scenario(NamedTuple):
    """The figures of one scenario and the bytes of its ledger lines."""

    figures: dict[str, Any]
    ledger: dict[str, int]


class Baseline(NamedTuple):
    """A baseline file: which kvplan wrote it and when, and its scenarios by deployment and label."""

    kvplan_version: str
    date: str
    scenarios: dict[tuple[str, str], Scenario]


class Move(NamedTuple):
    """How a figure compares with the baseline."""

    column: str
    before: Any
    now: Any
    change: int | float | None
    change_percent: float | None
    tolerance: str
    verdict: str  # same, within, better, worse or changed
    ok: bool
    ledger_line: str | None
    ledger_change_bytes: int | None


def scenario_of(row: Mapping[str, Any]) -> Scenario:
    """What a baseline keeps of a row."""
    ledger: Counter[str] = Counter()
    for line in row["ledger"]:
        ledger[line["name"]] += line["bytes"]
    if row["gpu_memory_bytes"] is not None:
        ledger[_CARD] = row["gpu_memory_bytes"]
    return Scenario({key: row.get(key) for key in KEYS}, dict(ledger))


def baseline_text(scenarios: Mapping[tuple[str, str], Scenario]) -> str:
    """The file: a figure a line and in a fixed order, so that a diff of two shows what moved."""
    entries = [
        {"deployment": name, "scenario": label, "figures": each.figures, "ledger": each.ledger}
        for (name, label), each in sorted(scenarios.items())
    ]
    head = {
        "kvplan_baseline": FORMAT_VERSION,
        "kvplan_version": __version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    return json.dumps({**head, "scenarios": entries}, indent=1, allow_nan=False) + "\n"


def read_baseline(path: Path) -> Baseline:
    """The baseline of a file; InputError in a sentence when it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"--baseline {path}: there is no such file; write it with --write-baseline {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"--baseline {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _decoded(json.loads(data, parse_constant=_refuse) if len(data) <= MAX_BYTES else None)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise InputError(f"--baseline {path} is not a baseline of kvplan; write one with --write-baseline") from None
    except InputError as error:
        raise InputError(f"--baseline {path} {error}") from None


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _decoded(content: Any) -> Baseline:
    version = content["kvplan_baseline"]
    if version != FORMAT_VERSION:
        raise InputError(
            f"has format {version!r}, and kvplan {__version__} reads format {FORMAT_VERSION};"
            " write it again with --write-baseline"
        )
    scenarios = {}
    for entry in content["scenarios"]:
        figures, ledger = entry["figures"], entry["ledger"]
        if not all(map(_is_figure, figures.values())) or not all(map(_is_number, ledger.values())):
            raise TypeError
        guarded = MORE_IS_BETTER | LESS_IS_BETTER
        if any(isinstance(figures.get(column), str) for column in guarded):
            raise TypeError
        if content["kvplan_version"] == __version__ and not guarded <= figures.keys():
            raise TypeError  # a figure taken out would no longer be guarded
        key = str(entry["deployment"]), str(entry["scenario"])
        if key in scenarios:
            raise TypeError
        scenarios[key] = Scenario(figures, ledger)
    return Baseline(str(content["kvplan_version"]), str(content["date"]), scenarios)


def _is_figure(value: Any) -> bool:
    return isinstance(value, str | bool | None) or _is_number(value)


def moves(before: Scenario, now: Scenario, tolerances: Mapping[str, Tolerance]) -> list[Move]:
    """Every figure that can be better or worse, and of the others those that differ."""
    known = [column for column in KEYS if column in before.figures]
    compared = [
        column
        for column in known
        if before.figures[column] != now.figures[column]
        or (column in MORE_IS_BETTER | LESS_IS_BETTER and now.figures[column] is not None)
    ]
    return [_move(column, before, now, tolerances.get(column)) for column in compared]


def _move(column: str, before: Scenario, now: Scenario, tolerance: Tolerance | None) -> Move:
    old, new = before.figures[column], now.figures[column]
    verdict = _verdict(column, old, new, tolerance or EXACT)
    change = _less(new, old)
    line = None if verdict == "same" else _most_moved(column, before, now)
    return Move(
        column=column,
        before=old,
        now=new,
        change=change,
        change_percent=round(100 * change / abs(old), 2) if change is not None and old else None,
        tolerance=(tolerance or EXACT).text,
        verdict=verdict,
        ok=verdict not in ("worse", "changed") or (verdict == "changed" and tolerance is None),
        ledger_line=line,
        ledger_change_bytes=None if line is None else now.ledger.get(line, 0) - before.ledger.get(line, 0),
    )


def _less(new: Any, old: Any) -> int | float | None:
    """The difference, of fractions without what binary floats add to it."""
    if not (_is_number(old) and _is_number(new)):
        return None
    change: int | float = new - old
    return round(change, 9) if isinstance(change, float) else change


def _verdict(column: str, old: Any, new: Any, tolerance: Tolerance) -> str:
    if old == new:
        return "same"
    if _is_number(old) and _is_number(new) and tolerance.allows(old, new):
        return "within"
    first, second = comparable(column, old), comparable(column, new)
    if column not in MORE_IS_BETTER | LESS_IS_BETTER or not _ordered(first, second):
        return "changed"
    return "better" if (second > first) == (column in MORE_IS_BETTER) else "worse"


def _ordered(first: Any, second: Any) -> bool:
    return isinstance(first, int | float) and isinstance(second, int | float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_FIGURE


def _most_moved(column: str, before: Scenario, now: Scenario) -> str | None:
    """The ledger line that moved the figure most: by bytes, as shares of what its kind is measured against."""
    parts = _PARTS.get(column.removesuffix("_low").removesuffix("_high"), ())
    share = {name: _share(name, before, now) for name in (*before.ledger, *now.ledger) if name.startswith(parts)}
    most = max(share, key=lambda name: share[name], default=None)
    return most if most is not None and share[most] > 0 else None


def _share(name: str, before: Scenario, now: Scenario) -> float:
    """A change of a conversation counts against the conversation, any other against the pool that holds them."""
    moved = abs(now.ledger.get(name, 0) - before.ledger.get(name, 0))
    whole = "kv_bytes_per_session" if name.startswith("session/") else "kv_budget_bytes"
    return moved / max(1, abs(_number(before.figures.get(whole))), abs(_number(now.figures.get(whole))))


def _number(value: Any) -> int | float:
    return value if _is_number(value) else 0


def gone(baseline: Baseline, found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Scenarios of the baseline that are no longer there."""
    there = set(found)
    return [key for key in baseline.scenarios if key not in there]
