"""Keys of a `weights` mapping that mean matrices and layers."""

from __future__ import annotations

import re

import pytest

from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.memory.parameters import widths_of
from kvplan.memory.tensors import layer_tensors
from kvplan.memory.weights import stored
from kvplan.scheme_keys import TENSORS, layer_ranges
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs import zoo

NAMED = scheme({
    "default": "nvfp4", "attention": "bf16", "attention.o_proj": "fp8", "mlp@0-2": "bf16", "mlp.down_proj": "fp8",
    "mlp.down_proj@1": "int8",
})  # fmt: skip


@pytest.mark.parametrize(
    ("component", "tensor", "index", "expected"),
    [
        ("attention", "q_proj", 5, "bf16"),
        ("attention", "o_proj", 5, "fp8"),
        ("mlp", "up_proj", 2, "bf16"),
        ("mlp", "up_proj", 3, "nvfp4"),
        ("mlp", "down_proj", 3, "fp8"),
        ("mlp", "down_proj", 0, "bf16"),  # layers before matrices
        ("mlp", "down_proj", 1, "int8"),
        ("experts", "up_proj", 1, "nvfp4"),
    ],
)
def test_the_narrowest_key_counts(component: str, tensor: str, index: int, expected: str) -> None:
    assert NAMED.format_of(component, tensor, 256, 256, at=index).name == expected
    assert NAMED.depends_on_depth


def test_a_name_for_two_matrices_gives_way_to_one_for_either() -> None:
    named = scheme({"default": "bf16", "state.in_proj_qkvz": "fp8", "state.in_proj_z": "int8", "state": "nvfp4"})
    types = {name: named.format_of("state", name, 256, 256, at=0).name for name in TENSORS["state"]}
    assert (types["in_proj_qkv"], types["in_proj_z"], types["in_proj_ba"]) == ("fp8", "int8", "nvfp4")
    rank = shard(load_model("qwen3-next-80b-a3b"))[0]
    formats = {t.name: t.format for t in stored(rank, scheme({"default": "bf16", "state.in_proj_qkvz@0-47": "fp8"}))}
    assert (formats["in_proj_qkv"], formats["in_proj_z"], formats["in_proj_ba"]) == ("fp8", "fp8", "bf16")


def test_layers_are_those_of_the_model_whatever_the_pipeline_stage() -> None:
    model = load_model("deepseek-v3")
    mixed = scheme({"default": "bf16", "mlp": "fp8", "experts@3,60": "fp8"})
    whole = sum(t.bytes for t in stored(shard(model)[0], mixed))
    stages = shard(model, pp=2)
    assert sum(t.bytes for rank in stages for t in stored(rank, mixed)) == whole
    experts = [t for t in stored(shard(model)[0], mixed) if t.component == "experts"]
    assert {(t.format, t.times) for t in experts} == {("fp8", 2 * 256), ("bf16", 56 * 256)}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"attention.o_prj": "fp8"}, "attention has no matrix 'o_prj'; did you mean 'o_proj'"),
        ({"embedding@0": "fp8"}, "embedding is not in every layer"),
        ({"mlp@": "fp8"}, "write layers as numbers and ranges"),
        ({"mlp@3-1": "fp8"}, "ranges of layers ascend"),
        ({"mlp@1,1": "fp8"}, "do not overlap"),
        ({"mlp@0-99999": "fp8"}, "write layers as numbers"),
        ({"mlp@0-2": "fp8", "mlp@2": "bf16"}, "two formats for mlp in layer 2"),
        ({"head.lm_head": "fp8"}, "head has no matrix 'lm_head'"),
        ({"mlp@0.down_proj": "fp8"}, "write layers as numbers"),
    ],
)
def test_a_key_that_means_nothing_is_refused(spec: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        scheme({"default": "bf16", **spec})


def test_every_matrix_of_the_zoo_can_be_named() -> None:
    for name in zoo.names("models"):
        model = load_model(name)
        for layer in set(model.stack):
            for tensor in layer_tensors(layer, widths_of(model)):
                if tensor.role != "vector" and tensor.component in TENSORS:
                    assert tensor.name in TENSORS[tensor.component], (name, tensor)


def test_ranges() -> None:
    assert layer_ranges({0, 1, 2, 5, 8, 9}) == "0-2,5,8-9"
    assert layer_ranges([]) == ""
