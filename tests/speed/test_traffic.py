"""Bytes of a decode step, by hand, and against what is stored."""

from __future__ import annotations

import pytest

from kvplan.kv_formats import kv_pair
from kvplan.loading import load_model
from kvplan.memory.weights import stored
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs import zoo
from kvplan.speed.traffic import kv_read_bytes, weights_read_bytes
from kvplan.speed.work import decode_operations

BF16 = kv_pair("bf16")


def rank(name, **degrees):
    return shard(load_model(name), **degrees)[0]


@pytest.mark.parametrize(
    ("model", "weights", "read"),
    [
        # all but the embedding table of 32,768 x 4,096: (7,248,023,552 - 134,217,728) x 2 B
        ("mistral-7b", "bf16", 2 * (7_248_023_552 - 134_217_728)),
        # the tied head is read: all 596,049,920 parameters
        ("qwen3-0.6b", "bf16", 2 * 596_049_920),
        # 2 of 8 experts: 12,879,925,248 active less the table of 32,000 x 4,096
        ("mixtral-8x7b", "bf16", 2 * (12_879_925_248 - 131_072_000)),
    ],
)
def test_weights_read(model, weights, read):
    assert weights_read_bytes(rank(model), scheme(weights)) == read


@pytest.mark.parametrize("weights", ["q4_k_m", "q2_k", "fp8", "nf4", "nvfp4"])
@pytest.mark.parametrize("model", [m for m in zoo.names("models")[::12] if m != "zamba2-2.7b"])
def test_no_more_is_read_than_is_stored(model, weights):
    part, how = rank(model), scheme(weights)
    assert weights_read_bytes(part, how) <= sum(tensor.bytes for tensor in stored(part, how))


def test_formats_by_layer_are_read_as_stored():
    # 31 of 32 MLPs in bf16: 3 x 14336 x 4096 x 2 B each; the last one in fp8 with three fp32 scales
    how = scheme({"default": "fp8", "mlp@0-30": "bf16"})
    plain = weights_read_bytes(rank("mistral-7b"), scheme("fp8"))
    assert weights_read_bytes(rank("mistral-7b"), how) - plain == 31 * 3 * (14336 * 4096 - 4)


def test_experts_on_other_gpus_are_not_ours():
    # deepseek-v3 on 8 GPUs: an eighth of the width of 8 experts, or with ep 8 one whole expert of the 32 here on
    # average: the same work for each GPU
    whole, shared = (decode_operations(rank("deepseek-v3", tp=8, ep=ep), 1).projections for ep in (1, 8))
    assert whole == shared
    # on one GPU of a plain ep 8: 1 of 8 experts used, 58 layers x 7 x 3 x 7168 x 2048 parameters less
    alone, spread = (decode_operations(rank("deepseek-v3", ep=ep), 1).projections for ep in (1, 8))
    assert alone - spread == 2 * 58 * 7 * 3 * 7168 * 2048


@pytest.mark.parametrize(
    ("model", "context", "read"),
    [
        ("mistral-7b", 4096, 4096 * 131_072),
        # 12 full layers of 4096 and 12 windowed of 128 tokens, each 2 x 8 x 64 x 2 B
        ("gpt-oss-20b", 4096, 12 * (4096 + 128) * 2048),
        # all 35 layers read, 20 keep: 7 global of 4096 and 28 local of 512 tokens, each 2 x 2 x 256 x 2 B
        ("gemma-3n-e4b", 4096, (7 * 4096 + 28 * 512) * 2048),
        # 2048 best latents of 576 and every indexer key of 128, 2 B, in 61 layers
        ("deepseek-v3.2", 32_768, 61 * 2 * (2048 * 576 + 32_768 * 128)),
        # 8 full layers of 2 x 4 x 256 x 2 B a token and the state: 51,511,296 B
        ("qwen3.5-9b", 1000, 8 * 1000 * 4096 + 51_511_296),
    ],
)
def test_cache_read(model, context, read):
    assert kv_read_bytes(rank(model), BF16, context) == read
