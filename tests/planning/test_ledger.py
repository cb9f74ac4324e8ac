"""The ledger adds up, and every formula gives its figure when its own terms are put in."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan import estimate
from kvplan.errors import InputError
from kvplan.planning.derivations import counts, work
from kvplan.specs import zoo

FUNCTIONS = {"floor": math.floor, "ceil": math.ceil, "min": min, "max": max}
MODELS = ("mistral-7b", "gemma-3-27b", "deepseek-v3", "nemotron-h-8b", "gpt-oss-20b", "falcon-h1-7b", "gemma-3n-e4b",
          "qwen3.5-9b", "llama-4-scout", "openelm-3b", "smollm2-135m", "mimo-v2-flash")  # fmt: skip

scenarios = st.fixed_dictionaries(
    {"model": st.sampled_from(MODELS), "gpu": st.sampled_from(["t4", "a100-80g", "h200-sxm", "mi300x"])},
    optional={
        "engine": st.sampled_from(["generic", "textbook", "vllm"]),
        "context": st.integers(1, 2_000_000),
        "weights": st.sampled_from(["fp32", "bf16", "fp8", "fp8-block128", "awq", "nf4", "nvfp4", "q4_k_m", "q6_k"]),
        "kv_dtype": st.sampled_from(["fp8", "fp32", "int8", "q8_0", "q8_0/q4_0"]),
        "tp": st.sampled_from([1, 2, 4, 8]),
        "pp": st.sampled_from([1, 2, 3]),
        "memory_fraction": st.floats(0.05, 1.0),
        "block_size": st.sampled_from([1, 16, 64]),
        "reserve": st.integers(1, 10**10),
        "lora_rank": st.sampled_from([8, 16, 64]),
        "max_seqs": st.integers(1, 1000),
        "shared_prefix": st.integers(1, 5000),
    },
)


def computed(options):
    try:
        return estimate(**options)
    except InputError:
        return None  # a degree that does not divide the heads, a prefix longer than the context


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(scenarios)
def test_weights_overhead_budget_and_unrequested_are_the_memory(options):
    found = computed(options)
    if found is None:
        return
    row = found.to_dict()
    parts = ("weights_bytes", "overhead_bytes", "kv_budget_bytes", "unrequested_bytes")
    assert sum(row[part] for part in parts) == row["gpu_memory_bytes"]
    assert row["weights_bytes"] == sum(ln["bytes"] for ln in row["ledger"] if ln["name"].startswith("weights/"))
    assert row["kv_bytes_per_session"] == sum(ln["bytes"] for ln in row["ledger"] if ln["name"].startswith("session/"))
    if row["max_sessions"] and row["limited_by"] != "max_seqs" and options.get("max_seqs") is None:
        used = row["max_sessions"] * row["kv_bytes_per_session"] + found.prefix_bytes
        assert used <= row["kv_budget_bytes"] < used + row["kv_bytes_per_session"]


@settings(max_examples=100, deadline=None)
@given(scenarios)
def test_every_formula_gives_its_figure(options):
    found = computed(options)
    if found is None:
        return
    for line in found.ledger:
        assert evaluated(line.formula, line.terms) == line.bytes, line
    for tensor in found.stage.tensors:
        assert evaluated(tensor.formula, {}) == tensor.bytes_each, tensor
    for count in [*counts(found), *work(found)]:
        assert evaluated(count.formula, count.terms) == count.value, count


def evaluated(formula, terms):
    return eval(formula, {"__builtins__": {}}, {**FUNCTIONS, **terms})


@pytest.mark.parametrize("name", zoo.names("models"))
def test_every_model_has_a_ledger(name):
    found = estimate(name, "b200", context=1024)
    assert sum(line.bytes for line in found.ledger if line.name.startswith("weights/")) == found.stage.weights_bytes


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_ranks_together_hold_at_least_the_model(model, tp):
    try:
        parts = estimate(model, kv_budget="1GiB", tp=tp, weights="bf16", extras="none").stage.weights_bytes
    except InputError:
        return
    whole = estimate(model, kv_budget="1GiB", weights="bf16", extras="none").stage.weights_bytes
    assert whole <= parts * tp
    assert parts <= whole


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 1_000_000), st.integers(0, 100_000))
def test_more_context_is_never_fewer_bytes(model, context, more):
    shorter, longer = (estimate(model, kv_budget="80GiB", context=c) for c in (context, context + more))
    assert shorter.kv_bytes_per_session <= longer.kv_bytes_per_session
    assert shorter.max_sessions >= longer.max_sessions


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.integers(2**27, 2**40))
def test_the_longest_context_fits_and_one_more_token_does_not(model, budget):
    longest = estimate(model, kv_budget=budget).max_context_tokens
    if not longest or longest >= 2**32:
        return
    assert estimate(model, kv_budget=budget, context=longest).max_sessions >= 1
    assert estimate(model, kv_budget=budget, context=longest + 1).max_sessions == 0
