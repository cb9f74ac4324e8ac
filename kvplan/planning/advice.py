"""What would fit: the smallest change of each kind that makes a scenario fit, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kvplan.errors import InputError
from kvplan.kv_formats import kv_pair
from kvplan.planning.estimate import Estimate, estimate_scenario
from kvplan.planning.scenario import Scenario
from kvplan.schemes import scheme
from kvplan.sharding import valid_tps
from kvplan.units import human_bytes

WEIGHT_STEPS = ("bf16", "fp8", "awq")  # each about half of the one before
KV_STEPS = ("bf16", "fp8", "q4_0")


def advice(e: Estimate) -> list[str]:
    """Sentences: by how much it does not fit, and one change of each kind that would. Nothing when it fits."""
    if e.fits:
        return []
    s = e.scenario
    found = []
    if e.limited_by == "max_seqs":
        limit = s.engine_options.max_seqs
        found.append(f"--max-seqs {limit:,} is below the {s.sessions:,} conversations asked for; raise it")
    if not e.shortfall_bytes:
        return [*found, "the memory holds them"]
    found.append(f"{human_bytes(e.shortfall_bytes)} are missing on each GPU for {_asked(s)}")
    if s.sessions and e.max_sessions:
        found.append(f"as it is, {e.max_sessions:,} fit")
    changes = [change for search in (_reserve, _weights, _kv, _context, _tp, _gpu) if (change := search(e))]
    return found + (changes or ["no single change of precision, context, tp or GPU makes it fit; combine several"])


def _asked(s: Scenario) -> str:
    return f"{s.sessions or 1:,} conversation{'s' if (s.sessions or 1) > 1 else ''} of {s.context:,} tokens"


def _first_fit(scenarios: Iterable[tuple[str, Scenario]], text: Callable[[str, Estimate], str]) -> str | None:
    for label, scenario in scenarios:
        try:
            tried = estimate_scenario(scenario)
        except InputError:
            continue
        if tried.fits:
            return text(label, tried)
    return None


def _reserve(e: Estimate) -> str | None:
    """Without what the user set aside."""
    s = e.scenario
    if not s.reserve:
        return None
    return _first_fit([("", replace(s, reserve=None))], lambda _, got: f"without --reserve {got.max_sessions:,} fit")


def _weights(e: Estimate) -> str | None:
    """The widest weight format that fits."""
    s = e.scenario
    steps = (scheme(name) for name in WEIGHT_STEPS)
    smaller = ((st.name, replace(s, weights=st)) for st in steps if st.nominal_bytes < s.weights.nominal_bytes)
    return _first_fit(smaller, lambda name, got: f"--weights {name} fits ({got.max_sessions:,} conversations)")


def _kv(e: Estimate) -> str | None:
    """The widest cache format that fits."""
    s = e.scenario
    base = e.kv_bytes_per_token
    tries = ((name, replace(s, kv_dtype=name, kv=kv_pair(name))) for name in KV_STEPS if name != s.kv_dtype)

    def text(name: str, got: Estimate) -> str:
        return f"--kv-dtype {name} fits ({got.max_sessions:,} conversations)"

    return _first_fit(((n, t) for n, t in tries if _token_bytes(t) < base), text)


def _token_bytes(s: Scenario) -> int | float:
    try:
        return estimate_scenario(s).kv_bytes_per_token
    except InputError:
        return float("inf")


def _context(e: Estimate) -> str | None:
    """The longest context at which the asked sessions fit."""
    s = e.scenario
    low, high = s.shared_prefix, s.context  # the second does not fit
    while high - low > 1:
        middle = (low + high) // 2
        if estimate_scenario(replace(s, context=middle)).fits:
            low = middle
        else:
            high = middle
    return f"--context {low} fits" if low > s.shared_prefix else None


def _tp(e: Estimate) -> str | None:
    """The smallest tensor-parallel degree that fits."""
    s = e.scenario
    larger = ((str(tp), replace(s, tp=tp)) for tp in valid_tps(s.model) if tp > s.tp and s.kv_budget is None)
    return _first_fit(larger, lambda tp, got: f"--tp {tp} fits ({got.scenario.gpus} x {_name(s)})")


def _name(s: Scenario) -> str:
    return s.gpu.name if s.gpu else "GPUs"


def _gpu(e: Estimate) -> str | None:
    """The GPU with the least memory, of the same vendor, that fits."""
    s = e.scenario
    if s.gpu is None or s.kv_budget is not None:
        return None
    current = _memory(s, s.gpu)
    larger = sorted((memory, gpu.name, gpu) for gpu in _zoo_gpus() if (memory := _memory(s, gpu)) > current)
    alike = (s.gpu.vendor, s.gpu.unified_memory)  # a server card is not replaced by a developer's board
    same = [(name, replace(s, gpu=gpu)) for _, name, gpu in larger if (gpu.vendor, gpu.unified_memory) == alike]
    return _first_fit(same, lambda name, got: f"--gpu {name} fits ({got.max_sessions:,} conversations)")


def _memory(s: Scenario, gpu: Any) -> int:
    try:
        return s.engine.memory_bytes(gpu)[0]
    except InputError:
        return 0


def _zoo_gpus() -> Iterator[Any]:
    from kvplan.specs import zoo
    from kvplan.specs.gpu import load_gpu_file

    return (load_gpu_file(zoo.find("gpus", name)) for name in zoo.names("gpus"))
