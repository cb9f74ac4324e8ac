"""The zoo's GPUs against published figures, memory by source, and what is refused in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import InputError, SpecError
from kvplan.specs import zoo
from kvplan.specs.gpu import DTYPES, GpuSpec, load_gpu_file

NAMES = (Path(__file__).parent.parent / "data" / "gpu_names.txt").read_text(encoding="utf-8").split()
WHOLE = [name for name in NAMES if ":" not in name]
SLICES = [name for name in NAMES if ":" in name]
MIB = 2**20


def gpu(name: str) -> GpuSpec:
    return load_gpu_file(zoo.find("gpus", name))


def test_the_list_of_expected_names_is_whole() -> None:
    assert (len(WHOLE), len(SLICES)) == (81, 50)


@pytest.mark.parametrize("name", WHOLE)
def test_every_gpu_is_there_and_says_what_it_is(name: str) -> None:
    spec = gpu(name)
    assert spec.name == name
    assert spec.source
    assert spec.confidence
    assert spec.vendor
    assert spec.bandwidth_gb_per_s
    assert set(spec.dense_tflops) <= set(DTYPES)


@pytest.mark.parametrize("name", SLICES)
def test_every_slice_is_there_and_smaller_than_its_gpu(name: str) -> None:
    whole, profile = name.split(":")
    parent, part = gpu(whole), gpu(whole).slice(profile)
    assert part.name == name
    assert 0 < part.memory_bytes().bytes <= (parent.reported_memory_mib or 0) * MIB
    assert part.bandwidth_gb_per_s is not None
    assert parent.bandwidth_gb_per_s is not None
    assert part.bandwidth_gb_per_s <= parent.bandwidth_gb_per_s
    assert part.interconnect is None
    assert part.tdp_w is None


def test_no_file_is_beside_the_expected_ones() -> None:
    assert zoo.names("gpus") == sorted(WHOLE)
    assert sorted(f"{n}:{profile}" for n in WHOLE for profile in gpu(n).mig) == sorted(SLICES)


# name, nvidia-smi or rocm-smi MiB, torch GiB, GB/s, dense TFLOPS of one type, SMs, W
PUBLISHED = [
    # data sheet A100 80GB SXM: 2,039 GB/s, 312 TFLOPS bf16, 400 W; nvidia-smi 81920MiB; torch 79.15
    pytest.param("a100-80g", 81920, 79.15, 2039, ("bf16", 312), 108, 400, id="a100-80g"),
    # data sheet A100 40GB PCIe: 1,555 GB/s, 624 TOPS int8, 250 W; nvidia-smi 40960MiB
    pytest.param("a100-40g-pcie", 40960, None, 1555, ("int8", 624), 108, 250, id="a100-40g-pcie"),
    # data sheet H100 SXM: 3.35 TB/s, 1,979 TFLOPS bf16 with sparsity, 700 W; nvidia-smi 81559MiB; torch 81082MB
    pytest.param("h100-sxm", 81559, 79.18, 3350, ("bf16", 989.4), 132, 700, id="h100-sxm"),
    # data sheet H100 PCIe: 2 TB/s, 1,513 TFLOPS fp8 dense, 350 W; nvidia-smi 81559MiB as for SXM
    pytest.param("h100-pcie", 81559, None, 2000, ("fp8", 1513), 114, 350, id="h100-pcie"),
    # data sheet H200: 4.8 TB/s, 3,958 TFLOPS fp8 with sparsity; nvidia-smi 143771MiB; torch 139.72 to 139.81
    pytest.param("h200", 143771, 139.72, 4800, ("fp8", 1978.9), 132, 700, id="h200"),
    # HGX B200: 7.7 TB/s, 9 PFLOPS fp4 dense, 1000 W; nvidia-smi 183359MiB; torch 178.35
    pytest.param("b200", 183359, 178.35, 7700, ("fp4", 9000), 148, 1000, id="b200"),
    # nvidia-smi A10G 23028MiB; torch total_memory=22587MB, multi_processor_count=80
    pytest.param("a10g", 23028, 22.057, 600, ("fp16", 70), 80, 300, id="a10g"),
    # data sheet L4: 300 GB/s, 242 TFLOPS fp16 with sparsity, 72 W; nvidia-smi 23034MiB; torch 22.03
    pytest.param("l4", 23034, 22.03, 300, ("fp16", 121), 58, 72, id="l4"),
    # data sheet T4: 320 GB/s, 65 TFLOPS fp16, 70 W; nvidia-smi 15360MiB; torch 14.56
    pytest.param("t4", 15360, 14.56, 320, ("fp16", 65), 40, 70, id="t4"),
    # Ada white paper: 1,008 GB/s, 165.2 TFLOPS fp16 with fp32 accumulation; nvidia-smi 24564MiB; torch 23.52
    pytest.param("rtx-4090", 24564, 23.52, 1008, ("fp16", 165.2), 128, 450, id="rtx-4090"),
    # vLLM start-up logs of the RTX 3090: total 23.58 GiB; older drivers 24259MB
    pytest.param("rtx-3090", 24576, 23.58, 936, ("bf16", 71.2), 82, 350, id="rtx-3090"),
    # data sheet MI300X: 5.3 TB/s, 1,307.4 TFLOPS bf16, 304 CUs, 750 W; rocm-smi 206141652992 B; torch 191.69
    pytest.param("mi300x", 196592, 191.69, 5300, ("bf16", 1307.4), 304, 750, id="mi300x"),
    # data sheet MI250X: 3,276.8 GB/s, 383 TFLOPS and 220 CUs for two dies; rocm-smi 68702699520 B for one
    pytest.param("mi250x", 65520, 63.98, 1638.4, ("bf16", 191.5), 110, 280, id="mi250x-one-die"),
    # data sheet RTX 3070: 448 GB/s, 20.3 TFLOPS; nothing more was found
    pytest.param("rtx-3070", None, None, 448, ("fp32", 20.3), None, None, id="rtx-3070"),
]


@pytest.mark.parametrize(("name", "mib", "gib", "gb_per_s", "rate", "sms", "watts"), PUBLISHED)
def test_published_figures(
    name: str,
    *,
    mib: int | None,
    gib: float | None,
    gb_per_s: float,
    rate: tuple[str, float],
    sms: int | None,
    watts: Any,
) -> None:
    spec = gpu(name)
    assert (spec.reported_memory_mib, spec.runtime_memory_gib) == (mib, gib)
    assert (spec.bandwidth_gb_per_s, spec.sm_count, spec.tdp_w) == (gb_per_s, sms, watts)
    assert spec.dense_tflops[rate[0]] == rate[1]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        # 79.18 x 2^30 = 85,018,877,624.32: rounded down
        (
            {"runtime_memory_gib": 79.18, "reported_memory_mib": 81559, "nominal_memory_gb": 80},
            (85_018_877_624, "runtime"),
        ),
        ({"reported_memory_mib": 81559, "nominal_memory_gb": 80}, (85_520_809_984, "reported")),
        ({"nominal_memory_gb": 80}, (80_000_000_000, "nominal")),
        ({"nominal_memory_gb": 0.5}, (500_000_000, "nominal")),
    ],
)
def test_memory_is_the_runtimes_then_the_drivers_then_the_nameplate(facts: dict[str, Any], expected: object) -> None:
    spec = GpuSpec(name="x", **facts)
    assert spec.memory_bytes() == expected


def test_nominal_memory_is_decimal() -> None:
    assert gpu("a100-80g").nominal_memory_bytes == 80 * 10**9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("apple-m2-max", "apple-m2-max is sold with 32, 64 or 96 GB; say how much of it with --kv-budget"),
        ("apple-m1", "apple-m1 is sold with 8 or 16 GB; say how much of it with --kv-budget"),
    ],
)
def test_a_gpu_sold_with_several_sizes_has_no_memory_of_its_own(name: str, message: str) -> None:
    spec = gpu(name)
    assert spec.unified_memory
    with pytest.raises(InputError) as error:
        spec.memory_bytes()
    assert str(error.value) == message


def test_unknown_nominal_memory_is_refused() -> None:
    with pytest.raises(InputError, match="the nominal memory of x is not known"):
        _ = GpuSpec(name="x", reported_memory_mib=100).nominal_memory_bytes


def test_unified_memory_is_flagged_for_those_that_share_it() -> None:
    shared = [name for name in WHOLE if gpu(name).unified_memory]
    assert shared == [
        "jetson-agx-orin-64g",
        "jetson-agx-orin-32g",
        "jetson-orin-nano-super-8g",
        "dgx-spark",
        *(name for name in WHOLE if name.startswith("apple-")),
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("name: x\nnominal_memory_gb: 80\nbandwith_gb_per_s: 3350\n", ["top level: unknown key 'bandwith_gb_per_s'"]),
        ("name: x\nnominal_memory_gb: -80\n", ["nominal_memory_gb: expected a number above 0"]),
        (
            "name: x\nnominal_memory_gb: 1e300\n",
            ["nominal_memory_gb: expected a number above 0 and of at most 1000000"],
        ),
        ("nominal_memory_gb: 80\n", ["missing key 'name'"]),
        ("name: x\n", ["no memory: give nominal_memory_gb, reported_memory_mib or runtime_memory_gib"]),
        ("name: x\nnominal_memory_gb: 80\ncompute_capability: 9.0\n", ["compute_capability", "quote it"]),
        (
            "name: x\nreported_memory_mib: 81559\nruntime_memory_gib: 85\n",
            ["runtime_memory_gib (85) is more than reported_memory_mib (81559, 79.65 GiB)"],
        ),
        (
            "name: x\nnominal_memory_gb: 80\ndense_tflops: {bf61: 989}\n",
            ["dense_tflops: unknown type 'bf61'; expected fp32, tf32, fp16, bf16, fp8, int8, fp4, int4"],
        ),
        (
            "name: x\nnominal_memory_gb: 8\nmig:\n  1g: {memory_fraction: 9/8, sm_fraction: 1/7, max_instances: 1}\n",
            ["g.yaml:4: mig", "memory_fraction: expected a fraction such as 1/8, got '9/8'"],
        ),
        (
            "name: x\nnominal_memory_gb: many\ninterconnect: {kind: nvlnk}\n",
            ["g.yaml has 2 problems", "nominal_memory_gb", "did you mean 'nvlink'"],
        ),
    ],
)
def test_mistakes_in_a_file_are_told(tmp_path: Path, text: str, problems: list[str]) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load_gpu_file(path)
    for problem in problems:
        assert problem in str(error.value)


def test_to_dict_has_what_is_known_and_nothing_else() -> None:
    assert gpu("rtx-3070").to_dict() == {
        "name": "rtx-3070",
        "aliases": ["rtx3070", "rtx-3070-8gb"],
        "driver_names": ["NVIDIA GeForce RTX 3070"],
        "vendor": "NVIDIA",
        "memory_type": "GDDR6",
        "nominal_memory_gb": 8,
        "bandwidth_gb_per_s": 448,
        "dense_tflops": {"fp32": 20.3},
        "source": ["vendor data sheet (recalled)", "published decoding speeds (bandwidth)"],
        "confidence": "medium",
    }
    assert gpu("h100-sxm").to_dict()["mig"]["1g.10gb"] == {
        "reported_memory_mib": 9984,
        "memory_fraction": "1/8",
        "sm_count": 16,
        "sm_fraction": "1/7",
        "max_instances": 7,
    }
