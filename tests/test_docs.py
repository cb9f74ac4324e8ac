"""The documents in docs/ show what happens and leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from documents import (
    ROOT,
    Example,
    blocks,
    examples,
    matches,
    rewrite,
    rewrite_tables,
    run_example,
    tables,
    write_yaml_files,
)
from generated_tables import SECTIONS, command, command_names, table

from kvplan import estimate
from kvplan.engines import ENGINE_NAMES
from kvplan.schemes import SCHEME_NAMES

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS, ROOT / "CHANGELOG.md"]
COMMAND_LINE = ROOT / "docs" / "command-line.md"
EXAMPLES = [example for page in DOCS for example in examples(page)]
TABLES = [(page, name, text) for page in DOCS for name, text in tables(page)]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_prints_what_is_shown(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    write_yaml_files(example.file, tmp_path)
    monkeypatch.chdir(tmp_path)
    printed = run_example(example)
    if request.config.getoption("--update-readme", default=False):
        rewrite(example, printed)
        return
    if not matches(example.output.text, printed):
        assert printed == example.output.text  # for pytest's diff


def test_arithmetic_agrees_with_kvplan() -> None:
    """A worked example prints its own arithmetic beside kvplan's figure: a line of two whole numbers."""
    page = ROOT / "docs" / "how-numbers-are-computed.md"
    outputs = [example.output.text for example in examples(page) if example.code.language == "python"]
    pairs = [found for text in outputs for found in re.findall(r"^(\d+) (\d+)$", text, flags=re.MULTILINE)]
    assert len(pairs) >= 12
    assert [pair for pair in pairs if pair[0] != pair[1]] == []


@pytest.mark.parametrize(("page", "name", "text"), TABLES, ids=[f"{page.name}: {name}" for page, name, _ in TABLES])
def test_a_table_is_as_the_code_has_it(page: Path, name: str, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-readme", default=False):
        rewrite_tables(page, table)
        return
    assert text == table(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        file = page.parent / target if target else page
        assert file.is_file(), target
        if anchor:
            assert anchor in _anchors(file), f"{target}#{anchor}"


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", command_names())
def test_every_option_of_a_command_is_documented(name: str) -> None:
    text = COMMAND_LINE.read_text(encoding="utf-8")
    assert f"kvplan {name}" in text
    options = [option for p in command(name).params if isinstance(p, click.Option) for option in p.opts]
    assert [option for option in options if f"`{option}`" not in text] == []


def test_every_key_of_a_row_is_documented() -> None:
    text = COMMAND_LINE.read_text(encoding="utf-8")
    keys = [*estimate("mistral-7b", "a100-80g").to_dict(), "error", "tensors", "counts", "work"]
    assert [key for key in keys if f"`{key}`" not in text] == []


def test_every_scheme_and_engine_is_documented() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS)
    assert [name for name in (*SCHEME_NAMES, *ENGINE_NAMES) if f"`{name}`" not in text] == []


def test_every_key_of_a_file_is_documented() -> None:
    shown = {name.removeprefix("keys ") for _, name, _ in TABLES if name.startswith("keys ")}
    assert shown == set(SECTIONS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_output_is_left_empty(page: Path) -> None:
    assert all(block.text for block in blocks(page.read_text(encoding="utf-8")))
