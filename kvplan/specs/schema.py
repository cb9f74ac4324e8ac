"""The JSON Schema of a spec file, for editors and for checks without kvplan."""

from __future__ import annotations

from typing import Any

from kvplan.specs.fields import section


def json_schema(cls: type, title: str) -> dict[str, Any]:
    """JSON Schema 2020-12 of the file that reads as `cls`, from the same table of fields as the reader."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **section(cls).schema()}
