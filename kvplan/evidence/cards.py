"""The card of a log: by the name it prints, by the memory it prints, or by what the user says."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import parse_gpu
from kvplan.units import GIB, MIB, human_bytes

_SAME = 0.035 * GIB  # printed with two decimals, and drivers differ by as much
_PRINTED_TOO = {"a100-80g": 79.25}  # GiB in start-up logs, where a zoo file has the least that was seen


class Card(NamedTuple):
    """A GPU with the memory that the log gives it, and how it was recognised."""

    gpu: GpuSpec
    source: str  # option | name | memory | unnamed
    note: str | None = None


def find_card(given: str | None, printed: str | None, total_bytes: int | None) -> Card | None:
    """The GPU to plan with; None when neither option nor log tell of one."""
    if given is not None:
        return _with_memory(Card(parse_gpu(given).gpu, "option"), total_bytes)
    by_name = _by_name(printed) if printed else None
    if by_name:
        return _with_memory(Card(by_name, "name"), total_bytes)
    return None if total_bytes is None else _by_memory(total_bytes)


def _by_name(printed: str) -> GpuSpec | None:
    plain = " ".join(printed.replace("_", " ").lower().split())
    short = plain.removeprefix("nvidia ").removeprefix("amd ")
    for name in (plain, short, short.replace(" ", "-")):
        found = zoo.lookup("gpus", name)
        if found:
            return parse_gpu(found).gpu
    return None


def _by_memory(total_bytes: int) -> Card:
    """The one card whose runtime offers this much, else a card without a name."""
    known = [gpu for gpu in (parse_gpu(name).gpu for name in zoo.names("gpus")) if gpu.runtime_memory_gib is not None]
    near = [gpu for gpu in known if _distance(gpu, total_bytes) <= _SAME]
    best = sorted(near, key=lambda gpu: _distance(gpu, total_bytes))
    if best and (len(best) == 1 or _distance(best[1], total_bytes) - _distance(best[0], total_bytes) > 0.02 * GIB):
        note = f"the log names no GPU: {best[0].name} is the one that offers {human_bytes(total_bytes)} (--gpu)"
        return _with_memory(Card(best[0], "memory", note), total_bytes)
    size = total_bytes / GIB
    names = f", as {' and '.join(gpu.name for gpu in best)} do" if best else ""
    note = f"the log names no GPU, only {human_bytes(total_bytes)} of memory{names}; name it with --gpu"
    return Card(GpuSpec(name=f"unnamed-{size:.2f}gib", runtime_memory_gib=size), "unnamed", note)


def _distance(gpu: GpuSpec, total_bytes: int) -> float:
    sizes = (gpu.runtime_memory_gib or 0, _PRINTED_TOO.get(gpu.name, 0))
    return min(abs(size * GIB - total_bytes) for size in sizes)


def _with_memory(card: Card, total_bytes: int | None) -> Card:
    """The card with the memory that the log prints; a note where the two are far apart."""
    if total_bytes is None:
        return card
    gpu = card.gpu
    try:
        known = gpu.memory_bytes().bytes
    except InputError:
        known = total_bytes
    if abs(known - total_bytes) > 0.05 * total_bytes:
        note = f"{gpu.name} offers {human_bytes(known)}, the log prints {human_bytes(total_bytes)}: another card?"
        card = card._replace(note=note)
    reported = gpu.reported_memory_mib
    if reported is not None and reported * MIB < total_bytes:
        gpu = replace(gpu, reported_memory_mib=None)
    return card._replace(gpu=replace(gpu, runtime_memory_gib=total_bytes / GIB))
