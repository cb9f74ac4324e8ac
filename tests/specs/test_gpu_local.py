"""`--gpu local` through the real NVML bindings, against a stub driver library compiled here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.errors import MissingPackageError
from kvplan.specs import local_gpu

STUB = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static unsigned long long total(void) { return (unsigned long long)number("STUB_MIB", 81559) << 20; }
static int memory_rc(void) { return number("STUB_MEMORY_RC", 0); }
int nvmlInitWithFlags(unsigned flags) { return number("STUB_INIT_RC", 0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int rc) { return "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = number("STUB_COUNT", 1); return number("STUB_COUNT_RC", 0); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) { *handle = &memory_rc; return i ? 2 : 0; }
int nvmlDeviceGetName(void *handle, char *name, unsigned size) {
    const char *v = getenv("STUB_NAME"); strncpy(name, v ? v : "NVIDIA H100 80GB HBM3", size); return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { strncpy(version, "580.95.05", size); return 0; }
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next) {
    int mode = number("STUB_MIG", -1); *now = *next = mode == 1; return mode < 0 ? 3 : 0; }
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *m) { m->total = total(); return memory_rc(); }
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *m) {
    m->total = total(); return m->version == 0x02000028 ? memory_rc() : 25; }
#endif
"""

NOT_SUPPORTED, NOT_LOADED, GPU_IS_LOST = 3, 9, 15  # nvmlReturn_t

