"""A server's command line: every way of writing a flag, what it means, and what is refused with a suggestion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvplan.cli.main import main
from kvplan.errors import InputError
from kvplan.evidence.launch import parse_launch
from kvplan.evidence.launch.flags import FLAGS, SHORT
from kvplan.evidence.launch.values import count


def options(command: str) -> dict[str, Any]:
    return dict(parse_launch(command).check().options)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param("--tensor-parallel-size 2", {"tp": 2}, id="long"),
        pytest.param("--tensor_parallel_size=2", {"tp": 2}, id="underscores-equals"),
        pytest.param("-tp 2 -pp=2 -dp 4", {"tp": 2, "pp": 2, "dp": 4}, id="short"),
        pytest.param("--tp 2", {"tp": 2}, id="short-with-two-dashes"),
        pytest.param("\u2014tensor-parallel-size 2", {"tp": 2}, id="dash-of-a-text-processor"),
        pytest.param("--max-model-len 32k", {"max_model_len": 32_000}, id="k-is-1000-for-vllm"),
        pytest.param("--max-model-len 32K", {"max_model_len": 32_768}, id="K-is-1024"),
        pytest.param("--max-model-len 25.6k", {"max_model_len": 25_600}, id="decimals"),
        pytest.param("--kv-cache-memory-bytes 10G", {"kv_budget": 10 * 2**30}, id="memory"),
        pytest.param("--kv-cache-memory=7564378828", {"kv_budget": 7_564_378_828}, id="as-the-log-suggests"),
        pytest.param("--gpu-memory-utilization .95", {"memory_fraction": 0.95}, id="fraction"),
        pytest.param("--max-num-seqs 16 --max-num-seqs 32", {"max_seqs": 32}, id="the-last-one-counts"),
        pytest.param("--enforce-eager", {"eager": True}, id="switch"),
        pytest.param("--enforce-eager --no-enforce-eager", {}, id="switched-off"),
        pytest.param("-O0", {"eager": True}, id="optimisation-level"),
        pytest.param("-cc.cudagraph_mode=NONE", {"eager": True}, id="dotted"),
        pytest.param("""--compilation-config '{"cudagraph_mode": "NONE"}'""", {"eager": True}, id="json"),
        pytest.param("--compilation-config 3", {}, id="level"),
        pytest.param("-q fp8 --kv-cache-dtype fp8_e5m2", {"weights": "fp8", "kv_dtype": "fp8"}, id="formats"),
        pytest.param("--quantization compressed-tensors", {}, id="the-checkpoint-says"),
        pytest.param("--dtype float32", {"weights": "fp32", "kv_dtype": "fp32"}, id="fp32"),
        pytest.param("--enable-lora", {"lora_rank": 16, "max_loras": 1}, id="lora-defaults"),
        pytest.param("--enable-lora --max-lora-rank 64 --max-loras 4", {"lora_rank": 64, "max_loras": 4}, id="lora"),
        pytest.param('--speculative-config \'{"model": "a/b"}\'', {"draft_model": "a/b"}, id="draft"),
        pytest.param("--limit-mm-per-prompt image=0,video=0", {"extras": "none"}, id="older-json"),
        pytest.param("--limit-mm-per-prompt.image 0", {"extras": "none"}, id="one-key"),
        pytest.param("--served-model-name a b c --swap-space 4 --port 80", {}, id="irrelevant"),
        pytest.param("--cpu-offload-gb 0", {}, id="refused-unless-zero"),
    ],
)
def test_flags(flags: str, expected: dict[str, Any]) -> None:
    assert options(f"vllm serve org/name {flags}") == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--no-enable-prefix-caching", {"prefix_caching": False}),
        ("--disable-hybrid-kv-cache-manager", {"hybrid_manager": False}),
        ("--no-disable-hybrid-kv-cache-manager", {"hybrid_manager": True}),
        ("-dcp 8", {"context_parallel": 8}),
        ("--skip-mm-profiling", {"multimodal_profile": False}),
        ("--mamba-cache-mode align", {"state_mode": "align"}),
        (
            '--speculative-config \'{"method": "qwen3_next_mtp", "num_speculative_tokens": 3}\'',
            {"speculative_method": "mtp", "speculative_tokens": 3},
        ),
        ("--max-model-len auto", {"max_model_len": "auto"}),
        ("--max-model-len -1", {"max_model_len": "auto"}),
        ("--enable-expert-parallel", {"expert_parallel": True}),
    ],
)
def test_what_only_the_engine_knows(flags: str, expected: dict[str, Any]) -> None:
    assert dict(parse_launch(f"vllm serve org/name {flags}").engine_flags) == expected


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve org/name -tp 4",
        "$ vllm serve org/name -tp 4",
        "sudo nohup /opt/venv/bin/vllm serve org/name -tp 4 > log.txt 2>&1 &",
        "export A=1\nuv run vllm serve org/name -tp 4 | tee log",
        "vllm serve org/name \\\n    --host 0.0.0.0 \\  \n    -tp 4",
        "vllm serve org/name ^\r\n  -tp 4",
        "vllm serve org/name\n  --host 0.0.0.0\n  -tp 4",
        "vllm serve --model org/name -tp 4",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 python3 -m vllm.entrypoints.openai.api_server --model org/name -tp 4",
        "python api_server.py --model=org/name --tensor-parallel-size=4",
        "vllm serve \u201corg/name\u201d -tp 4",
    ],
)
def test_ways_to_start_a_server(command: str) -> None:
    launch = parse_launch(command).check()
    assert (launch.model, launch.options) == ("org/name", {"tp": 4})


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.19.0", "0.19.0"),
        ("vllm/vllm-openai:v0.11.2-cu130", "0.11.2"),
        ("registry:5000/vllm/vllm-openai:v0.20.1rc1", "0.20.1rc1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:0a", None),
    ],
)
def test_the_image_tells_the_version(image: str, version: str | None) -> None:
    text = f"docker run --gpus all --name vllm -v /a:/b -e VLLM_USE_V1=0 --ipc=host -p 8000:8000 {image}"
    for rest in ("--model org/name -tp 2", "org/name -tp 2", "vllm serve org/name -tp 2"):
        launch = parse_launch(f"{text} {rest}").check()
        assert (launch.version, launch.model, launch.options) == (version, "org/name", {"tp": 2})
        assert launch.engine_flags["v1"] is False


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("", "no vLLM server in it"),
        ("python train.py --tp 2", "no vLLM server in it"),
        ("vllm serve 'org/name", "a quote is not closed"),
        ("vllm serve a/b --tensor-paralel-size 2", "unknown flag '--tensor-paralel-size'; did you mean"),
        ("vllm serve a/b --max-num-seqs many", "'many' is no whole number above 0"),
        ("vllm serve a/b --gpu-memory-utilization 1.2", "'1.2' is no share"),
        ("vllm serve a/b --max-model-len", "--max-model-len needs a value"),
        ("vllm serve a/b --max-model-len 8q", "'8q' is no length"),
        ("vllm serve a/b --kv-cache-dtype fp9", "'fp9' is not modelled; did you mean 'fp8'"),
        ("vllm serve a/b --quantization awqq", "unknown method 'awqq'; did you mean"),
        ("vllm serve a/b --cpu-offload-gb 10", "weights kept in host memory are not modelled"),
        ("vllm serve a/b --no-port", "has no --no- form"),
        ("vllm serve a/b c/d", "'c/d' stands where a flag was expected"),
        ("vllm serve a/b --speculative-config '{oops'", "expected a JSON object"),
        ("vllm serve a/b " + "x" * 70_000, "no command line"),
    ],
)
def test_what_is_refused(command: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_launch(command).check()
    assert reason in str(raised.value)


def test_all_problems_at_once() -> None:
    with pytest.raises(InputError) as raised:
        parse_launch("vllm serve a/b --max-num-seqs x --oops 1").check()
    assert str(raised.value).startswith("--launch has 2 problems\n")


def test_what_matters_is_told_apart() -> None:
    launch = parse_launch("vllm serve a/b -tp 2 --host h --api-key secret --hf-overrides '{}'")
    assert [said.flag for said in launch.relevant] == ["--tensor-parallel-size", "--hf-overrides"]
    assert launch.irrelevant == ("--host", "--api-key")
    assert "GPUs that share each layer" in launch.relevant[0].meaning


def test_the_table_is_consistent() -> None:
    assert set(SHORT.values()) <= set(FLAGS)
    assert all(name == flag.name and name.isidentifier() for name, flag in FLAGS.items())
    assert len(FLAGS) > 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1k", 1000), ("1K", 1024), ("10G", 10 * 2**30), ("10g", 10**10), ("8Ki", 8192), ("16,384", 16_384),
     ("1e3", None), ("-5", None), ("0", None), ("9" * 30, None), ("0.1k", 100), ("1.5", None), (True, None)],
)  # fmt: skip
def test_counts_as_vllm_reads_them(text: object, expected: int | None) -> None:
    assert count(text) == expected


def test_estimate_of_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    command = "docker run vllm/vllm-openai:v0.19.0 meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-model-len 32K --port 80"
    code = main(["estimate", "--launch", command, "--gpu", "h100-sxm", "--format", "json"])
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert code == 0
    got = [row[key] for key in ("model", "engine", "engine_version", "tensor_parallel", "max_model_len", "gpus")]
    assert got == ["llama-3.1-8b", "vllm", "0.19", 2, 32_768, 2]
    assert "--tensor-parallel-size 2" in err
    assert "these do not: --port" in err


def test_other_options_go_before_a_launch(capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic -tp 2 --gpu-memory-utilization 0.8"
    argv = [
        "estimate",
        "--launch",
        command,
        "--gpu",
        "h100-sxm",
        "--tp",
        "4",
        "--memory-fraction",
        "0.95",
        "-f",
        "json",
    ]
    assert main(argv) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert [row[key] for key in ("tensor_parallel", "memory_fraction")] == [4, 0.95]
    assert row["weight_scheme"].startswith("fp8")


def test_an_automatic_length_is_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len auto"
    assert main(["estimate", "--launch", command, "--gpu", "rtx-4090", "-f", "json"]) == 0
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert row["max_model_len"] == row["max_context_tokens"] < 131_072
    assert f"--max-model-len auto comes to {row['max_model_len']}" in err


@pytest.mark.parametrize("command", ["ls", "vllm serve nobody/nothing", "vllm serve", "vllm serve a/b --oops"])
def test_a_launch_that_cannot_be_planned(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--launch", command, "--gpu", "h100-sxm"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
