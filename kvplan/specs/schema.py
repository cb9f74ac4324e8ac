"""The JSON Schemas of spec files, for editors and for checks without kvplan."""

from __future__ import annotations

from typing import Any

from kvplan.errors import InputError, did_you_mean
from kvplan.specs.fields import section

SCHEMA_KINDS = ("model", "gpu", "plan")


def json_schema(cls: type, title: str) -> dict[str, Any]:
    """JSON Schema 2020-12 of the file that reads as `cls`, from the same table of fields as the reader."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **section(cls).schema()}


def file_schema(kind: str) -> dict[str, Any]:
    """The schema of a kind of file; raises InputError for an unknown kind."""
    if kind == "model":
        return _model_schema()
    if kind == "gpu":
        from kvplan.specs.gpu import GpuSpec

        return json_schema(GpuSpec, "kvplan GPU")
    if kind == "plan":
        from kvplan.specs.plan import Plan

        return json_schema(Plan, "kvplan plan")
    hint = did_you_mean(kind, SCHEMA_KINDS) or ";"
    raise InputError(f"unknown kind of file '{kind}'{hint} expected one of {', '.join(SCHEMA_KINDS)}")


def _model_schema() -> dict[str, Any]:
    """What a layer must have is known only after `layer`, `kinds` and `per_layer` are put together."""
    from kvplan.specs.layers import Layer
    from kvplan.specs.model import ModelSpec

    schema = json_schema(ModelSpec, "kvplan model")
    part = _optional(section(Layer).schema())
    for name, shape in (
        ("layer", part),
        ("kinds", {"type": "object", "additionalProperties": part}),
        ("per_layer", {"type": "object", "additionalProperties": {"type": "array"}}),
    ):
        schema["properties"][name] = {"description": schema["properties"][name].get("description", ""), **shape}
    return schema


def _optional(shape: Any) -> Any:
    """The same shape with no key required, all the way down."""
    if isinstance(shape, dict):
        return {
            key: _optional(value) for key, value in shape.items() if not (key == "required" and isinstance(value, list))
        }
    return [_optional(item) for item in shape] if isinstance(shape, list) else shape
