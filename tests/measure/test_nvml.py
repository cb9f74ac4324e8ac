"""The driver's figures through the real NVML bindings, against a stub driver library compiled here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

pytest.importorskip("pynvml")
SOURCE = Path(__file__).with_name("stub_nvml.c")
NO_PERMISSION, NOT_SUPPORTED, NOT_LOADED, LOST, UNKNOWN = 4, 3, 9, 15, 999

ASK = """
import json, sys, time
from kvplan.measure import nvml
found = nvml.find(sys.argv[1] or None, int(sys.argv[2]))
out = {"reason": found.reason}
if found.device:
    device = found.device
    memory = device.memory()
    out |= {"name": device.name, "driver": device.driver, "slice": device.is_slice}
    out |= {"memory": memory and memory._asdict(), "other": device.process_bytes(1)}
    with nvml.Watch(device, period_s=0.01) as watch:
        time.sleep(0.05)
    out |= {"sample": watch.samples[0]._asdict(), "count": len(watch.samples), "energy": watch.energy_j}
    out |= {"seconds": watch.seconds, "power": watch.mean("power_w"), "hottest": watch.highest("temperature_c")}
    nvml.close()
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with a driver library each: `new`, `old` (one form of the memory question), `none`."""
    if which("gcc") is None:
        pytest.skip("no gcc")
    root = tmp_path_factory.mktemp("drivers")
    for name, flags in (("new", []), ("old", ["-DOLD"])):
        (root / name).mkdir()
        target = str(root / name / "libnvidia-ml.so.1")
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *flags, "-o", target, str(SOURCE)]
        subprocess.run(command, check=True)
    (root / "none").mkdir()
    (root / "none" / "libnvidia-ml.so.1").write_text("no library")
    return root


def ask(folder: Path, uuid: str = "", index: int = 0, **stub: int) -> dict[str, Any]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), **{key: str(value) for key, value in stub.items()}}
    done = subprocess.run(
        [sys.executable, "-c", ASK, uuid, str(index)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_card_says_everything(drivers: Path) -> None:
    found = ask(drivers / "new")
    assert (found["name"], found["driver"], found["slice"]) == ("NVIDIA H100", "580.95.05", False)
    assert found["memory"] == {"total": 1000, "used": 250, "free": 700, "reserved": 50}
    assert found["other"] == 11
    assert found["sample"] == {
        "used_bytes": 250,
        "process_bytes": None,  # this process is not in the stub's list
        "utilisation_percent": 87,
        "power_w": 350.5,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 61,
    }
    assert found["count"] >= 2
    assert (found["power"], found["hottest"]) == (350.5, 61)
    assert found["energy"] == 2.5  # the counter's 2500 mJ between the two looks at it


def test_the_second_card_by_number_and_by_uuid_with_and_without_prefix(drivers: Path) -> None:
    for uuid, index in (("", 1), ("GPU-1", 0), ("1", 0)):
        assert ask(drivers / "new", uuid, index)["name"] == "NVIDIA L4"


def test_a_slice_has_its_own_memory_and_the_cards_power(drivers: Path) -> None:
    found = ask(drivers / "new", "MIG-0")
    assert found["slice"]
    assert found["memory"]["total"] == 100
    assert found["sample"]["utilisation_percent"] is None  # not supported for a slice
    assert found["sample"]["power_w"] == 350.5


def test_an_old_driver_knows_one_form_of_the_memory_question(drivers: Path) -> None:
    assert ask(drivers / "old")["memory"] == {"total": 1000, "used": 300, "free": 700, "reserved": None}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, LOST, UNKNOWN])
def test_what_is_not_said_is_none(drivers: Path, code: int) -> None:
    found = ask(drivers / "new", STUB_ALL=code, STUB_HANDLE=0)
    assert found["memory"] is None  # as on machines whose memory is shared with the CPU
    assert set(found["sample"].values()) == {None}
    assert (found["energy"], found["power"], found["hottest"]) == (None, None, None)


def test_without_a_counter_energy_is_power_times_time(drivers: Path) -> None:
    found = ask(drivers / "new", STUB_ENERGY=NOT_SUPPORTED)
    assert found["energy"] == pytest.approx(350.5 * found["seconds"])


@pytest.mark.parametrize(
    ("folder", "stub", "reason"),
    [
        ("none", {}, "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there)"),
        ("new", {"STUB_INIT": NOT_LOADED}, "the NVIDIA driver is not loaded"),
        ("new", {"STUB_INIT": NO_PERMISSION}, "no permission to ask the NVIDIA driver; run as a user who may"),
        ("new", {"STUB_HANDLE": LOST}, "the NVIDIA driver does not give device number 0"),
    ],
)
def test_no_device_has_a_reason(drivers: Path, folder: str, stub: dict[str, int], reason: str) -> None:
    assert ask(drivers / folder, **stub)["reason"].startswith(reason)


def test_a_uuid_that_is_not_there_is_said(drivers: Path) -> None:
    assert "of UUID GPU-9" in ask(drivers / "new", "GPU-9")["reason"]
