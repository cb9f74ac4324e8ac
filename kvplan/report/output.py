"""Where a result goes: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TextIO

from kvplan.errors import InputError


class _Given(NamedTuple):
    """The path as it was given, and how an error names it."""

    path: Path
    told: str


@contextmanager
def open_output(path: Path | None, option: str = "--output") -> Iterator[TextIO]:
    """A text stream for the result. A file that cannot be written fails here, before the work starts.

    The text goes to a temporary file in the same folder, which takes the place of the target at the end; on any
    exception it is removed, and what was at the target stays. Errors name the `option` that gave the path.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    given = _Given(path, f"{option} {path}".lstrip())
    target = Path(os.path.realpath(path))  # through links: the file they point to is replaced, not the link
    mode = _mode_of(target, given)
    if mode is not None and not stat.S_ISREG(mode):
        with _opened(target, given) as stream:  # a pipe or device such as /dev/stdout cannot be replaced
            yield stream
        return
    temporary = target.with_name(f".kvplan-{os.urandom(8).hex()}.tmp")
    stream = _opened(temporary, given, flags=os.O_EXCL)
    try:
        yield stream
        _put_in_place(stream, temporary, target, given, mode)
    except BaseException:
        with suppress(OSError):
            stream.close()
        with suppress(OSError):
            temporary.unlink()
        raise


def _mode_of(target: Path, given: _Given) -> int | None:
    """The mode of what is there now, None where nothing is; InputError where it cannot be written over."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(given, error) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{given.told} is a folder; name a file in it, such as {given.path / 'result.json'}")
    if not os.access(target, os.W_OK):
        raise InputError(f"{given.told} is write-protected; choose another name or make it writable")
    return mode


def _opened(target: Path, given: _Given, flags: int = 0) -> TextIO:
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | flags, 0o666)
    except OSError as error:
        raise _refusal(given, error) from error
    # surrogateescape: a file name that is not UTF-8 is written as the bytes it came from
    return open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="")


def _put_in_place(stream: TextIO, temporary: Path, target: Path, given: _Given, mode: int | None) -> None:
    try:
        stream.close()  # a full disk may show only here
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(target)
    except OSError as error:
        raise _refusal(given, error) from error


def _refusal(given: _Given, error: OSError) -> InputError:
    """Why the place cannot be written, and what to do about it."""
    folder = given.path.parent
    if isinstance(error, FileNotFoundError) and os.path.isdir(folder):  # /proc is there and takes no file
        return InputError(f"{given.told}: no file can be made in {folder}; choose another place")
    if isinstance(error, FileNotFoundError):
        return InputError(f"{given.told}: there is no folder {folder}; create it first, or choose another place")
    if isinstance(error, NotADirectoryError):
        return InputError(f"{given.told}: {folder} is not a folder; choose another place")
    if isinstance(error, PermissionError):
        return InputError(f"{given.told}: no permission to write in {folder}; choose another place")
    return InputError(f"{given.told}: {error.strerror or error}; choose another place")
