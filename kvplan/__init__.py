"""kvplan: exact memory capacity planning for LLM serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvplan.loading import load_gpu, load_model
    from kvplan.planning.estimate import Estimate, estimate
    from kvplan.planning.grid import Grid, sweep
    from kvplan.planning.solve import Solution, solve_context
    from kvplan.planning.solve_gpus import solve_gpus

__version__ = "0.1.0"
__all__ = [
    "Estimate",
    "Grid",
    "Solution",
    "estimate",
    "load_gpu",
    "load_model",
    "solve_context",
    "solve_gpus",
    "sweep",
]

_HOMES = {
    "Estimate": "kvplan.planning.estimate",
    "Grid": "kvplan.planning.grid",
    "Solution": "kvplan.planning.solve",
    "estimate": "kvplan.planning.estimate",
    "load_gpu": "kvplan.loading",
    "load_model": "kvplan.loading",
    "solve_context": "kvplan.planning.solve",
    "solve_gpus": "kvplan.planning.solve_gpus",
    "sweep": "kvplan.planning.grid",
}


def __getattr__(name: str) -> Any:
    """Load the API on first use, so that `import kvplan` and `kvplan --version` stay instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kvplan' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
