"""Sentences of a start that failed."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvplan.units import GIB, KIB, MIB

_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?)"
_COUNT = r"(\d[\d,]{0,18})"
_BYTES = rf"{_NUMBER} (GiB|MiB|KiB|GB|MB)"
_UNITS = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "GB": GIB, "MB": MIB, "bytes": 1}


class Sentence(NamedTuple):
    """A kind of failure: a word to look for, and the numbers in its sentence; a size takes two groups."""

    kind: str
    trigger: str
    regex: re.Pattern[str]
    numbers: tuple[str, ...] = ()
    phase: str = ""


SENTENCES = (
    Sentence(
        "kv_too_small",
        "To serve at least one request",
        re.compile(
            rf"max seq len \({_COUNT}\),\s{{0,3}}\(?{_NUMBER} ?(GiB|GB) KV cache is needed"
            rf"(?:[^(]{{1,120}}\({_NUMBER} ?(GiB|GB)\))?"
            rf"(?:.{{1,200}}?estimated maximum model length is {_COUNT})?",
            re.DOTALL,
        ),
        ("max_model_len", "needed:size", "available:size", "fitting_length"),
    ),
    Sentence(
        "kv_too_small",
        "max seq len",
        re.compile(rf"max seq len \({_COUNT}\) is larger than the maximum number of tokens[^(]{{1,60}}\({_COUNT}\)"),
        ("max_model_len", "kv_tokens"),
    ),
    Sentence("no_cache", "No available memory", re.compile(r"No available memory for the cache blocks")),
    Sentence("no_cache", "Cannot auto-fit", re.compile(r"Cannot auto-fit max_model_len")),
    Sentence(
        "not_free",
        "on startup is less than",
        re.compile(
            rf"Free memory on device[^(]{{0,20}} \({_NUMBER}/{_NUMBER} GiB\) on startup is less than desired"
            rf"[^(]{{1,60}}\((\d(?:\.\d{{1,17}})?), {_NUMBER} GiB\)"
        ),
        ("free:gib", "total:gib", "memory_fraction:number", "requested:gib"),
    ),
    Sentence(
        "oom",
        "out of memory occurred when warming up",
        re.compile(r"out of memory occurred when warming up sampler with (\d{1,9}) dummy requests"),
        ("max_seqs",),
        "sampler",
    ),
    Sentence(
        "oom",
        "Failed to load model - not enough",
        re.compile(r"Failed to load model - not enough GPU memory"),
        (),
        "weights",
    ),
    Sentence(
        "oom",
        "out of memory",
        re.compile(
            rf"(?:CUDA|HIP) out of memory\. Tried to allocate {_BYTES}\."
            rf"(?: GPU \d{{1,3}} has a total capac(?:ity|ty) of {_BYTES} of which {_BYTES} is free)?"
        ),
        ("tried:size", "total:size", "free:size"),
    ),
    Sentence(
        "oom", "out of memory", re.compile(r"CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory")
    ),
    Sentence(
        "profiling",
        "Error in memory profiling",
        re.compile(
            rf"Error in memory profiling\.(?: Initial free memory {_NUMBER}(?: GiB)?, current free memory {_NUMBER})?"
        ),
        ("free_before:gib", "free_after:gib"),
    ),
)


def numbers(sentence: Sentence, found: re.Match[str]) -> dict[str, float]:
    """The numbers of a sentence by name, sizes in bytes; those left out of it are absent."""
    groups = iter(found.groups())
    read: dict[str, float] = {}
    for named in sentence.numbers:
        name, _, kind = named.partition(":")
        text = next(groups)
        unit = next(groups) if kind == "size" else None
        if text is None:
            continue
        if kind == "size":
            read[name] = round(float(text) * _UNITS[str(unit)])
        elif kind == "gib":
            read[name] = round(float(text) * GIB)
        else:
            read[name] = float(text) if kind == "number" else int(text.replace(",", ""))
    return read
