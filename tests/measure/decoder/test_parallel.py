"""Two processes with gloo give the logits of one: key-value heads divided and copied, widths that do not divide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hub_models import attention, deepseek, dense, furthest, latent, prompts, spec

from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.parallel import Group, copy_weights
from kvplan.memory.parameters import edge_tensors, widths_of
from kvplan.memory.tensors import layer_tensors
from kvplan.sharding import shard
from kvplan.specs.layers import Layer, Mlp, Moe

MODELS = {
    "divided": dense(attention(6, 2, qkv_bias=True, out_bias=True), tied=True),  # 97 rows: 49 and 48
    "copied": dense(attention(4, 1, qk_norm="head")),
    "uneven": spec(Layer(attention=attention(4, 2, window=5), mlp=Mlp(intermediate_size=33, gated=False, bias=True))),
    "experts": spec(
        Layer(
            attention=attention(4, 4, qk_norm="each"),
            moe=Moe(experts=4, active=2, intermediate_size=20, shared_size=10, shared_gate=True, bias=True),
        ),
        head_bias=True,
    ),
    "sinks": spec(Layer(attention=attention(4, 2, sinks=True), mlp=Mlp(intermediate_size=16))),
    "latent": deepseek(latent(), router_bias=False),
    "compressed queries": deepseek(latent(24), router_bias=True),
}
PROMPT, TOTAL = 7, 10


def logits_of(decoder):
    tokens, cache = prompts(2, TOTAL), ContiguousCache(decoder, batch=2, capacity=TOTAL)
    found = [decoder.prefill(tokens[:, :PROMPT], cache, every=True)]
    found += [decoder.step(tokens[:, i], cache)[:, None] for i in range(PROMPT, TOTAL)]
    return torch.cat(found, dim=1)


def randomised(decoder):
    """Biases too, so that one counted twice would show."""
    generator = torch.Generator().manual_seed(5)
    for parameter in decoder.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return decoder


def run_rank(rank: int, size: int, folder: str) -> None:
    """One of the processes: all models in turn, their logits and bytes saved by rank 0."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    for name, model in MODELS.items():
        part = build_decoder(shard(model, size)[0], group=Group(rank, size))
        copy_weights(randomised(build_decoder(model)), part)
        found = {"logits": logits_of(part), "parameters": sum(p.numel() for p in part.parameters())}
        torch.save(found, f"{folder}/{name}-{rank}")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("ranks")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(run_rank, args=(2, str(folder)), nprocs=2)
    return folder


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", MODELS)
def test_two_ranks_give_the_logits_of_one(results, name, rank):
    found = torch.load(results / f"{name}-{rank}")["logits"]
    alone = logits_of(randomised(build_decoder(MODELS[name])))
    assert found.shape == alone.shape
    assert furthest(found, alone) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_a_rank_holds_the_parameters_of_the_planner(results, name):
    (rank,) = shard(MODELS[name], 2)
    widths = widths_of(MODELS[name])
    planned = sum(t.parameters for layer in rank.layers for t in layer_tensors(layer, widths))
    planned += sum(t.parameters for t in edge_tensors(rank))
    assert torch.load(results / f"{name}-0")["parameters"] == planned


def test_a_group_of_another_size_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="a rank of tp 2 needs a group of that size, not 1"):
        build_decoder(shard(MODELS["divided"], 2)[0])
