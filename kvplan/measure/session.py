"""A run of `kvplan measure`: rows, one after another, each as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from kvplan.errors import InputError, KvplanError
from kvplan.loading import load_model
from kvplan.measure.checkpoint import checkpoint_numerics, load_tokenizer
from kvplan.measure.decode_rows import decode_rows, together
from kvplan.measure.decoder.build import with_layers
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.parallel import Group
from kvplan.measure.decoder.place import DTYPES
from kvplan.measure.decoder.refusals import check_runs
from kvplan.measure.machine import conditions
from kvplan.measure.memory_rows import Loaded, memory_rows
from kvplan.measure.observe import choose, observer_of
from kvplan.measure.observe_cpu import prefer_heap
from kvplan.measure.options import Options
from kvplan.measure.parallel import LOGIT_TOLERANCE, agree, check_logits, join, leave, local_device
from kvplan.measure.prefill_rows import prefill_rows, prompts
from kvplan.measure.progress import Progress
from kvplan.measure.rates import Peaks, measure_peaks, quick_dtype
from kvplan.measure.rows import EXTRAPOLATED, Row, row
from kvplan.measure.setting import Setting, settle_on
from kvplan.measure.step_model import prefill_work, step_work
from kvplan.memory.weights import stored, weight_lines
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.attention import with_attention
from kvplan.specs.model import ModelSpec
from kvplan.units import human_bytes

OUT_OF_MEMORY = ("out of memory", "can't allocate memory")  # CUDA's allocator, the CPU's


class OutOfMemoryError(KvplanError):
    """The device refused what the prediction said would fit."""

    exit_code = 1


def run(options: Options) -> Iterator[Row]:
    """All rows of a run; with several ranks every one has to go through them, and the first one's are shown."""
    model = with_attention(load_model(options.model), options.attention)
    if options.threads:
        torch.set_num_threads(options.threads)
    group = join(options.tp, options.device)
    progress = Progress(silent=group.rank > 0)
    try:
        device = choose(local_device(options.device, group))
        check_early(options, model, device)
        observer = observer_of(device)
        if options.dtype == "auto":
            options = replace(options, dtype=agree(group, quick_dtype(device, observer.synchronize)))
        dtype = options.dtype
        progress.begin("stream copy and matrix product")
        peaks = Peaks(*agree(group, tuple(measure_peaks(observer.device, DTYPES[dtype], observer.synchronize))))
        s = settle_on(options, model, observer=observer, group=group, peaks=peaks, progress=progress)
        about = conditions(options, observer, dtype)
        for each in _rows(s):
            yield {**each, "run": about}
    finally:
        progress.end()
        leave(group)


def check_early(options: Options, model: ModelSpec, device: torch.device) -> None:
    """Raise InputError for what can be told before anything is timed or built."""
    if options.layers is not None:
        with_layers(model, options.layers)
    check_runs(shard(model, options.tp)[0])
    if options.fill and options.memory_limit is None and device.type == "cpu":
        raise InputError("--fill on a CPU needs --memory-limit SIZE: without one the system ends a process")
    if options.checkpoint:
        checkpoint_numerics(options.checkpoint)
    if options.prompt and options.checkpoint:
        load_tokenizer(options.checkpoint)


def _rows(s: Setting) -> Iterator[Row]:
    loaded = Loaded(s.ledger)
    s.progress.plan(_plan(s))
    try:
        yield from memory_rows(s, loaded)
        decoder = loaded.decoder
        assert decoder is not None
        yield from _whole_model(s)
        prefer_heap()
        yield row("stream_copy", "bytes/s", observed=s.peaks.copy_bytes_per_s, note="read and written bytes")
        yield row("matrix_product", "FLOP/s", observed=s.peaks.product_flops_per_s, note=f"square, {s.dtype}")
        yield from prefill_rows(s, decoder)
        yield from decode_rows(s, decoder)
        yield from _extras(s, decoder)
    except (RuntimeError, MemoryError) as error:
        raise _refused(s, error) from error
    yield from _logits(s, s.group)


def _extras(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """What is only run when asked for."""
    if s.options.mixed_lengths:
        from kvplan.measure.mixed import mixed_rows

        yield from mixed_rows(s, decoder)
    if s.options.compare_naive:
        from kvplan.measure.naive import naive_rows

        yield from naive_rows(s, decoder)
    if s.options.prompt:
        from kvplan.measure.text import text_row

        yield text_row(s, decoder)


def _whole_model(s: Setting) -> Iterator[Row]:
    """Weights of all layers where fewer ran; the prediction that was checked on the part."""
    if s.rank.layers != s.whole.layers:
        size = sum(line.bytes for line in weight_lines(stored(s.whole, scheme(s.dtype))))
        note = f"{len(s.whole.layers)} layers; {len(s.rank.layers)} ran"
        yield row("weights_whole_model", "bytes", predicted=size, basis=EXTRAPOLATED, note=note)


def _logits(s: Setting, group: Group) -> Iterator[Row]:
    if group.size == 1:
        return
    s.progress.begin("logits of the ranks against one process")
    found = check_logits(s.model, group)
    limit = LOGIT_TOLERANCE * found.largest
    note = "largest difference to one process, fp32, two layers"
    yield row("logit_difference", "1", predicted=0, observed=found.difference, low=0, high=limit, note=note)


def _plan(s: Setting) -> list[tuple[str, float]]:
    """Steps and guesses of their seconds, by bytes at half the copy's rate and operations at half the product's."""
    half_copy, half_product = s.peaks.copy_bytes_per_s / 2, s.peaks.product_flops_per_s / 2

    def passes(work: Any, times: int) -> float:
        return times * (work.bytes / half_copy + work.operations / half_product)

    prompt = prefill_work(s.rank, s.dtype, 1, s.prompt)
    steps = [("building the decoder", 3 * s.ledger.weights_bytes / half_copy)]
    steps.append((f"activations of a prompt of {s.prompt} tokens", passes(prompt, 1)))
    steps.append(("filling the device" if s.options.fill else "filling up to a small limit", 1.0))
    for tokens in prompts(s):
        steps.append((f"prefill of {tokens} tokens", passes(prefill_work(s.rank, s.dtype, 1, tokens), 5)))
    works = [step_work(s.rank, s.dtype, batch, context) for batch, context in s.points]
    names = [f"decode, batch {', '.join(map(str, batches))}" for batches in together(s)]
    each = sum(passes(work, 2 * s.options.repeats) for work in works) / len(names)
    steps += [(name, each) for name in names]
    return steps


def _refused(s: Setting, error: RuntimeError | MemoryError) -> Exception:
    """A sentence with what would fit, if memory was what was missing."""
    text = str(error)
    if not isinstance(error, MemoryError) and not any(words in text for words in OUT_OF_MEMORY):
        return error
    batch, context = max(s.points, key=lambda p: p[0] * p[1])
    smaller = min(s.points, key=lambda p: p[0] * p[1])
    again = f"--batch {smaller[0]} --context {smaller[1]}" if smaller != (batch, context) else "fewer --layers"
    return OutOfMemoryError(
        f"the device refused memory ({text.splitlines()[0]}); batch {batch} with a context of {context} was to take "
        f"{human_bytes(s.ledger.weights_bytes + batch * s.ledger.slab.bytes)} with the weights: try {again}"
    )
