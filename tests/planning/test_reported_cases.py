"""Cases that other calculators got wrong in public reports, each with the right figure and where it is from."""

from __future__ import annotations

import pytest

from kvplan import estimate
from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.memory.cache_groups import cache_groups
from kvplan.sharding import shard

GIB = 2**30


def of(model: str, **options):
    return estimate(model, kv_budget="600GiB", **options)


def test_mistral_7b():
    # 7,248,023,552 parameters (hub total) x 2; 2 x 32 layers x 8 heads x 128 x 2 B; x 4096
    found = of("mistral-7b")
    assert found.stage.weights_bytes == 14_496_047_104
    assert found.kv_bytes_per_token == 131_072
    assert found.kv_bytes_per_session == 536_870_912


def test_window_in_every_layer_stops_growing():
    # mistral-7b-v0.1 config.json: sliding_window 4096; 131,072 B x 4096 tokens
    assert of("mistral-7b-v0.1", context=32_768).kv_bytes_per_session_logical == GIB // 2


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        # the hub counts 751,632,384: its tied head of 151,936 x 1,024 a second time
        pytest.param("qwen3-0.6b", 596_049_920, id="tied head counted once"),
        # hub total of the safetensors index; 2 of 8 experts are active, all are resident
        pytest.param("mixtral-8x7b", 46_702_792_704, id="all experts resident"),
    ],
)
def test_parameters(model, parameters):
    assert of(model).parameters == parameters


def test_active_parameters_are_apart():
    # mixtral-8x7b: 6 of 8 experts idle in 32 layers: 46,702,792,704 - 32 x 6 x 3 x 4096 x 14336 = 12,879,925,248
    found = of("mixtral-8x7b")
    assert found.active_parameters == 12_879_925_248
    assert found.stage.weights_bytes == 2 * 46_702_792_704


@pytest.mark.parametrize(
    ("model", "options", "per_token"),
    [
        # 2 x 36 x 8 x 128 x 2; hidden 2560 / 32 heads would be 80, head_dim says 128 (config.json)
        pytest.param("qwen3-4b", {}, 147_456, id="explicit head_dim"),
        # 36 layers x 2 x 8 x 64 x 2 while the window of 128 fills, 18 layers afterwards (model card: alternating)
        pytest.param("gpt-oss-120b", {"context": 128}, 73_728, id="window filling"),
        pytest.param("gpt-oss-120b", {"context": 129}, 36_864, id="window full"),
        # 61 x (512 + 64) x 2 (DeepSeek-V3 report, table of the architecture)
        pytest.param("deepseek-v3", {}, 70_272, id="latent"),
        pytest.param("deepseek-v3", {"tp": 8}, 70_272, id="latent is whole on each of 8 ranks"),
        # 61 x 656: 512 fp8 + 4 fp32 scales + 64 bf16 (vLLM's fp8_ds_mla cache)
        pytest.param("deepseek-v3", {"kv_dtype": "fp8_ds_mla"}, 40_016, id="fp8_ds_mla"),
        # ggml blocks of 32: q8_0 34 B, q4_0 18 B; 65,536 values a token
        pytest.param("mistral-7b", {"kv_dtype": "q8_0"}, 65_536 * 34 // 32, id="q8_0 34/32"),
        pytest.param("mistral-7b", {"kv_dtype": "q4_0"}, 65_536 * 18 // 32, id="q4_0 18/32"),
        pytest.param(
            "mistral-7b", {"kv_dtype": "q8_0/q4_0"}, 32_768 * 34 // 32 + 32_768 * 18 // 32, id="K and V apart"
        ),
        # config.json shows 71 heads and multi_query: 2 x 32 x 1 x 64 x 2
        pytest.param("falcon-7b", {}, 8_192, id="one KV head"),
    ],
)
def test_bytes_of_a_token(model, options, per_token):
    assert of(model, **options).kv_bytes_per_token == per_token


def test_gemma_3_27b_at_128_000_tokens():
    # 10 global layers x 128,000 + 52 local x 1,024 tokens, each 2 x 16 x 128 x 2 = 8,192 B
    assert of("gemma-3-27b", context=128_000).kv_bytes_per_session_logical == 10_921_967_616


def test_ranks_beyond_the_kv_heads_hold_copies():
    # llama-3.1-70b: 8 KV heads: tp 8 keeps one a rank, tp 16 too: 2 x 80 x 1 x 128 x 2 x 8192 = 0.3125 GiB
    eight, sixteen = (of("llama-3.1-70b", tp=tp, context=8192).kv_bytes_per_session for tp in (8, 16))
    assert eight == sixteen == 0.3125 * GIB


def test_lora_slot():
    # rank 16 x (in + out) of q, k, v, o, gate, up, down over 32 layers, bf16 (vLLM lists 41,943,040 too)
    found = of("llama-3.1-8b", lora_rank=16)
    (line,) = [line for line in found.ledger if line.name == "overhead/lora_slots"]
    assert line.terms["adapter_parameters"] == 41_943_040
    assert line.bytes == 80 * 2**20


def test_layers_that_share_a_cache_store_nothing():
    # gemma-3n-e4b: num_kv_shared_layers 15 of 35; the 20 others: 4 global, 16 of window 512 (transformers' config)
    groups = {g.kind: g.layers for g in cache_groups(shard(load_model("gemma-3n-e4b"))[0])}
    assert groups == {"full": 4, "window": 16}


@pytest.mark.parametrize(
    ("model", "growing", "layers"),
    [("nemotron-h-8b", 4, 52), ("granite-4.0-h-small", 4, 40), ("qwen3.5-9b", 8, 32)],
)
def test_hybrids_grow_in_few_layers(model, growing, layers):
    # hybrid_override_pattern and layer_types of their config.json files
    spec = load_model(model)
    groups = cache_groups(shard(spec)[0])
    assert len(spec.stack) == layers
    assert sum(g.layers for g in groups if g.kind == "full") == growing
    found = of(model)
    assert found.stage.plan.fixed > 0
    assert found.kv_bytes_per_session == found.stage.plan.fixed + 4096 * found.kv_bytes_per_token


def test_phi_4_on_four_gpus_is_refused():
    with pytest.raises(InputError) as refusal:
        of("phi-4", tp=4)
    text = str(refusal.value)
    assert "10 key-value heads" in text
    assert "tp can be 1, 2, 5, 10," in text
