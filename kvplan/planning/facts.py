"""What the zoo commands show: the facts of a spec, and the figures that follow from it."""

from __future__ import annotations

import json
from typing import Any

from kvplan.errors import InputError
from kvplan.kv_formats import kv_pair
from kvplan.loading import load_model
from kvplan.memory.cache_groups import CacheGroup, cache_groups, state_bytes, token_bytes
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.memory.weights import stored
from kvplan.planning.scenario import DEFAULT_KV
from kvplan.schemes import scheme
from kvplan.sharding import shard, valid_tps
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec

CATALOG = "catalog.json"


def model_catalog() -> dict[str, dict[str, Any]]:
    """A summary of every model, from the file that ships with the zoo: a list or a search opens no model file.

    Rewrite it after editing models: `python -c "from kvplan.planning import facts; facts.write_model_catalog()"`.
    """
    text = (zoo.zoo_dir("models") / CATALOG).read_text(encoding="utf-8")
    catalog: dict[str, dict[str, Any]] = json.loads(text)
    return catalog


def write_model_catalog() -> None:
    """Rewrite the catalog from the models' files."""
    catalog = {name: model_summary(load_model(name)) for name in zoo.names("models")}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(summary)}" for name, summary in catalog.items())
    (zoo.zoo_dir("models") / CATALOG).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def model_summary(model: ModelSpec) -> dict[str, Any]:
    """One line of the list of models."""
    groups = cache_groups(shard(model)[0])
    return {
        "model": model.name,
        "family": model.family,
        "parameters": parameters(model),
        "active_parameters": active_parameters(model),
        "layers": len(model.stack),
        "kv_bytes_per_token": _token_bytes(model, groups),
        "max_context": model.max_context,
    }


def model_facts(model: ModelSpec) -> dict[str, Any]:
    """The file's facts and what follows: parameters, weights, caches, the tensor-parallel degrees that work."""
    (rank,) = shard(model)
    groups = cache_groups(rank)
    tensors = stored(rank, scheme(model.weights))
    return {
        **{key: value for key, value in model.to_dict().items() if value not in (None, (), {})},
        "layers": len(model.stack),
        "parameters": parameters(model),
        "active_parameters": active_parameters(model),
        "weights_bytes": sum(tensor.bytes for tensor in tensors),
        "kv_bytes_per_token": _token_bytes(model, groups),
        "state_bytes_per_session": sum(g.layers * state_bytes(g, model.state_dtype) for g in groups),
        "caches": [_cache_text(group) for group in groups],
        "extras": dict(model.extras),
        "tensor_parallel": valid_tps(model),
    }


def _token_bytes(model: ModelSpec, groups: list[CacheGroup]) -> int:
    """What a token adds for as long as the conversation grows; windows are in `caches`."""
    kv = kv_pair(model.kv_dtype or DEFAULT_KV)
    return sum(g.layers * token_bytes(g, kv) for g in groups if not g.window)


def _cache_text(g: CacheGroup) -> str:
    if g.kind == "state":
        return f"{g.layers} layers of state: {g.state_elements:,} elements and {g.conv_elements:,} of convolution"
    if g.kind in ("latent", "indexer"):
        return f"{g.layers} layers of {g.kind}: {g.k_width + g.v_width} elements a token"
    kept = f", last {g.window:,} tokens" if g.window else ""
    return f"{g.layers} layers of {g.kind} attention: {g.heads} heads of {g.k_width} + {g.v_width}{kept}"


def gpu_summary(gpu: GpuSpec) -> dict[str, Any]:
    """One line of the list of GPUs."""
    memory, source = _memory(gpu)
    return {
        "gpu": gpu.name,
        "vendor": gpu.vendor,
        "memory_bytes": memory,
        "memory_source": source,
        "bandwidth_gb_per_s": gpu.bandwidth_gb_per_s,
        "bf16_tflops": gpu.dense_tflops.get("bf16"),
        "confidence": gpu.confidence,
    }


def gpu_facts(gpu: GpuSpec) -> dict[str, Any]:
    """The file's facts and the memory kvplan plans with."""
    memory, source = _memory(gpu)
    return {**gpu.to_dict(), "memory_bytes": memory, "memory_source": source}


def _memory(gpu: GpuSpec) -> tuple[int | None, str | None]:
    try:
        return gpu.memory_bytes()
    except InputError:  # sold in several sizes
        return None, None
