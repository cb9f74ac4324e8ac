"""The conditions of a run, recorded with every row."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from kvplan import __version__
from kvplan.measure.observe import Observer
from kvplan.measure.observe_cpu import cpu_name
from kvplan.measure.options import Options


def conditions(options: Options, observer: Observer, dtype: str) -> dict[str, Any]:
    """Machine, versions, date and options."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kvplan": __version__,
        "commit": commit(),
        "device": str(observer.device),
        "device_name": observer.name,
        "driver": observer.driver,
        "cuda": torch.version.cuda if observer.device.type == "cuda" else None,
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": dtype,
        "options": options.given(),
    }


def commit() -> str | None:
    """The commit of the checkout that this runs from, with a + when files differ from it; None elsewhere."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    with suppress(OSError, subprocess.SubprocessError):
        head, changed = (
            subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10, check=True)
            for args in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
        return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
    return None
