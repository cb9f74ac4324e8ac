"""The engine in sweeps, what-ifs and notes: the same figures as an estimate's."""

import pytest

from kvplan import estimate
from kvplan.engines import load_engine
from kvplan.engines.vllm.rules import CHECKED, NEWEST, OLDEST, VERSIONS, rules, version_name
from kvplan.planning.grid import sweep

SHARED = {"engine": "vllm", "engine_version": "0.21"}


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "qwen3.5-9b", "deepseek-v2-lite"])
def test_a_sweep_has_the_rows_of_estimates(model):
    grid = sweep(model, "h100-sxm", context=[1000, 8192, 100_000], max_seqs=[16, 1024], **SHARED)
    rows = list(grid.rows())
    assert len(rows) == 6
    for found in rows:
        single = estimate(
            model, "h100-sxm", context=found["context_tokens"], max_seqs=found["max_seqs"], **SHARED
        ).to_dict()
        for key, value in found.items():
            if key != "error":
                assert value == single[key], key


def test_sequences_change_the_memory_for_the_cache():
    few, many = (estimate("llama-3.1-8b", "h100-sxm", max_seqs=n, **SHARED).kv_budget_bytes for n in (16, 1024))
    assert few > many


def test_the_band_encloses_the_figure():
    row = estimate("qwen3-30b-a3b", "l40s", tp=2, context=8192, **SHARED).to_dict()
    for name in ("overhead_bytes", "kv_budget_bytes", "kv_tokens", "max_sessions"):
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"], name
    assert row["kv_budget_bytes_low"] < row["kv_budget_bytes_high"]


def test_given_kv_memory_has_no_band():
    row = estimate("qwen3-8b", kv_budget="10GiB", **SHARED).to_dict()
    assert row["kv_budget_bytes_low"] is None
    assert row["max_sessions_high"] is None


def test_a_length_that_does_not_fit_is_said():
    found = estimate("llama-3.1-8b", kv_budget="4GiB", context=1024, max_model_len=131072, **SHARED)
    assert found.to_dict()["engine_detail"]["starts"] is False
    assert found.max_sessions == 32
    assert any("refuses to start" in note for note in found.notes)


def test_graphs_are_reserved_from_0_21_and_not_when_eager():
    def names(**options):
        budget = estimate("llama-3.1-8b", "h100-sxm", engine="vllm", **options).budget
        return {line.name: line.bytes for line in budget.overhead}

    assert "overhead/cuda_graphs" not in names(engine_version="0.20")
    assert names(engine_version="0.21")["overhead/cuda_graphs"] > 0
    assert names(engine_version="0.21", eager=True)["overhead/cuda_graphs"] == 0
    assert "overhead/cuda_graphs" in names(engine_version="0.19", flags={"graph_estimate": True})


def test_defaults_by_version():
    fractions = {version: load_engine("vllm", version).memory_fraction for version in ("0.20", "0.21")}
    assert fractions == {"0.20": 0.90, "0.21": 0.92}
    assert load_engine("vllm").version == NEWEST == VERSIONS[-1]
    assert VERSIONS[0] == OLDEST
    assert set(CHECKED) < set(VERSIONS)
    assert [version_name(version) for version in VERSIONS] == list(VERSIONS)
    assert all(rules(version).sampler_factor for version in VERSIONS)


def test_checked_says_whether_the_evidence_reaches():
    def checked(model, version, **options):
        return estimate(model, kv_budget="1GiB", engine="vllm", engine_version=version, **options).to_dict()["checked"]

    assert checked("llama-3.1-8b", "0.19")
    assert not checked("llama-3.1-8b", "0.9")
    assert not checked("kimi-linear", "0.19")  # no log of such a state
    assert not estimate("llama-3.1-8b", "mi300x", engine="vllm", engine_version="0.19").to_dict()["checked"]


def test_a_draft_model_joins_the_groups():
    plain = estimate("llama-3.1-70b", kv_budget="40GiB", tp=2, **SHARED)
    drafted = estimate("llama-3.1-70b", kv_budget="40GiB", tp=2, draft_model="llama-3.2-1b", **SHARED)
    assert drafted.kv_bytes_per_session > plain.kv_bytes_per_session


def test_a_served_prediction_layer_has_a_cache():
    plain, served = (
        estimate("qwen3.6-27b", kv_budget="18GiB", context=262144, extras=extras, **SHARED)
        for extras in ("none", "all")
    )
    assert served.to_dict()["engine_detail"]["block_tokens"] > plain.to_dict()["engine_detail"]["block_tokens"]
    assert served.stage.plan.layout.num_groups >= plain.stage.plan.layout.num_groups
