"""Options of the test run that every folder shares."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-readme",
        action="store_true",
        help="rewrite the outputs and tables shown in README.md and docs/; review the diff",
    )
