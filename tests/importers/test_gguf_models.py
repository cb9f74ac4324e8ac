"""GGUF files of small made-up models of every family: parameters and bytes as the gguf package has them, layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf_families import FAMILIES, Made, deepseek, fused, qwen3_next, sparse
from gguf_models import HIDDEN, dense, write
from traced_memory import traced_peak

from kvplan.errors import SpecError
from kvplan.importers.gguf import import_gguf, read_gguf
from kvplan.memory.cache_groups import cache_groups
from kvplan.memory.parameters import parameters
from kvplan.memory.weights import stored
from kvplan.planning.estimate import estimate
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs.model import ModelSpec

BUFFERS = ("rope_freqs", "rope_factors")


@pytest.mark.parametrize(
    ("architecture", "made", "kinds", "caches", "matrix"),
    [(*family, ("Q4_K", "Q8_0", "F16")[number % 3]) for number, family in enumerate(FAMILIES)],
    ids=[f"{family[0]}-{number}" for number, family in enumerate(FAMILIES)],
)
def test_a_file_is_read_back_exactly(
    architecture: str, made: Made, kinds: tuple[str, ...], caches: list[Any], matrix: str, tmp_path: Path
) -> None:
    small = {name: "Q8_0" for name, shape in made[1].items() if shape[-1] % 256 or shape[-1] < 32}
    small |= {name: "F16" for name, shape in made[1].items() if shape[-1] % 32}
    path = write(tmp_path / "small-model-Q4.gguf", architecture, *made, small, matrix)
    model = import_gguf(path)
    served = gguf_tensors(path, len(model.stack))
    assert parameters(model) == sum(int(t.n_elements) for t in served if not t.name.startswith(BUFFERS))
    assert bytes_of(model) == sum(int(t.n_bytes) for t in served)
    assert model.stack_kinds == kinds
    assert [tuple(group) for group in cache_groups(shard(model)[0])] == caches
    assert model.name == "small-model-q4"
    scheme(model.weights)


def gguf_tensors(path: Path, layers: int) -> list[Any]:
    """The tensors as the gguf package reads them, without the layers for prediction."""
    tensors = gguf.GGUFReader(path).tensors
    return [t for t in tensors if not t.name.startswith("blk.") or int(t.name.split(".")[1]) < layers]


def bytes_of(model: ModelSpec) -> int:
    return sum(tensor.bytes for tensor in stored(shard(model)[0], scheme(model.weights)))


def test_weights_are_named_as_people_name_them(tmp_path: Path) -> None:
    k, t = dense(8)
    # q4_k_m by llama-quantize: six bits for the head, and for values and down projections of layers 0, 3, 6 and 7 of 8
    better = {f"blk.{i}.{name}.weight": "Q6_K" for i in (0, 3, 6, 7) for name in ("attn_v", "ffn_down")}
    path = write(
        tmp_path / "a.gguf", "llama", k, t, {"attn_output.weight": "Q4_K", "output.weight": "F16", **better}, "Q4_K"
    )
    model = import_gguf(path)
    assert model.weights == {"default": "q4_k_m", "head": "f16"}
    path = write(
        tmp_path / "b.gguf", "llama", {**k, "general.file_type": 15}, t, {**better, "d.output.weight": "F16"}, "Q4_K"
    )
    assert import_gguf(path).weights == {"default": "q4_k_m", "head": "q4_k"}


def test_one_tensor_of_queries_keys_and_values_is_in_the_name(tmp_path: Path) -> None:
    # q4_k_m by llama-quantize: five bits for attn_qkv, six for the head and for ffn_down of layer 1 of 2
    plain = {"attn_output.weight": "Q4_K", "output.weight": "Q6_K"}
    better = {**plain, "attn_qkv.weight": "Q5_K", "blk.1.ffn_down.weight": "Q6_K"}
    path = write(tmp_path / "a.gguf", "phi3", *fused(), better, "Q4_K")
    assert import_gguf(path).weights == "q4_k_m"
    path = write(tmp_path / "b.gguf", "phi3", *fused(), plain, "Q4_K")
    assert import_gguf(path).weights == "q4_k_s"


def test_gated_delta_net_by_the_newer_and_the_older_rule(tmp_path: Path) -> None:
    # q4_k_m by llama-quantize since early 2026: six bits for the last two of four attn_qkv and attn_v, as for ffn_down;
    # before: five bits for all attn_qkv. Rows that do not divide by 256 get q5_0 for q4_k and q8_0 for q6_k.
    rest = {"attn_output.weight": "Q4_K", "output.weight": "Q6_K", "ssm_out.weight": "Q5_0"}
    rest |= {f"blk.{i}.ffn_down_{name}.weight": "Q8_0" for i in (2, 3) for name in ("exps", "shexp")}
    rest |= {f"ffn_down_{name}.weight": "Q5_0" for name in ("exps", "shexp")}
    newer = {**rest, "blk.2.attn_qkv.weight": "Q6_K", "attn_v.weight": "Q6_K"}
    path = write(tmp_path / "a.gguf", "qwen3next", *qwen3_next(), newer, "Q4_K")
    assert import_gguf(path).weights == "q4_k_m"
    older = {**rest, "attn_qkv.weight": "Q5_K", "attn_v.weight": "Q6_K"}
    path = write(tmp_path / "b.gguf", "qwen3next", *qwen3_next(), older, "Q4_K")
    model = import_gguf(path)
    assert model.weights == {
        "default": "q4_k_m",
        "state": "q4_k",
        "state.in_proj_qkv": "q5_k",
        "state.out_proj": "q5_0",
    }
    assert bytes_of(model) == sum(int(t.n_bytes) for t in gguf_tensors(path, 4))
    # files of Qwen3-Next from 2025 have projection and gate in one ssm_in
    k, t = qwen3_next()
    for i in range(3):
        rows = t.pop(f"blk.{i}.attn_qkv.weight")[0] + t.pop(f"blk.{i}.attn_gate.weight")[0]
        t[f"blk.{i}.ssm_in.weight"] = (rows, HIDDEN)
    path = write(tmp_path / "c.gguf", "qwen3next", k, t, {**rest, "attn_v.weight": "Q6_K"}, "Q4_K")
    model = import_gguf(path)
    assert model.weights == {"default": "q4_k_m", "state": "q4_k", "state.out_proj": "q5_0"}
    assert bytes_of(model) == sum(int(t.n_bytes) for t in gguf_tensors(path, 4))


def test_layers_that_depart_are_listed(tmp_path: Path) -> None:
    k, t = dense(4)
    odd = {"blk.1.ffn_up.weight": "Q5_0", "blk.2.ffn_up.weight": "Q5_0", "attn_output.weight": "BF16"}
    model = import_gguf(write(tmp_path / "a.gguf", "llama", k, t, odd, "Q8_0"))
    assert model.weights == {
        "default": "q8_0",
        "attention": "q8_0",
        "attention.o_proj": "bf16",
        "mlp": "q8_0",
        "mlp.up_proj@1-2": "q5_0",
    }


def test_the_bytes_of_the_file_are_the_weights_of_an_estimate(tmp_path: Path) -> None:
    made = deepseek(split=True)  # attn_k_b has rows of 32: no scheme of whole matrices gives its bytes
    path = write(
        tmp_path / "a.gguf", "deepseek2", *made, {"attn_k_b.weight": "Q8_0", "exps.weight": "F16", "q_b.weight": "F16"}
    )
    model, total = import_gguf(path), sum(int(t.n_bytes) for t in gguf.GGUFReader(path).tensors)
    whole = estimate(model, "a100-80g")
    assert whole.to_dict()["weights_bytes"] == total
    lines = {line.name: line for line in whole.ledger}
    assert "as_in_file" in lines["weights/attention"].terms
    halves = [sum(t.bytes for t in stored(rank, scheme(model.weights))) for rank in shard(model, pp=3)]
    assert 0 <= sum(halves) - total < 16  # rounded up on each stage
    other = estimate(model, "a100-80g", weights="q8_0").to_dict()["weights_bytes"]
    assert other == sum(t.bytes for t in stored(shard(model)[0], scheme("q8_0")))
    changed = import_gguf(write(tmp_path / "b.gguf", "llama", *dense(2)))
    assert estimate(changed, "a100-80g", attention="mqa").to_dict()["weights_bytes"] < bytes_of(changed)


def test_notes_say_what_a_server_does_otherwise(tmp_path: Path) -> None:
    notes = import_gguf(write(tmp_path / "a.gguf", "phi3", *fused())).notes or ""
    assert "sliding window that llama.cpp does not use" in notes
    assert "on the host: 256.00 KiB" in notes  # 512 rows of 256 in f16
    notes = import_gguf(write(tmp_path / "b.gguf", "deepseek2", *deepseek(split=False))).notes or ""
    assert "caches keys and values of all heads" in notes
    k, t = dense(2)
    notes = import_gguf(write(tmp_path / "c.gguf", "llama", k, {**t, "blk.0.strange.weight": (4, 4)})).notes or ""
    assert "not understood, counted as bytes: blk.0.strange.weight" in notes


def test_prediction_layers_are_extras(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", "glm4moe", *sparse(64, 1, 1, bias=True))
    model = import_gguf(path)
    assert len(model.stack) == 3
    of_layer_3 = [t for t in gguf.GGUFReader(path).tensors if t.name.startswith("blk.3.")]
    assert model.extras == {"mtp": sum(int(t.n_elements) for t in of_layer_3)}


@pytest.mark.parametrize(
    ("architecture", "change", "said"),
    [
        ("brandnew", {}, "'brandnew' is not known to kvplan"),
        ("rwkv7", {}, "'rwkv7' is not supported: its recurrent layers"),
        ("bert", {}, "does not generate text"),
        ("llama", {"general.type": "adapter"}, "name the file of the model itself"),
        ("llama", {"block_count": 3}, "no tensors of layer 2"),
        ("llama", {"block_count": 9999}, "from 1 to 4096 are possible"),
        ("llama", {"block_count": 0}, "expected a whole number of at least 1"),
        ("llama", {"attention.head_count": 7}, "has 256 rows"),
        ("llama", {"attention.head_count_kv": 4}, "attn_k.weight has 64 rows"),
        ("llama", {"attention.head_count_kv": 3}, "make 96"),
        ("llama", {"attention.head_count_kv": [2]}, "1 values for 2 layers"),
        ("llama", {"attention.head_count_kv": [0, 0]}, "says that layer 0 has no heads"),
        ("llama", {"attention.head_count_kv": "two"}, "expected a whole number"),
        (
            "llama",
            {"embedding_length": 512, "attention.key_length": 32, "attention.value_length": 32},
            "no token_embd.weight with rows of 512",
        ),
        ("cohere2moe", {"attention.sliding_window": 64}, "which layers slide cannot be known"),
    ],
)
def test_what_is_not_understood_is_refused(
    architecture: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    k, t = dense(2)
    path = write(tmp_path / "a.gguf", architecture, {**k, **change}, t)
    with pytest.raises(SpecError, match=said):
        import_gguf(path)


def test_a_vocabulary_is_stepped_over(tmp_path: Path) -> None:
    k, t = dense(1)
    words = [f"word{number}" for number in range(20_000)]
    more = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.scores": [0.5] * 20_000}
    path = write(tmp_path / "a.gguf", "llama", {**k, **more}, t)
    with traced_peak() as peak:
        found = read_gguf(path)
    assert found.keys["tokenizer.ggml.tokens"] == (20_000,)
    assert peak.bytes < 200_000
