"""How many layers this device can run, by memory and by time; fewer than all make extrapolated figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.measure.decoder.build import with_layers
from kvplan.measure.ledger import Ledger
from kvplan.measure.rates import Peaks
from kvplan.measure.step_model import prefill_work, step_work
from kvplan.sharding import Rank, shard
from kvplan.specs.model import ModelSpec
from kvplan.units import human_bytes

# Of the copy's rate and the product's, for a first guess of how long a run takes; plain 16-bit matrices on a CPU
# without their instructions are the slowest case.
READ_SHARE, PRODUCT_SHARE = 0.3, 0.5
BUILD_BYTES_PER_S = 1e9
SHARE_OF_BUDGET = 0.5  # that the smallest run may take; the rest is for longer contexts and larger batches
STEPS, PROMPTS = 30, 6  # of the smallest run: warm-ups, repeats, parts

Predict = Callable[[Rank], Ledger]


class Fit(NamedTuple):
    """The layers to run, and why not all."""

    layers: int
    reason: str | None


def choose_layers(
    model: ModelSpec,
    tp: int,
    predict: Predict,
    *,
    wanted: int | None,
    budget_s: float,
    peaks: Peaks,
    smallest: tuple[int, int],
) -> Fit:
    """The layers asked for, else as many as fit; InputError when not even one does."""
    whole = len(model.stack)
    if wanted is not None:
        with_layers(model, wanted)  # refuses numbers that are not possible
        _check_fits(predict(rank_of(model, tp, wanted)), f"--layers {wanted}")
        return Fit(wanted, None if wanted == whole else f"--layers {wanted}")
    by_memory = _most(whole, lambda n: fits(predict(rank_of(model, tp, n))))
    if by_memory == 0:
        _check_fits(predict(rank_of(model, tp, 1)), f"one layer of {model.name}")
    allowed = budget_s * SHARE_OF_BUDGET
    by_time = max(1, _most(whole, lambda n: seconds(rank_of(model, tp, n), predict, peaks, smallest) <= allowed))
    if min(by_memory, by_time) == whole:
        return Fit(whole, None)
    if by_memory <= by_time:
        return Fit(by_memory, f"{by_memory} of {whole} layers fit this device's memory")
    return Fit(by_time, f"{by_time} of {whole} layers fit the time budget of {budget_s:.0f} s")


def rank_of(model: ModelSpec, tp: int, layers: int) -> Rank:
    """One rank of the model cut to its first layers."""
    return shard(with_layers(model, layers), tp)[0]


def fits(ledger: Ledger) -> bool:
    """Whether one session has room beside the weights."""
    return ledger.sessions >= 1


def seconds(rank: Rank, predict: Predict, peaks: Peaks, smallest: tuple[int, int]) -> float:
    """A cautious guess of the smallest run's time."""
    ledger, (batch, context) = predict(rank), smallest
    step, prompt = (work(rank, ledger.host.dtype, batch, context) for work in (step_work, prefill_work))
    a_step = step.bytes / (peaks.copy_bytes_per_s * READ_SHARE)
    a_prompt = prompt.operations / (peaks.product_flops_per_s * PRODUCT_SHARE)
    return STEPS * a_step + PROMPTS * a_prompt + ledger.weights_bytes / BUILD_BYTES_PER_S


def _most(whole: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `whole` for which it holds; 0 when it holds for none."""
    if holds(whole):
        return whole
    low, high = 0, whole  # low holds (or is 0), high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _check_fits(ledger: Ledger, what: str) -> None:
    """Raise InputError that says what is needed, what there is, and what would fit."""
    if fits(ledger):
        return
    need = ledger.weights_bytes + sum(line.bytes for line in ledger.budget.overhead) + ledger.slab.bytes
    raise InputError(
        f"{what} does not fit: weights, activations and one session of {ledger.context} tokens take "
        f"{human_bytes(need)} with what is taken already, and there are {human_bytes(ledger.host.memory_bytes)} "
        f"({ledger.host.source}); {_advice(ledger)}"
    )


def _advice(ledger: Ledger) -> str:
    if ledger.weights_bytes + ledger.host.baseline_bytes < ledger.host.memory_bytes:
        return "give a shorter --context"
    return "take a smaller model, or 16 bits with --dtype bf16"
