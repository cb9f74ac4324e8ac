"""action.yml and the pipelines of docs/ci.md: their shell lines, run as a runner runs them, with this kvplan."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step}
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")  # GitHub's `shell: bash`
KVPLAN = f'#!/bin/sh\nexec {sys.executable} -m kvplan "$@"\n'
RECORD = '#!/bin/sh\nprintf "%s\\n" "$0" "$@" >> "$RECORD"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with a plan that passes, one that does not, one that is wrong; `kvplan` and a stand-in for pip."""
    (tmp_path / "plan.yaml").write_text("deployments:\n  a: {model: phi-4, gpu: l40s, expect: {fits: true}}\n")
    (tmp_path / "failing.yaml").write_text("deployments:\n  a: {model: phi-4, gpu: t4, expect: {fits: true}}\n")
    (tmp_path / "wrong.yaml").write_text("deployments:\n  a: {model: phi-44, gpu: t4}\n")
    (tmp_path / "bin").mkdir()
    for name, script in (("kvplan", KVPLAN), ("pip", RECORD)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def shell(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "RECORD": str(folder / "record")}
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return subprocess.run(
        [*BASH, lines], cwd=folder, env={**clean, **own, **variables}, capture_output=True, text=True, check=False
    )


def check_step(folder: Path, plan: str, baseline: str = "", args: str = "") -> subprocess.CompletedProcess[str]:
    step = STEPS["Check the plan"]
    assert step["shell"] == "bash"
    values = {"KVPLAN_PLAN": plan, "KVPLAN_BASELINE": baseline, "KVPLAN_ARGS": args}
    assert set(step["env"]) == set(values)
    page = str(folder / "summary.md")
    return shell(step["run"], folder, **values, GITHUB_STEP_SUMMARY=page, GITHUB_WORKSPACE=str(folder))


@pytest.mark.parametrize(
    ("plan", "code", "printed"),
    [
        ("plan.yaml", 0, "passed: 1 check\n"),
        ("failing.yaml", 1, "::error file=failing.yaml,line=2,title=a%3A fits is true::fits is false, wanted true"),
        (
            "wrong.yaml",
            2,
            "::error file=wrong.yaml,line=2,title=kvplan check::deployments.a.model: unknown model 'phi-44'",
        ),
        ("none.yaml", 2, "error: none.yaml: there is no such file"),
    ],
)
def test_the_step_has_the_exit_code_of_the_check(folder: Path, plan: str, code: int, printed: str) -> None:
    done = check_step(folder, plan)
    assert done.returncode == code, done.stderr
    assert printed in done.stdout + done.stderr
    assert (folder / "summary.md").exists() is (code < 2)


def test_the_step_takes_a_baseline_and_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert main(["check", "plan.yaml", "--write-baseline", "my base.json"]) == 0
    done = check_step(folder, "plan.yaml", baseline="my base.json", args="--only a")
    assert (done.returncode, done.stdout) == (0, "passed: 11 checks\n"), done.stderr
    assert "10 figures as before, against `my base.json" in (folder / "summary.md").read_text()


def test_no_input_is_run_as_a_command(folder: Path) -> None:
    for values in ({"plan": "$(touch hacked).yaml"}, {"plan": "plan.yaml", "args": "; touch hacked"},
                   {"plan": 'a"; touch hacked; "'}, {"plan": "plan.yaml", "baseline": "`touch hacked`"}):  # fmt: skip
        assert check_step(folder, **values).returncode == 2
    assert not (folder / "hacked").exists()
    assert not any("${{" in step["run"] for step in STEPS.values())


@pytest.mark.parametrize("source", ["/action/path", "kvplan==0.1.0"])
def test_the_install_step_makes_an_environment_of_its_own(folder: Path, source: str) -> None:
    made = '#!/bin/sh\nmkdir -p "$3/bin"\ncp "$(dirname "$0")/pip" "$3/bin/pip"\n'  # python3 -m venv FOLDER
    (folder / "bin" / "python3").write_text(made)
    (folder / "bin" / "python3").chmod(0o755)
    step = STEPS["Install kvplan"]
    done = shell(step["run"], folder, RUNNER_TEMP=str(folder), GITHUB_PATH=str(folder / "path"), KVPLAN_SOURCE=source)
    assert done.returncode == 0, done.stderr
    assert (folder / "record").read_text().splitlines()[0] == f"{folder}/kvplan/bin/pip"
    assert (folder / "record").read_text().splitlines()[-1] == source
    assert (folder / "path").read_text() == f"{folder}/kvplan/bin\n"


def test_inputs_are_used_and_documented() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert [name for name in ACTION["inputs"] if f"| `{name}` |" not in page] == []
    assert all(each["description"] and "default" in each for each in ACTION["inputs"].values())


def shown(name: str) -> Any:
    """A pipeline of docs/ci.md."""
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    block = re.search(rf"```yaml\n# {re.escape(name)}\n(.*?)```", page, flags=re.DOTALL)
    assert block
    return yaml.safe_load(block[1])


def test_the_workflow_that_is_shown_uses_the_action() -> None:
    (job,) = shown(".github/workflows/capacity.yml")["jobs"].values()
    (step,) = [step for step in job["steps"] if "kvplan" in step["uses"]]
    assert set(step["with"]) <= set(ACTION["inputs"])


@pytest.mark.parametrize(("plan", "code"), [("plan.yaml", 0), ("failing.yaml", 1), ("wrong.yaml", 2)])
def test_the_gitlab_job_that_is_shown(folder: Path, plan: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    if code < 2:
        assert main(["check", plan, "--write-baseline", "baseline.json"]) == code
    (folder / plan).rename(folder / "plan.yaml")
    job = shown(".gitlab-ci.yml")["capacity"]
    done = shell("\n".join(job["script"]), folder, **job["variables"])
    assert done.returncode == code, done.stderr
    assert (folder / "record").read_text().splitlines()[-1] == job["variables"]["KVPLAN"]
    assert (folder / job["artifacts"]["reports"]["junit"]).exists() is (code < 2)
