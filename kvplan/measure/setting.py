"""What every part of a run works with: the device, the model as far as it is run, and the prediction."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from kvplan.errors import InputError
from kvplan.measure.activations import Pass
from kvplan.measure.datasheet import Datasheet, datasheet_of
from kvplan.measure.decoder.layouts import possible
from kvplan.measure.decoder.packing import Packing
from kvplan.measure.decoder.parallel import Group
from kvplan.measure.decoder.place import DTYPES, Place
from kvplan.measure.fit_device import Fit, choose_layers, rank_of
from kvplan.measure.ledger import Host, Ledger, predict
from kvplan.measure.observe import Observer, Total
from kvplan.measure.options import VALUE_BYTES, Options
from kvplan.measure.parallel import agree
from kvplan.measure.progress import Progress
from kvplan.measure.rates import Peaks
from kvplan.sharding import Rank
from kvplan.specs.model import ModelSpec
from kvplan.units import human_bytes

PROMPT_SHARE = 0.08  # of the time budget that one prompt may take
PRODUCT_SHARE = 0.5  # of the product's rate that a prompt is guessed to reach


class Setting(NamedTuple):
    """Everything but the decoder itself, which is built while memory is watched."""

    options: Options
    model: ModelSpec
    rank: Rank  # with the layers that are run
    whole: Rank  # with all of them
    observer: Observer
    group: Group
    dtype: str
    peaks: Peaks
    fit: Fit
    ledger: Ledger  # of the largest batch and context that are run
    points: tuple[tuple[int, int], ...]  # batch, context: those that fit
    prompt: int  # tokens of the longest prompt that is run
    progress: Progress
    datasheet: Datasheet | None  # of GPUs that the zoo knows

    @property
    def place(self) -> Place:
        """Where tensors go."""
        return Place(self.observer.device, DTYPES[self.dtype])

    @property
    def batches(self) -> list[int]:
        """The batches that are run."""
        return sorted({batch for batch, _ in self.points})

    def contexts(self, batch: int) -> list[int]:
        """The contexts that are run with a batch."""
        return sorted(context for b, context in self.points if b == batch)

    def ledger_with(self, packing: Packing, libraries_bytes: int) -> Ledger:
        """The prediction once it is known in which order the matrices lie, and what libraries took for themselves."""
        host = self.ledger.host._replace(
            layouts=packing.names,
            fp32_products=frozenset(shape for shape, name in packing.layouts.items() if name == "fbgemm"),
            packed=(packing.copied_bytes, packing.padding_bytes),
            libraries_bytes=libraries_bytes,
        )
        return _ledger(self.rank, host=host, context=self.ledger.context, tokens=self.prompt, batch=1)


def settle_on(
    options: Options, model: ModelSpec, *, observer: Observer, group: Group, peaks: Peaks, progress: Progress
) -> Setting:
    """Decide what is run; InputError when nothing can be."""
    dtype = options.dtype
    total = observer.total(options.memory_limit)
    _check_limit(total, options)
    host = _host(observer, total, dtype)
    whole = rank_of(model, options.tp, len(model.stack))
    smallest = (min(options.batches), min(options.contexts))
    guess = partial(_ledger, host=host, context=smallest[1], tokens=smallest[1], batch=smallest[0])
    chosen = choose_layers(
        model,
        options.tp,
        guess,
        wanted=options.layers,
        budget_s=options.time_budget_s,
        peaks=peaks,
        smallest=smallest,
    )
    fit = agree(group, chosen)
    rank = rank_of(model, options.tp, fit.layers)
    prompt = agree(group, _longest_prompt(rank, options, peaks))
    points = agree(group, _points(rank, host, options, prompt))
    _say_left_out(options, points, fit, progress)
    largest = max(points, key=lambda p: p[0] * p[1])
    ledger = _ledger(rank, host=host, context=largest[1], tokens=prompt, batch=1)
    paper = datasheet_of(observer.name, dtype) if observer.device.type == "cuda" else None
    return Setting(
        options, model, rank, whole, observer, group, dtype, peaks, fit, ledger, points, prompt, progress, paper
    )


def _host(observer: Observer, total: Total, dtype: str) -> Host:
    place = Place(observer.device, DTYPES[dtype])
    layouts = tuple(possible(place))
    return Host(
        memory_bytes=total.bytes,
        baseline_bytes=total.baseline_bytes,
        source=total.source,
        device=observer.device.type,
        dtype=dtype,
        value_bytes=VALUE_BYTES[dtype],
        threads=torch.get_num_threads(),
        slab_granule=observer.slab_granule,
        layouts=layouts,
        fp32_products=None if "fbgemm" in layouts else frozenset(),
    )


def _ledger(rank: Rank, *, host: Host, context: int, tokens: int, batch: int) -> Ledger:
    return predict(rank, host, context, pass_on(host, batch, tokens, context))


def pass_on(host: Host, batch: int, tokens: int, context: int) -> Pass:
    """A pass as the activation formula wants it."""
    return Pass(batch, tokens, context, host.value_bytes, host.device, host.threads, fp32_products=host.fp32_products)


def _check_limit(total: Total, options: Options) -> None:
    if options.memory_limit is not None and total.baseline_bytes >= options.memory_limit:
        raise InputError(
            f"--memory-limit {human_bytes(options.memory_limit)} is below what the process takes before the first "
            f"weight, {human_bytes(total.baseline_bytes)}; give more"
        )


def _longest_prompt(rank: Rank, options: Options, peaks: Peaks) -> int:
    """The longest context whose prefill leaves time for everything else, and the shortest in any case."""
    from kvplan.speed.work import prefill_operations

    allowed = options.time_budget_s * PROMPT_SHARE * peaks.product_flops_per_s * PRODUCT_SHARE
    short = [c for c in options.contexts if prefill_operations(rank, c).total <= allowed]
    return max(short, default=min(options.contexts))


def _points(rank: Rank, host: Host, options: Options, prompt: int) -> tuple[tuple[int, int], ...]:
    """Batches and contexts whose caches fit beside the weights, the longest prompt's activations included."""
    found = []
    for batch in options.batches:
        for context in options.contexts:
            ledger = _ledger(rank, host=host, context=context, tokens=prompt, batch=1)
            if ledger.slab.bytes * batch <= ledger.budget.kv.bytes:
                found.append((batch, context))
    if not found:
        raise InputError(
            f"not one of the batches and contexts fits in {human_bytes(host.memory_bytes)} ({host.source}); "
            "give smaller ones with --batch and --context"
        )
    return tuple(found)


def _say_left_out(options: Options, points: tuple[tuple[int, int], ...], fit: Fit, progress: Progress) -> None:
    if fit.reason:
        progress.note(f"{fit.reason}: figures of the whole model are extrapolated")
    for batch in options.batches:
        out = [c for c in options.contexts if (batch, c) not in points]
        if out:
            progress.note(f"batch {batch} with a context of {', '.join(map(str, out))} does not fit and is left out")
