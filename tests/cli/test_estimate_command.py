"""The command line: exit codes, streams, formats, and a sentence for every mistake."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import pytest

from kvplan.cli.main import main
from kvplan.loading import load_model
from kvplan.planning.facts import model_catalog, model_summary
from kvplan.specs import zoo

BASE = ["estimate", "--model", "mistral-7b", "--gpu", "a100-80g"]


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_json_is_an_array_of_rows(capsys):
    code, out, err = run(capsys, *BASE, "--format", "json")
    (row,) = json.loads(out)
    assert (code, err, row["max_sessions"], row["kv_bytes_per_token"]) == (0, "", 115, 131_072)


def test_every_format_tells_the_same(capsys):
    rows = {form: run(capsys, *BASE, "--context", "2k,4k", "--format", form)[1] for form in ("json", "jsonl", "csv")}
    expected = [row["max_sessions"] for row in json.loads(rows["json"])]
    assert [json.loads(line)["max_sessions"] for line in rows["jsonl"].splitlines()] == expected
    assert [int(row["max_sessions"]) for row in csv.DictReader(io.StringIO(rows["csv"]))] == expected


def test_seed_comparison_in_one_command(capsys):
    _, out, _ = run(capsys, *BASE, "--attention", "mha,gqa:8,mqa", "--context", "2k,4k,8k,32k", "--format", "json")
    rows = json.loads(out)
    sizes = {(row["kv_heads"], row["context_tokens"]): row["kv_bytes_per_session"] for row in rows}
    # 2 x 32 layers x heads x 128 x 2 B x tokens
    assert sizes == {(h, t): 2 * 32 * h * 128 * 2 * t for h in (32, 8, 1) for t in (2048, 4096, 8192, 32768)}


def test_explain_shows_formulas(capsys):
    code, out, _ = run(capsys, *BASE, "--explain")
    assert code == 0
    assert "floor(gpu_memory_bytes * memory_fraction) - weights_bytes - overhead_bytes" in out
    code, out, _ = run(capsys, *BASE, "--explain", "--format", "json")
    assert {"tensors", "counts", "work"} <= set(json.loads(out)[0])


def test_what_does_not_fit_says_what_would(capsys):
    code, out, _ = run(capsys, "estimate", "--model", "llama-3.1-70b", "--gpu", "h100-sxm")
    assert code == 1
    for change in ("--weights fp8 fits", "--tp 2 fits", "--gpu b200 fits"):
        assert change in out


def test_a_question_of_sessions_is_answered_by_the_exit_code(capsys):
    assert run(capsys, *BASE, "--sessions", "115")[0] == 0
    assert run(capsys, *BASE, "--sessions", "116")[0] == 1


def test_one_row_that_fits_is_enough(capsys):
    argv = [
        "estimate",
        "--model",
        "llama-3.1-70b",
        "--gpu",
        "a100-80g,h200-sxm",
        "--weights",
        "fp8",
        "--format",
        "json",
    ]
    assert run(capsys, *argv)[0] == 0


def test_a_refused_alternative_is_a_row_with_its_reason(capsys):
    code, out, _ = run(
        capsys, "estimate", "--model", "mistral-7b,phi-4", "--gpu", "a100-80g", "--tp", "4", "-f", "json"
    )
    good, bad = json.loads(out)
    assert (code, good["fits"], bad["fits"]) == (0, True, False)
    assert "tp can be 1, 2, 5, 10" in bad["error"]


MISTAKES = [
    ([*BASE[:2], "mistral-7bb", "-g", "t4"], "unknown model 'mistral-7bb'; did you mean 'mistral-7b'"),
    (["estimate", "-m", "mistral-7b", "-g", "b2000"], "unknown GPU 'b2000'"),
    (["estimate", "-m", "mistral-7b", "-g", "h100"], "'h100' is not exact; write one of h100-nvl, h100-pcie, h100-sxm"),
    (["estimate", "-m", "mistral-7b"], "name a GPU with --gpu, or give the KV memory of one with --kv-budget"),
    (["estimate", "-g", "t4"], "Missing option '--model'"),
    ([*BASE, "--context", "0"], "--context: '0' is not a whole, positive number of tokens"),
    ([*BASE, "--context", "-5"], "--context: '-5' is not a number of tokens"),
    ([*BASE, "--context", "010"], "--context: '010' is not a number of tokens"),
    ([*BASE, "--context", "1:30"], "--context '1:30': a range is START:END:xFACTOR or START:END:+STEP"),
    ([*BASE, "--context", "9999999999k"], "more than 4,294,967,296 tokens"),
    ([*BASE, "--kv-budget", "60"], "--kv-budget: '60' has no unit; write 60GiB"),
    ([*BASE, "--kv-budget", "60GIB"], "unknown unit 'GIB'"),
    ([*BASE, "--weights", "fp9"], "unknown weight scheme 'fp9'; did you mean 'fp8'"),
    ([*BASE, "--kv-dtype", "q9_0"], "unknown KV format 'q9_0'"),
    ([*BASE, "--attention", "gqa:5"], "mistral-7b has 32 query heads, so N can be 1, 2, 4, 8, 16, 32"),
    ([*BASE, "--attention", "gqa"], "expected mha, mqa or gqa:N"),
    ([*BASE, "--engine", "sglang"], "engine 'sglang' is not modelled yet"),
    ([*BASE, "--tp", "3"], "tp can be 1, 2, 4, 8, 16, 32"),
    ([*BASE, "--tp", "x"], "--tp: expected a whole number of at least 1, got 'x'"),
    ([*BASE, "--tp", "1,"], "there is an empty value between the commas"),
    ([*BASE, "--tp", "1,1"], "'1' appears twice"),
    ([*BASE, "--memory-fraction", "nan"], "expected a number above 0 and at most 1"),
    ([*BASE, "--memory-fraction", "all"], "expected a number above 0 and at most 1 such as 0.9, got 'all'"),
    ([*BASE, "--sessions", "0"], "--sessions: expected a whole number of at least 1, got '0'"),
    ([*BASE, "--format", "yaml"], "unknown format 'yaml'"),
    ([*BASE, "--context", "64k", "--strict"], "it needs rope scaling by a factor of 2 from 32768"),
    (["estimate", "-m", "deepseek-v3", "-g", "t4", "--attention", "mqa"], "deepseek-v3 keeps a latent (MLA)"),
    (["estimate", "-m", "mistral-7b", "-g", "8xa100-80g", "--tp", "3"], "is 3 GPUs, not 8"),
    (["estimat"], "unknown command 'estimat'; did you mean 'estimate'?"),
    (["estimate", "--modle", "x"], "No such option"),
    (["schema", "modle"], "unknown kind of file 'modle'; did you mean 'model'?"),
    (["models", "zzzz"], "unknown model 'zzzz'"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[" ".join(argv)[:70] for argv, _ in MISTAKES])
def test_a_mistake_is_a_sentence(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"", ["bad.yaml: the file is empty"]),
        (bytes(range(256)), ["not UTF-8 text"]),
        (b"a: &a [x]\nb: [*a, *a]\n", ["anchors and aliases are not allowed"]),
        (b"name: m\nhidden_size: 010\nvocab_size: 1:30\ntied: no\nname: n\nlayers: 2\n", [":2:", ":3:", ":4:", ":5:"]),
    ],
    ids=["empty", "binary", "aliases", "four mistakes"],
)
def test_bad_files_are_told_by_line(capsys, tmp_path, content, messages):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    code, out, err = run(capsys, "estimate", "-m", str(path), "-g", "t4")
    assert (code, out) == (2, "")
    for message in messages:
        assert message in err


def test_an_unwritable_output_fails_first_and_leaves_nothing(capsys, tmp_path):
    code, _, err = run(capsys, *BASE, "--output", str(tmp_path / "none" / "x.json"))
    assert code == 2
    assert "there is no folder" in err
    code, _, _ = run(capsys, "estimate", "-m", "nope", "-g", "t4", "-o", str(tmp_path / "x.json"))
    assert code == 2
    assert list(tmp_path.iterdir()) == []


def test_output_chooses_the_format(capsys, tmp_path):
    assert run(capsys, *BASE, "-o", str(tmp_path / "x.csv"))[0] == 0
    assert (tmp_path / "x.csv").read_text().startswith("model,gpu,")


def test_notes_go_to_stderr_where_rows_go_to_stdout(capsys):
    _, out, err = run(capsys, *BASE, "--context", "64k", "--format", "json")
    assert json.loads(out)
    assert err.startswith("note: context 65536 is above mistral-7b's maximum")


def test_a_k_quant_that_does_not_divide_says_its_fallback(capsys):
    _, _, err = run(capsys, "estimate", "-m", "smollm2-135m", "-g", "t4", "--weights", "q4_k_m", "-f", "json")
    assert "q4_k does not divide rows of 576 elements" in err
    assert "q5_0 is used there" in err


def test_no_gpu_here_is_exit_3(capsys):
    code, _, err = run(capsys, "estimate", "-m", "mistral-7b", "-g", "local")
    assert code == 3
    assert "name a GPU instead" in err


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m kvplan models | head -1"
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=env, check=False)
    assert "Traceback" not in done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "line",
    ["models", "models qwen3-0.6b", "gpus", "gpus h100-sxm", "engines", "schema model", "schema gpu", "--help",
     "estimate --help"],
)  # fmt: skip
def test_other_commands_answer(capsys, line):
    code, out, err = run(capsys, *line.split())
    assert (code, err) == (0, "")
    assert out


def test_the_catalog_of_models_says_what_their_files_say():
    # to mend it: python -c "from kvplan.planning import facts; facts.write_model_catalog()"
    assert list(model_catalog()) == zoo.names("models")
    for name, summary in model_catalog().items():
        assert summary == model_summary(load_model(name)), name
