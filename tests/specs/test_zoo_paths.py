"""Finding the zoo in a checkout and in an installed package, and keeping its index true."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kvplan
from kvplan.errors import InputError
from kvplan.specs import zoo

PACKAGE = Path(kvplan.__file__).parent
KINDS = ("gpus", "models")


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_is_what_the_files_say(kind: str) -> None:
    assert zoo.aliases(kind) == zoo.build_index(kind), f"run zoo.write_index('{kind}')"


@pytest.mark.parametrize("kind", KINDS)
def test_every_alias_means_a_file(kind: str) -> None:
    assert set(zoo.aliases(kind).values()) <= set(zoo.names(kind))


def test_the_index_is_written_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "zoo_dir", lambda _: tmp_path)
    (tmp_path / "b.yaml").write_text("name: b\naliases: [Zulu, Org/B]\n", encoding="utf-8")
    (tmp_path / "a.yaml").write_text("name: a\n", encoding="utf-8")
    zoo.write_index("models")
    text = (tmp_path / "index.json").read_text(encoding="utf-8")
    assert list(json.loads(text).items()) == [("org/b", "b"), ("zulu", "b")]
    assert zoo.find("models", "ORG/B") == tmp_path / "b.yaml"


@pytest.mark.parametrize("alias", ["a", "A", "same"])
def test_a_name_for_two_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alias: str) -> None:
    monkeypatch.setattr(zoo, "zoo_dir", lambda _: tmp_path)
    (tmp_path / "a.yaml").write_text("name: a\naliases: [same]\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text(f"name: b\naliases: [{alias}]\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"b\.yaml: alias '{alias}' already stands for a"):
        zoo.build_index("gpus")


def test_a_zoo_without_an_index_still_has_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "zoo_dir", lambda _: tmp_path)
    (tmp_path / "a.yaml").write_text("name: a\n", encoding="utf-8")
    assert zoo.lookup("gpus", "a") == "a"
    assert zoo.lookup("gpus", "b") is None


def test_an_unknown_model_is_refused_with_the_command_that_lists_them() -> None:
    with pytest.raises(InputError, match="unknown model '0000'; see `kvplan models`"):
        zoo.find("models", "0000")


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".YAML"])
def test_a_yaml_suffix_makes_a_path(suffix: str) -> None:
    assert zoo.is_path(f"mine{suffix}")


def test_a_folder_is_a_path_once_it_is_there(tmp_path: Path) -> None:
    assert not zoo.is_path("mistralai/Mistral-7B-v0.3")
    assert not zoo.is_path("h100-sxm")
    assert zoo.is_path(str(tmp_path))


FIND = "from kvplan.specs import zoo; print(zoo.find('gpus', 'rtx4090'))"


def run_from(site: Path, cwd: Path, code: str = FIND) -> subprocess.CompletedProcess[str]:
    # -S and -P: neither an installed kvplan nor the working directory may help; PyYAML is not needed to find a file
    command = [sys.executable, "-S", "-P", "-c", code]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(site)}, cwd=cwd, capture_output=True, text=True, check=False
    )


def copy_package(site: Path) -> None:
    shutil.copytree(PACKAGE, site / "kvplan", ignore=shutil.ignore_patterns("__pycache__", "model_zoo"))


@pytest.mark.parametrize("inside", ["kvplan/model_zoo", "model_zoo"], ids=["wheel", "checkout"])
def test_the_zoo_is_found_wherever_the_package_is(tmp_path: Path, inside: str) -> None:
    site = tmp_path / "site"
    copy_package(site)
    shutil.copytree(zoo.zoo_dir("gpus"), site / inside / "gpus")
    done = run_from(site, tmp_path)
    assert done.stdout.strip() == str(site / inside / "gpus" / "rtx-4090.yaml"), done.stderr


def test_a_missing_zoo_is_told(tmp_path: Path) -> None:
    site = tmp_path / "site"
    copy_package(site)
    done = run_from(site, tmp_path)
    assert "this installation of kvplan lacks its model_zoo/gpus folder; install kvplan again" in done.stderr


def test_one_name_opens_one_spec_file(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Path.open

    def watched(self: Path, *args: object, **kwargs: object) -> object:
        opened.append(self.name)
        return real(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", watched)
    from kvplan.specs.gpu_lookup import parse_gpu

    parse_gpu("rtx4090")
    assert [name for name in opened if name.endswith(".yaml")] == ["rtx-4090.yaml"]
