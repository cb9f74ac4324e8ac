"""kvplan sweep: grids to every format, exit codes, and what happens when it goes wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from kvplan import __version__, sweep
from kvplan.cli.main import main
from kvplan.planning.row import KEYS

BASE = ["sweep", "--model", "mistral-7b,phi-4", "--gpu", "a100-80g", "--context", "2k:32k:x4", "--sessions", "1,100"]
REFUSED = ["sweep", "--model", "phi-4", "--gpu", "a100-80g", "--tp", "2,4"]


def run(capsys, *argv):
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def rows(capsys, *argv):
    code, out, err = run(capsys, *argv, "--format", "jsonl")
    assert err == ""
    return code, [json.loads(line) for line in out.splitlines()]


def test_one_row_a_scenario_with_the_contracts_columns(capsys):
    code, found = rows(capsys, *BASE)
    assert code == 0
    assert len(found) == 2 * 3 * 2
    assert list(found[0]) == [*KEYS, "sessions", "error"]
    assert [row["context_tokens"] for row in found[:3]] == [2048, 8192, 32768]
    assert [row["fits"] for row in found[:6]] == [True, True, True, True, False, False]


def test_rows_are_those_of_estimate(capsys):
    _, found = rows(capsys, *BASE)
    argv = ["estimate", *BASE[1:5], "--context", "2k,8k,32k", "--sessions", "1,100", "--format", "json"]
    alone = json.loads(run(capsys, *argv)[1])
    same = {(row["model"], row["context_tokens"], row["max_sessions"], row["kv_tokens"]) for row in alone}
    assert {(row["model"], row["context_tokens"], row["max_sessions"], row["kv_tokens"]) for row in found} == same


def test_every_format_tells_the_same(capsys, tmp_path):
    _, found = rows(capsys, *BASE)
    sessions = [row["max_sessions"] for row in found]
    assert [row["max_sessions"] for row in json.loads(run(capsys, *BASE, "-f", "json")[1])] == sessions
    assert [int(r["max_sessions"]) for r in csv.DictReader(io.StringIO(run(capsys, *BASE, "-f", "csv")[1]))] == sessions
    assert main([*BASE, "-o", str(tmp_path / "x.parquet")]) == 0
    assert pd.read_parquet(tmp_path / "x.parquet")["max_sessions"].tolist() == sessions
    lines = run(capsys, *BASE, "-f", "markdown")[1].splitlines()
    place = lines[0].split(" | ").index("max_sessions")
    assert [int(line.split(" | ")[place]) for line in lines[2:]] == sessions
    assert run(capsys, *BASE)[1].count("mistral-7b") == 6


def test_a_frame_is_what_the_files_hold(tmp_path):
    options = {"gpu": "a100-80g,t4", "tp": "1,3", "context": "2k:64k:x2", "max_seqs": "8,64", "reserve": "1GiB,2GiB"}
    argv = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    for name in ("x.csv", "x.parquet"):
        assert main(["sweep", "--model", "mistral-7b-v0.1,phi-4", *argv, "--output", str(tmp_path / name)]) == 0
    frame = sweep("mistral-7b-v0.1,phi-4", **options, engine="generic").to_frame()
    types = frame.dtypes.astype(str).to_dict()
    assert (types["max_context_tokens"], types["fits"], types["overhead_bytes_low"]) == ("Int64", "boolean", "Int64")
    assert frame["max_context_tokens"].isna().any()  # windows: no limit
    read = {"x.csv": pd.read_csv(tmp_path / "x.csv"), "x.parquet": pd.read_parquet(tmp_path / "x.parquet")}
    for found in read.values():
        pd.testing.assert_frame_equal(found.astype(frame.dtypes), frame)


def test_a_refused_combination_is_a_row_with_its_reason(capsys):
    code, (good, bad) = rows(capsys, *REFUSED)
    assert (code, good["fits"], good["error"]) == (0, True, None)
    assert (bad["tensor_parallel"], bad["fits"], bad["weights_bytes"]) == (4, False, None)
    assert "tp can be 1, 2, 5, 10" in bad["error"]
    assert "refused" in run(capsys, *REFUSED)[1]


def test_options_without_a_column_get_one_where_they_vary(capsys):
    argv = ["sweep", "-m", "mistral-7b", "-g", "a100-80g", "--reserve", "1GiB,2GiB", "--attention", "mha,gqa:8"]
    _, found = rows(capsys, *argv, "--shared-prefix", "1k")
    assert [(row["attention"], row["reserve_bytes"]) for row in found] == [
        ("mha", 2**30), ("mha", 2**31), ("gqa:8", 2**30), ("gqa:8", 2**31)
    ]  # fmt: skip
    assert "shared_prefix_tokens" not in found[0]


def test_top_and_sort(capsys):
    def kept(*argv):
        return [(r["model"], r["context_tokens"]) for r in rows(capsys, *BASE[:7], *argv)[1]]

    assert kept("--top", "3") == [("mistral-7b", 2048), ("phi-4", 2048), ("mistral-7b", 8192)]
    assert kept("--sort", "kv_bytes_per_session", "--top", "2") == [("mistral-7b", 2048), ("phi-4", 2048)]
    assert kept("--sort", "context_tokens:desc")[:2] == [("mistral-7b", 32768), ("phi-4", 32768)]


def test_exit_1_when_no_row_fits(capsys):
    assert rows(capsys, "sweep", "-m", "llama-3.1-70b", "-g", "t4,a100-80g")[0] == 1
    assert rows(capsys, "sweep", "-m", "llama-3.1-70b", "-g", "t4,h200-sxm", "-w", "fp8")[0] == 0


def test_metadata_says_how_it_was_made(capsys, tmp_path):
    about = tmp_path / "about.json"
    argv = [*BASE, "--top", "5", "--metadata", str(about), "-o", str(tmp_path / "x.csv")]
    assert run(capsys, *argv) == (0, "", "")
    found = json.loads(about.read_text())
    assert (found["kvplan_version"], found["rows"], found["format"]) == (__version__, 5, "csv")
    assert found["options"]["context"] == "2k:32k:x4"
    assert found["options"]["top"] == 5
    assert found["columns"] == (tmp_path / "x.csv").read_text().splitlines()[0].split(",")
    assert found["date"].endswith("+00:00")


def test_a_hostile_name_stays_text(capsys, tmp_path):
    text = (Path(__file__).parents[2] / "model_zoo" / "models" / "mistral-7b.yaml").read_text()
    model = tmp_path / "hostile.yaml"
    model.write_text("\n".join(['name: "=cmd|x"', *(ln for ln in text.splitlines() if not ln.startswith("name:"))]))
    _, out, _ = run(capsys, "sweep", "-m", str(model), "-g", "a100-80g", "--context", "1k:100k:+1k", "-f", "csv")
    assert [line.split(",")[0] for line in out.splitlines()] == ["model", *["'=cmd|x"] * 100]
    assert rows(capsys, "sweep", "-m", str(model), "-g", "a100-80g")[1][0]["model"] == "=cmd|x"


MISTAKES = [
    (["--context", ""], "there is an empty value between the commas"),
    (["--context", "8k:4k:+1k"], "the range starts above its end"),
    (["--context", "8k:32k:+0"], "'+0' is no step that reaches the end"),
    (["--context", "8k:32k:x1"], "'x1' is no step that reaches the end"),
    (["--context", "1:4G:+1"], "'4G' is not a number of tokens"),
    (["--context", "1:1024M:+1"], "more than 10,000,000 values; take a larger step"),
    (["--context", "1:9M:+1", "--sessions", "1:9999:+1"], "rows are more than 10,000,000,000"),
    (["--reserve", "1MiB:900GiB:+1MiB"], "combinations of models, GPUs and so on are more than 100,000"),
    (["--model", "mistrl-7b"], "unknown model 'mistrl-7b'; did you mean"),
    (["--context", "1k:2M:+1k"], "2,048 rows are too many to read: write them with --output rows.csv"),
    (["--sort", "max_session"], "--sort: unknown column 'max_session'; did you mean 'max_sessions'"),
    (["--top", "0"], "Invalid value for '--top'"),
    (["--human", "-f", "json"], "--human is for table, markdown and csv; json is read by programs"),
    (["--sort", "gpus", "--context", "1:3M:+1", "-f", "csv"], "--sort keeps every row in memory, at most 2,000,000"),
    (["--output", "x.xlsx"], "unknown suffix '.xlsx'"),
    (["--metadata", "/nowhere/x.json"], "--metadata /nowhere/x.json: there is no folder /nowhere"),
]


@pytest.mark.parametrize(("argv", "message"), MISTAKES, ids=[" ".join(argv) for argv, _ in MISTAKES])
def test_a_mistake_is_a_sentence(capsys, argv, message):
    code, out, err = run(capsys, "sweep", "--model", "mistral-7b", "--gpu", "a100-80g", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


def test_a_mistake_leaves_no_file(capsys, tmp_path):
    out, about = str(tmp_path / "x.csv"), str(tmp_path / "about.json")
    assert run(capsys, "sweep", "-m", "nope", "-g", "t4", "--metadata", about, "-o", out)[0] == 2
    assert run(capsys, *BASE, "--metadata", about, "-o", str(tmp_path / "none" / "x.csv"))[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_full_disk_is_a_sentence(capsys, form):
    argv = ["sweep", "-m", "mistral-7b", "-g", "a100-80g", "--context", "1:1M:+100"]
    code, out, err = run(capsys, *argv, "-f", form, "-o", "/dev/full")
    assert (code, out) == (2, "")
    assert err == "error: the result could not be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_behind_standard_output():
    command = [sys.executable, "-m", "kvplan", *BASE, "--format", "csv"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the result could not be written: No space left on device\n"


def read_until(terminal, wanted):
    """What is written until that comes, or until the other side is closed, which Linux tells as an error."""
    told = b""
    with suppress(OSError):
        while wanted not in told and (more := os.read(terminal, 4096)):
            told += more
    return told


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_progress_on_a_terminal_and_ctrl_c_leaves_nothing(tmp_path, name):
    terminal, stderr = pty.openpty()
    argv = ["sweep", "-m", "mistral-7b", "-g", "a100-80g", "-c", "1:9M:+1", "-n", "1,2", "-o", str(tmp_path / name)]
    process = subprocess.Popen([sys.executable, "-m", "kvplan", *argv], stderr=stderr)
    os.close(stderr)
    try:
        assert b"of 18,874,368 rows" in read_until(terminal, b" left")
        assert [path.name.startswith(".kvplan-") for path in tmp_path.iterdir()] == [True]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert read_until(terminal, b"end of all").endswith(b"\r\x1b[K")  # the line is gone
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_a_pipe_sees_no_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kvplan.report.stream_progress.PATIENCE_S", 0)
    assert run(capsys, *BASE, "-o", str(tmp_path / "x.csv")) == (0, "", "")


def test_without_numpy_it_names_the_command(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    code, _, err = run(capsys, *BASE)
    assert (code, err) == (3, "error: a grid needs numpy: pip install 'kvplan[report]'\n")


PLAN = """
deployments:
  chat:
    model: mistral-7b
    gpu: a100-80g
    context: [4096, 8k]
    expect: {max_sessions: ">= 50"}
  code:
    model: phi-4
    kv_budget: 60GiB
    tp: [1, 2]
"""


def test_the_deployments_of_a_plan_are_swept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    assert main(["sweep", str(path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["deployment"], row["context_tokens"], row["tensor_parallel"]) for row in rows] == [
        ("chat", 4096, 1),
        ("chat", 8192, 1),
        ("code", 4096, 1),
        ("code", 4096, 2),
    ]
    # 57.73 GiB / 512 MiB and / 1 GiB; 60 GiB / (40 layers x 2 x 10 heads x 128 x 2 B x 4096 = 800 MiB), half at tp 2
    assert [row["max_sessions"] for row in rows] == [115, 57, 76, 153]


def test_options_beside_a_plan_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    assert main(["sweep", str(path), "--gpu", "t4"]) == 2
    assert "--gpu beside a plan: its deployments have options of their own" in capsys.readouterr().err
    assert main(["sweep", str(path), "-o", str(path), "-f", "csv"]) == 2
    assert "is a file that is read here" in capsys.readouterr().err
    assert path.read_text() == PLAN
