"""Logs that ship with the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.evidence.logs import EngineLog, read_log

LOGS = Path(__file__).resolve().parent.parent / "data" / "logs"


@pytest.fixture(scope="session")
def text_of() -> Callable[[str], str]:
    """The text of a log by the beginning of its name."""

    def text(start: str) -> str:
        (path,) = LOGS.glob(f"{start}*log")
        return path.read_text(encoding="utf-8")

    return text


@pytest.fixture(scope="session")
def log_of(text_of: Callable[[str], str]) -> Callable[[str], EngineLog]:
    """The one engine of a log by the beginning of its name."""

    def log(start: str) -> EngineLog:
        (found,) = read_log(text_of(start))
        return found

    return log
