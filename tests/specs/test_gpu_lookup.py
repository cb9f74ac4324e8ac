"""What may follow --gpu, and the sentence for each way to get it wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.errors import InputError
from kvplan.specs.gpu_lookup import parse_gpu


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h100-sxm", "h100-sxm", None),
        ("8xh100-sxm", "h100-sxm", 8),
        ("8Xh100-sxm", "h100-sxm", 8),
        (" 8x h100-sxm ", "h100-sxm", 8),
        ("65536xl4", "l4", 65536),
        ("1xh200", "h200", 1),
        ("H100-SXM", "h100-sxm", None),
        ("h200", "h200", None),  # exact, though h200-nvl begins with it
        ("a100-80gb", "a100-80g", None),
        ("rtx4090", "rtx-4090", None),
        ("h100-80g-sxm", "h100-sxm", None),
        ("NVIDIA H100 80GB HBM3", "h100-sxm", None),  # as nvidia-smi prints it
        ("h100-sxm:1g.10gb", "h100-sxm:1g.10gb", None),
        ("7xh100-80g-sxm:1g.10gb+me", "h100-sxm:1g.10gb+me", 7),
    ],
)
def test_names_counts_and_slices(text: str, name: str, count: int | None) -> None:
    choice = parse_gpu(text)
    assert (choice.gpu.name, choice.count) == (name, count)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100", "'h100' is not exact; write one of h100-nvl, h100-pcie, h100-sxm"),
        ("8xa100", "'a100' is not exact; write one of a100-40g, a100-40g-pcie, a100-80g, a100-80g-pcie"),
        ("gh200", "'gh200' is not exact; write one of gh200-96g"),
        ("NVIDIA GB", "'NVIDIA GB' is not exact; write one of dgx-spark, gb200, gb300"),
        (
            "apple",
            (
                "'apple' is not exact; write one of apple-m1, apple-m1-max, apple-m1-pro, apple-m1-ultra, apple-m2, "
                "apple-m2-max, apple-m2-pro, apple-m2-ultra and 7 more"
            ),
        ),
        ("h1000-sxm", "unknown GPU 'h1000-sxm'; did you mean 'h100-sxm'? see `kvplan gpus`"),
        ("abacus", "unknown GPU 'abacus'; see `kvplan gpus`"),
        ("../no/such", "unknown GPU '../no/such'; see `kvplan gpus`"),
        ("", "no GPU is named; write for example --gpu h100-sxm, and see `kvplan gpus`"),
        (":1g.10gb", "no GPU is named; write for example --gpu h100-sxm, and see `kvplan gpus`"),
        ("0xh100-sxm", "'0xh100-sxm' is no GPU at all; the count starts at 1"),
        ("8x", "'8x' has a count but no GPU; write for example 8xh100-sxm"),
        ("65537xl4", "'65537xl4': 65537 GPUs are more than 65536, the most kvplan plans for"),
        ("99999999xl4", "'99999999xl4': 99999999 GPUs are more than 65536, the most kvplan plans for"),
        ("l4:1g.6gb", "l4 has no MIG slices; write --gpu l4"),
        ("-1xl4", "unknown GPU '-1xl4'; see `kvplan gpus`"),
    ],
)
def test_mistakes_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_gpu(text)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["9" * 5000 + "xl4", "\x1b[31mred", "l4\nl4", "x" * 10_000])
def test_hostile_text_is_refused_in_a_short_printable_line(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_gpu(text)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


FILE = """
name: lab-card
nominal_memory_gb: 100
bandwidth_gb_per_s: 1000
mig:
  1g.50gb: {memory_fraction: 1/2, sm_fraction: 1/2, max_instances: 2}
"""


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "my-gpu.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert parse_gpu(str(path)).gpu.name == "lab-card"
    assert parse_gpu(f"4x{path}").count == 4
    part = parse_gpu(f"{path}:1g.50gb").gpu
    assert (part.name, part.nominal_memory_gb, part.bandwidth_gb_per_s) == ("lab-card:1g.50gb", 50, 500)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(Exception, match=r"nowhere\.yaml: there is no such file"):
        parse_gpu("nowhere.yaml")


def test_looking_up_a_name_loads_neither_nvml_nor_the_report_libraries() -> None:
    code = (
        "import sys; from kvplan.specs.gpu_lookup import parse_gpu; parse_gpu('8xh100-sxm');"
        "print({'pynvml', 'torch', 'numpy', 'pandas', 'fractions', 'difflib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
