"""kvplan check: exit codes, formats, baselines, and a sentence for every mistake."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kvplan.cli.main import main

PLAN = """\
deployments:
  chat:
    model: mistral-7b
    gpu: a100-80g
    expect:
      max_sessions: ">= {floor}"
      fits: true
  code:
    model: phi-4
    gpu: 2xa100-80g
    context: [8k, 16k]
tolerances: {{max_sessions: 2%}}
"""

ONE = "deployments:\n  a: {model: phi-4, gpu: t4"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`kvplan check` in a folder with plan.yaml (which passes) and strict.yaml (which does not)."""
    (tmp_path / "plan.yaml").write_text(PLAN.format(floor=100), encoding="utf-8")
    (tmp_path / "strict.yaml").write_text(PLAN.format(floor=200), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)

    def call(*argv: str) -> tuple[int, str, str]:
        code = main(["check", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_exit_code_is_the_answer(run: Run) -> None:
    code, out, err = run("plan.yaml")
    assert (code, err) == (0, "")
    assert out.endswith("passed: 2 checks\n")
    code, out, err = run("strict.yaml")
    assert (code, err) == (1, "")
    assert "strict.yaml:6: chat: max_sessions is 115, wanted >= 200" in out
    assert out.endswith("FAILED: 1 of 2 checks\n")


def test_every_format_tells_the_same(run: Run) -> None:
    rows = json.loads(run("strict.yaml", "--format", "json")[1])
    assert [(row["check"], row["deployment"], row["column"], row["ok"], row["line"]) for row in rows] == [
        ("expect", "chat", "max_sessions", False, 6),
        ("expect", "chat", "fits", True, 7),
    ]
    assert [json.loads(line) for line in run("strict.yaml", "--format", "jsonl")[1].splitlines()] == rows
    table = list(csv.DictReader(io.StringIO(run("strict.yaml", "-f", "csv")[1])))
    assert [(row["wanted"], row["found"], row["ok"]) for row in table] == [
        (">= 200", "115", "false"),
        ("true", "true", "true"),
    ]
    assert run("strict.yaml", "--format", "markdown")[1].startswith("**FAILED: 1 of 2 checks**\n")
    assert ElementTree.fromstring(run("strict.yaml", "--format", "junit")[1].encode()).get("failures") == "1"
    assert run("strict.yaml", "--format", "github")[1].startswith(
        "::error file=strict.yaml,line=6,title=chat%3A max_sessio"
    )


def test_output_chooses_the_format_and_the_outcome_is_told(run: Run, tmp_path: Path) -> None:
    code, out, err = run("strict.yaml", "--output", "report.xml")
    assert (code, out, err) == (1, "", "FAILED: 1 of 2 checks; see report.xml\n")
    assert ElementTree.parse(tmp_path / "report.xml").getroot().tag == "testsuites"
    assert run("plan.yaml", "-o", "report.json")[2] == "passed: 2 checks; see report.json\n"
    assert len(json.loads((tmp_path / "report.json").read_text())) == 2


def test_a_baseline_is_kept_and_compared(run: Run, tmp_path: Path) -> None:
    code, _, err = run("plan.yaml", "--write-baseline", "base.json")
    assert (code, err) == (0, "note: 3 scenarios kept in base.json\n")
    code, out, _ = run("plan.yaml", "--baseline", "base.json")
    assert code == 0
    assert "against base.json (kvplan 0.1.0)\n30 figures as before\n" in out
    text = (tmp_path / "plan.yaml").read_text()

    (tmp_path / "plan.yaml").write_text(text.replace("    expect:", "    reserve: 4GiB\n    expect:"))
    code, out, _ = run("plan.yaml", "--baseline", "base.json")
    assert code == 1
    assert "  overhead_bytes            0 B   4.00 GiB  +4.00 GiB  worse\n" in out
    assert "  max_sessions              115        107     -6.96%  worse, beyond 2%\n" in out
    assert "most of it from overhead/reserve +4.00 GiB" in out

    (tmp_path / "plan.yaml").write_text(text.replace("a100-80g", "h200-sxm"))
    code, out, _ = run("plan.yaml", "--baseline", "base.json", "--format", "json")
    assert code == 0  # more of everything; another card is told
    verdicts = {row["column"]: row["verdict"] for row in json.loads(out) if row["check"] == "baseline"}
    assert (verdicts["gpu"], verdicts["max_sessions"], verdicts["weights_bytes"]) == ("changed", "better", "same")

    (tmp_path / "plan.yaml").write_text(text.replace("16k", "32k"))
    code, out, _ = run("plan.yaml", "--baseline", "base.json")
    assert code == 1
    assert "code (context=32768): new\ncode (context=16384): gone\n" in out
    assert run("plan.yaml", "--baseline", "base.json", "--only", "chat")[0] == 0
    assert run("plan.yaml", "--write-baseline", "base.json")[0] == 0  # the advice for scenarios that are gone
    assert run("plan.yaml", "--baseline", "base.json")[0] == 0


def test_a_baseline_of_another_kvplan_is_compared_with_a_note(run: Run, tmp_path: Path) -> None:
    run("plan.yaml", "--write-baseline", "base.json")
    text = (tmp_path / "base.json").read_text()
    (tmp_path / "base.json").write_text(text.replace('"kvplan_version": "0.1.0"', '"kvplan_version": "0.0.9"'))
    code, _, err = run("plan.yaml", "--baseline", "base.json")
    assert (code, err) == (0, "note: base.json was written by kvplan 0.0.9, this is 0.1.0\n")
    (tmp_path / "base.json").write_text(text.replace('"kvplan_baseline": 1', '"kvplan_baseline": 2'))
    code, out, err = run("plan.yaml", "--baseline", "base.json")
    assert (code, out) == (2, "")
    assert "--baseline base.json has format 2, and kvplan 0.1.0 reads format 1; write it again with --write" in err


def test_a_job_summary_is_added_to_the_page(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert run("strict.yaml", "--format", "github")[0] == 1
    assert page.read_text().startswith("before\n## kvplan check\n\n**FAILED: 1 of 2 checks**\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "x"))
    code, _, err = run("plan.yaml", "--format", "github")
    assert (code, err) == (0, "note: no job summary: No such file or directory\n")


def test_annotations_name_the_file_from_the_top_of_the_repository(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    assert f"::error file={tmp_path.name}/strict.yaml,line=6," in run("strict.yaml", "--format", "github")[1]
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    assert "::error file=strict.yaml,line=6," in run("strict.yaml", "--format", "github")[1]


MISTAKES = [
    ([], "Missing argument 'PLAN'"),
    (["none.yaml"], "none.yaml: there is no such file"),
    (["."], ".: this is a directory"),
    (
        ["plan.yaml", "--only", "chta"],
        "--only: plan.yaml has no deployment 'chta'; did you mean 'chat'? it has chat, code",
    ),
    (["plan.yaml", "--only", "code"], "plan.yaml: there is nothing to check; give a deployment `expect`"),
    (["plan.yaml", "--format", "junt"], "unknown format 'junt'; did you mean 'junit'? a check can be table, json"),
    (["plan.yaml", "--format", "parquet"], "unknown format 'parquet'"),
    (["plan.yaml", "--output", "x.txt"], "--output x.txt: unknown suffix '.txt'"),
    (["plan.yaml", "--output", "none/x.xml"], "--output none/x.xml: there is no folder none"),
    (["plan.yaml", "--write-baseline", "none/x"], "--write-baseline none/x: there is no folder none"),
    (["plan.yaml", "--write-baseline", "."], "--write-baseline . is a folder"),
    (["plan.yaml", "--write-baseline", "b", "--only", "chat"], "--write-baseline keeps the whole plan; leave --only"),
    (["plan.yaml", "--write-baseline", "plan.yaml"], "--write-baseline plan.yaml is the plan itself"),
    (["plan.yaml", "--output", "plan.yaml", "-f", "json"], "--output plan.yaml is the plan itself"),
    (["plan.yaml", "--output", "b.json", "--write-baseline", "./b.json"], "are the same file, b.json; choose two"),
    (["plan.yaml", "--output", "b.json", "--baseline", "b.json"], "--output b.json is the baseline itself"),
    (["plan.yaml", "--baseline", "none.json"], "--baseline none.json: there is no such file; write it with --write"),
    (["plan.yaml", "--baseline", "plan.yaml"], "--baseline plan.yaml is not a baseline of kvplan"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[" ".join(argv)[:60] or "nothing" for argv, _ in MISTAKES])
def test_a_mistake_is_a_sentence(run: Run, argv: list[str], message: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert sorted(tmp_path.iterdir()) == before  # nothing is half written


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "plan.yaml: the file is empty"),
        ("- a\n", "plan.yaml:1: top level: expected a mapping, got a list"),
        ("deployments: {}\n", "plan.yaml:1: deployments: there is no deployment"),
        (f"{ONE}, expect: {{sessions: 1}}}}\n", "plan.yaml:2: deployments.a.expect: unknown column 'sessions'"),
        (f"{ONE}, expect: {{gpu: '>= 1'}}}}\n", "plan.yaml:2: deployments.a.expect.gpu: 'gpu' holds text"),
        (f"{ONE}, tp: 3, expect: {{fits: true}}}}\n", "plan.yaml:2: deployments.a: tp 3 is not possible"),
        ('deployments:\n  "a\\x1b[31m": {model: phi-4}\n', "plan.yaml:2: deployments: a key with a control character"),
        (f"{ONE}}}\n  a: {{model: phi-4}}\n", "key 'a' appears twice (first on line 2)"),
    ],
)
def test_a_wrong_plan_is_told_by_line(run: Run, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "plan.yaml").write_text(content, encoding="utf-8")
    code, out, err = run("plan.yaml")
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown", "junit", "github"])
def test_names_with_marks_of_every_format(run: Run, tmp_path: Path, form: str) -> None:
    name = "=1+1|`]]>&<b>\\\"'::,%0A \u00e9\U0001f600"
    quoted = json.dumps(name, ensure_ascii=False)
    (tmp_path / "plan.yaml").write_text(
        f"deployments:\n  {quoted}: {{model: phi-4, gpu: t4, expect: {{max_sessions: '>= 1'}}}}\n", encoding="utf-8"
    )
    code, out, _ = run("plan.yaml", "--format", form)
    assert code == 1
    if form == "junit":
        assert ElementTree.fromstring(out.encode())[0].get("name") == name
    if form == "csv":
        assert next(csv.DictReader(io.StringIO(out)))["deployment"] == f"'{name}"  # no spreadsheet runs it


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_a_sentence(run: Run) -> None:
    code, _, err = run("plan.yaml", "--write-baseline", "/dev/full")
    assert code == 2
    assert "No space left on device" in err
    assert "kept" not in err


def test_a_check_loads_no_more_than_it_needs(run: Run) -> None:
    script = "import sys; from kvplan.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script, "check", "plan.yaml", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "kvplan" in loaded
    assert not loaded & {"rich", "numpy", "pandas", "torch", "xml"}
