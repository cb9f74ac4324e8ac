"""vLLM's own block arithmetic, case by case: tests/data/vllm_blocks.csv by model name, vllm_block_specs.jsonl by specs.

Both hold figures that vLLM 0.22 computed (kv_cache_utils); C is max_num_batched_tokens times the batches in flight.
"""

import csv
import json
from math import prod
from pathlib import Path

import pytest

from kvplan import estimate
from kvplan.engines.vllm import LayerSpec, block_plan
from kvplan.engines.vllm.blocks import group_size, layout
from kvplan.errors import InputError

DATA = Path(__file__).parent.parent / "data"
CASES = list(csv.DictReader((DATA / "vllm_blocks.csv").read_text(encoding="utf-8").splitlines()))
SPECS = [json.loads(line) for line in (DATA / "vllm_block_specs.jsonl").read_text(encoding="utf-8").splitlines()]
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}


def planned(case, version):
    return estimate(
        case["model"],
        engine="vllm",
        engine_version=version,
        context=int(case["max_model_len"]),
        tp=int(case["tensor_parallel"]),
        kv_dtype=case["kv_dtype"],
        max_batched_tokens=int(case["max_num_batched_tokens"]),
        block_size=int(case["block_size"]),
        kv_budget=int(case["available_kv_bytes"]),
        flags={"in_flight_batches": int(case["in_flight_batches"])},
    ).to_dict()["engine_detail"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['model']}")
def test_blocks_of_a_model(case):
    found = planned(case, "0.22")
    assert found["num_blocks"] == int(case["num_blocks"])
    assert found["num_groups"] == int(case["num_groups"])
    assert found["max_concurrency"] == float(case["max_concurrency"])
    assert found["reported_tokens"] == int(case["tokens_from_v021"])
    assert planned(case, "0.20")["reported_tokens"] == int(case["tokens_to_v020"])


def spec_of(layers):
    count, block = layers["count"], layers.get("block_size", 16)
    if layers["kind"] == "mamba":
        state = sum(prod(s) * BYTES[d] for s, d in zip(layers["shapes"], layers["dtypes"], strict=True))
        mode, speculative = layers["mamba_cache_mode"], layers.get("num_speculative_blocks", 0)
        return LayerSpec("state", count, layers.get("page_size_padded", state), block, None, mode, speculative)
    page = block * layers["kv_heads"] * 2 * layers["head_size"] * BYTES[layers.get("dtype", "bfloat16")]
    kind = {"sliding": "window"}.get(layers["kind"], layers["kind"])
    return LayerSpec(kind, count, page, block, layers.get("window"))


@pytest.mark.parametrize("case", SPECS, ids=lambda case: case["case"])
def test_blocks_of_explicit_layers(case):
    config = case["config"]
    found = block_plan(
        [spec_of(layers) for layers in config["layers"]],
        available_bytes=config["available_bytes"],
        max_model_len=config["max_model_len"],
        in_flight=config["max_num_batched_tokens"],
    )
    shown = {name: getattr(found, name) for name in case["expect"]}
    shown["max_concurrency"] = round(shown["max_concurrency"], 4)
    assert shown == case["expect"]


@pytest.mark.parametrize(
    ("totals", "threshold", "size"),
    [
        ((10, 52), 1.5, 10),  # gemma-3-27b
        ((12, 17), 1.5, 17),  # 17 < 1.5 * 12
        ((12, 17), 1.25, 12),  # before #36684
        ((12, 18), 1.5, 12),
    ],
)
def test_the_size_of_groups(totals, threshold, size):
    assert group_size(totals, threshold) == size


def test_nemotron_3_nano_4b_pads_three_of_its_21_state_layers():
    """Log of 0.13 with the FP8 checkpoint: 4 attention and 21 state layers, 7 groups, 3 padding layers (14.29 %)."""
    attention = LayerSpec("full", 4, 992 * 8 * 2 * 128, 992)
    state = LayerSpec("state", 21, 992 * 8 * 2 * 128, 8192, None, "none")
    found = layout([[attention, state]], 2048)
    assert (found.num_groups, found.padding_layers) == (7, 3)
    assert round(100 * found.padding_layers / 21, 2) == 14.29
    plan = block_plan([attention, state], available_bytes=int(11.15 * 2**30), max_model_len=8192, in_flight=2048)
    assert plan.tokens_to_v020 == 208_320
    assert round(plan.max_concurrency, 1) == 98.2


def test_pages_that_do_not_divide_are_refused_as_vllm_does():
    with pytest.raises(InputError, match="no multiple"):
        layout([[LayerSpec("full", 4, 3000, 16), LayerSpec("window", 4, 2000, 16, 1024)]], 2048)


def test_groups_are_made_of_all_stages_together_and_projected_on_each():
    full, window = LayerSpec("full", 1, 1000, 16), LayerSpec("window", 5, 1000, 16, 512)
    found = layout([[full, window], [full, window]], 2048)  # 2 full, 10 windowed: groups of 2, one full and 5 windowed
    assert found.num_groups == 6
    assert found.unit_bytes == (1000, 1000)  # each stage has one layer of every group


def test_a_stage_with_more_layers_has_larger_units():
    found = layout([[LayerSpec("full", 17, 100, 16)], [LayerSpec("full", 15, 100, 16)]], 2048)
    assert found.unit_bytes == (1700, 1500)
