"""Logged runs as rows of strings (the columns of tests/data/vllm_logs.csv), and the options that each amounts to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.errors import KvplanError
from kvplan.evidence.names import find_model
from kvplan.loading import load_model
from kvplan.specs.model import ModelSpec

Run = Mapping[str, str]  # an empty text is unknown

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?\S*")
_ASSUMED = re.compile(r"(?<=vLLM ~)\d+\.\d+")
_MAIN_BUILD = re.compile(r"0\.1\.dev\d+.*\((\d{4})-(\d\d)")  # a build without a tag: only its month is known
_V0_MONTHS = {"2024-12": "0.6"}  # of a V0 engine without a number: 0.6.5 and 0.6.6 are of that month
_EXTRAS: dict[str, dict[str, Any]] = {
    "+ LoRA (max_loras 2, rank 16)": {"lora_rank": 16, "max_loras": 2},
    "+ MTP (1 token)": {"extras": "all"},
}
_CARDS = {
    "h100 80gb": "h100-sxm",
    "h100": "h100-sxm",
    "a100-sxm4-40gb": "a100-40g",
    "a100 80gb": "a100-80g",
    "l40s 48gb": "l40s",
    "l4 24gb": "l4",
}

# Runs whose figures do not follow from what their logs tell.
UNPREDICTABLE = {
    "V038": "the vision tower's shape is not known",
    "V079": "figures of one rank, memory fraction not given",
    "V081": "degrees of parallelism not given",
    "V082": "figures of one rank; the rank that samples has less",
    "V085": "max_num_seqs and max_model_len not given; the start failed",
    "V105": "the speculative model is not in the log",
    "V106": "exclude list not known",
    "V107": "exclude list not known",
    "V116": "memory shared with the CPU; KV format and batched tokens not given",
    "V121": "contradicts itself",
    "V128": "max_num_seqs and version not given",
    "V129": "which checkpoint is not given",
    "V133": "a GGUF file",
    "V142": "the vision tower's shape is not known",
    "V145": "pipeline over two machines; which rank printed is not known",
    "V160": "max_num_seqs not given",
    "V162": "ROCm",
}


def read_runs(path: Path) -> list[dict[str, str]]:
    """The rows of a file of runs."""
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def options_of(run: Run) -> dict[str, Any]:
    """The options of an estimate that a run amounts to."""
    model, more = _model(run["model"])
    options: dict[str, Any] = {"model": model, "engine": "vllm", "engine_version": version_of(run), **more}
    options |= {"tp": int(run["tp"] or 1), "pp": int(run["pp"] or 1), "eager": run["enforce_eager"] == "True"}
    if run["dtype"] == "float32":
        options |= {"weights": "fp32", "kv_dtype": "fp32"}
    if run["kv_cache_dtype"] not in ("", "auto"):
        options["kv_dtype"] = "fp8" if "fp8" in run["kv_cache_dtype"] else "bf16"
    length = run["max_model_len"]
    options |= {"context": int(length)} if length else {}
    for column, option in (("max_num_seqs", "max_seqs"), ("max_num_batched_tokens", "max_batched_tokens")):
        options |= {option: int(run[column])} if run[column] else {}
    if run["block_size"] and int(run["block_size"]) <= 128:  # a hybrid's block follows from its state
        options["block_size"] = int(run["block_size"])
    caching = {"on": True, "off": False}.get(run["prefix_caching"])
    options["flags"] = {} if caching is None else {"prefix_caching": caching}
    if run["engine_version"].startswith("V0"):
        options["flags"]["v1"] = False
    if run.get("context_parallel"):
        options["flags"]["context_parallel"] = int(run["context_parallel"])
    return options


def version_of(run: Run) -> str | None:
    """The version a run names, also among its assumptions."""
    build = _MAIN_BUILD.search(run["engine_version"])
    if build:
        return f"0.{max(26, int(build[2]) + 19)}" if build[1] == "2026" else None
    text = run["engine_version"]
    found = _VERSION.search(text) or _ASSUMED.search(run["assumed"])
    if not found or found[0].startswith("20"):
        return _V0_MONTHS.get(text.removeprefix("V0, "))
    return found[0].rstrip(").,;+x")


@cache
def _model(text: str) -> tuple[ModelSpec, dict[str, Any]]:
    """The model of a run, and the options that the words beside its name stand for."""
    more: dict[str, Any] = {}
    for suffix, options in _EXTRAS.items():
        if suffix in text:
            more |= options
    plain = re.sub(r"\s*(\(| \+ |, ).*", "", text.split(" + ", maxsplit=1)[0]).strip()
    try:
        return load_model(plain), more
    except KvplanError:
        near = find_model(plain)
        if near is None:
            raise
        return load_model(near.name), {**more, **({"weights": near.weights} if near.weights else {})}


def card_name(run: Run) -> str:
    """The card's name as the zoo may know it."""
    plain = re.sub(r"\s*\(.*", "", run["gpu"]).removeprefix("NVIDIA ").strip().lower()
    return _CARDS.get(plain, plain.replace(" ", "-"))
