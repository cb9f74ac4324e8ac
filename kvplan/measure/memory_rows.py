"""Memory, predicted and observed: the decoder is built part by part, and every part is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kvplan.measure.activations import activation_line
from kvplan.measure.checkpoint import checkpoint_numerics, load_checkpoint
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.packing import Packing, choose_layouts, pack_linears
from kvplan.measure.fill import Filled, fill
from kvplan.measure.ledger import Ledger, cache_bytes
from kvplan.measure.observe_cpu import limited_bytes
from kvplan.measure.options import ACTIVATIONS_TOLERANCE, WEIGHTS_TOLERANCE
from kvplan.measure.parallel import gather
from kvplan.measure.rows import FORMULA, Row, row
from kvplan.measure.setting import Setting, pass_on
from kvplan.measure.steps import prefill_of
from kvplan.units import human_bytes

TRIAL_SESSIONS, TRIAL_BYTES = 16, 512 * 1024**2  # of the small fill that a CPU gets without being asked


class Loaded:
    """The decoder once its memory was read, and what the parts took."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger  # what is predicted, once more when it is known how the matrices lie
        self.decoder: Decoder | None = None
        self.packing = Packing({})
        self.libraries_bytes = 0  # what their first use took
        self.peak_parts: dict[str, tuple[int, int]] = {}  # name -> predicted, observed


def memory_rows(s: Setting, loaded: Loaded) -> Iterator[Row]:
    """Memory and baseline; weights; their copies; cache; activations; peak; sessions."""
    yield row("memory", "bytes", observed=s.ledger.host.memory_bytes, note=s.ledger.host.source)
    yield row("baseline", "bytes", observed=s.ledger.host.baseline_bytes, note="taken before the first weight")
    s.progress.begin("building the decoder")
    yield from _weights(s, loaded)
    yield from _cache(s, loaded)
    s.progress.begin(f"activations of a prompt of {s.prompt} tokens")
    yield _activations(s, loaded)
    note = "taken for themselves by libraries while orders of matrices were tried and a first prompt ran"
    yield row("libraries", "bytes", observed=loaded.libraries_bytes, note=note)
    yield _peak(s, loaded)
    for name, value in s.observer.readings().items():
        yield row(f"observed_{name}", "bytes", observed=value, note="all of this process, now")
    yield row("kv_budget", "bytes", predicted=loaded.ledger.budget.kv.bytes, note=_identity(loaded.ledger))
    if s.group.size == 1:
        s.progress.begin("filling the device" if s.options.fill else "filling up to a small limit")
        yield from _sessions(s, loaded)


def _weights(s: Setting, loaded: Loaded) -> Iterator[Row]:
    before = s.observer.used()
    folder = s.options.checkpoint
    numerics = checkpoint_numerics(folder) if folder else None
    place = s.place
    decoder = build_decoder(
        s.rank, device=place.device, dtype=place.dtype, seed=s.options.seed, numerics=numerics, group=s.group
    )
    if folder:
        s.progress.begin(f"reading {folder}")
        load_checkpoint(decoder, folder)
    built = s.observer.used()
    yield _judged(
        s, loaded, "weights", predicted=s.ledger.weights_bytes, observed=built - before, usual=WEIGHTS_TOLERANCE
    )
    with _libraries(s, loaded):
        layouts = choose_layouts(decoder, s.batches)
    tried = s.observer.used()
    loaded.decoder, loaded.packing = decoder, pack_linears(decoder, layouts, min(s.batches))
    loaded.ledger = s.ledger_with(loaded.packing, loaded.libraries_bytes)
    s.progress.note(f"order of the matrices: {', '.join(loaded.ledger.host.layouts)}")
    predicted = loaded.ledger.overhead("packed")
    if predicted:
        yield _judged(
            s, loaded, "packed", predicted=predicted, observed=s.observer.used() - tried, usual=WEIGHTS_TOLERANCE
        )


def _cache(s: Setting, loaded: Loaded) -> Iterator[Row]:
    decoder = _decoder(loaded)
    batch, context = max(s.points, key=lambda p: p[0] * p[1])
    decoder.reserve_positions(context)
    loaded.peak_parts["tables"] = (loaded.ledger.overhead("position_tables"), decoder.table_bytes)
    before = s.observer.used()
    cache = ContiguousCache(decoder, batch=batch, capacity=context)
    observed = s.observer.used() - before
    predicted = batch * cache_bytes(s.rank, s.dtype, context)
    yield _judged(
        s, loaded, "kv_cache", predicted=predicted, observed=observed, usual=WEIGHTS_TOLERANCE,
        batch=batch, context_tokens=context,
    )  # fmt: skip
    del cache


