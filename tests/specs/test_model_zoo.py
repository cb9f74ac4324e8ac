"""Every model of the zoo against published totals, and every file against the rules for a short and honest file."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kvplan import schemes
from kvplan.memory.cache_groups import cache_groups
from kvplan.memory.parameters import active_parameters, parameters
from kvplan.sharding import shard
from kvplan.specs import layers as shapes
from kvplan.specs import zoo
from kvplan.specs.fields import field_specs
from kvplan.specs.model import ModelSpec, PerLayerInput, load_model_file

COUNTS = Path(__file__).parent.parent / "data" / "model_counts.csv"


class Expected(NamedTuple):
    """One row of model_counts.csv; what it does not know is None."""

    name: str
    parameters: int
    active: int | None
    hub_total: int | None
    kv_full: int
    kv_window: int
    state: int
    conv: int


def expected_counts() -> list[Expected]:
    lines = [line for line in COUNTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        Expected(
            name=row["name"],
            parameters=int(row["parameters"]),
            active=int(row["active"]) if row["active"] else None,
            hub_total=int(row["hub_total"]) if row["hub_total"] else None,
            kv_full=int(row["kv_full"]),
            kv_window=int(row["kv_window"]),
            state=int(row["state"]),
            conv=int(row["conv"]),
        )
        for row in csv.DictReader(lines)
    ]


EXPECTED = expected_counts()
NAMES = [row.name for row in EXPECTED]
every_model = pytest.mark.parametrize("name", NAMES)
every_row = pytest.mark.parametrize("row", EXPECTED, ids=NAMES)


@cache
def model(name: str) -> ModelSpec:
    return load_model_file(zoo.zoo_dir("models") / f"{name}.yaml")


@cache
def content(name: str) -> dict[str, Any]:
    text = (zoo.zoo_dir("models") / f"{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def test_the_zoo_and_the_expected_counts_name_the_same_models() -> None:
    assert zoo.names("models") == NAMES


@every_row
def test_parameters_are_exact(row: Expected) -> None:
    assert parameters(model(row.name)) == row.parameters


@every_row
def test_the_published_total_is_explained_to_the_last_parameter(row: Expected) -> None:
    spec = model(row.name)
    assert spec.hub_total == row.hub_total
    if spec.hub_total is None:
        assert spec.unverified
    else:
        assert parameters(spec) + sum(spec.extras.values()) + sum(spec.hub_extra.values()) == row.hub_total


@pytest.mark.parametrize("row", [row for row in EXPECTED if row.active], ids=lambda row: row.name)
def test_active_parameters_are_exact(row: Expected) -> None:
    assert active_parameters(model(row.name)) == row.active


@every_row
def test_cached_elements_are_exact(row: Expected) -> None:
    (rank,) = shard(model(row.name))
    kinds = {"full": 0, "latent": 0, "window": 0, "chunk": 0, "indexer": 0, "state": 0}
    conv = state = 0
    for group in cache_groups(rank):
        kinds[group.kind] += group.layers * group.elements_per_token
        conv += group.layers * group.conv_elements
        state += group.layers * group.state_elements
    assert (kinds["full"] + kinds["latent"], kinds["window"] + kinds["chunk"]) == (row.kv_full, row.kv_window)
    assert (state, conv) == (row.state, row.conv)


def test_how_many_totals_are_published() -> None:
    assert (len(EXPECTED), sum(row.hub_total is not None for row in EXPECTED)) == (306, 289)


# What people type, and what it is.
ALIASES = [
    ("mistral-7b", "mistral-7b"),
    ("mistral-7b-v0.3", "mistral-7b"),
    ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
    ("META-LLAMA/llama-3.1-8b", "llama-3.1-8b"),
    ("llama-4-scout-109b-a17b", "llama-4-scout"),
    ("deepseek-v3-671b", "deepseek-v3"),
    ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
    ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b-instruct"),
    ("google/gemma-3-27b-it", "gemma-3-27b"),
    ("kimi-k2-1t-a32b", "kimi-k2"),
    ("openai/gpt-oss-120b", "gpt-oss-120b"),
]


@pytest.mark.parametrize(("typed", "name"), ALIASES, ids=[typed for typed, _ in ALIASES])
def test_names_that_people_type_are_found(typed: str, name: str) -> None:
    assert zoo.find("models", typed).stem == name


def test_the_index_is_what_the_files_say() -> None:
    assert zoo.aliases("models") == zoo.build_index("models")


@pytest.mark.parametrize(
    ("name", "max_context"), [("qwen2.5-7b", 131072), ("qwen2.5-7b-instruct", 32768), ("mistral-7b", 32768)]
)
def test_tunes_with_another_longest_context_have_a_file_of_their_own(name: str, max_context: int) -> None:
    assert model(name).max_context == max_context


@every_model
def test_a_file_is_named_sourced_and_short(name: str) -> None:
    spec = model(name)
    assert spec.name == name
    assert spec.source
    assert name not in spec.aliases
    lines = (zoo.zoo_dir("models") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 26
    assert all(len(line) <= 120 for line in lines)


@every_model
def test_the_checkpoint_scheme_is_known(name: str) -> None:
    schemes.scheme(model(name).weights)


SECTIONS: dict[str, type] = {
    "rope": shapes.Rope, "attention": shapes.Attention, "latent": shapes.Latent, "indexer": shapes.Indexer,
    "mamba1": shapes.Mamba1, "mamba2": shapes.Mamba2, "delta": shapes.Delta, "kimi_delta": shapes.KimiDelta,
    "lightning": shapes.Lightning, "short_conv": shapes.ShortConv, "mlp": shapes.Mlp, "moe": shapes.Moe,
    "per_layer_input": PerLayerInput,
}  # fmt: skip


def redundant(part: dict[str, Any], cls: type, base: dict[str, Any], path: str) -> list[str]:
    """Keys that say what holds without them: the default, or what `layer` says already."""
    found = []
    for key, value in part.items():
        inherited = base.get(key, field_specs(cls)[key].default)
        if isinstance(value, dict) and key in SECTIONS:
            below = base.get(key) if isinstance(base.get(key), dict) else {}
            found += redundant(value, SECTIONS[key], below or {}, f"{path}.{key}")
        elif value == inherited and key != "theta":  # no rope at all would mean that theta is unknown
            found.append(f"{path}.{key}")
    return found


@every_model
def test_no_field_repeats_a_default(name: str) -> None:
    file = content(name)
    layer, kinds = file.get("layer", {}), file.get("kinds", {})
    top = {key: value for key, value in file.items() if key not in ("layer", "kinds", "per_layer")}
    found = redundant(top, ModelSpec, {}, "top") + redundant(layer, shapes.Layer, {}, "layer")
    for kind, part in kinds.items():
        found += redundant(part, shapes.Layer, layer, f"kinds.{kind}")
    assert found == []


@every_model
def test_no_field_follows_from_another(name: str) -> None:
    """KV heads equal to the heads, a head width of hidden_size / heads in every kind, one kind where none is needed."""
    file, spec = content(name), model(name)
    parts = [file.get("layer", {}), *file.get("kinds", {}).values()]
    said = [part["attention"] for part in parts if "attention" in part]
    if not any(a.input_size for a in (layer.attention for layer in spec.stack) if a):
        heads = {layer.attention.heads for layer in spec.stack if layer.attention}
        widths = {layer.attention.head_dim for layer in spec.stack if layer.attention}
        default = {spec.hidden_size // count for count in heads}
        assert widths != default or not any("head_dim" in part for part in said)
    assert not any(part.get("kv_heads", 0) == part.get("heads") for part in said)
    assert not any(part.get("v_head_dim", 0) == part.get("head_dim") for part in said)
    assert len(file.get("kinds", {"": 0, " ": 0})) > 1


@every_model
def test_equal_layers_are_one_object(name: str) -> None:
    spec = model(name)
    assert len({id(layer) for layer in spec.stack}) == len(set(spec.stack))
    assert len(spec.stack_kinds) == len(spec.stack)