ASK = """
import json
from kvplan.errors import KvplanError
from kvplan.specs.gpu_lookup import parse_gpu
try:
    print(json.dumps(parse_gpu("local").gpu.to_dict()))
except KvplanError as error:
    print(json.dumps({"error": str(error), "type": type(error).__name__, "code": error.exit_code}))
"""


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with a driver library each: `new`, `old` (no memory v2), `none` (a file no loader accepts)."""
    root = tmp_path_factory.mktemp("drivers")
    source = root / "stub.c"
    source.write_text(STUB, encoding="utf-8")
    for name, flags in (("new", []), ("old", ["-DOLD"])):
        (root / name).mkdir()
        library = root / name / "libnvidia-ml.so.1"
        build = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *flags, "-o", str(library), str(source)]
        subprocess.run(build, check=True, capture_output=True)  # without gcc this fails, and so it should
    (root / "none").mkdir()
    (root / "none" / "libnvidia-ml.so.1").write_bytes(b"")
    return root


def ask(library: Path, **stub: object) -> dict[str, object]:
    settings = {f"STUB_{name}": str(value) for name, value in stub.items()}
    env = {**os.environ, "LD_LIBRARY_PATH": str(library), **settings}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("library", ["new", "old"])
def test_a_known_gpu_keeps_its_figures(drivers: Path, library: str) -> None:
    answer = ask(drivers / library)
    assert answer["name"] == "h100-sxm"
    assert answer["reported_memory_mib"] == 81559
    assert answer["runtime_memory_gib"] == 79.18
    assert answer["bandwidth_gb_per_s"] == 3350
    assert isinstance(answer["source"], list)
    assert answer["source"][0] == "NVML, driver 580.95.05"


def test_memory_of_another_set_up_is_the_drivers(drivers: Path) -> None:
    answer = ask(drivers / "new", NAME="NVIDIA A40", MIB=49140)  # ECC off; the zoo's torch figure is with ECC
    assert (answer["name"], answer["reported_memory_mib"]) == ("a40", 49140)
    assert "runtime_memory_gib" not in answer


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA Lab Card 9000 (rev. B)", 12345, "nvidia-lab-card-9000-rev-b"),
        ("NVIDIA GeForce RTX 3080", 12288, "nvidia-geforce-rtx-3080"),  # the 12 GB card; the zoo has that of 10 GB
    ],
)
def test_an_unknown_gpu_is_its_memory_only(drivers: Path, name: str, mib: int, expected: str) -> None:
    assert ask(drivers / "new", NAME=name, MIB=mib) == {
        "name": expected,
        "vendor": "NVIDIA",
        "reported_memory_mib": mib,
        "source": ["NVML, driver 580.95.05"],
    }


def test_names_of_old_drivers_are_known(drivers: Path) -> None:
    assert ask(drivers / "old", NAME="GeForce RTX 3090", MIB=24576)["name"] == "rtx-3090"


def test_mig_switched_off_is_the_whole_gpu(drivers: Path) -> None:
    assert ask(drivers / "new", MIG=0)["name"] == "h100-sxm"


ELSE = "name a GPU instead, for example --gpu h100-sxm"


@pytest.mark.parametrize(
    ("library", "stub", "error", "code", "message"),
    [
        pytest.param(
            "none",
            {},
            "NoDeviceError",
            3,
            f"no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there); {ELSE}",
            id="no-library",
        ),
        pytest.param(
            "new",
            {"INIT_RC": NOT_LOADED},
            "NoDeviceError",
            3,
            f"the NVIDIA driver is not loaded on this machine; load it, or {ELSE}",
            id="not-loaded",
        ),
        pytest.param(
            "new", {"INIT_RC": 999}, "NoDeviceError", 3, f"NVML does not start (Unknown Error); {ELSE}", id="unknown"
        ),
        pytest.param(
            "new",
            {"COUNT": 0},
            "NoDeviceError",
            3,
            f"the NVIDIA driver lists no GPU on this machine; {ELSE}",
            id="no-device",
        ),
        pytest.param(
            "new",
            {"COUNT_RC": GPU_IS_LOST},
            "NoDeviceError",
            3,
            f"the NVIDIA driver does not answer (GPU is lost); {ELSE}",
            id="lost",
        ),
        pytest.param(
            "new",
            {"NAME": "NVIDIA GB10", "MEMORY_RC": NOT_SUPPORTED},
            "NoDeviceError",
            3,
            "NVIDIA GB10 shares its memory with the CPU and the driver gives no figure; "
            "use --gpu dgx-spark with --kv-budget",
            id="unified-known",
        ),
        pytest.param(
            "new",
            {"NAME": "Thor", "MEMORY_RC": NOT_SUPPORTED},
            "NoDeviceError",
            3,
            "Thor shares its memory with the CPU and the driver gives no figure; write a GPU file with its memory",
            id="unified-unknown",
        ),
        pytest.param(
            "new",
            {"NAME": "NVIDIA A30", "MIB": 24576, "MIG": 1},
            "InputError",
            2,
            "NVIDIA A30 is split into MIG slices; name yours: --gpu a30:SLICE, with SLICE one of "
            "1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb",
            id="mig",
        ),
        pytest.param(
            "new",
            {"NAME": "NVIDIA H9", "MIG": 1},
            "InputError",
            2,
            "NVIDIA H9 is split into MIG slices; write a GPU file with the memory of yours and give that",
            id="mig-unknown",
        ),
    ],
)
def test_what_cannot_be_planned_with_is_one_sentence(
    drivers: Path, *, library: str, stub: dict[str, object], error: str, code: int, message: str
) -> None:
    assert ask(drivers / library, **stub) == {"error": message, "type": error, "code": code}


def test_a_missing_package_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingPackageError) as error:
        local_gpu.ask_driver()
    assert str(error.value) == (
        "--gpu local asks the NVIDIA driver through nvidia-ml-py; install it: pip install 'kvplan[measure]', "
        "or pip install nvidia-ml-py alone"
    )
    assert error.value.exit_code == 3


def test_only_this_module_of_the_specs_names_pynvml() -> None:
    folder = Path(local_gpu.__file__).parent
    users = [path.name for path in folder.rglob("*.py") if "pynvml" in path.read_text(encoding="utf-8")]
    assert users == ["local_gpu.py"]
