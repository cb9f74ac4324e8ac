"""Completion in bash, zsh and fish: the words that the shell is given, asked as the shell asks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.cli import completion
from kvplan.specs import zoo

SHIM = f'#!/bin/sh\nexec {sys.executable} -m kvplan "$@"\n'


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home of its own, and this kvplan as `kvplan` on the path."""
    home = tmp_path_factory.mktemp("home")
    shim = home / "bin" / "kvplan"
    shim.parent.mkdir()
    shim.write_text(SHIM)
    shim.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("_KVPLAN", "COMP_", "_TYPER"))}
    root = str(Path(completion.__file__).parents[2])
    return {**clean, "HOME": str(home), "PATH": f"{shim.parent}:{clean['PATH']}", "PYTHONPATH": root}


def ask(environment: dict[str, str], shell: str, line: str) -> str:
    """What kvplan answers when a shell completes the end of a line."""
    words = line.split(" ")
    asked = {
        "_KVPLAN_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(["kvplan"], env={**environment, **asked}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def candidates(environment: dict[str, str], shell: str, line: str) -> list[str]:
    """The words alone."""
    answer = ask(environment, shell, line)
    if shell == "zsh":
        return re.findall(r'^(?:_arguments \'\*: :\(\()?"([^"]+)"', answer, flags=re.MULTILINE)
    return [each.partition("\t")[0] for each in answer.splitlines() if each]


LINES = {
    "kvplan es": ["estimate"],
    "kvplan estimate --kv": ["--kv-dtype", "--kv-budget"],
    "kvplan estimate --model mistral-7b,phi-4": ["mistral-7b,phi-4", "mistral-7b,phi-4-mini"],
    "kvplan estimate --gpu 8xh100-": ["8xh100-nvl", "8xh100-pcie", "8xh100-sxm"],
    "kvplan estimate --engine gen": ["generic"],
    "kvplan check --write": ["--write-baseline"],
}


@pytest.mark.parametrize(
    ("shell", "line"),
    [*(("bash", line) for line in LINES), *((shell, line) for shell in ("zsh", "fish") for line in list(LINES)[:4])],
)
def test_each_shell(environment: dict[str, str], shell: str, line: str) -> None:
    assert candidates(environment, shell, line) == LINES[line]


def test_bash_itself(environment: dict[str, str]) -> None:
    """The script that --show-completion prints, run by the shell it is for."""
    script = (
        'eval "$(kvplan --show-completion)"; complete -p kvplan; '
        "COMP_WORDS=(kvplan estimate --gpu a100-80g,8xh100-s); COMP_CWORD=3; _kvplan_completion kvplan; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [shutil.which("bash") or "bash", "--noprofile", "--norc", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["complete -o default -F _kvplan_completion kvplan", "a100-80g,8xh100-sxm"]


@pytest.mark.parametrize(
    ("shell", "sign", "file"),
    [
        ("bash", "complete -o default -F _kvplan_completion kvplan", ".bash_completions/kvplan.sh"),
        ("zsh", "#compdef kvplan", ".zfunc/_kvplan"),
        ("fish", "complete --command kvplan", ".config/fish/completions/kvplan.fish"),
    ],
)
def test_a_shell_is_set_up(environment: dict[str, str], shell: str, sign: str, file: str) -> None:
    chosen = {**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # named, not found out
    done = subprocess.run(
        ["kvplan", "--install-completion", shell], env=chosen, capture_output=True, text=True, check=True
    )
    assert f"{shell} completion installed" in done.stdout
    assert sign in (Path(environment["HOME"]) / file).read_text()


def test_names_are_from_the_zoo_and_as_they_are_typed() -> None:
    assert completion.models("") == zoo.names("models")
    assert completion.models("mistralai/Mistral-7B-v") == [
        "mistralai/Mistral-7B-v" + name.removeprefix("mistralai/mistral-7b-v")
        for name in zoo.aliases("models")
        if name.startswith("mistralai/mistral-7b-v")
    ]
    assert completion.gpus("loc") == ["local"]
    assert completion.gpus("16xa100-80g-") == ["16xa100-80g-pcie"] or "16xa100-80g-pcie" in completion.gpus(
        "16xa100-80g-"
    )
    assert completion.gpus("8x") == [f"8x{name}" for name in zoo.names("gpus")]
    assert not any(" " in name for start in ("n", "nv", "am", "8xn") for name in completion.gpus(start))


def test_a_list_is_completed_at_its_end() -> None:
    assert completion.models("phi-4,phi-4") == ["phi-4,phi-4-mini"]  # not twice
    assert completion.engines("generic,t") == ["generic,textbook"]
    assert "fp8,awq" in completion.weights("fp8,a")
    assert completion.kv_dtypes("bf16,q8_0/q4_") == ["bf16,q8_0/q4_1", "bf16,q8_0/q4_0"]
    assert completion.kv_dtypes("au") == ["auto"]
    assert completion.formats("j") == ["json", "jsonl"]
    assert completion.check_formats("j") == ["json", "jsonl", "junit"]
    assert completion.schema_kinds("p") == ["plan"]


def test_no_name_is_a_nuisance() -> None:
    for start in ("zzz", "\u00e9", "'", '"', "$(", ",", ",,", "8x8x", "x", "999999999999x"):
        assert isinstance(completion.gpus(start) + completion.models(start), list)


def test_completing_a_name_reads_no_yaml(environment: dict[str, str]) -> None:
    script = "import sys; from kvplan.cli.completion import *; models('m'); gpus('8xh'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"yaml", "typer", "rich", "numpy"}
