"""What people install works where they install it: a wheel, an editable install, a checkout. No network is used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import typer
import yaml

from kvplan import __version__

ROOT = Path(__file__).resolve().parent.parent
ZOO_FILES = {str(file.relative_to(ROOT)) for kind in ("yaml", "json") for file in ROOT.glob(f"model_zoo/*/*.{kind}")}
BUILD_EDITABLE = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
WHERE = "from kvplan.specs.zoo import zoo_dir; print(zoo_dir('models'))"


class Environment:
    """A fresh virtual environment that sees the libraries of this one, but no kvplan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        libraries = dict.fromkeys(str(Path(str(package.__file__)).parent.parent) for package in (typer, yaml))
        site = next((folder / "lib").glob("python*/site-packages"))
        # A path in a .pth file is searched, but the .pth files in it are not: an editable kvplan stays unseen.
        (site / "libraries.pth").write_text("\n".join(libraries), encoding="utf-8")

    def install(self, wheel: Path) -> None:
        _run([sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--no-index", "--no-deps",
              "--disable-pip-version-check", "--quiet", str(wheel)], self.folder)  # fmt: skip

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        return _run([str(self.bin / arguments[0]), *arguments[1:]], cwd or self.folder)


def _run(command: list[str], cwd: Path) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as a package index would hold it."""
    folder = tmp_path_factory.mktemp("dist")
    _run([sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    assert [path.name for path in folder.glob("*.tar.gz")] == [f"kvplan-{__version__}.tar.gz"]
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_zoo_and_the_types(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {f"kvplan/{name}" for name in ZOO_FILES} <= held
    assert "kvplan/py.typed" in held
    assert {name.split("/")[0] for name in held} == {"kvplan", f"kvplan-{__version__}.dist-info"}


def test_the_wheel_needs_no_torch_and_no_numbers_library(wheel: Path) -> None:
    metadata = zipfile.ZipFile(wheel).read(f"kvplan-{__version__}.dist-info/METADATA").decode()
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    names = {re.split(r"[<>=~! ]", line.removeprefix("Requires-Dist: "))[0] for line in needed}
    assert {"typer", "rich", "pyyaml"} <= names <= {"typer", "click", "rich", "pyyaml"}


def test_an_installed_wheel_works(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    assert environment.run("python", "-c", WHERE).strip().startswith(str(tmp_path / "venv"))
    assert "a100-80g" in environment.run("kvplan", "gpus")
    estimated = environment.run("kvplan", "estimate", "--model", "mistral-7b", "--gpu", "a100-80g")
    assert "115 conversations of 4,096 tokens fit" in estimated
    assert environment.run("python", "-m", "kvplan", "--version") == f"kvplan {__version__}\n"


def test_an_editable_install_uses_the_zoo_of_the_checkout(tmp_path: Path) -> None:
    _run([sys.executable, "-c", BUILD_EDITABLE, str(tmp_path)], ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    environment = Environment(tmp_path / "venv")
    environment.install(wheel)
    assert environment.run("python", "-c", WHERE).strip() == str(ROOT / "model_zoo" / "models")
    assert "a100-80g" in environment.run("kvplan", "gpus")


def test_a_checkout_works_without_an_install(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    assert environment.run("python", "-c", WHERE, cwd=ROOT).strip() == str(ROOT / "model_zoo" / "models")
    assert "a100-80g" in environment.run("python", "-m", "kvplan", "gpus", cwd=ROOT)
