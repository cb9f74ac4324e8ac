"""Sessions allocated one after another until the device refuses, each one slab; then everything is given back.

On a CPU the limit is RLIMIT_DATA, set in a child made by fork: it shares the weights with its parent, and whatever
becomes of it, the parent goes on. CUDA's allocator refuses politely, so there the run itself fills the device.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvplan.errors import InputError, KvplanError
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.place import Place
from kvplan.measure.observe_cpu import MMAP_THRESHOLD, limited_bytes, writable_bytes

PATIENCE_S = 600  # for a child that touches all of a machine's memory


class Filled(NamedTuple):
    """How many sessions there were when the next one was refused, and whether the last of them could decode."""

    sessions: int
    refusal: str
    last_decodes: bool


def fill(decoder: Decoder, capacity: int, spare_bytes: int, limit: int | None) -> Filled:
    """Fill the device, or on a CPU a process limited to `limit` bytes, keeping `spare_bytes` for activations."""
    if decoder.place.device.type == "cpu":
        if limit is None:
            raise ValueError("a CPU is filled up to a limit")
        return _in_child(decoder, capacity, spare_bytes, limit)
    return fill_here(decoder, capacity, spare_bytes)


@torch.inference_mode()
def fill_here(decoder: Decoder, capacity: int, spare_bytes: int) -> Filled:
    """Fill until refused, free the last slab for a real cache, decode with it, free all."""
    place = decoder.place
    elements = slab_elements(decoder, capacity)
    spare = torch.empty(spare_bytes, dtype=torch.uint8, device=place.device)
    slabs: list[Tensor] = []
    refusal = ""
    while not refusal:
        try:
            slabs.append(torch.zeros(1, elements, device=place.device, dtype=place.dtype))
        except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
            refusal = str(error).splitlines()[0]
    count = len(slabs)
    del spare
    decodes = bool(slabs) and _decodes(decoder, capacity, slabs)
    slabs.clear()
    gc.collect()
    return Filled(count, refusal, decodes)


def slab_elements(decoder: Decoder, capacity: int) -> int:
    """Elements of one session with room for so many tokens."""
    return sum(kept.elements * kept.slots(capacity) for kept in decoder.kept)


def _plug_heap(elements: int, place: Place) -> list[Tensor]:
    """Slabs for the holes that earlier work left in the C library's heap: the limit counts them as taken already.

    Slabs below the size that gets a map of its own live in the heap in any case.
    """
    plugs: list[Tensor] = []
    before = limited_bytes()
    while before and elements * place.dtype.itemsize >= MMAP_THRESHOLD:
        plugs.append(torch.empty(elements, device=place.device, dtype=place.dtype))
        if writable_bytes() > before:
            plugs.pop()
            break
    return plugs


def _decodes(decoder: Decoder, capacity: int, slabs: list[Tensor]) -> bool:
    """Whether a step runs in the place of the last slab, with all others held."""
    slabs.pop()
    try:
        cache = ContiguousCache(decoder, batch=1, capacity=capacity)
        cache.seek(capacity - 1)
        decoder.step(torch.zeros(1, dtype=torch.int64, device=decoder.place.device), cache)
    except (RuntimeError, MemoryError):
        return False
    return True


def _in_child(decoder: Decoder, capacity: int, spare_bytes: int, limit: int) -> Filled:
    if not sys.platform.startswith("linux"):
        raise InputError("--fill on a CPU needs Linux, whose limits on memory are kept")
    if limit <= limited_bytes():
        raise InputError("--memory-limit leaves no room for a session beside the weights")
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the child starts none and soon ends
        child = os.fork()
    if child == 0:
        os.close(reader)
        _child(decoder, capacity, spare_bytes, limit, writer)
    os.close(writer)
    return _answer(child, reader)


def _child(decoder: Decoder, capacity: int, spare_bytes: int, limit: int, writer: int) -> None:
    """Never returns: the parent's clean-up is not the child's."""
    code = 1
    try:
        torch.set_num_threads(1)  # the parent's threads are not here
        plugs = _plug_heap(slab_elements(decoder, capacity), decoder.place)  # held while the process is filled
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        found = fill_here(decoder, capacity, spare_bytes)
        del plugs
        os.write(writer, json.dumps(found._asdict()).encode())
        code = 0
    except BaseException as error:
        os.write(writer, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(code)


def _answer(child: int, reader: int) -> Filled:
    """What the child wrote; it is ended when it takes too long, and its end is said when it wrote nothing."""
    try:
        ready, _, _ = select.select([reader], [], [], PATIENCE_S)
        text = os.read(reader, 65536) if ready else b""
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        if sys.exc_info()[0] is not None:
            os.waitpid(child, 0)
        os.close(reader)
    if not text:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": f"it ended by {_end(status)}"}
    if "error" in found:
        raise FillError(f"--fill: the process that was filled gave no count; {found['error']}")
    return Filled(**found)


def _end(status: int) -> str:
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"


class FillError(KvplanError):
    """The child was ended from outside or hung."""
