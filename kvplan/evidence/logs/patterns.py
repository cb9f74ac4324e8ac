"""Lines of vLLM's start-up by meaning: a word that makes a line worth a look, and a pattern for the fact.

Every quantifier is bounded or runs over one class of characters, so that a line costs time in its length only.
Releases 0.2 to 0.31; what changed is in docs/verify.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from kvplan.units import GIB, MIB

_SIZE = r"(-?\d{1,9}(?:\.\d{1,9})?)\s?(GiB|GB|MiB|MB)\b"  # vLLM prints GiB, and called them GB up to 2025
_COUNT = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?![\d.,]*\d|[eE])"
_SHARE = r"(\d(?:\.\d{1,17})?)"
_WORD = r"([^\s,'\"()]{1,200})"
UNITS = {"GiB": GIB, "GB": GIB, "MiB": MIB, "MB": MIB}


class Pattern(NamedTuple):
    """`facts` names the groups of `regex` in order; `kind` says how a group is read."""

    trigger: str
    regex: re.Pattern[str]
    facts: tuple[tuple[str, str], ...]  # (fact, kind): size, bytes, count, number, share, word


def _pattern(trigger: str, regex: str, *facts: str) -> Pattern:
    return Pattern(trigger, re.compile(regex), tuple(_named(fact) for fact in facts))


def _named(fact: str) -> tuple[str, str]:
    name, _, kind = fact.partition(":")
    return name, kind or "size"


def size(text: str, unit: str) -> tuple[int, float]:
    """Bytes of a printed size, and what its last digit is worth."""
    decimals = len(text.partition(".")[2])
    return round(float(text) * UNITS[unit]), UNITS[unit] / 10**decimals


READ: dict[str, Callable[[str], Any]] = {
    "count": lambda text: int(text.replace(",", "")),
    "bytes": int,
    "number": float,
    "share": float,
    "word": str,
}

PATTERNS = (
    # weights
    _pattern("took", rf"(?:Model loading|Loading model weights) took {_SIZE}", "weights"),
    _pattern("model weights take", rf"model weights take {_SIZE}", "weights"),
    _pattern("weight", rf"(?:usage is|usage:) {_SIZE} for weights?\b", "weights"),
    _pattern("weights memory:", rf"weights memory: {_SIZE}", "weights"),
    _pattern("consumed memory", rf"usage is {_SIZE} for consumed memory", "consumed"),
    # the profile run
    _pattern("activation peak", rf"activation peak memory takes {_SIZE}", "activation"),
    _pattern("peak activation", rf"{_SIZE} for peak activation", "activation"),
    _pattern("torch peak memory", rf"torch peak memory increase: {_SIZE}", "activation"),
    _pattern("non_torch_memory", rf"non_torch_memory takes {_SIZE}", "non_torch"),
    _pattern("non-torch", rf"{_SIZE} for non-torch memory", "non_torch"),
    _pattern("non-torch forward", rf"non-torch forward increase memory: {_SIZE}", "non_torch"),
    _pattern("non KV cache memory", rf"Total non KV cache memory: {_SIZE}", "non_kv"),
    # graphs
    _pattern("CUDA graph memory:", rf"Estimated CUDA graph memory: {_SIZE}", "graph_estimate"),
    _pattern("Graph capturing finished", rf"Graph capturing finished in [\d.]{{1,12}} secs?, took {_SIZE}", "graphs"),
    _pattern("CUDAGraph memory", rf"{_SIZE} for CUDAGraph memory", "graphs"),
    _pattern("graph pool memory", rf"graph pool memory: {_SIZE} \(actual\)", "graphs"),
    _pattern("(estimated)", rf"{_SIZE} \(estimated\), difference", "graph_estimate"),
    _pattern("graph memory profiling is", r"graph memory profiling is (enabled)", "graphs_subtracted:word"),
    _pattern("Profiling CUDA graph", r"PIECEWISE=\d{1,5} \(largest=(\d{1,7})\)", "largest_piecewise:count"),
    _pattern("Profiling CUDA graph", r"FULL=\d{1,5} \(largest=(\d{1,7})\)", "largest_full:count"),
    # the cache
    _pattern("KV cache memory:", rf"Available KV cache memory: {_SIZE}", "available"),
    _pattern("reserved for KV Cache", rf"reserved for KV Cache is {_SIZE}", "available"),
    _pattern("kv_cache_size=", rf"kv_cache_size={_SIZE}", "available"),
    _pattern("kv cache memory in use", rf"kv cache memory in use is {_SIZE}", "available"),
    _pattern("kv cache memory in use", r"kv cache memory in use is (\d{1,15}) bytes", "available:bytes"),
    _pattern("KV cache size", rf"KV cache size: {_COUNT} tokens", "kv_tokens:count"),
    _pattern(
        "aximum concurrency for",
        rf"aximum concurrency for {_COUNT} tokens per request: (\d{{1,12}}(?:\.\d{{1,6}})?)x",
        "concurrency_tokens:count",
        "max_concurrency:number",
    ),
    _pattern("blocks:", r"# (?:GPU|CUDA|cuda|rocm|ROCM|xpu|npu) blocks: (\d{1,12})(?!\d)", "num_blocks:count"),
    _pattern("attention block size", r"Setting attention block size to (\d{1,9}) tokens", "block_tokens:count"),
    _pattern(
        "mamba page size by", r"Padding mamba page size by (\d{1,6}(?:\.\d{1,6})?)%", "page_padding_percent:number"
    ),
    _pattern(
        "padding layers",
        r"Add (\d{1,6}) padding layers?, may waste at most (\d{1,6}(?:\.\d{1,6})?)%",
        "padding_layers:count",
        "padding_layers_percent:number",
    ),
    _pattern("kv-cache-memory=", r"`--kv-cache-memory=(\d{1,15})`[^`]{0,40}to fit into", "suggested_fit:bytes"),
    _pattern("kv-cache-memory=", r"`--kv-cache-memory=(\d{1,15})`[^`]{0,40}to fully utilize", "suggested_full:bytes"),
    # the card
    _pattern(
        "Free memory on device",
        rf"Free memory on device[^(]{{0,20}} \((\d{{1,7}}(?:\.\d{{1,6}})?)/{_SIZE}\) on startup"
        rf"[^(]{{1,90}}\({_SHARE}, {_SIZE}\)",
        "free:gib",
        "total",
        "memory_fraction:share",
        "requested",
    ),
    _pattern(
        "total_gpu_memory (",
        rf"total_gpu_memory \({_SIZE}\) x gpu_memory_utilization \({_SHARE}\) = {_SIZE}",
        "total",
        "memory_fraction_rounded:share",
        "requested",
    ),
    _pattern("total_gpu_memory=", rf"total_gpu_memory={_SIZE}", "total"),
    _pattern("Initial free memory", rf"Initial free memory:? {_SIZE}", "free"),
    _pattern("device_name=", r"device_name=([\w.+-]{3,60}?)(?:,dtype|\.json|,|\s|$)", "gpu_name:word"),
    _pattern("GPU ", r"GPU \d{1,3}: ((?:NVIDIA|AMD|Tesla) [\w .+-]{2,50})", "gpu_name:word"),
    _pattern("NVIDIA ", r"\| {1,6}\d{1,3} {1,6}(NVIDIA [\w .+-]{2,40}?) {2,}(?:On|Off|\|)", "gpu_name:word"),
    # who it is, and how it was set
    _pattern("server version", rf"API server version:? {_WORD}", "version:word"),
    _pattern("engine (v", r"LLM engine \(v([\w.+-]{1,80})\)", "version:word"),
    _pattern("LLM engine", r"Initializing an? (V[01]) LLM engine", "generation:word"),
    _pattern("█", rf"█ {{1,20}}version {{1,20}}{_WORD}", "version:word"),
    _pattern("█", rf"█ {{1,20}}model {{1,20}}{_WORD}", "model:word"),
    _pattern("max model len", r"Using max model len (\d{1,12})(?!\d)", "max_model_len:count"),
    _pattern("Auto-fit max_model_len", rf"reduced from \d[\d,]{{0,19}} to {_COUNT}", "max_model_len:count"),
    _pattern(
        "max_num_batched_tokens=", r"enabled with max_num_batched_tokens=(\d{1,12})(?!\d)", "max_batched_tokens:count"
    ),
    _pattern("to store kv cache", r"Using (fp8\w{0,12}|int8|nvfp4) data type to store kv cache", "kv_dtype:word"),
    _pattern("Resolved architecture", r"Resolved architecture: (\w{1,100})", "architecture:word"),
    _pattern("Mamba cache mode is set", r"Mamba cache mode is set to '(\w{1,20})'", "mamba_cache_mode:word"),
    _pattern("synchronous scheduling is", r"synchronous scheduling is (enabled|disabled)", "async_scheduling:word"),
    _pattern("Skipping memory profiling", r"Skipping (memory profiling for multimodal)", "skip_mm_profiling:word"),
)

# A sentence may be broken over several lines in what people paste; these begin one that is worth putting together.
LONG = (
    "Free memory on device",
    "the current vLLM instance can use",
    "model weights take",
    "To serve at least one request",
    "The model's max seq len",
    "CUDA out of memory",
    "HIP out of memory",
    "Actual usage is",
    "Memory profiling takes",
)
