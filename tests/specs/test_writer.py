"""What is written can be read back, whatever the model, and is about as short as what a person writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.importers.config import import_config
from kvplan.loading import load_model
from kvplan.memory.cache_groups import cache_groups
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.memory.weights import stored
from kvplan.schemes import scheme
from kvplan.sharding import shard
from kvplan.specs import zoo
from kvplan.specs.model import ModelSpec, load_model_node
from kvplan.specs.order import parse_order
from kvplan.specs.reader import read_text
from kvplan.specs.writer import to_yaml
from kvplan.specs.writer_order import order_text

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
RESOLVED = ("layers", "stack_kinds")  # how the order is said; the stack itself must be the same


def read(text: str) -> ModelSpec:
    return load_model_node(read_text(text, "written.yaml"), "written.yaml")


def figures(model: ModelSpec) -> tuple[object, ...]:
    (rank,) = shard(model)
    size = sum(tensor.bytes for tensor in stored(rank, scheme(model.weights)))
    return parameters(model), active_parameters(model), cache_groups(rank), size


@pytest.mark.parametrize("name", zoo.names("models"))
def test_the_whole_zoo_both_ways(name: str) -> None:
    model = load_model(name)
    text = to_yaml(model)
    again = read(text)
    assert figures(again) == figures(model)
    differing = [field for field in vars(model) if getattr(again, field) != getattr(model, field)]
    assert not set(differing) - set(RESOLVED)
    assert to_yaml(again) == text
    assert max(map(len, text.splitlines())) <= 120


def test_about_as_short_as_a_person_writes() -> None:
    written = sum(to_yaml(load_model(name)).count("\n") for name in zoo.names("models"))
    by_hand = sum((zoo.zoo_dir("models") / f"{name}.yaml").read_text().count("\n") for name in zoo.names("models"))
    assert written < 1.02 * by_hand


@pytest.mark.parametrize(
    "stem",
    [
        "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4",
        "nvidia__DeepSeek-V3.1-NVFP4",
        "meta-llama__Llama-4-Maverick-17B-128E-Instruct",
        "moonshotai__Kimi-K3",
        "zai-org__GLM-5.2",
        "google__gemma-4-26B-A4B",
    ],
)
def test_imported_configs_are_written_and_read_back(stem: str) -> None:
    model = import_config(CONFIGS / f"{stem}.json")
    again = read(to_yaml(model))
    assert figures(again) == figures(model)
    assert (again.weights, again.kv_dtype, again.extras) == (model.weights, model.kv_dtype, model.extras)


def test_a_small_model_is_a_small_file() -> None:
    model = import_config(CONFIGS / "Qwen__Qwen3-8B.json")
    assert to_yaml(model) == (
        "name: qwen3-8b\n"
        f"source: {model.source[0]}\n"
        "family: qwen3\n"
        "nominal_parameters: 8000000000\n"
        "hidden_size: 4096\n"
        "vocab_size: 151936\n"
        "max_context: 40960\n"
        "rope: {theta: 1000000}\n"
        "layers: 36\n"
        "layer:\n"
        "  attention: {heads: 32, kv_heads: 8, qk_norm: head}\n"
        "  mlp: {intermediate_size: 12288}\n"
    )


def test_weights_by_layer_stand_in_a_block() -> None:
    model = import_config(CONFIGS / "nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4.json")
    assert "weights:\n  default: nvfp4\n  attention: bf16\n  state@4,11,18,25,32,41: bf16\n" in to_yaml(model)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("10 (5 local, global), 2 local", "10 (5 local, global), 2 local"),
        ("3 dense, 58 sparse", "3 dense, 58 sparse"),
        (
            "4 (4 local, global), 2 (4 local_reuse, global_reuse)",
            "4 (4 local, global), 2 (4 local_reuse, global_reuse)",
        ),
        ("a", "a"),
        ("2 (a, b), a", "2 (a, b), a"),
        ("a, 3 (b, 2 (c, d))", "a, 3 (b, 2 (c, d))"),
    ],
)
def test_orders_are_found_again(text: str, written: str) -> None:
    assert order_text(parse_order(text)) == written


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=60))
def test_any_order_reads_back(kinds: list[str]) -> None:
    text = order_text(kinds)
    assert list(parse_order(text)) == kinds
    assert len(text) <= len(", ".join(kinds))


def test_a_long_order_without_repeats_is_listed() -> None:
    kinds = [f"k{n * n % 1009}" for n in range(4096)]
    assert list(parse_order(order_text(kinds))) == kinds


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40).filter(lambda t: t.strip()))
def test_text_that_readers_would_take_for_something_else_is_quoted(text: str) -> None:
    kept = "".join(character for character in text if character.isprintable()).strip()
    if not kept:
        return
    model = replace(load_model("mistral-7b"), notes=kept, aliases=(kept, "b"), family=kept)
    again = read(to_yaml(model))
    assert (again.notes, again.aliases, again.family) == (kept, (kept, "b"), kept)


@pytest.mark.parametrize(
    "text", ["yes", "on", "1e9", "010", "1:30", "null", "~", "true", "2026-01-01", "a: b", "a #b", "'x'"]
)
def test_words_with_other_meanings(text: str) -> None:
    model = replace(load_model("mistral-7b"), notes=text)
    assert read(to_yaml(model)).notes == text
