"""Markdown that cannot rot: examples that are run, tables that are generated, and their refresh.

A block of `sh` or `python` followed by a block of `text` is an example and its output. A line `...` of the output
stands for any lines. A block of `yaml` whose first line is a comment with a file's name is that file.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kvplan.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
ELIDED = "..."
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_YAML_NAME = re.compile(r"# ([\w.-]+\.yaml)\b")
_COMMAND = re.compile(
    r"(?:\.venv/bin/)?kvplan (?P<argv>.*?)(?: \| (?P<filter>.*?))?(?P<code>; echo \"exit code \$\?\")?"
)
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


class Block(NamedTuple):
    """A fenced block and where its text begins and ends."""

    language: str
    text: str
    start: int
    end: int


class Example(NamedTuple):
    """A block that is run, and the block after it that shows what it prints."""

    file: Path
    line: int
    code: Block
    output: Block

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


def blocks(text: str) -> list[Block]:
    return [Block(m[1], m[2], m.start(2), m.end(2)) for m in _FENCE.finditer(text)]


def examples(file: Path) -> list[Example]:
    """Every runnable block that is followed by its output."""
    text = file.read_text(encoding="utf-8")
    found = blocks(text)
    return [
        Example(file, text.count("\n", 0, code.start), code, output)
        for code, output in pairwise(found)
        if code.language in ("sh", "python") and output.language == "text"
    ]


def commands_of(block: Block) -> list[str]:
    """The command lines of a `sh` block, continued lines joined."""
    return block.text.replace("\\\n", "").strip().split("\n")


def write_yaml_files(file: Path, folder: Path) -> None:
    """The YAML files that a document shows, as the reader would have saved them."""
    for block in blocks(file.read_text(encoding="utf-8")):
        name = _YAML_NAME.match(block.text) if block.language == "yaml" else None
        if name:
            (folder / name[1]).write_text(block.text, encoding="utf-8")


def run_example(example: Example) -> str:
    """What the example prints: standard output, then standard error."""
    if example.code.language == "python":
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(example.code.text, str(example.file), "exec"), {"__name__": "__main__"})
        return printed.getvalue()
    return "".join(_run_command(line) for line in commands_of(example.code))


def _run_command(line: str) -> str:
    found = _COMMAND.fullmatch(line.rpartition(" && ")[2])
    assert found, f"not a kvplan command: {line}"
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(found["argv"]))
    printed = _filtered(out.getvalue(), found["filter"]) if found["filter"] else out.getvalue()
    return printed + err.getvalue() + (f"exit code {code}\n" if found["code"] else "")


def _filtered(text: str, command: str) -> str:
    for value in [text] if text.startswith("[\n") else text.splitlines():
        json.loads(value)
    program = shlex.split(command)
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    return subprocess.run(program, input=text, capture_output=True, text=True, check=True).stdout


def matches(expected: str, printed: str) -> bool:
    """Whether the output is as shown, `...` standing for any lines."""
    pattern = "".join(r"(?:.*\n)*" if line == ELIDED else re.escape(line) + "\n" for line in expected.splitlines())
    return re.fullmatch(pattern, printed) is not None


def refreshed(expected: str, printed: str) -> str:
    """What to show instead: the new output, with the same parts left out."""
    if matches(expected, printed):
        return expected
    if ELIDED not in expected.splitlines():
        return printed
    new = printed.splitlines()
    shown: list[str] = []
    for part in re.split(r"^\.\.\.\n", expected, flags=re.MULTILINE):
        shown += [ELIDED, *_nearest_run(part.splitlines(), new)]
    return "\n".join(shown[1:]) + "\n"


def _nearest_run(part: list[str], new: list[str]) -> list[str]:
    """As many lines of the new output as the part has, where they are most like it."""
    if not part:
        return []
    starts = range(max(1, len(new) - len(part) + 1))
    best = max(starts, key=lambda i: SequenceMatcher(None, "\n".join(part), "\n".join(new[i : i + len(part)])).ratio())
    return new[best : best + len(part)]


def rewrite(example: Example, printed: str) -> None:
    """Put the output into the document."""
    text = example.file.read_text(encoding="utf-8")
    current = next(e for e in examples(example.file) if e.code.text == example.code.text)
    shown = refreshed(current.output.text, printed)
    example.file.write_text(text[: current.output.start] + shown + text[current.output.end :], encoding="utf-8")


def tables(file: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every generated table."""
    for found in _TABLE.finditer(file.read_text(encoding="utf-8")):
        yield found[2], found[3]


def rewrite_tables(file: Path, table: Callable[[str], str]) -> None:
    """Generate the tables of a document again."""
    text = file.read_text(encoding="utf-8")
    file.write_text(_TABLE.sub(lambda m: m[1] + table(m[2]) + m[4], text), encoding="utf-8")
