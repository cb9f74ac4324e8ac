"""Checkpoints that are a zoo model in another format: `checkpoints.json` says which, with its source.

What a quantised checkpoint keeps in 16 bit does not follow from its name, so each one is a fact of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from kvplan.specs import zoo
from kvplan.specs.model import ModelSpec, load_model_file

FILE = "checkpoints.json"


def checkpoints() -> dict[str, dict[str, Any]]:
    """Every checkpoint by its hub id, in lower case."""
    path = zoo.zoo_dir("models") / FILE
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def load_checkpoint(name: str) -> ModelSpec | None:
    """The zoo model of a checkpoint with the checkpoint's own formats, or None where it is not one."""
    if "/" not in name or zoo.lookup("models", name):
        return None
    known = checkpoints().get(name.lower())
    if known is None:
        return None
    model = load_model_file(zoo.find("models", known["model"]))
    return replace(
        model,
        name=name.rpartition("/")[2].lower(),
        aliases=(name,),
        source=(known["source"],),
        weights=known.get("weights", model.weights),
        kv_dtype=known.get("kv_dtype", model.kv_dtype),
    )
