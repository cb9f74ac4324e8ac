"""Several processes that hold one model together, started by torchrun."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed

from kvplan.errors import InputError
from kvplan.measure.decoder.build import build_decoder, with_layers
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.parallel import ALONE, Group, copy_weights
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec

T = TypeVar("T")
CHECKED_LAYERS = 2
PROMPT, STEPS, BATCH = 12, 3, 2
LOGIT_TOLERANCE = 1e-4  # of the largest logit, in fp32: sums over ranks are added in another order


def join(tp: int, device: str) -> Group:
    """This process's place among `tp`; InputError when torchrun started another number of them."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != tp:
        command = f"torchrun --nproc-per-node {tp} -m kvplan measure --tp {tp} ..."
        how = "one process" if started == 1 else f"{started} processes"
        raise InputError(f"--tp {tp} needs {tp} processes and this is {how}; start it as: {command}")
    if tp == 1:
        return ALONE
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    return Group(distributed.get_rank(), tp)


def local_device(name: str, group: Group) -> str:
    """Each process of a machine takes a CUDA device of its own."""
    if group.size == 1 or name not in ("auto", "cuda") or not torch.cuda.is_available():
        return name
    return f"cuda:{os.environ.get('LOCAL_RANK', group.rank)}"


def leave(group: Group) -> None:
    """Done."""
    if group.size > 1 and distributed.is_initialized():
        distributed.destroy_process_group()


def agree(group: Group, value: T) -> T:
    """The first rank's value, on all: every rank has to take the same steps."""
    if group.size == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def gather(group: Group, value: T) -> list[T]:
    """Every rank's value."""
    if group.size == 1:
        return [value]
    box: list[Any] = [None] * group.size
    distributed.all_gather_object(box, value)
    return box


class LogitCheck(NamedTuple):
    """How far the ranks' logits are from one process's, and how large logits are."""

    difference: float
    largest: float


def check_logits(model: ModelSpec, group: Group) -> LogitCheck:
    """A few layers in fp32 on the CPU's or the ranks' own device: prompt and steps, divided and whole."""
    cut = with_layers(model, min(CHECKED_LAYERS, len(model.stack)))
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if distributed.get_backend() == "nccl" else "cpu"
    whole = build_decoder(cut, device=device)
    part = build_decoder(shard(cut, group.size)[0], device=device, group=group)
    copy_weights(whole, part)
    expected, found = _logits(whole), _logits(part)
    return LogitCheck(float((expected - found).abs().max()), float(expected.abs().max()))


def _logits(decoder: Decoder) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, decoder.model.vocab_size, (BATCH, PROMPT + STEPS), generator=generator)
    tokens = tokens.to(decoder.place.device)
    cache = ContiguousCache(decoder, batch=BATCH, capacity=PROMPT + STEPS)
    logits = [decoder.prefill(tokens[:, :PROMPT], cache)]
    logits += [decoder.step(tokens[:, PROMPT + i], cache) for i in range(STEPS)]
    return torch.stack(logits)
