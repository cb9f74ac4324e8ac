"""Start-up logs as people paste them: figures, flags, ranks, several engines, wrappers, failures."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kvplan.evidence.logs import EngineLog, read_log
from kvplan.units import GIB

LogOf = Callable[[str], EngineLog]
TextOf = Callable[[str], str]


def gib(value: float) -> int:
    return round(value * GIB)


def test_every_figure_of_a_start(log_of: LogOf) -> None:
    log = log_of("v0.19-llama-3.1-8b.")
    expected = {  # V024
        "weights": gib(14.99), "graph_estimate": gib(0.84), "available": gib(58.11), "kv_tokens": 476_016,
        "concurrency_tokens": 8192, "max_concurrency": 58.11, "graphs": gib(0.91), "activation": gib(1.89),
        "non_torch": gib(0.25), "free": gib(78.68), "total": gib(79.19), "requested": gib(75.23),
        "memory_fraction": 0.95, "max_batched_tokens": 8192, "largest_full": 512,
    }  # fmt: skip
    assert {name: log.last(name) for name in expected} == expected
    assert (log.version, log.model, log.started) == ("0.19.0", "meta-llama/Llama-3.1-8B-Instruct", True)
    assert log.arguments["max_num_seqs"] == 1024
    assert log.arguments["enable_prefix_caching"] is False
    assert log.all("weights")[0].step == pytest.approx(0.01 * GIB)


def test_v0(log_of: LogOf) -> None:
    log = log_of("v0-llama")  # V075
    assert log.version == "0.6.4.post1"
    assert (log.last("num_blocks"), log.last("max_concurrency")) == (1952, 1.56)
    assert (log.last("weights"), log.last("available"), log.last("total")) == (gib(14.9888), gib(3.81), gib(23.58))
    assert log.arguments["max_num_seqs"] == 256
    assert "quantization" not in log.arguments  # None


def test_v0_sentence() -> None:
    (log,) = read_log(
        "INFO 03-25 21:32:48 worker.py:266] the current vLLM instance can use total_gpu_memory (22.07GiB) x"
        " gpu_memory_utilization (0.90) = 19.86GiB\n"
        "INFO 03-25 21:32:48 worker.py:266] model weights take 14.99GiB; non_torch_memory takes 0.05GiB; PyTorch"
        " activation peak memory takes 0.22GiB; the rest of the memory reserved for KV Cache is 4.60GiB.\n"
    )
    sizes = {name: log.last(name) for name in ("weights", "non_torch", "activation", "available", "requested")}
    assert sizes == {
        "weights": gib(14.99), "non_torch": gib(0.05), "activation": gib(0.22), "available": gib(4.60),
        "requested": gib(19.86),
    }  # fmt: skip


def test_a_hybrid_tells_its_blocks(log_of: LogOf) -> None:
    log = log_of("v0.22-qwen3.5")  # V157
    assert (log.last("block_tokens"), log.last("page_padding_percent")) == (528, 0.76)
    assert (log.last("graphs_subtracted"), log.last("largest_full")) == ("enabled", 128)
    assert log.source == "pod/qwen-7d9c5b-x2x7l/vllm"


def test_tokens_and_concurrency_on_one_line(log_of: LogOf) -> None:
    log = log_of("v0.31")  # V159
    assert (log.last("kv_tokens"), log.last("concurrency_tokens"), log.last("max_concurrency")) == (
        460_496,
        131_072,
        3.51,
    )
    assert (log.last("consumed"), log.last("activation")) == (gib(15.26), gib(1.44))


def test_ranks_are_kept_apart(log_of: LogOf) -> None:
    log = log_of("v0.19-qwen2.5-72b")  # V045
    available = log.by_rank("available")
    assert sorted(seen.value for seen in available.values()) == [gib(3.04), gib(3.06)]
    assert {seen.rank for seen in available.values()} == {"Worker_TP0", "Worker_TP1"}
    assert log.source == "vllm-1"


def test_two_starts_in_one_file(text_of: TextOf) -> None:
    first, second = read_log(text_of("v0.15-and"))
    assert (first.version, first.last("kv_tokens")) == ("0.15.0", 274_848)  # V062
    assert (second.version, second.last("kv_tokens")) == ("0.17.0", 297_152)  # V064


def test_a_restarted_container_is_another_start(text_of: TextOf) -> None:
    text = text_of("v0.19-llama-3.1-8b.")
    again = text.replace("pid=271", "pid=300").replace("58.11 GiB", "57.00 GiB")
    logs = read_log(text + again)
    assert [log.last("available") for log in logs] == [gib(58.11), gib(57.00)]


def test_mixed_containers_are_told_apart(text_of: TextOf) -> None:
    lines = text_of("v0.19-gemma").splitlines()
    other = text_of("v0.19-gpt-oss").splitlines()
    mixed = [
        line
        for pair in zip([f"a-1  | {x}" for x in lines], [f"b-1  | {x}" for x in other], strict=False)
        for line in pair
    ]
    first, second = read_log(mixed)
    assert (first.source, first.last("kv_tokens")) == ("a-1", 36_560)
    assert (second.source, second.last("kv_tokens")) == ("b-1", 2_591_776)


WRAPPERS: list[tuple[str, Callable[[str], str]]] = [
    ("plain", lambda line: line),
    ("time", lambda line: f"2026-03-30T07:33:51.118392Z {line}"),
    ("compose", lambda line: f"vllm_server-1  | {line}"),
    ("compose-time", lambda line: f"vllm-1  | 2026-03-30T07:33:51.118392Z {line}"),
    ("kubernetes", lambda line: f"[pod/vllm-0/main] {line}"),
    ("journal", lambda line: f"Mar 30 07:33:51 gpu7 vllm[5121]: {line}"),
    ("syslog", lambda line: f"2026-03-30T07:33:51.118392+02:00 gpu7 docker/vllm[5121]: {line}"),
    ("ray", lambda line: f"\x1b[36m(ServeReplica:llm pid=1024)\x1b[0m {line}"),
    ("colours", lambda line: line.replace("(", "\x1b[0;36m(", 1).replace(")", ")\x1b[0;0m", 1)),
    ("colours-written-out", lambda line: line.replace("INFO", "^[[32mINFO^[[0m").replace("(Eng", "#033[0;36m(Eng")),
    ("json-log", lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "x"})),
    ("json-message", lambda line: json.dumps({"level": "info", "message": line, "kubernetes": {"pod_name": "p"}})),
    ("quoted", lambda line: f"> {line}"),
    ("carriage-returns", lambda line: f"Loading: 10%\rLoading: 100%\r{line}\r"),
    ("indented", lambda line: f"        {line}"),
    ("grep", lambda line: f"server.log:120:{line}"),
]


@pytest.mark.parametrize(("name", "wrap"), WRAPPERS, ids=[name for name, _ in WRAPPERS])
def test_wrappers_change_nothing(name: str, wrap: Callable[[str], str], text_of: TextOf) -> None:
    plain = text_of("v0.19-gemma")
    (expected,) = read_log(plain)
    (found,) = read_log([wrap(line) for line in plain.splitlines()])
    for fact in ("weights", "available", "kv_tokens", "max_concurrency", "memory_fraction", "graphs", "version"):
        assert found.last(fact) == expected.last(fact), fact
    assert found.arguments == expected.arguments


@pytest.mark.parametrize("start", ["v0.19-qwen2.5-7b", "v0.19-qwen3-8b"])
def test_collectors(start: str, log_of: LogOf) -> None:
    log = log_of(start)
    assert log.model
    assert log.last("kv_tokens")
    assert log.last("graph_estimate")


def test_a_sentence_broken_over_lines(text_of: TextOf) -> None:
    text = text_of("v0.19-gemma").replace(" GiB for peak activation, ", " GiB for peak\nactivation, ")
    text = text.replace("utilization is (0.95", "utilization is\n(0.95")
    (log,) = read_log(text)
    assert (log.last("activation"), log.last("memory_fraction")) == (gib(3.99), 0.95)
    assert len(log.by_rank("graphs")) == 1


def test_arguments_over_several_lines_and_with_objects() -> None:
    (log,) = read_log(
        "INFO [utils.py:250] non-default args: {'model_tag': 'a/b', 'kv_transfer_config': KVTransferConfig(connector=\n"
        "'LMCacheConnectorV1', kv_buffer_size=1000000000.0, extra={}), 'max_model_len': 1024, 'served_model_name':\n"
        "['it, says {x}'], 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}\n"
        "INFO [x.py:1] Available KV cache memory: 1.00 GiB\n"
    )
    assert log.arguments["max_model_len"] == 1024
    assert log.arguments["served_model_name"] == ["it, says {x}"]
    assert log.arguments["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert log.model == "a/b"


def test_a_command_line_in_the_log_is_kept() -> None:
    (log,) = read_log("$ vllm serve a/b \\\n  --max-model-len 4096 \\\n  -tp 2\nGPU KV cache size: 10,000 tokens\n")
    assert log.command is not None
    assert "-tp 2" in log.command


@pytest.mark.parametrize("cut", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_log_cut_at_either_end(cut: float, text_of: TextOf) -> None:
    text = text_of("v0.19-gemma")
    place = int(len(text) * cut)
    assert len(read_log(text[:place])) == 1
    assert len(read_log(text[place:])) == 1


CARD_IN_USE = {"free": gib(12.18), "total": gib(23.56), "memory_fraction": 0.92, "requested": gib(21.67)}


@pytest.mark.parametrize(
    ("start", "kind", "phase", "numbers"),
    [
        ("v0.8", "kv_too_small", "", {"max_model_len": 32_768, "needed": gib(0.95), "available": gib(0.93)}),  # V094
        ("v0.6", "kv_too_small", "", {"max_model_len": 131_072, "kv_tokens": 41_200}),  # V136
        ("v0-qwen", "no_cache", "", {}),  # V083
        ("v0.21", "not_free", "", CARD_IN_USE),
        ("v0.11", "oom", "sampler", {"max_seqs": 1024}),
    ],
)  # fmt: skip
def test_failures(start: str, kind: str, phase: str, numbers: dict[str, float], log_of: LogOf) -> None:
    log = log_of(start)
    failure = log.failures[-1]
    assert (failure.kind, failure.phase, failure.numbers) == (kind, phase, numbers)
    assert not log.started


def test_a_refusal_with_the_length_that_would_fit() -> None:
    (log,) = read_log(
        "(EngineCore_DP0 pid=18799) ERROR 10-08 20:33:48 [core.py:708] ValueError: \n"
        "To serve at least one request with the models's max seq len (40960), \n"
        "(5.62 GiB KV cache is needed, which is larger than the available KV cache memory (4.50 GiB). \n"
        "Based on the available memory, the estimated maximum model length is 32768. \n"
    )
    assert log.failures[0].numbers == {
        "max_model_len": 40_960, "needed": gib(5.62), "available": gib(4.50), "fitting_length": 32_768,
    }  # fmt: skip


def test_memory_runs_out_in_phases(text_of: TextOf) -> None:
    oom = "ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of"
    oom += " 79.19 GiB of which 1.12 GiB is free. Including non-PyTorch memory ...\n"
    header = "INFO [core.py] Initializing a V1 LLM engine (v0.19.0) with config: model='a/b', max_seq_len=8\n"
    weights = "INFO Model loading took 60.00 GiB memory and 3 seconds\n"
    tokens = "INFO GPU KV cache size: 10,000 tokens\n"
    phases = []
    for before in (header, header + weights, header + weights + tokens):
        (log,) = read_log(before + oom)
        phases.append(log.failures[0].phase)
        assert log.failures[0].numbers == {"tried": gib(1.5), "total": gib(79.19), "free": gib(1.12)}
    assert phases == ["weights", "profile", "graphs"]


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: 1e400 GiB",
        "Available KV cache memory: NaN GiB",
        "Available KV cache memory: " + "9" * 400 + " GiB",
        "GPU KV cache size: " + "9" * 10_000 + " tokens",
        "Maximum concurrency for 1e9 tokens per request: infx",
        "# GPU blocks: -5, # CPU blocks: 1",
    ],
)
def test_hostile_numbers_are_no_figures(line: str) -> None:
    assert all(not log.facts for log in read_log(line))


def test_gpu_names() -> None:
    texts = {
        "Config file not found at .../E=64,N=1408,device_name=NVIDIA_H100_80GB_HBM3.json": "NVIDIA_H100_80GB_HBM3",
        "GPU 0: NVIDIA A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
        "|   0  NVIDIA GeForce RTX 4090        Off | 00000000:01:00.0": "NVIDIA GeForce RTX 4090",
    }
    for text, name in texts.items():
        (log,) = read_log(text)
        assert log.last("gpu_name") == name


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello", "{}", "[1, 2]", '{"log": 3}', "\x00\x01", "INFO non-default args: "]
)
def test_nothing_in_it(text: str) -> None:
    assert all(not log.facts for log in read_log(text))
