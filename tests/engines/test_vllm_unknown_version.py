"""A version that is not given: which ones it can be, and a band that holds each of them whole."""

import pytest

from kvplan import estimate
from kvplan.engines.vllm.rules import VERSIONS, Flags, read_flags
from kvplan.engines.vllm.support import FAMILIES, possible_versions
from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.specs import zoo

GIB = 2**30
SAME = {"engine": "vllm", "memory_fraction": 0.9, "context": 8192}


def kv(model, gpu, **options):
    return estimate(model, gpu, **{**SAME, **options}).budget.kv


@pytest.mark.parametrize(
    ("model", "flags", "first", "last"),
    [
        ("llama-3.1-8b", {}, "0.8", "0.31"),  # V1 is the default since 0.8.0
        ("gemma-3-27b", {}, "0.8", "0.31"),
        ("gpt-oss-20b", {}, "0.10", "0.31"),
        ("qwen3.5-9b", {}, "0.17", "0.31"),  # release notes of 0.17.0: new architectures
        ("gemma-4-31b", {}, "0.19", "0.31"),  # release notes of 0.19.0
        ("llama-3.1-8b", {"since": "0.18.1"}, "0.18", "0.31"),
        ("gemma-4-31b", {"since": "0.15"}, "0.19", "0.31"),
        ("llama-3.1-8b", {"v1": False}, "0.6", "0.10"),  # release notes of 0.11.0: the V0 engine is removed
    ],
)
def test_versions_that_can_run_a_model(model, flags, first, last):
    found = possible_versions(load_model(model), read_flags(flags)).versions
    assert (found[0], found[-1]) == (first, last)


def test_a_first_version_is_one_that_is_modelled_of_a_family_of_the_zoo():
    known = {load_model(name).family for name in zoo.names("models")}
    assert set(FAMILIES) <= known
    assert {first.version for first in FAMILIES.values()} <= set(VERSIONS)
    assert all(first.source for first in FAMILIES.values())


@pytest.mark.parametrize(
    ("model", "gpu", "more"),
    [
        ("llama-3.1-8b", "h100-sxm", {}),
        ("llama-3.3-70b", "2xh100-sxm", {"tp": 2, "weights": "fp8"}),
        ("gpt-oss-20b", "h100-sxm", {}),  # more beside each expert from 0.17 on
        ("qwen3.5-9b", "l40s", {"max_seqs": 16}),
        ("gemma-3-27b", "h100-sxm", {"flags": {"unknown": ("max_seqs",)}}),
        ("deepseek-v2-lite", "a100-80g", {"eager": True}),
    ],
)
def test_the_band_is_that_of_all_versions(model, gpu, more):
    versions = possible_versions(load_model(model), Flags()).versions
    each = [kv(model, gpu, engine_version=version, **more) for version in versions]
    found = kv(model, gpu, **more)
    assert (found.low, found.high) == (min(line.low for line in each), max(line.high for line in each))
    assert found.bytes == each[-1].bytes


def test_no_version_has_the_larger_sampler_and_graphs_too():
    """0.16 takes 9.5 copies of the logits and no graphs, 0.21 takes 3.6 copies and graphs (rules by version)."""
    found = estimate("llama-3.1-8b", "h100-sxm", **SAME)
    lines = {line.name: line for line in found.budget.overhead}
    worst = sum(line.high - line.bytes for line in lines.values())
    assert found.budget.kv.bytes - found.budget.kv.low < worst - GIB
    assert lines["overhead/cuda_graphs"].low == 0


def test_small_buffers_of_tensor_parallel_before_0_18_are_covered():
    """Llama-3.3-70B in FP8 over two H100 under 0.11: 0.55 GiB outside PyTorch, 2.08 from 0.18 on."""
    found = estimate("llama-3.3-70b", "2xh100-sxm", tp=2, weights="fp8", **SAME)
    line = next(line for line in found.budget.overhead if line.name == "overhead/non_torch")
    assert line.bytes == pytest.approx(2.17 * GIB, rel=0.05)
    assert line.low <= 0.55 * GIB


def test_the_range_is_said():
    notes = estimate("qwen3.5-9b", "h100-sxm", **SAME).notes
    assert any("the band is that of 0.17 to 0.31 (since 0.17 it runs qwen3_5 models)" in note for note in notes)
    source = kv("llama-3.1-8b", "h100-sxm").source
    assert source.endswith("between: the ends of 0.8 to 0.31")


def test_a_version_that_is_not_modelled_is_refused_as_the_oldest():
    with pytest.raises(InputError, match=r"version '0\.99' is not modelled"):
        kv("llama-3.1-8b", "h100-sxm", flags={"since": "0.99"})


@pytest.mark.parametrize(
    ("model", "gpu", "options", "tokens"),
    [
        # vllm-project/vllm#57926, model runner V2: before and after the sampler's parameters are profiled
        ("qwen2.5-0.5b", "l4", {"context": 2048, "memory_fraction": 0.98, "max_seqs": 256}, 1_733_440),
        ("qwen2.5-0.5b", "l4", {"context": 2048, "memory_fraction": 0.98, "max_seqs": 256}, 1_710_928),
        # vllm-project/vllm issue 50159, 0.26.0: the first and the second runner
        ("qwen2.5-0.5b", "rtx-pro-6000-blackwell", {"memory_fraction": 0.85, "engine_version": "0.26"}, 6_891_296),
        ("qwen2.5-0.5b", "rtx-pro-6000-blackwell", {"memory_fraction": 0.85, "engine_version": "0.26"}, 6_900_336),
    ],
)
def test_the_second_model_runner_is_inside_the_band(model, gpu, options, tokens):
    row = estimate(model, gpu, **{**SAME, "engine_version": "0.28", **options}).to_dict()
    assert row["kv_tokens_low"] <= tokens <= row["kv_tokens_high"]


def test_a_start_on_four_h100_in_july_2026_is_inside_the_band():
    """vllm-project/vllm#48601, runner V2: 1.54 GiB of peak, 0.6 outside PyTorch, no graphs, 63.25 GiB for the cache."""
    options = {"engine_version": "0.26", "memory_fraction": 0.92, "weights": "fp8-block128", "context": 262144}
    found = estimate("qwen3.6-27b", "4xh100-sxm", tp=4, **{**SAME, **options})
    lines = {line.name: line for line in found.budget.overhead}
    assert lines["overhead/non_torch"].low <= 0.6 * GIB
    assert lines["overhead/cuda_graphs"].low == 0
    assert found.budget.kv.low <= 63.25 * GIB <= found.budget.kv.high


@pytest.mark.parametrize(
    ("model", "context"),
    [
        ("gemma-3-12b", 32768),  # windows charged in groups of their own since 0.10, for two steps since 0.26
        ("mistral-7b-v0.1", 32768),
        ("qwen3.5-9b", 4096),  # states kept with prefix caching since 0.25
        ("granite-4.0-h-small", 4096),
        ("llama-3.1-8b", 8192),
    ],
)
def test_sessions_of_every_version_are_inside(model, context):
    options = {"engine": "vllm", "context": context}  # the fraction, too, is each version's own
    row = estimate(model, "h200", **options).to_dict()
    for version in possible_versions(load_model(model), Flags()).versions:
        one = estimate(model, "h200", engine_version=version, **options).to_dict()
        for name in ("kv_budget_bytes", "kv_tokens", "max_sessions"):
            assert row[f"{name}_low"] <= one[name] <= row[f"{name}_high"], (version, name)
