"""A MIG slice as a GPU of its own: figures of known slices, and what is refused."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec, MigSlice, load_gpu_file

MIB = 2**20


def gpu(name: str) -> GpuSpec:
    return load_gpu_file(zoo.find("gpus", name))


# profile, MiB of nvidia-smi mig -lgip, bandwidth of the fraction, SMs, bf16 TFLOPS by the SMs
SLICE_FIGURES = [
    # 9.75 GiB and 16 SMs: 3350 / 8 GB/s, 989.4 x 16 / 132
    pytest.param("h100-sxm:1g.10gb", 9984 * MIB, "reported", 418.75, 16, 989.4 * 16 / 132, id="h100-1g.10gb"),
    # 19.62 GiB is printed, 20096MiB is the memory column of nvidia-smi; 26 SMs, not a seventh
    pytest.param("h100-sxm:1g.20gb", 20096 * MIB, "reported", 837.5, 26, 989.4 * 26 / 132, id="h100-1g.20gb"),
    # MIG user guide: 11MiB / 20096MiB and 42 SMs for 3g.20gb
    pytest.param("a100-40g:3g.20gb", 20096 * MIB, "reported", 777.5, 42, 312 * 42 / 108, id="a100-3g.20gb"),
    # nvidia-smi: 12MiB / 5952MiB and 14 SMs
    pytest.param("a30:1g.6gb", 5952 * MIB, "reported", 233.25, 14, 165 / 4, id="a30-1g.6gb"),
    # a process saw 74,893,492,224 bytes = 69.75 GiB and 60 SMs
    pytest.param("h200:3g.71gb", 74_893_492_224, "runtime", 2400, 60, 989.4 * 60 / 132, id="h200-3g.71gb"),
    # no print-out: the name's 23 GB, 18 SMs of 148
    pytest.param("b200:1g.23gb", 23_000_000_000, "nominal", 962.5, 18, 2250 * 18 / 148, id="b200-1g.23gb"),
    # no SM count either: two sevenths
    pytest.param("b200:2g.45gb", 45_000_000_000, "nominal", 1925, None, 2250 * 2 / 7, id="b200-2g.45gb"),
]


@pytest.mark.parametrize(("name", "memory", "source", "gb_per_s", "sms", "bf16"), SLICE_FIGURES)
def test_a_slice_is_a_gpu_of_its_own(
    name: str, *, memory: int, source: str, gb_per_s: float, sms: int | None, bf16: float
) -> None:
    whole, profile = name.split(":")
    part = gpu(whole).slice(profile)
    assert part.memory_bytes() == (memory, source)
    assert part.bandwidth_gb_per_s == gb_per_s
    assert part.sm_count == sms
    assert part.dense_tflops["bf16"] == pytest.approx(bf16, rel=1e-12)


@pytest.mark.parametrize(
    ("whole", "profile", "message"),
    [
        ("l4", "1g.10gb", "l4 has no MIG slices; write --gpu l4"),
        (
            "a30",
            "3g.12gb",
            (
                "a30 has no slice '3g.12gb'; did you mean '2g.12gb' or '4g.24gb' or '2g.12gb+me'? "
                "its slices: 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb"
            ),
        ),
        ("rtx-pro-6000-blackwell", "", "rtx-pro-6000-blackwell has no slice ''; its slices: 1g.24gb, 2g.48gb, 4g.96gb"),
    ],
)
def test_unknown_slices_are_refused_with_the_known(whole: str, profile: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        gpu(whole).slice(profile)
    assert str(error.value) == message


@pytest.mark.parametrize("fraction", ["", "1", "0/8", "8/0", "-1/8", "1/8/2", "0.125"])
def test_fractions_of_slices_are_two_whole_numbers(fraction: str) -> None:
    with pytest.raises(ValueError, match="memory_fraction: expected a fraction such as 1/8"):
        MigSlice(memory_fraction=fraction, sm_fraction="1/7", max_instances=7)
