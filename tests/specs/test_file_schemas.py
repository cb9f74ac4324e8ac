"""The JSON Schemas accept what ships, and refuse what the reader refuses."""

from __future__ import annotations

import copy

import pytest
import yaml
from jsonschema import Draft202012Validator

from kvplan.errors import InputError
from kvplan.specs import zoo
from kvplan.specs.schema import file_schema

MODEL, GPU = Draft202012Validator(file_schema("model")), Draft202012Validator(file_schema("gpu"))


def content(kind, name):
    return yaml.safe_load((zoo.zoo_dir(kind) / f"{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["model", "gpu"])
def test_schemas_are_schemas(kind):
    Draft202012Validator.check_schema(file_schema(kind))


@pytest.mark.parametrize("name", zoo.names("models"))
def test_every_model_file_is_accepted(name):
    assert list(MODEL.iter_errors(content("models", name))) == []


@pytest.mark.parametrize("name", zoo.names("gpus"))
def test_every_gpu_file_is_accepted(name):
    assert list(GPU.iter_errors(content("gpus", name))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hiden_size",), 4096),
        (("hidden_size",), "4096"),
        (("layers",), 0),
        (("layer", "attention", "heads"), -1),
        (("layer", "attention", "hads"), 32),
        (("layer", "mlp", "gated"), "yes"),
        (("norm",), "batch"),
        (("kinds",), {"a": {"attention": {"window": 0}}}),
    ],
)
def test_mistakes_in_a_model_are_refused(path, value):
    changed = copy.deepcopy(content("models", "mistral-7b"))
    part = changed
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert not MODEL.is_valid(changed)


def test_an_unknown_kind_is_refused():
    with pytest.raises(InputError, match=r"unknown kind of file 'modle'; did you mean 'model'\?"):
        file_schema("modle")
