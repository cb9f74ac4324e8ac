"""kvplan solve: the answer as a sentence with its ledger, as a row, and by the exit code."""

from __future__ import annotations

import json

import pytest

from kvplan.cli.main import main

CONTEXT = ["solve", "context", "--model", "mistral-7b", "--gpu", "a100-80g"]
GPUS = ["solve", "gpus", "--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--context", "8k"]


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_longest_context_is_a_sentence_and_its_ledger(capsys):
    code, out, err = run(capsys, *CONTEXT, "--sessions", "100")
    assert (code, err) == (0, "")
    assert out.startswith("The longest context at which 100 conversations fit is 4,729 tokens\n\nmistral-7b (7.25 B")
    assert "100 conversations of 4,729 tokens fit" in out


def test_the_answer_is_the_row_of_an_estimate(capsys):
    code, out, err = run(capsys, *CONTEXT, "-n", "100", "-f", "json")
    (row,) = json.loads(out)
    argv = ["estimate", *CONTEXT[2:], "-n", "100", "-c", "4729", "-f", "json"]
    assert row == {"answer": 4729, **json.loads(run(capsys, *argv)[1])[0]}
    assert (code, err) == (0, "note: The longest context at which 100 conversations fit is 4,729 tokens\n")


def test_the_fewest_gpus(capsys):
    code, out, _ = run(capsys, *GPUS, "-n", "100")
    assert code == 0
    assert out.startswith("8 x h100-sxm hold 100 conversations of 8,192 tokens: tp 8\n")
    assert "why tp 8: with tp 1 no conversation fits, with tp 2 it takes 50 GPUs" in out
    (row,) = json.loads(run(capsys, *GPUS, "-n", "100", "-f", "json")[1])
    assert (row["answer"], row["gpus"], row["tensor_parallel"], row["fits"]) == (8, 8, 8, True)


def test_no_answer_is_exit_1_with_by_how_much(capsys):
    code, out, err = run(capsys, "solve", "context", "-m", "mistral-7b", "-g", "t4", "-f", "json")
    (row,) = json.loads(out)
    assert (code, row["answer"], row["fits"]) == (1, None, False)
    assert "406.14 MiB are missing on each GPU" in err
    code, out, _ = run(capsys, *GPUS, "-n", "100", "--max-gpus", "4")
    assert code == 1
    assert out.startswith("100 conversations of 8,192 tokens need 8 x h100-sxm; the 4 that may be used hold 61\n")


def test_lists_give_a_row_each(capsys):
    argv = ["solve", "gpus", "-m", "phi-4", "-g", "h100-sxm,t4", "--tp", "2,4", "-n", "100"]
    code, out, _ = run(capsys, *argv)
    assert code == 0
    assert "# 1  2 x h100-sxm hold 100 conversations of 4,096 tokens: tp 2" in out
    rows = json.loads(run(capsys, *argv, "-f", "json")[1])
    assert [row["answer"] for row in rows] == [2, None, None, None]
    assert "tp can be 1, 2, 5, 10" in rows[1]["error"]
    assert rows[2]["max_sessions"] == 0


MISTAKES = [
    ([*CONTEXT, "--context", "8k"], "--context is what is solved for; leave it out"),
    ([*CONTEXT, "--max-gpus", "8"], "--max-gpus belongs to `kvplan solve gpus`"),
    (["solve", "contxt", *CONTEXT[2:]], "unknown question 'contxt'; did you mean 'context'?"),
    (["solve", *CONTEXT[2:]], "Missing argument 'context|gpus'"),
    ([*GPUS[:5], "8xh100-sxm"], "--gpu 8xh100-sxm: the count is what is solved for; write --gpu h100-sxm"),
    ([*GPUS, "--tp", "3"], "tp 3 is not possible for llama-3.1-70b"),
    ([*GPUS, "--max-gpus", "0"], "Invalid value for '--max-gpus'"),
    ([*GPUS, "-f", "parquet"], "parquet is a binary format that comes with sweep"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_a_sentence(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
