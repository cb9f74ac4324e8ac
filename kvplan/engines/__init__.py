"""Engines by name; a module is imported only when its engine is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kvplan.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from kvplan.engines.base import Engine

_ENGINES = {"generic": "Generic", "textbook": "Textbook", "vllm": "Vllm"}
_VERSIONED = ("vllm",)
ENGINE_NAMES = tuple(_ENGINES)
_PLANNED = ("sglang", "tensorrt-llm", "llama.cpp", "transformers")


def load_engine(name: str, version: str | None = None) -> Engine:
    """The engine of that name; raises InputError for an unknown name or version."""
    if name in _PLANNED:
        raise InputError(f"engine '{name}' is not modelled yet; known engines: {', '.join(ENGINE_NAMES)}")
    if name not in _ENGINES:
        hint = did_you_mean(name, ENGINE_NAMES) or ";"
        raise InputError(f"unknown engine '{name}'{hint} known engines: {', '.join(ENGINE_NAMES)}")
    made = getattr(import_module(f"kvplan.engines.{name}"), _ENGINES[name])
    engine: Engine = made(version) if name in _VERSIONED else made()
    if name not in _VERSIONED and version is not None:
        raise InputError(f"engine '{name}' has no versions; leave --engine-version out")
    return engine
