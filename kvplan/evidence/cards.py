"""The card of a log: by the name it prints, by the memory it prints, or by what the user says."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import parse_gpu
from kvplan.units import GIB, MIB, human_bytes

_SAME = 0.035 * GIB  # printed with two decimals, and drivers differ by as much
_RUNTIME = re.compile(r"^runtime_memory_gib: *(\d+(?:\.\d+)?)\b", re.MULTILINE)
_PRINTED_TOO = {"a100-80g": [79.25]}  # GiB in start-up logs, where a zoo file has the least that was seen


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
    far = {name: min(abs(size * GIB - total_bytes) for size in sizes) for name, sizes in _offered().items()}
    best = sorted((name for name in far if far[name] <= _SAME), key=far.__getitem__)
    if best and (len(best) == 1 or far[best[1]] - far[best[0]] > 0.02 * GIB):
        note = f"the log names no GPU: {best[0]} is the one that offers {human_bytes(total_bytes)} (--gpu)"
        return _with_memory(Card(parse_gpu(best[0]).gpu, "memory", note), total_bytes)
    size = total_bytes / GIB
    names = f", as {' and '.join(best)} do" if best else ""
    note = f"the log names no GPU, only {human_bytes(total_bytes)} of memory{names}; name it with --gpu"
    return Card(GpuSpec(name=f"unnamed-{size:.2f}gib", runtime_memory_gib=size), "unnamed", note)


@cache
def _offered() -> dict[str, list[float]]:
    """GiB that the runtime of each card offers; only this line of a file is looked at, as there are many files."""
    texts = {name: (zoo.zoo_dir("gpus") / f"{name}.yaml").read_text(encoding="utf-8") for name in zoo.names("gpus")}
    found = {name: [float(size) for size in _RUNTIME.findall(text)] for name, text in texts.items()}
    return {name: sizes + _PRINTED_TOO.get(name, []) for name, sizes in found.items() if sizes}


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
