"""What the error would have been for a model that the constants were not fitted on.

The constants of the profile run's peak and of the memory outside PyTorch are fitted again without each model (all
checkpoints of its shape), and the run is planned with them. Bands: the half width that runs of all other sources ask
for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from kvplan.engines.vllm.rules import EARLIER_SAMPLER, LATER_SAMPLER, rules, version_name
from kvplan.evidence.runs import Run, options_of
from kvplan.evidence.score import Score, planned
from kvplan.units import GIB, Line

Shape = tuple[int, int, int]


class Start(NamedTuple):
    """What the fits need of a run, in GiB; a peak that is not the sampler's has no `form`."""

    id: str
    shape: Shape
    form: float | None  # sampler_factor of the version
    logits: float
    step: float
    beside: float  # of the planned peak: all but the sampler's fitted part
    peak: float
    logged_peak: float | None
    settled: tuple[object, ...]  # runs that share the constant outside PyTorch
    non_torch: float
    logged_non_torch: float | None


class Refit(NamedTuple):
    """A run planned with constants that do not know its model, GiB; None where there is nothing else to fit on."""

    peak: float | None
    non_torch: float | None
    kv_shift: float  # added to the planned KV memory


def starts(runs: Iterable[Run], scored: Iterable[Score]) -> list[Start]:
    """The runs whose memory is scored and whose version is known."""
    wanted = {each.id for each in scored if each.quantity == "kv" and each.version}
    return [_start(run) for run in runs if run["id"] in wanted]


def _start(run: Run) -> Start:
    options = options_of(run)
    found = planned(run, options)
    budget = found.budgets[0]
    assert budget is not None  # a GPU was given
    peak = sum(line.bytes for line in budget.overhead if not line.name.endswith(("non_torch", "graphs")))
    outside = sum(line.bytes for line in budget.overhead if line.name.endswith("non_torch"))
    (line,) = (line for line in budget.overhead if line.name == "overhead/activation_peak")
    logits, step = line.terms.get("logits_bytes", 0), line.terms["step_bytes"]
    form, sampler = _sampler(line)
    model, version = found.scenario.model, version_name(options["engine_version"])
    return Start(
        id=run["id"],
        shape=(model.hidden_size, model.vocab_size, len(model.stack)),
        form=form,
        logits=logits / GIB,
        step=step / GIB,
        beside=(peak - sampler) / GIB,
        peak=peak / GIB,
        logged_peak=float(run["activation_peak_gib"]) if run["activation_peak_gib"] else None,
        settled=(rules(version).non_torch_gib, min(options["tp"], 3), options["pp"] > 1),
        non_torch=outside / GIB,
        logged_non_torch=float(run["non_torch_gib"]) if run["non_torch_gib"] else None,
    )


def _sampler(line: Line) -> tuple[float | None, float]:
    """The form and the fitted part of a peak that the sampler decides."""
    terms = line.terms
    if "sampler_factor" not in terms:
        return None, 0.0
    form = EARLIER_SAMPLER if terms["sampler_factor"] >= EARLIER_SAMPLER else LATER_SAMPLER
    fitted = form * terms["logits_bytes"] + terms["step_factor"] * terms["step_bytes"] + terms["constant"]
    whole = fitted + (terms["sampler_factor"] - form) * terms["logits_bytes"]
    return (form, fitted) if abs(whole - line.bytes) <= 1 else (None, 0.0)


def refits(found: Sequence[Start]) -> dict[str, Refit]:
    """Each run with constants fitted on the runs of other models."""
    again: dict[str, Refit] = {}
    for one in found:
        others = [other for other in found if other.shape != one.shape]
        peak, outside = _peak(one, others), _outside(one, others)
        shift = (one.peak - peak if peak is not None else 0) + (one.non_torch - outside if outside is not None else 0)
        again[one.id] = Refit(peak, outside, shift)
    return again


def _peak(one: Start, others: Iterable[Start]) -> float | None:
    """Least squares over text models without work space of experts, whose peak is the sampler's alone."""
    points = [
        (start, start.logged_peak)
        for start in others
        if one.form and start.form == one.form and start.logged_peak and abs(start.beside) < 1e-6
    ]
    if len({start.shape for start, _ in points}) < 4:
        return None
    left = np.array([[start.logits, start.step, 1.0] for start, _ in points])
    factors, *_ = np.linalg.lstsq(left, np.array([target for _, target in points]), rcond=None)
    return one.beside + float(np.dot(factors, [one.logits, one.step, 1.0]))


def _outside(one: Start, others: Iterable[Start]) -> float | None:
    seen = [other.logged_non_torch for other in others if other.settled == one.settled]
    known = [value for value in seen if value is not None]
    return median(known) if known else None


def source_of(run: Run) -> str:
    """The document a run is from, without the file within it."""
    return re.split(r", | \(", run["source"], maxsplit=1)[0]


class Held(NamedTuple):
    """Runs of one source under a band that the runs of all others ask for."""

    source: str
    runs: int
    inside: int
    half_gib: float
    inside_half: int


def held_out(runs: Iterable[Run], kv: Iterable[Score]) -> list[Held]:
    """For each source: inside kvplan's band, and inside the 90th percentile of the other sources' errors."""
    sources = {run["id"]: source_of(run) for run in runs}
    known = [each for each in kv if each.version]
    by_source: dict[str, list[Score]] = {}
    for each in known:
        by_source.setdefault(sources[each.id], []).append(each)
    return [_held(source, own, by_source) for source, own in by_source.items()]


def _held(source: str, own: list[Score], by_source: Mapping[str, list[Score]]) -> Held:
    others = [_off(each) for name, found in by_source.items() if name != source for each in found]
    half = float(np.quantile(others, 0.9))
    return Held(source, len(own), sum(bool(e.within) for e in own), half, sum(_off(e) <= half for e in own))


def _off(each: Score) -> float:
    return abs(each.predicted - each.logged)
