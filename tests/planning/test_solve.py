"""Solving is the exact inverse of estimating: the answer fits, and what is just beyond it does not."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan import estimate, load_gpu, load_model, solve_context, solve_gpus
from kvplan.errors import InputError
from kvplan.planning import solve
from kvplan.planning.solve import last_that
from kvplan.sharding import valid_tps

# full attention, windows beside it, a latent, states beside attention, attention and states in one layer
MODELS = ("mistral-7b", "gemma-3-27b", "deepseek-v3", "nemotron-h-8b", "falcon-h1-7b")
GPUS = ("l4", "a100-80g", "h200-sxm")

model = cache(load_model)
gpu = cache(load_gpu)

scenarios = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS).map(model),
        "gpu": st.sampled_from(GPUS).map(gpu),
        "weights": st.sampled_from([None, "awq"]),
        "kv_dtype": st.sampled_from(["auto", "fp8"]),
        "sessions": st.integers(1, 5000),
        "block_size": st.sampled_from([None, 16, 784]),
        "pp": st.sampled_from([1, 2, 3]),
        "dp": st.sampled_from([1, 2]),
        "shared_prefix": st.sampled_from([None, 1000]),
        "max_seqs": st.sampled_from([None, 2000]),
    }
)


@settings(max_examples=25, deadline=None)
@given(scenarios)
def test_the_longest_context_fits_and_one_token_more_does_not(options):
    found = solve_context(**options)
    shortest = (options["shared_prefix"] or 0) + 1
    if not found.fits:
        assert found.answer is None
        assert not estimate(**options, context=shortest).fits
        return
    assert found.answer is not None
    assert found.answer == found.estimate.scenario.context == found.to_dict()["context_tokens"]
    assert estimate(**options, context=found.answer).fits
    assert not estimate(**options, context=found.answer + 1).fits


def test_by_hand():
    # mistral-7b on a100-80g: a KV budget of 61,991,951,728 bytes; 100 sessions of 131,072 bytes a token
    found = solve_context("mistral-7b", "a100-80g", sessions=100)
    assert found.answer == 61_991_951_728 // (100 * 131_072) == 4729
    assert found.sentence == "The longest context at which 100 conversations fit is 4,729 tokens"
    # the prefix of 1,024 tokens is stored once: (61,991,951,728 // 131,072 - 1024) // 500 = 943 tokens of one's own
    assert solve_context("mistral-7b", "a100-80g", sessions=500, shared_prefix="1k").answer == 1024 + 943


def test_one_conversation_alone_is_the_longest_context_of_an_estimate():
    longest = estimate("mistral-7b", "a100-80g").max_context_tokens
    assert solve_context("mistral-7b", "a100-80g").answer == longest


def test_windows_set_no_limit():
    found = solve_context("mistral-7b-v0.1", "a100-80g", sessions=10)
    assert (found.answer, found.fits) == (None, True)
    assert "Memory sets no limit: 10 conversations of any length fit" in found.sentence
    # 10,000 windows of 4,096 tokens do not fit, so there is a limit after all
    many = solve_context("mistral-7b-v0.1", "a100-80g", sessions=1000)
    assert many.answer is not None
    assert many.answer < 4096


def test_the_engines_length_is_a_ceiling():
    found = solve_context("mistral-7b", "a100-80g", sessions=10, max_model_len="8k")
    assert found.answer == 8192
    assert found.notes == ["--max-model-len allows no more than 8,192 tokens"]
    assert found.to_dict()["max_model_len"] == 8192


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"gpu": "t4"}, "406.14 MiB are missing on each GPU"),
        ({"gpu": "a100-80g", "sessions": 65, "max_seqs": 64}, "--max-seqs 64 is below the 65"),
    ],
)
def test_no_context_is_short_enough(options, missing):
    found = solve_context("mistral-7b", **options)
    assert (found.answer, found.fits) == (None, False)
    assert missing in found.sentence


def test_a_structure_that_changes_with_the_length_is_solved_anew(monkeypatch):
    """As if the budgets of the shortest context did not hold at longer ones."""
    right = solve_context("mistral-7b", "a100-80g", sessions=100).answer
    generous = solve.figures
    monkeypatch.setattr(solve, "figures", lambda *args, **more: generous(*args, **more)._replace(fits=True))
    assert solve_context("mistral-7b", "a100-80g", sessions=100).answer == right


@given(st.integers(1, 100), st.integers(0, 100), st.integers(1, 200))
def test_the_last_that_holds(low, more, limit):
    found = last_that(lambda n: n <= max(low, limit), low, low + more)
    assert found == min(max(low, limit), low + more)


def fewest_by_trying(options, most):
    """Every tp with every number of replicas, up to so many GPUs."""
    spec = options["model"]
    for gpus in range(1, most + 1):
        for tp in valid_tps(spec):
            if gpus % (tp * options["pp"]) == 0 and fits({**options, "tp": tp, "dp": gpus // tp // options["pp"]}):
                return gpus
    return None


def fits(options):
    try:
        return estimate(**options).fits
    except InputError:
        return False


@settings(max_examples=12, deadline=None)
@given(scenarios, st.sampled_from(["2k", "30k"]), st.sampled_from([1, 2]))
def test_the_fewest_gpus(options, context, ep):
    spec = options["model"]
    asked = {**options, "context": context, "sessions": options["sessions"] // 50 + 1, "dp": None}
    asked["ep"] = ep if any(layer.moe for layer in spec.stack) else 1
    found = solve_gpus(**asked, max_gpus=12) if asked["pp"] <= 12 else None
    assert found is not None
    assert found.answer == fewest_by_trying(asked, 12)
    if found.fits:
        assert found.answer == found.estimate.scenario.gpus == found.to_dict()["gpus"]


def test_the_choice_is_explained():
    found = solve_gpus("llama-3.1-70b", "h100-sxm", sessions=100, context="8k")
    assert found.answer == 8
    assert found.sentence == "8 x h100-sxm hold 100 conversations of 8,192 tokens: tp 8"
    assert "with tp 1 no conversation fits, with tp 2 it takes 50 GPUs" in found.notes[0]


def test_given_degrees_stay():
    assert solve_gpus("llama-3.1-70b", "h100-sxm", sessions=100, context="8k", tp=2).answer == 50
    found = solve_gpus("mistral-7b", "a100-80g", sessions=1000, dp=2)
    assert found.answer == 8
    assert "with tp 1 only 230 fit" in found.notes[0]
    assert found.estimate.scenario.dp == 2


def test_replicas_suit_expert_parallelism():
    found = solve_gpus("mixtral-8x7b", "h100-sxm", sessions=1, ep=8)
    assert found.answer == 8


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gpu": "t4", "tp": 4}, "No number of GPUs is enough with tp 4: 144.69 GiB are missing on each GPU"),
        ({"gpu": "t4", "max_gpus": 2}, "No number of GPUs up to 2 is enough with tp 1 or 2"),
        ({"gpu": "h100-sxm", "sessions": 10_000, "max_gpus": 64}, "10,000 conversations of 4,096 tokens need 1,"),
    ],
)
def test_no_number_is_enough(options, sentence):
    found = solve_gpus("deepseek-v3", **options)
    assert (found.answer, found.fits) == (None, False)
    assert sentence in found.sentence


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        (solve_context, {"gpu": "t4", "context": "8k"}, "--context is what is solved for"),
        (solve_gpus, {"gpu": "8xt4"}, "--gpu 8xt4: the count is what is solved for; write --gpu t4"),
        (solve_gpus, {"gpu": "t4", "max_gpus": 0}, "--max-gpus: expected a number from 1 to 65,536, got 0"),
        (solve_gpus, {"gpu": "t4", "max_gpus": 1, "pp": 2}, "--max-gpus 1 is too few for mistral-7b with --pp 2"),
        (solve_gpus, {"gpu": "t4", "tp": 3}, "tp can be 1, 2, 4, 8, 16, 32"),
        (solve_gpus, {"gpu": "t4", "ep": 2}, "mistral-7b has no experts to share out"),
    ],
)
def test_mistakes(solver, options, message):
    with pytest.raises(InputError, match=message):
        solver("mistral-7b", **options)
