"""A result appears whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from kvplan.errors import InputError
from kvplan.report.output import open_output

as_root = hasattr(os, "geteuid") and os.geteuid() == 0


def write(path: Path | None, text: str) -> None:
    with open_output(path) as out:
        out.write(text)


def fail_half_way(path: Path, error: type[BaseException]) -> None:
    with open_output(path) as out:
        out.write("half")
        out.flush()
        raise error


def left_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write(None, "a\n")
    assert capsys.readouterr().out == "a\n"


def test_a_file_is_written_as_utf8_with_plain_line_ends(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "ä\n\udcff\n")
    assert (tmp_path / "a.csv").read_bytes() == b"\xc3\xa4\n\xff\n"
    assert left_in(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_no_file_and_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    for name in ("new.json", "old.json"):
        with pytest.raises(error):
            fail_half_way(tmp_path / name, error)
    assert left_in(tmp_path) == ["old.json"]
    assert old.read_text() == "old"


def test_the_target_is_untouched_until_the_end(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("old")
    with open_output(old) as out:
        out.write("new")
        out.flush()
        assert old.read_text() == "old"
    assert old.read_text() == "new"


def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(tmp_path: Path) -> None:
    old, new, usual = tmp_path / "old", tmp_path / "new", tmp_path / "usual"
    old.touch()
    old.chmod(0o640)
    usual.touch()
    write(old, "x")
    write(new, "x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert new.stat().st_mode == usual.stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_device_is_written_and_not_replaced() -> None:
    write(Path(os.devnull), "x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_long_name_is_no_trouble(tmp_path: Path) -> None:
    write(tmp_path / ("n" * 250), "x")
    assert left_in(tmp_path) == ["n" * 250]


def refused(path: Path) -> str:
    """What is said, before any work is done."""
    with pytest.raises(InputError) as caught, open_output(path):
        pytest.fail("the work started")
    return str(caught.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert (
        refused(tmp_path) == f"--output {tmp_path} is a folder; name a file in it, such as {tmp_path / 'result.json'}"
    )


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    assert "there is no folder" in refused(tmp_path / "no" / "a.json")
    assert left_in(tmp_path) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a folder" in refused(tmp_path / "file" / "a.json")


@pytest.mark.skipif(as_root, reason="root may write everywhere")
def test_a_protected_place_is_refused(tmp_path: Path) -> None:
    protected = tmp_path / "a.json"
    protected.write_text("old")
    protected.chmod(0o400)
    assert "write-protected" in refused(protected)
    tmp_path.chmod(0o500)
    assert "no permission to write in" in refused(tmp_path / "b.json")
    tmp_path.chmod(0o700)
    assert left_in(tmp_path) == ["a.json"]


@pytest.mark.parametrize(
    ("code", "said"),
    [(errno.EACCES, "no permission to write in"), (errno.EROFS, "Read-only file system; choose another place")],
)
def test_an_unwritable_place_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    def no(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", no)
    assert said in refused(tmp_path / "a.json")


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old = tmp_path / "old.json"
    old.write_text("old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        write(old, "new")
    assert left_in(tmp_path) == ["old.json"]
    assert old.read_text() == "old"
