"""A grid runs the lines of an estimate: every cell is compared with a single estimate, to the byte."""

from __future__ import annotations

import random

import pytest

from kvplan import estimate
from kvplan.errors import InputError
from kvplan.planning.grid import Grid, sweep

OPTIONS = {
    "model": "mistral-7b,gemma-3-27b,deepseek-v3,nemotron-h-8b,gpt-oss-120b,falcon-h1-7b,llama-4-scout,phi-4,"
    "gemma-3n-e4b",
    "gpu": "t4,a100-80g,8xh200-sxm",
    "weights": "bf16,awq",
    "kv_dtype": "auto,fp8,q8_0/q4_0",
    "pp": "1:3:+1",
    "block_size": "1,16",
    "memory_fraction": "0.5,0.9",
    "max_seqs": "8,256",
    "sessions": "1,100",
    "context": "1:2M:x7,100000",
}


def single(row, options):
    """The same scenario asked alone."""
    try:
        return estimate(**options).to_dict()
    except InputError as error:
        return str(error)


def cells(grid):
    """Options of every row, in the grid's order."""
    names = list(grid.axes)

    def each(index):
        chosen = {}
        for name in reversed(names):
            index, place = divmod(index, len(grid.axes[name]))
            chosen[name] = grid.axes[name][place]
        return chosen

    return each


@pytest.mark.parametrize(
    "options",
    [
        OPTIONS,
        {"model": "qwen3-30b-a3b,mixtral-8x7b", "gpu": "8xh100-sxm", "tp": "2,4,8", "ep": "1,2,8",
         "context": "1k:64k:x2", "shared_prefix": "1k,10k", "max_model_len": "32k", "lora_rank": 16,
         "reserve": "1GiB,3GiB"},
        {"model": "llama-2-7b", "attention": "mha,gqa:8,mqa", "kv_budget": "1GiB:60GiB:+7GiB",
         "context": "100:9000:+77"},
        {"model": "mistral-7b,llama-2-7b", "gpu": "a100-80g", "engine": "generic,textbook", "dp": "1,3"},
        {"model": "mistral-7b,mixtral-8x7b", "gpu": "2xa100-80g", "engine": "vllm", "engine_version": "0.6,0.19,0.31",
         "sessions": "1,20", "context": "1k:32k:x2", "max_seqs": "64,256"},
        {"model": "mistral-7b-v0.1,qwen3.5-9b,llama-2-7b", "gpu": "h200", "engine": "vllm", "context": "1k:32k:x2"},
        {"model": "mistral-7b", "gpu": "a100-80g", "engine": "vllm", "engine_version": "0.9", "flags": [{"v1": False}],
         "context": "1k:32k:x2"},
    ],
    ids=["many", "prefix", "budgets", "engines", "vllm", "no version", "V0 by a flag"],
)  # fmt: skip
def test_cells_are_single_estimates(options):
    grid = Grid(options)
    rows = list(grid.rows()) if len(grid) < 4000 else None
    chosen = cells(grid)
    wanted = sorted(random.Random(7).sample(range(len(grid)), min(len(grid), 400)))
    found = rows or _at(grid, wanted)
    for index in wanted:
        row, alone = found[index], single(None, chosen(index))
        if isinstance(alone, str):
            assert (row["fits"], row["error"]) == (False, alone)
            continue
        assert row["error"] is None
        for key, value in alone.items():
            if key not in ("ledger", "engine_detail"):
                assert row[key] == value, (key, chosen(index))
                assert type(row[key]) is type(value), key


def _at(grid, indices):
    found, start, left = {}, 0, iter([*indices, None])
    index = next(left)
    for chunk in grid.chunks():
        while index is not None and index < start + chunk.rows:
            found[index] = chunk.at(index - start)
            index = next(left)
        start += chunk.rows
    assert start == len(grid)
    return found


def test_a_refused_combination_is_a_row_with_its_reason():
    rows = list(sweep("phi-4", "a100-80g", tp=[4, 5], context=["2k", "4k"]).rows())
    assert [row["fits"] for row in rows] == [False, False, True, True]
    assert "tp can be 1, 2, 5, 10" in rows[0]["error"]
    assert (rows[1]["tensor_parallel"], rows[1]["context_tokens"]) == (4, 4096)


def test_contexts_beyond_the_engines_length_are_refused_row_by_row():
    rows = list(sweep("mistral-7b", "a100-80g", max_model_len="8k", context="4k:16k:x2").rows())
    assert [row["error"] is None for row in rows] == [True, True, False]
    assert rows[2]["error"] == "--max-model-len 8192 is below --context 16384; raise it or leave it out"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu": "t4"}, "a grid needs a model"),
        ({"model": []}, "model: the list is empty"),
        ({"model": "m", "colour": "red"}, "unknown option 'colour'"),
        ({"model": "m", "reserve": "1GiB:1000GiB:+1MiB"}, "more than 100,000"),
    ],
)
def test_what_is_no_grid(options, message):
    with pytest.raises(InputError, match=message):
        Grid(options)