def _activations(s: Setting, loaded: Loaded) -> Row:
    work = prefill_of(_decoder(loaded), 1, s.prompt)
    with _libraries(s, loaded):
        work()
    loaded.ledger = s.ledger_with(loaded.packing, loaded.libraries_bytes)
    observed = s.observer.peak_of(work)
    line = activation_line(s.rank, pass_on(loaded.ledger.host, 1, s.prompt, s.prompt))
    return _judged(
        s, loaded, "activations", predicted=line.bytes, observed=observed, usual=ACTIVATIONS_TOLERANCE,
        batch=1, context_tokens=s.prompt, note=line.source,
    )  # fmt: skip


@contextmanager
def _libraries(s: Setting, loaded: Loaded) -> Iterator[None]:
    """What work that keeps nothing leaves behind: workspaces that libraries take at first use."""
    before = s.observer.total(s.options.memory_limit).baseline_bytes
    yield
    loaded.libraries_bytes += max(0, s.observer.total(s.options.memory_limit).baseline_bytes - before)


def _peak(s: Setting, loaded: Loaded) -> Row:
    predicted, observed = (sum(part[i] for part in loaded.peak_parts.values()) for i in (0, 1))
    note = "weights, their copies, position tables, cache and the prompt's activations together"
    tolerance = s.options.judged(ACTIVATIONS_TOLERANCE)
    return row("peak", "bytes", predicted=predicted, observed=observed, tolerance=tolerance, memory=True, note=note)


def _judged(s: Setting, loaded: Loaded, name: str, *, predicted: int, observed: int, usual: float, **more: Any) -> Row:
    """A memory row; with several ranks the one that is furthest from the prediction, and all of them."""
    ranks = gather(s.group, observed)
    worst = max(ranks, key=lambda each: abs(each - predicted))
    loaded.peak_parts[name] = (predicted, worst)
    if s.group.size > 1:
        more["observed_by_rank"] = ranks
    tolerance = s.options.judged(usual)
    return row(name, "bytes", predicted=predicted, observed=worst, tolerance=tolerance, memory=True, **more)


def _decoder(loaded: Loaded) -> Decoder:
    assert loaded.decoder is not None
    return loaded.decoder


def _identity(ledger: Ledger) -> str:
    parts = [f"{human_bytes(line.bytes)} {line.name.partition('/')[2]}" for line in ledger.budget.overhead]
    return f"memory less {human_bytes(ledger.weights_bytes)} weights, {', '.join(parts)}"


def _sessions(s: Setting, loaded: Loaded) -> Iterator[Row]:
    """The device's own number as a prediction; filled where asked, on a CPU otherwise up to a small limit."""
    s.observer.used()  # settles
    context = s.ledger.context
    yield row("kv_bytes_per_session", "bytes", predicted=loaded.ledger.slab.bytes, context_tokens=context)
    on_cpu = s.observer.device.type == "cpu"
    if on_cpu and not s.options.fill:
        yield row("sessions", "sessions", predicted=loaded.ledger.sessions, context_tokens=context)
        if torch.cuda.is_initialized():
            return
    limit, predicted, note = _limit(s, loaded) if on_cpu else (None, loaded.ledger.sessions, "until the device refused")
    if on_cpu and limit is None:
        return
    found = fill(_decoder(loaded), context, loaded.ledger.overhead("activations"), limit)
    if s.options.fill and on_cpu:
        predicted = loaded.ledger.sessions
    yield _filled_row(s, found, predicted, "sessions" if s.options.fill or not on_cpu else "sessions_in_trial", note)


def _limit(s: Setting, loaded: Loaded) -> tuple[int | None, int, str]:
    """The limit asked for, or one that leaves room for a few sessions, and what is predicted for it."""
    if s.options.fill:
        return s.options.memory_limit, loaded.ledger.sessions, "until the limit refused"
    each, spare = loaded.ledger.slab.bytes, loaded.ledger.overhead("activations")
    count = min(TRIAL_SESSIONS, max(1, TRIAL_BYTES // each), loaded.ledger.sessions)
    if count < 1:
        return None, 0, ""
    limit = limited_bytes() + spare + count * each + each // 2
    return limit, count, f"until a limit of {human_bytes(limit)}, set by this run, refused"


def _filled_row(s: Setting, found: Filled, predicted: int, name: str, note: str) -> Row:
    room = max(1, round(0.01 * predicted))
    if not found.last_decodes:
        s.progress.note(f"the last session could not decode beside the others ({found.refusal})")
    return row(
        name, "sessions", predicted=predicted, observed=found.sessions, low=predicted - room, high=predicted + room,
        basis=FORMULA, memory=True, context_tokens=s.ledger.context, note=note, refusal=found.refusal,
    )  # fmt: skip
