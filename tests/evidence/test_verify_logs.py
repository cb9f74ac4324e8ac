"""Logs of real starts beside the plan: figures within tolerance, reasons for those that are not, fixes that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kvplan.errors import InputError
from kvplan.evidence.cards import find_card
from kvplan.evidence.logs import EngineLog, read_log
from kvplan.evidence.names import find_model
from kvplan.evidence.verify import Verdict, verify_log
from kvplan.planning.estimate import estimate
from kvplan.units import GIB

LogOf = Callable[[str], EngineLog]
TextOf = Callable[[str], str]
CONTRACT = {
    "quantity", "unit", "predicted", "predicted_low", "predicted_high", "observed", "error", "within", "basis", "run",
}  # fmt: skip
BASES = ("formula", "fitted on these points", "datasheet bound", "extrapolated")


def rows_of(verdict: Verdict) -> dict[str, Mapping[str, Any]]:
    return {str(row["quantity"]): row for row in verdict.rows}


@pytest.mark.parametrize(
    ("start", "given"),
    [
        ("v0.19-llama-3.1-8b.", {}),
        ("v0.19-llama-3.1-8b-pp2", {}),
        ("v0.19-qwen2.5-72b", {}),
        ("v0.19-qwen2.5-7b", {}),
        ("v0.19-qwen3-8b", {"gpu": "a100-40g"}),
        ("v0.19-gemma", {}),
        ("v0.19-gpt-oss", {}),
        ("v0.22-qwen3.5", {}),
        ("v0-llama", {}),
    ],
)
def test_real_starts_are_within_two_percent(start: str, given: dict[str, Any], log_of: LogOf) -> None:
    verdict = verify_log(log_of(start), given)
    assert verdict.within, [row for row in verdict.rows if row["within"] is False]


@pytest.mark.parametrize("start", ["v0.19-llama-3.1-8b.", "v0.19-gemma", "v0.19-gpt-oss", "v0.22-qwen3.5", "v0.31"])
def test_from_the_logged_memory_tokens_are_exact_within_its_rounding(start: str, log_of: LogOf) -> None:
    row = rows_of(verify_log(log_of(start), {}))["reported_tokens_at_logged_kv"]
    assert row["predicted_low"] <= row["observed"] <= row["predicted_high"]


def test_rows_are_those_of_the_contract(log_of: LogOf) -> None:
    verdict = verify_log(log_of("v0.19-llama-3.1-8b."), {})
    for row in verdict.rows:
        assert set(row) == CONTRACT
        assert row["basis"] in BASES
    found = rows_of(verdict)
    assert {"weights_bytes", "kv_budget_bytes", "reported_tokens", "max_concurrency"} <= set(found)
    assert found["kv_budget_bytes"]["observed"] == round(58.11 * GIB)  # V024
    assert found["non_torch_bytes"]["within"] is None  # small parts are shown, their sum is judged
    run = verdict.run
    assert (run["model"], run["gpu"], run["engine_version"]) == ("llama-3.1-8b", "h100-sxm", "0.19.0")
    assert run["sources"]["memory_fraction"] == "log"


def test_options_go_before_the_log(log_of: LogOf) -> None:
    log = log_of("v0.19-llama-3.1-8b.")
    verdict = verify_log(log, {"memory_fraction": 0.90})
    assert verdict.run["memory_fraction"] == 0.90
    assert verdict.run["sources"]["memory_fraction"] == "option"
    assert verdict.within is False
    assert verify_log(log, {"memory_fraction": 0.90}, tolerance=0.10).within


def test_a_launch_fills_in_what_the_log_leaves_out() -> None:
    log = read_log("GPU KV cache size: 476,016 tokens\nAvailable KV cache memory: 58.11 GiB\n")[0]
    with pytest.raises(InputError, match="give --model"):
        verify_log(log, {})
    launch = "vllm serve meta-llama/Llama-3.1-8B-Instruct --gpu-memory-utilization 0.95 --max-model-len 8192"
    given = {"gpu": "h100-sxm", "engine_version": "0.19.0"}
    verdict = verify_log(log, given, launch=launch)
    assert verdict.within
    assert verdict.run["sources"]["memory_fraction"] == "command"


def test_missing_facts_are_named_with_their_options(text_of: TextOf) -> None:
    text = "".join(
        line for line in text_of("v0.19-llama-3.1-8b.").splitlines(True) if "args" not in line and "Free" not in line
    )
    (log,) = read_log(text)
    verdict = verify_log(log, {})
    notes = " ".join(verdict.notes)
    for option in ("--gpu", "--memory-fraction", "--max-seqs"):
        assert option in notes
    assert "kv_budget_bytes" not in rows_of(verdict)
    assert rows_of(verdict)["reported_tokens_at_logged_kv"]["within"]


def test_another_fraction_is_recognised(text_of: TextOf) -> None:
    dropped = ("args", "Free")
    text = "".join(x for x in text_of("v0.19-llama-3.1-8b.").splitlines(True) if not any(word in x for word in dropped))
    (log,) = read_log(text)
    verdict = verify_log(log, {"gpu": "h100-sxm", "max_seqs": 1024})
    assert verdict.within is False
    assert any("fraction of 0.95" in reason for reason in verdict.reasons)


def test_another_number_of_sequences_is_recognised(text_of: TextOf) -> None:
    text = (
        text_of("v0.19-llama-3.1-8b.").replace("'max_num_seqs': 1024", "'port': 80").replace("0.95, 'max", "0.95, 'x")
    )
    fewer = estimate("llama-3.1-8b", "h100-sxm", engine="vllm", engine_version="0.19", memory_fraction=0.95,
                     max_seqs=512, max_model_len=8192)  # fmt: skip
    logged = f"{fewer.kv_budget_bytes / GIB:.2f}"
    (log,) = read_log(text.replace("58.11 GiB", f"{logged} GiB"))
    verdict = verify_log(log, {"gpu": "h100-sxm"}, tolerance=0.001)
    assert verdict.within is False
    assert any("max_num_seqs 512 or fewer (--max-seqs)" in reason for reason in verdict.reasons)


def test_a_card_in_use_is_told(text_of: TextOf) -> None:
    (log,) = read_log(text_of("v0.19-llama-3.1-8b.").replace("(78.68/79.19", "(76.50/79.19"))
    verdict = verify_log(log, {})
    assert any("2.69 GiB of the card were in use before the start" in reason for reason in verdict.reasons)


def test_other_weights_are_told(text_of: TextOf) -> None:
    (log,) = read_log(text_of("v0.19-llama-3.1-8b.").replace("14.99 GiB", "8.49 GiB"))
    verdict = verify_log(log, {})
    assert any("a quantised checkpoint? (--weights" in reason for reason in verdict.reasons)


def test_a_request_that_is_too_long(log_of: LogOf) -> None:
    verdict = verify_log(log_of("v0.8"), {})  # V094
    rows = rows_of(verdict)
    assert rows["kv_bytes_per_session"]["predicted"] == 27 * 576 * 2 * 32_768  # 27 layers of a 576 element latent
    assert rows["kv_bytes_per_session"]["within"]
    assert "20.48 MiB are missing" in verdict.failures[0]
    length = int(next(fix for fix in verdict.fixes if fix.startswith("--max-model-len")).split()[1])
    assert 27 * 576 * 2 * length <= round(0.93 * GIB) < 27 * 576 * 2 * 32_768
    assert any(fix.startswith("--kv-cache-dtype fp8") for fix in verdict.fixes)


def test_fixes_fit_by_the_plan() -> None:
    (log,) = read_log(
        "INFO [core.py] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', max_seq_len=40960\n"
        "INFO Available KV cache memory: 4.50 GiB\n"
        "ERROR ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (4.50 GiB). Based on the available memory, the"
        " estimated maximum model length is 32768.\n"
    )
    verdict = verify_log(log, {"gpu": "rtx-4090", "max_seqs": 256, "memory_fraction": 0.9})
    assert rows_of(verdict)["fitting_length"]["predicted"] == 32_768
    assert "--max-model-len 32768" in verdict.fixes
    (fraction,) = [float(fix.split()[1]) for fix in verdict.fixes if fix.startswith("--gpu-memory-utilization")]
    total = estimate("qwen3-8b", "rtx-4090", engine="vllm", engine_version="0.19").to_dict()["gpu_memory_bytes"]
    assert 4.50 * GIB + (fraction - 0.9) * total >= round(5.62 * GIB)
    assert 4.50 * GIB + (fraction - 0.9 - 0.002) * total < round(5.62 * GIB)
    assert any(fix.startswith("--tensor-parallel-size 2") for fix in verdict.fixes)


def test_a_length_that_v0_counts_in_tokens(log_of: LogOf) -> None:
    verdict = verify_log(log_of("v0.6"), {})  # V136
    assert verdict.failures == ("one request of 131,072 tokens does not fit: the cache holds 41,200 tokens",)
    assert "--max-model-len 41200" in verdict.fixes


def test_a_card_that_others_use(log_of: LogOf) -> None:
    verdict = verify_log(log_of("v0.21"), {})
    assert "9.49 GiB are held by others" in verdict.failures[0]
    assert verdict.fixes
    assert all(fix.startswith("--gpu-memory-utilization 0.516 ") for fix in verdict.fixes)


def test_memory_ran_out_in_the_sampler(log_of: LogOf) -> None:
    verdict = verify_log(log_of("v0.11"), {"gpu": "h100-sxm"})
    assert any("max_num_seqs" in sentence for sentence in verdict.failures)
    assert any(fix.startswith(("--max-num-seqs", "--tensor")) for fix in verdict.fixes)


def test_nothing_to_compare() -> None:
    (log,) = read_log("INFO vLLM API server version 0.19.0\nINFO non-default args: {'model': 'Qwen/Qwen3-8B'}\n")
    with pytest.raises(InputError, match="nothing to compare"):
        verify_log(log, {})


def test_a_log_never_opens_a_file_that_it_names(tmp_path: Any) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("name: x\n", encoding="utf-8")
    (log,) = read_log(f"non-default args: {{'model': '{path}'}}\nGPU KV cache size: 10,000 tokens\n")
    with pytest.raises(InputError, match="is not in the zoo"):
        verify_log(log, {})


@pytest.mark.parametrize(
    ("text", "name", "weights"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", None),
        ("/models/Meta/Llama-3.1-8B-Instruct/", "llama-3.1-8b", None),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/9c925d64/", "qwen3-8b", None),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b", "int8"),
        ("someone/Qwen3-8B-AWQ", "qwen3-8b", "awq"),
        ("someone/Qwen3-8B-GPTQ-Int4", "qwen3-8b", "gptq"),
        ("Qwen3-8B", "qwen3-8b", None),
    ],
)
def test_names_of_models(text: str, name: str, weights: str | None) -> None:
    found = find_model(text)
    assert found is not None
    assert (found.name, found.weights) == (name, weights)


@pytest.mark.parametrize("text", ["", "nobody/nothing", "/", "..", "a" * 5000, "llama", "\x00"])
def test_names_that_are_no_models(text: str) -> None:
    assert find_model(text) is None


def test_cards() -> None:
    by_name = find_card(None, "NVIDIA_H100_80GB_HBM3", round(79.19 * GIB))
    assert by_name is not None
    assert (by_name.gpu.name, by_name.source) == ("h100-sxm", "name")
    assert by_name.gpu.memory_bytes().bytes == round(79.19 * GIB)
    by_memory = find_card(None, None, round(79.25 * GIB))
    assert by_memory is not None
    assert by_memory.gpu.name == "a100-80g"
    unnamed = find_card(None, None, round(11.11 * GIB))
    assert unnamed is not None
    assert unnamed.source == "unnamed"
    wrong = find_card("l4", None, round(79.19 * GIB))
    assert wrong is not None
    assert wrong.note is not None
    assert "another card?" in wrong.note
    assert find_card(None, None, None) is None


def test_a_number_of_blocks_replaces_the_pool_and_not_the_memory_that_the_log_prints(text_of: TextOf) -> None:
    """As vLLM prints it: the memory that the profile leaves, then 1,000 blocks of 16 tokens; 16,000 / 8,192 = 1.95."""
    text = text_of("v0.19-llama-3.1-8b.")
    text = text.replace("'max_num_seqs': 1024", "'max_num_seqs': 1024, 'num_gpu_blocks_override': 1000")
    text = text.replace("476,016 tokens", "16,000 tokens").replace("58.11x", "1.95x")
    (log,) = read_log(text)
    verdict = verify_log(log, {})
    assert verdict.within, [row for row in verdict.rows if row["within"] is False]
    found = rows_of(verdict)
    assert found["kv_budget_bytes"]["predicted"] == pytest.approx(58.11 * GIB, rel=0.001)
    assert found["reported_tokens"]["predicted"] == 16_000
    assert found["reported_tokens_at_logged_kv"]["predicted"] == 16_000
