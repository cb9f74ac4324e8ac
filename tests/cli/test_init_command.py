"""kvplan init: a plan that passes at once, and never over someone's own; kvplan schema plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cli.init import STARTER
from kvplan.cli.main import main


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("argv", "written"),
    [([], "plan.yaml"), (["sub"], "sub/plan.yaml"), (["my.yaml"], "my.yaml"), (["sub/my.yml"], "sub/my.yml")],
)
def test_a_new_plan_passes(argv: list[str], written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    assert main(["init", *argv]) == 0
    assert capsys.readouterr() == (f"wrote {written}; now run: kvplan check {written}\n", "")
    assert (tmp_path / written).read_text(encoding="utf-8") == STARTER
    assert main(["check", written]) == 0
    assert "passed: 6 checks" in capsys.readouterr().out


def test_a_plan_is_not_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("mine")
    assert main(["init"]) == 2
    assert capsys.readouterr().err == (
        "error: plan.yaml is there already; choose another name, or say --force to overwrite it\n"
    )
    assert path.read_text() == "mine"
    assert main(["init", "--force"]) == 0
    assert path.read_text(encoding="utf-8") == STARTER


def test_places_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.txt").write_text("")
    for place, message in (
        ("none", "error: none/plan.yaml: there is no folder none"),
        ("file.txt", "error: file.txt is a file, and no .yaml; name a folder or a .yaml file"),
        ("none/x.yaml", "error: none/x.yaml: there is no folder none"),
        ("/proc", "error: /proc/plan.yaml: no file can be made in /proc; choose another place\n"),
        ("/dev/null", "error: /dev/null/plan.yaml: /dev/null is not a folder; choose another place\n"),
        ("n" * 300, f"error: {'n' * 300}/plan.yaml: File name too long; choose another place\n"),
    ):
        assert main(["init", place]) == 2
        assert capsys.readouterr().err.startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_the_comments_of_a_new_plan_fit_a_screen() -> None:
    assert all(len(line) <= 120 for line in STARTER.splitlines())
    assert len(STARTER.splitlines()) <= 30


def test_the_schema_of_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "plan"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["required"] == ["deployments"]
    deployment = schema["properties"]["deployments"]["additionalProperties"]
    assert deployment["required"] == ["model"]
    assert "max_sessions" in deployment["properties"]["expect"]["properties"]
