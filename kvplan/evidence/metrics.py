"""A running vLLM server's Prometheus page, read as what each of its engines says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.logs import EngineLog, Seen

_SAMPLE = re.compile(r"vllm[:_](\w{1,100})(\{.{0,20000}\})?\s{1,20}([-+.\deE]{1,40}|NaN|[+-]?Inf)(?:\s|$)")
_LABEL = re.compile(r'(\w{1,100})="([^"\\]{0,4000}(?:\\.[^"\\]{0,4000}){0,200})"')
_NUMBER = re.compile(r"\d{1,15}")
_SHARE = re.compile(r"[01](?:\.\d{1,17})?")
_UNSET = ("", "None", "null")
_ARGUMENTS = {  # labels of cache_config_info -> vLLM's arguments
    "cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "mamba_cache_dtype": "mamba_cache_dtype",
    "mamba_ssm_cache_dtype": "mamba_ssm_cache_dtype",
    "mamba_cache_mode": "mamba_cache_mode",
}
_COUNTS = {"num_gpu_blocks": "num_blocks", "block_size": "block_tokens", "kv_cache_size_tokens": "kv_tokens"}
_GAUGES = {  # names of all releases -> fact
    "kv_cache_usage_perc": "kv_usage",
    "gpu_cache_usage_perc": "kv_usage",
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
}
MAX_ENGINES = 1024


class Sample(NamedTuple):
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float
    line: int


def read_metrics(place: str, time_limit_s: float | None = None) -> list[EngineLog]:
    """The engines of a page at an http(s) address or in a file; raises InputError when there are none."""
    from kvplan.evidence.fetch import TIME_LIMIT_S, fetch  # loads what speaks HTTP

    text, shown = fetch(place, TIME_LIMIT_S if time_limit_s is None else time_limit_s)
    found = engines_of(text, shown)
    if not found:
        raise InputError(f"--metrics {shown}: no vLLM figures in it; a page has lines such as vllm:cache_config_info")
    return found


def engines_of(text: str, source: str = "") -> list[EngineLog]:
    """What each engine of a page says: how its cache was made, how full it is, and what runs."""
    named: dict[str, list[Sample]] = {}
    models: dict[str, str] = {}
    for sample in samples(text):
        engine = sample.labels.get("engine", "")
        if sample.labels.get("model_name"):
            models.setdefault(engine, sample.labels["model_name"])
        if sample.name == "cache_config_info" or sample.name in _GAUGES:
            named.setdefault(engine, []).append(sample)
        if len(named) > MAX_ENGINES:
            raise InputError(f"more than {MAX_ENGINES} engines on one page")
    any_model = next(iter(models.values()), None)
    return [
        _engine(found, models.get(engine, any_model), source, f"engine {engine}" if engine else "")
        for engine, found in named.items()
    ]


def samples(text: str) -> Iterator[Sample]:
    """The page's lines that are vLLM's own."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("vllm"):
            continue
        found = _SAMPLE.match(line)
        if found:
            labels = dict(_LABEL.findall(found[2] or ""))
            yield Sample(found[1], labels, _value(found[3]), number)


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _engine(found: list[Sample], model: str | None, source: str, rank: str) -> EngineLog:
    arguments: dict[str, Any] = {"model": model} if model else {}
    facts: dict[str, tuple[Seen, ...]] = {}
    for sample in found:
        if sample.name in _GAUGES:
            if 0 <= sample.value < 1e15:
                facts[_GAUGES[sample.name]] = (Seen(sample.value, sample.line, rank),)
            continue
        labels = {name: value for name, value in sample.labels.items() if value not in _UNSET}
        arguments |= {_ARGUMENTS[name]: value for name, value in labels.items() if name in _ARGUMENTS}
        for name, fact in _COUNTS.items():
            if _NUMBER.fullmatch(labels.get(name, "")):
                facts[fact] = (Seen(int(labels[name]), sample.line, rank),)
        concurrency = labels.get("kv_cache_max_concurrency", "")
        if re.fullmatch(r"\d{1,12}(?:\.\d{1,17})?", concurrency):
            facts["max_concurrency"] = (Seen(float(concurrency), sample.line, rank),)
        if _SHARE.fullmatch(labels.get("gpu_memory_utilization", "")):
            facts["memory_fraction"] = (Seen(float(labels["gpu_memory_utilization"]), sample.line, rank),)
    return EngineLog(source=source, first_line=found[0].line, arguments=arguments, facts=facts)


def in_use(log: EngineLog) -> str | None:
    """What the server does now, in a sentence; None where the page does not say."""
    parts = []
    for fact, word in (("running", "running"), ("waiting", "waiting")):
        if log.last(fact) is not None:
            parts.append(f"{log.last(fact):,.0f} requests {word}")
    usage = log.last("kv_usage")
    if usage is not None and usage <= 1:
        tokens = log.last("kv_tokens")
        of = f" ({usage * tokens:,.0f} of {tokens:,} tokens)" if tokens else ""
        parts.append(f"the cache is {usage:.1%} full{of}")
    return f"now: {', '.join(parts)}" if parts else None
