"""What arguments mean for memory: vLLM's names and values become kvplan's options and facts about the engine.

The same rules read a command line and the arguments that a log prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.errors import did_you_mean
from kvplan.evidence.launch.flags import FLAGS, Flag, names
from kvplan.evidence.launch.values import boolean, count, count_or_zero, fraction, structure

_NONE = (None, "", "None", "none", "null", "auto")
CHECKPOINT = ""  # the checkpoint says how it is quantised
_QUANTIZATION = {
    "fp8": "fp8",
    "ptpc_fp8": "fp8-channel",
    "fbgemm_fp8": "fp8-channel",
    "modelopt_fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
    "bitsandbytes": "nf4",
    **dict.fromkeys(("awq", "awq_marlin"), "awq"),
    **dict.fromkeys(("gptq", "gptq_marlin", "gptq_marlin_24", "marlin"), "gptq"),
    **dict.fromkeys(
        names("""
            compressed-tensors modelopt modelopt_mixed auto-round auto_round inc quark gguf hqq aqlm moe_wna16 torchao
            deepspeedfp qqq ipex petit_nvfp4 bitblas gptq_bitblas cpu_awq rtn squeezellm modelopt_mxfp8 mxfp8
            neuron_quant tpu_int8 fp_quant experts_int8 deepseek_v4_fp8 int8 w8a8 w8a8_int8
        """),
        CHECKPOINT,
    ),
}
_KV = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"), "fp8"),
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float16", "half", "fp16"), "fp16"),
    **dict.fromkeys(("float32", "float", "fp32"), "fp32"),
    **dict.fromkeys(("int8_per_token_head", "fp8_per_token_head", "int8"), "int8"),
    "fp8_ds_mla": "fp8_ds_mla",
    "nvfp4": "nvfp4",
}
_COUNTS = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "max_num_seqs": "max_seqs",
    "max_num_batched_tokens": "max_batched_tokens",
    "block_size": "block_size",
    "kv_cache_memory_bytes": "kv_budget",
    "kv_cache_memory": "kv_budget",
}
_ENGINE_COUNTS = {
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "num_gpu_blocks_override",
    "mamba_block_size",
    "max_cudagraph_capture_size",
    "num_speculative_tokens",
}
_SWITCHES = {
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "disable_hybrid_kv_cache_manager",
    "skip_mm_profiling",
    "async_scheduling",
}
_TURNS_OFF = {"disable_hybrid_kv_cache_manager", "skip_mm_profiling"}  # the flag says off, its meaning is on
_PLAIN = {"enforce_eager": "yes", "enable_expert_parallel": "yes", "model": "text"}
DEFAULT_LORA_RANK = 16  # vllm/config/lora.py


class Meaning(NamedTuple):
    """kvplan's options, facts only the engine knows, sentences for what cannot be planned, and notes."""

    options: dict[str, Any]
    engine_flags: dict[str, Any]
    problems: list[str]
    notes: list[str]


def meaning_of(arguments: Mapping[str, Any]) -> Meaning:
    """The meaning of arguments under vLLM's names; values may be text or what Python printed."""
    found = Meaning({}, {}, [], [])
    given = {name: value for name, value in arguments.items() if name in FLAGS and value is not None}
    for name, value in given.items():
        _one(name, value, found)
    _formats(given, found)
    _lengths(given, found)
    _lora(given, found)
    _drafting(given, found)
    _towers(given, found)
    _graphs(given, found)
    return found


def _one(name: str, value: Any, found: Meaning) -> None:
    """Flags that are one number or one truth."""
    flag = FLAGS[name]
    if flag.refused or flag.note:
        _not_followed(flag, value, found)
    elif name in _COUNTS or name in _ENGINE_COUNTS:
        _number(flag, value, found)
    elif name in _SWITCHES:
        found.engine_flags[flag.engine_flag or name] = (boolean(value) is not False) != (name in _TURNS_OFF)
    elif name == "gpu_memory_utilization":
        found.options["memory_fraction"] = fraction(value)
        if found.options["memory_fraction"] is None:
            del found.options["memory_fraction"]
            found.problems.append(f"{_written(name)}: '{_short(value)}' is no share above 0 and at most 1")
    elif name in _PLAIN and (_PLAIN[name] != "yes" or boolean(value)):
        _plain(flag, value, found)
    elif flag.engine_flag and value not in _NONE and name.startswith(("mamba", "mm_")):
        found.engine_flags[flag.engine_flag] = str(value)


def _not_followed(flag: Flag, value: Any, found: Meaning) -> None:
    if value in (*_NONE, "generate") or not value or boolean(value) is False or count_or_zero(value) == 0:
        return
    if flag.refused:
        found.problems.append(f"{_written(flag.name)}: {flag.refused}")
    else:
        found.notes.append(f"{_written(flag.name)}: {flag.note}")


def _number(flag: Flag, value: Any, found: Meaning) -> None:
    number = count(value)
    if number is not None and flag.option:
        found.options[_COUNTS[flag.name]] = number
    elif number is not None:
        found.engine_flags[flag.engine_flag or flag.name] = number
    elif value not in _NONE and flag.name != "max_cudagraph_capture_size":
        found.problems.append(f"{_written(flag.name)}: '{_short(value)}' is no whole number above 0")


