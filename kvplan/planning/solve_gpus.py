"""The fewest GPUs: every tensor-parallel degree that the model allows, each with as many replicas as it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.errors import InputError
from kvplan.planning.estimate import Estimate, estimate_scenario
from kvplan.planning.scenario import Scenario, make_scenario
from kvplan.planning.solve import Solution
from kvplan.sharding import valid_tps
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import MAX_GPUS, parse_gpu
from kvplan.specs.model import ModelSpec

TOLD = 4  # other degrees that a reason names


class _Tried(NamedTuple):
    """A tensor-parallel degree: the deployment that holds the sessions, or one replica where none does."""

    estimate: Estimate
    gpus: int | None  # None: a replica holds not one session

    @property
    def tp(self) -> int:
        """The degree."""
        return self.estimate.scenario.tp


def solve_gpus(
    model: str | Path | ModelSpec, gpu: str | GpuSpec | None = None, *, max_gpus: int | None = None, **options: Any
) -> Solution:
    """The fewest GPUs that hold `sessions` (default 1) of a context; tp and dp are chosen where they are not given."""
    if max_gpus is not None and not 1 <= max_gpus <= MAX_GPUS:
        raise InputError(f"--max-gpus: expected a number from 1 to {MAX_GPUS:,}, got {max_gpus}")
    if isinstance(gpu, str) and (choice := parse_gpu(gpu)).count is not None:
        raise InputError(f"--gpu {gpu}: the count is what is solved for; write --gpu {choice.gpu.name}")
    tp, dp, ep = options.get("tp"), options.get("dp"), options.get("ep") or 1
    replicas = dp or ep // gcd(ep, tp or 1) if isinstance(ep, int) and ep > 0 else 1
    base = make_scenario(model, gpu, **{**options, "tp": tp or 1, "dp": replicas})
    limit = max_gpus or MAX_GPUS
    tried = list(_each_degree(base, [tp] if tp else valid_tps(base.model), dp, limit))
    if not tried:
        raise InputError(f"--max-gpus {limit} is too few for {base.model.name} with --pp {base.pp}")
    found = [each for each in tried if each.gpus is not None]
    best = min(found, key=lambda each: (each.gpus, -each.estimate.max_sessions, each.tp), default=None)
    if best is None or best.gpus is None:
        return _none(tried, limit)
    if best.gpus > limit:
        return _too_few(best.gpus, tried, limit)
    return Solution(
        answer=best.gpus, estimate=best.estimate, sentence=_sentence(best.estimate), reasons=_reasons(best, tried)
    )


def _each_degree(base: Scenario, degrees: Sequence[int], dp: int | None, limit: int) -> Iterator[_Tried]:
    """Degrees in order, until one replica alone takes more than the limit or than what was found."""
    fewest = limit
    for tp in degrees:
        if tp * base.pp > fewest:
            return
        try:
            tried = _deployment(replace(base, tp=tp), dp)
        except InputError:
            if len(degrees) == 1:
                raise
            continue  # a degree that the engine or another option rules out
        if tried.gpus is not None and tried.gpus < fewest:
            fewest = tried.gpus
        yield tried


def _deployment(s: Scenario, dp: int | None) -> _Tried:
    """As many replicas as hold the sessions: each holds the same, and expert parallelism spans whole groups of them."""
    step = s.ep // gcd(s.ep, s.tp)
    one = estimate_scenario(replace(s, dp=dp or step))
    per_replica = one.max_sessions // one.scenario.dp
    if not per_replica:
        return _Tried(one, None)
    if dp:
        return _Tried(one, one.scenario.gpus if one.fits else None)
    needed = ceil_div(ceil_div(s.sessions or 1, per_replica), step) * step
    found = estimate_scenario(replace(s, dp=needed))
    return _Tried(found, found.scenario.gpus)


def _none(tried: Sequence[_Tried], limit: int) -> Solution:
    """No degree holds the sessions: the one that comes nearest."""
    from kvplan.planning.advice import advice  # words are made only for those who need them

    nearest = min(tried, key=lambda each: (each.estimate.shortfall_bytes, -each.estimate.max_sessions)).estimate
    degrees = "tp " + " or ".join(str(each.tp) for each in tried)
    number = "No number of GPUs" if limit == MAX_GPUS else f"No number of GPUs up to {limit:,}"
    sentence = f"{number} is enough with {degrees}: {advice(nearest)[0]}"
    return Solution(answer=None, estimate=nearest, sentence=sentence)


def _too_few(gpus: int, tried: Sequence[_Tried], limit: int) -> Solution:
    """More are needed than may be: the deployment within the limit that holds most."""
    within = []
    for each in tried:
        s = each.estimate.scenario
        step = s.ep // gcd(s.ep, s.tp)
        dp = limit // (s.tp * s.pp) // step * step
        if dp:
            within.append(estimate_scenario(replace(s, dp=dp)))
    most = max(within, key=lambda e: e.max_sessions, default=tried[0].estimate)
    s = most.scenario
    return Solution(
        answer=None,
        estimate=most,
        sentence=f"{_needed(most)} need {gpus:,} {_name(s)}; the {limit:,} that may be used hold {most.max_sessions:,}",
    )


def _sentence(e: Estimate) -> str:
    s = e.scenario
    holds = "holds" if s.gpus == 1 else "hold"
    layout = [f"tp {s.tp}"] + ([f"pp {s.pp}"] if s.pp > 1 else []) + ([f"{s.dp} replicas"] if s.dp > 1 else [])
    return f"{s.gpus:,} {_name(s)} {holds} {_needed(e)}: {', '.join(layout)}"


def _needed(e: Estimate) -> str:
    s = e.scenario
    count = s.sessions or 1
    return f"{count:,} conversation{'s' if count > 1 else ''} of {s.context:,} tokens"


def _name(s: Scenario) -> str:
    return f"x {s.gpu.name}" if s.gpu else "GPU" + ("s" if s.gpus > 1 else "")


def _reasons(best: _Tried, tried: Sequence[_Tried]) -> tuple[str, ...]:
    """What the nearest of the other degrees come to."""
    others = sorted((each for each in tried if each is not best), key=lambda each: abs(each.tp - best.tp))[:TOLD]
    told: dict[str, list[int]] = {}
    for each in sorted(others, key=lambda each: each.tp):
        told.setdefault(_outcome(each, best), []).append(each.tp)
    degrees = [f"with tp {' or '.join(map(str, tps))} {outcome}" for outcome, tps in told.items()]
    return (f"why tp {best.tp}: {', '.join(degrees)}",) if degrees else ()


def _outcome(each: _Tried, best: _Tried) -> str:
    if each.gpus is None:
        held = each.estimate.max_sessions
        return f"only {held:,} fit" if held else "no conversation fits"
    if each.gpus == best.gpus:
        return f"as many GPUs hold {each.estimate.max_sessions:,}, not {best.estimate.max_sessions:,}"
    return f"it takes {each.gpus:,} GPUs"
