"""The schema and the reader say the same; `jsonschema` is the judge of the schema."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kvplan.errors import SpecError
from kvplan.specs.fields import (
    boolean,
    choice,
    either,
    integer,
    key,
    list_of,
    mapping_of,
    number,
    one_or_more,
    raw,
    section,
    text,
)
from kvplan.specs.reader import Node, load, read_text
from kvplan.specs.schema import json_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    heads: int = key(integer(2), "query heads")
    norm: str = key(choice("head", "none"), "norm", default="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    name: str = key(text(), "the name")
    part: Part = key(section(Part), "a section")
    rate: float = key(number(minimum=0, maximum=9), "a rate", default=1.5)
    above: float = key(number(above=0), "above zero", default=1)
    tied: bool = key(boolean(), "shared", default=False)
    aliases: tuple[str, ...] = key(list_of(text()), "names", default=())
    source: tuple[str, ...] = key(one_or_more(text()), "origins", default=())
    extra: dict[str, int] = key(mapping_of(integer(-5, 5)), "counts", default=dict)
    layers: int | str = key(either(integer(), text()), "count or order", default=1)
    rest: Node | None = key(raw({"type": ["object", "array"]}), "read elsewhere", default=None)
    internal: int = 0


SCHEMA = json_schema(Whole, "a whole")
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_the_schema_in_full_for_a_small_section() -> None:
    assert json_schema(Part, "a part") == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a part",
        "type": "object",
        "properties": {
            "heads": {"description": "query heads", "type": "integer", "minimum": 2, "maximum": 2**53},
            "norm": {"description": "norm", "enum": ["head", "none"], "default": "none"},
        },
        "required": ["heads"],
        "additionalProperties": False,
    }


def test_fields_without_a_key_are_not_in_it() -> None:
    assert "internal" not in SCHEMA["properties"]


GOOD_PART = {"heads": 2}
VALUES: st.SearchStrategy[object] = st.sampled_from([
    None, True, False, 0, 1, 5, 6, -5, -6, 0.5, 9, 9.5, 2**53, 2**53 + 1, 2.0, "", " ", "x", "7", "none", "heads",
    [], ["x"], ["x", 7], [[]], {}, {"a": 1}, {"a": 6}, GOOD_PART, {"heads": 1}, {"heads": 2, "norm": "x"}, {"z": 1},
])  # fmt: skip
KEYS = st.sampled_from([*SCHEMA["properties"], "unknown"])


@given(st.dictionaries(KEYS.filter(lambda name: name != "rest"), VALUES, max_size=3), st.booleans())
def test_the_reader_accepts_what_the_schema_accepts(changes: dict[str, object], complete: bool) -> None:
    document = {**({"name": "x", "part": GOOD_PART} if complete else {}), **changes}
    document = json.loads(json.dumps(document))  # no object twice, which YAML would write as an alias
    if 2**53 + 1 in document.values():  # JSON Schema has no word for "a number, but exact if it is whole"
        document.pop("above", None)
    assert _is_read(yaml.safe_dump(document)) == VALIDATOR.is_valid(document)
    assert _is_read(json.dumps(document)) == VALIDATOR.is_valid(document)  # JSON is YAML 1.2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_whole_floats_are_integers_to_both(size: int) -> None:
    document = {"name": "x", "part": GOOD_PART, "layers": float(size)}
    assert VALIDATOR.is_valid(document)
    assert _is_read(json.dumps(document))


def _is_read(content: str) -> bool:
    try:
        load(Whole, read_text(content, "f"), "f")
    except SpecError:
        return False
    return True