def _plain(flag: Flag, value: Any, found: Meaning) -> None:
    if flag.name == "enforce_eager":
        found.options["eager"] = True
    elif flag.name == "enable_expert_parallel":
        found.engine_flags["expert_parallel"] = True
    elif value not in _NONE:
        found.options["model"] = str(value)


def _formats(given: Mapping[str, Any], found: Meaning) -> None:
    dtype, method = (str(given.get(name) or "").removeprefix("torch.").lower() for name in ("dtype", "quantization"))
    if method and method not in _NONE:
        if method not in _QUANTIZATION:
            near = did_you_mean(method[:60], _QUANTIZATION)
            found.problems.append(f"--quantization: unknown method '{_short(method)}'{near}")
        elif _QUANTIZATION[method]:
            found.options["weights"] = _QUANTIZATION[method]
        found.engine_flags["quantization"] = method
    elif dtype in ("float32", "float"):
        found.options.update(weights="fp32", kv_dtype="fp32")
    if dtype and dtype not in _NONE:
        found.engine_flags["dtype"] = dtype
    kv = str(given.get("kv_cache_dtype") or "").removeprefix("torch.").lower()
    if kv in _KV:
        found.options["kv_dtype"] = _KV[kv]
    elif kv and kv not in _NONE:
        found.problems.append(f"--kv-cache-dtype: '{_short(kv)}' is not modelled{did_you_mean(kv[:60], _KV)}")


def _lengths(given: Mapping[str, Any], found: Meaning) -> None:
    value = given.get("max_model_len")
    if value is None or value == "None":
        return
    if str(value).strip().lower() in ("-1", "auto"):
        found.engine_flags["max_model_len"] = "auto"
        return
    length = count(value)
    if length is None:
        found.problems.append(
            f"--max-model-len: '{_short(value)}' is no length such as 8192, 32k (32,000) or 32K (32,768)"
        )
    else:
        found.options["max_model_len"] = length


def _lora(given: Mapping[str, Any], found: Meaning) -> None:
    if boolean(given.get("enable_lora")):
        found.options["lora_rank"] = count(given.get("max_lora_rank")) or DEFAULT_LORA_RANK
        found.options["max_loras"] = count(given.get("max_loras")) or 1


def _drafting(given: Mapping[str, Any], found: Meaning) -> None:
    config = structure(given["speculative_config"]) if given.get("speculative_config") not in _NONE else {}
    if config is None:
        found.problems.append('--speculative-config: expected a JSON object such as \'{"method": "mtp", ...}\'')
        return
    method = str(config.get("method") or "").lower()
    model = config.get("model") or given.get("speculative_model")
    tokens = count(config.get("num_speculative_tokens"))
    if tokens:
        found.engine_flags["speculative_tokens"] = tokens
    if method.endswith("mtp"):
        found.engine_flags["speculative_method"] = "mtp"
    elif method in ("", "draft_model") and model not in (*_NONE, "[ngram]"):
        found.options["draft_model"] = str(model)
    elif method and method not in ("ngram", "suffix", "ngram_gpu"):
        found.engine_flags["speculative_method"] = method
        found.notes.append(f"--speculative-config: weights and cache of the {method} head are not counted")


def _towers(given: Mapping[str, Any], found: Meaning) -> None:
    limits = given.get("limit_mm_per_prompt")
    parsed = structure(limits) if limits not in _NONE else None
    if limits not in _NONE and parsed is None:
        found.problems.append("--limit-mm-per-prompt: expected a JSON object such as '{\"image\": 2}'")
    if boolean(given.get("language_model_only")) or (parsed and not any(parsed.values())):
        found.options["extras"] = "none"
    elif parsed:
        found.engine_flags["limit_mm_per_prompt"] = {str(key): value for key, value in list(parsed.items())[:10]}


def _graphs(given: Mapping[str, Any], found: Meaning) -> None:
    """CUDA graphs: off by mode or level, or other sizes."""
    value = given.get("compilation_config")
    config = {} if value in _NONE or str(value).isdigit() else structure(value)
    if config is None:
        found.problems.append("--compilation-config: expected a JSON object or a level")
        return
    mode = str(config.get("cudagraph_mode") or "")
    if mode.upper() == "NONE" or str(given.get("optimization_level")) == "0":
        found.options["eager"] = True
    elif mode:
        found.engine_flags["cudagraph_mode"] = mode.upper()[:40]
    sizes = (
        given.get("cudagraph_capture_sizes") or given.get("cuda_graph_sizes") or config.get("cudagraph_capture_sizes")
    )
    numbers = [size for size in map(count, sizes if isinstance(sizes, list) else []) if size]
    largest = count(config.get("max_cudagraph_capture_size")) or max(numbers, default=None)
    if largest and "max_cudagraph_capture_size" not in found.engine_flags:
        found.engine_flags["max_cudagraph_capture_size"] = largest


def _written(name: str) -> str:
    return "--" + name.replace("_", "-")


def _short(value: Any) -> str:
    return str(value)[:60]
