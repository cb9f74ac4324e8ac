"""Everything that README.md shows is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from documents import ROOT, Example, blocks, commands_of, examples, matches, rewrite, run_example, write_yaml_files

README = ROOT / "README.md"


@pytest.mark.parametrize("example", examples(README), ids=str)
def test_an_example_prints_what_is_shown(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    write_yaml_files(README, tmp_path)
    monkeypatch.chdir(tmp_path)
    printed = run_example(example)
    if request.config.getoption("--update-readme", default=False):
        rewrite(example, printed)
        return
    if not matches(example.output.text, printed):
        assert printed == example.output.text  # for pytest's diff


def test_every_kvplan_command_is_followed_by_its_output() -> None:
    shown = {example.code for example in examples(README)}
    commands = [block for block in blocks(README.read_text(encoding="utf-8")) if block.language == "sh"]
    assert [b.text for b in commands if "kvplan" in b.text and b not in shown] == []


def test_the_first_screen_is_a_sentence_a_command_and_its_output() -> None:
    text = README.read_text(encoding="utf-8")
    first = examples(README)[0]
    before = [line for line in text[: first.code.start].splitlines() if line]
    assert len(before) <= 4  # title, sentence, where to type it, fence
    assert first.code.text.endswith("&& .venv/bin/kvplan estimate --model mistral-7b --gpu a100-80g\n")
    assert first.output.text.count("\n") <= 30


def test_ci_runs_the_test_command_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    tests = [b for b in blocks(README.read_text(encoding="utf-8")) if b.language == "sh" and "pytest" in b.text]
    assert len(tests) == 1
    (command,) = commands_of(tests[0])
    assert f"\n{command}\n" in ci
