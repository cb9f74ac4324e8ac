"""Golden files: the literal output of every view. `pytest tests/report --update-golden` rewrites them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files; review the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with the file of that name, byte by byte."""
    # The option is known only where this folder is named on the command line.
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        file = HERE / "golden" / name
        if update:
            file.write_bytes(text.encode())
        assert text == file.read_bytes().decode()

    return compare


def sample(name: str) -> list[dict[str, Any]]:
    """Rows as an estimate gives them: fits, nofit, kvbudget, windowed, explained, whatif (12 of them)."""
    rows: list[dict[str, Any]] = json.loads((HERE / "rows" / f"{name}.json").read_text(encoding="utf-8"))
    return rows
