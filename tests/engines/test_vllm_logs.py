"""What real servers printed (tests/data/vllm_logs.csv, with each run's source) beside what kvplan says."""

from pathlib import Path
from statistics import median

import pytest

from kvplan import estimate
from kvplan.evidence.runs import UNPREDICTABLE, read_runs
from kvplan.evidence.score import Score, scores, summary
from kvplan.importers.zoo_checkpoints import checkpoints
from kvplan.loading import load_model
from kvplan.specs import zoo

RUNS = read_runs(Path(__file__).parent.parent / "data" / "vllm_logs.csv")
SCORES = [each for each in scores(RUNS) if isinstance(each, Score)]


def of(quantity):
    return [each for each in SCORES if each.quantity == quantity]


def known_cards(each):
    """H100 and A100 under versions that are settled."""
    card = (each.gpu or "").startswith(("h100", "a100"))
    return card and each.version is not None and int(each.version.split(".")[1]) < 21


@pytest.mark.parametrize(
    "each", [*of("blocks"), *of("tokens"), *of("concurrency")], ids=lambda e: f"{e.id}-{e.quantity}"
)
def test_the_pool_at_the_logged_memory_is_exact(each):
    assert each.within, f"{each.low} to {each.high}, logged {each.logged}"


def test_weights():
    found = summary(of("weights"))
    assert found.scores >= 55
    assert found.median < 0.001
    assert found.p90 < 0.007
    assert max(abs(each.error) for each in of("weights") if "fp4" not in each.format) < 0.025
    assert found.worst < 0.03  # NVFP4, whose kernels keep more on some cards


def test_memory_for_the_cache_end_to_end():
    settled = [each for each in of("kv") if known_cards(each)]
    others = [each for each in of("kv") if not known_cards(each)]
    assert len(settled) >= 40
    assert summary(settled).median < 0.003
    assert summary(settled).p90 < 0.02
    assert max(abs(each.share) for each in settled) < 0.01
    assert summary(others).median < 0.03


def test_bands_hold_and_are_narrow():
    found = of("kv")
    assert sum(each.within for each in found) >= 0.9 * len(found)
    assert median((each.high - each.low) / each.requested for each in found) < 0.015


def test_an_unknown_version_widens_the_band():
    known, unknown = (
        estimate("llama-3.1-8b", "h100-sxm", engine="vllm", engine_version=v, memory_fraction=0.9)
        for v in ("0.19", None)
    )
    share = [
        (e.budget.kv.high - e.budget.kv.low) / (e.budget.kv.terms["gpu_memory_bytes"] * 0.9) for e in (known, unknown)
    ]
    assert share[0] < 0.015 < share[1] < 0.08
    assert any("are assumed" in note for note in unknown.notes)


@pytest.mark.parametrize("run", sorted(UNPREDICTABLE))
def test_runs_set_aside_are_among_the_runs(run):
    assert run in {each["id"] for each in RUNS}


@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_checkpoints_are_models_of_the_zoo_in_their_own_formats(name):
    known = checkpoints()[name]
    assert known["source"]
    assert zoo.lookup("models", name) is None
    model = load_model(name)
    assert model.stack == load_model(known["model"]).stack
    assert estimate(name, kv_budget="1GiB", engine="vllm").stage.weights_bytes > 0


def test_a_checkpoint_keeps_what_its_list_excludes():
    """Only the MLPs of Gemma-4-31B-IT-NVFP4 are 4-bit: 31.04 GiB, not 19."""
    found = estimate("nvidia/Gemma-4-31B-IT-NVFP4", kv_budget="1GiB", engine="vllm", engine_version="0.19")
    assert found.stage.weights_bytes / 2**30 == pytest.approx(31.04, rel=0.01)
