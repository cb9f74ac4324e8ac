"""Rows of a check as the planner gives them, for the tests of its formats."""

from __future__ import annotations

from typing import Any

HOSTILE = "]]><b>&\"'\x00\x1b[31m\r\n::error::x\ud800\ufffe,:%0A=1+1|`"


def expected(**changed: Any) -> dict[str, Any]:
    """An expectation that failed."""
    return {
        "check": "expect",
        "deployment": "chat",
        "scenario": "",
        "column": "max_sessions",
        "wanted": ">= 200",
        "found": 115,
        "ok": False,
        "line": 7,
        "limited_by": "kv",
        "ledger_line": "max_sessions",
        "formula": "dp * max(0, (kv_budget_bytes - prefix_bytes) // kv_bytes_per_session)",
        "terms": {"kv_budget_bytes": 61_991_951_728, "prefix_bytes": 0, "kv_bytes_per_session": 536_870_912, "dp": 1},
        **changed,
    }


def passed(**changed: Any) -> dict[str, Any]:
    """An expectation that holds."""
    why = dict.fromkeys(("limited_by", "ledger_line", "formula", "terms"))
    return expected(**{"wanted": ">= 100", "ok": True, **why, **changed})


def moved(**changed: Any) -> dict[str, Any]:
    """A figure that is worse than its baseline."""
    return {
        "check": "baseline",
        "deployment": "chat",
        "scenario": "",
        "column": "max_sessions",
        "before": 115,
        "now": 57,
        "change": -58,
        "change_percent": -50.43,
        "tolerance": "2%",
        "verdict": "worse",
        "ok": False,
        "ledger_line": "session/full",
        "ledger_change_bytes": 536_870_912,
        "line": 2,
        **changed,
    }


def better(**changed: Any) -> dict[str, Any]:
    """A figure that is better than its baseline."""
    figures = {"before": 57, "now": 115, "change": 58, "change_percent": 101.75, "ledger_change_bytes": -536_870_912}
    return moved(**{**figures, "verdict": "better", "ok": True, "tolerance": "0", **changed})


def same(**changed: Any) -> dict[str, Any]:
    """A figure that did not move."""
    rest = {"change": 0, "change_percent": 0.0, "ledger_line": None, "ledger_change_bytes": None}
    return moved(**{"now": 115, "verdict": "same", "ok": True, **rest, **changed})


def presence(verdict: str, **changed: Any) -> dict[str, Any]:
    """A scenario that is new or gone."""
    keys = ("column", "before", "now", "change", "change_percent", "tolerance", "ledger_line", "ledger_change_bytes")
    line = 2 if verdict == "new" else None
    rest = {"verdict": verdict, "ok": verdict == "new", "line": line, "scenario": "context=8192"}
    return moved(**{**dict.fromkeys(keys), **rest, **changed})


ALL = [
    expected(),
    passed(),
    moved(),
    better(column="kv_tokens"),
    same(column="fits"),
    presence("new"),
    presence("gone"),
]
