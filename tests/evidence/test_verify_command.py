"""kvplan verify: exit codes, formats, streams, mistakes, and the examples of docs/verify.md."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from kvplan.cli.main import main

DATA = Path(__file__).resolve().parent.parent / "data" / "logs"
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "verify.md"
LOG = str(DATA / "v0.19-llama-3.1-8b.log")
Capsys = pytest.CaptureFixture[str]


def run(capsys: Capsys, *argv: str) -> tuple[int, str, str]:
    code = main(["verify", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_exit_codes(capsys: Capsys) -> None:
    assert run(capsys, LOG)[0] == 0
    assert run(capsys, LOG, "--memory-fraction", "0.8")[0] == 1
    assert run(capsys, LOG, "--memory-fraction", "0.8", "--tolerance", "50%")[0] == 0
    assert run(capsys, LOG, "--tolerance", "0")[0] == 1


def test_formats_tell_the_same(capsys: Capsys) -> None:
    rows = json.loads(run(capsys, LOG, "-f", "json")[1])
    lines = [json.loads(line) for line in run(capsys, LOG, "-f", "jsonl")[1].splitlines()]
    assert rows == lines
    cells = list(csv.DictReader(io.StringIO(run(capsys, LOG, "-f", "csv")[1])))
    assert [row["quantity"] for row in cells] == [row["quantity"] for row in rows]
    assert json.loads(cells[0]["run"]) == rows[0]["run"]
    markdown = run(capsys, LOG, "-f", "markdown")[1]
    assert "kv_budget_bytes" in markdown


def test_notes_go_to_standard_error(capsys: Capsys) -> None:
    code, out, err = run(capsys, str(DATA / "v0.8-deepseek-v2-lite-too-long.log"), "-f", "json")
    rows = json.loads(out)
    assert code == 0
    assert rows[0]["run"]["model"] == "deepseek-v2-lite"
    assert "note: it would fit with --max-model-len" in err


def test_two_engines_in_one_file(capsys: Capsys) -> None:
    code, out, _ = run(capsys, str(DATA / "v0.15-and-v0.17-qwen3-14b.log"), "--gpu", "h100-sxm", "--max-seqs", "1024")
    assert code == 0
    assert out.count("qwen3-14b on h100-sxm") == 2


def test_a_start_that_repeats_is_shown_once(capsys: Capsys, tmp_path: Path) -> None:
    text = (DATA / "v0.21-llama-3.1-8b-card-in-use.log").read_text(encoding="utf-8")
    path = tmp_path / "loop.log"
    path.write_text("".join(text.replace("pid=90", f"pid={n}") for n in range(100)), encoding="utf-8")
    _, out, err = run(capsys, str(path))
    assert out.count("The start failed:") == 1
    assert "100 starts in the log" in err


def test_standard_input(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO(Path(LOG).read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert run(capsys, "-")[0] == 0


def test_encodings(capsys: Capsys, tmp_path: Path) -> None:
    text = Path(LOG).read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-8-sig"):
        path = tmp_path / f"{encoding}.log"
        path.write_text(text, encoding=encoding)
        assert run(capsys, str(path))[0] == 0


def test_the_output_file(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert run(capsys, LOG, "-o", str(path))[0] == 0
    assert json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name a log file, or a running server's page"),
        ([LOG, "--metrics", "x"], "one of the two"),
        (["no-such.log"], "no-such.log: No such file"),
        ([str(DATA)], "Is a directory"),
        ([str(DATA / "README.md")], "error: "),
        ([LOG, "--tp", "1,2"], "a log was made under one value"),
        ([LOG, "--tolerance", "lots"], "--tolerance 'lots'"),
        ([LOG, "--tolerance", "-1%"], "expected a share"),
        ([LOG, "--gpu", "h100"], "'h100' is not exact"),
        ([LOG, "--model", "nothing-like-it"], "unknown model"),
        ([LOG, "--engine-version", "banana"], "is not modelled"),
        ([LOG, "--launch", "ls"], "no vLLM server in it"),
        ([LOG, "--format", "yaml"], "unknown format"),
    ],
)
def test_mistakes(argv: list[str], message: str, capsys: Capsys) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def blocks() -> list[tuple[str, str]]:
    found = re.findall(r"^```console\n\$ (kvplan .*?)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    return [(command, shown) for command, shown in found]


@pytest.mark.parametrize(("command", "shown"), blocks(), ids=lambda text: text.split("\n")[0][:50])
def test_the_page_shows_what_happens(command: str, shown: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    main(shlex.split(command)[1:])
    out = capsys.readouterr().out
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in shown.splitlines())
    assert re.fullmatch(pattern, out), out


def test_the_page_has_examples() -> None:
    assert len(blocks()) >= 2
