"""The deployments of a plan as one grid: their rows one after the other, with the deployment's name in front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvplan.planning.grid import Chunk, Grid
from kvplan.planning.plan import load_plan


class PlanGrid:
    """Grids of several deployments behind the face of one."""

    def __init__(self, plan: Path) -> None:
        """Raises SpecError when something in the plan is wrong."""
        self.grids = {deployment.name: Grid(deployment.axes) for deployment in load_plan(plan).deployments}

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(grid.size for grid in self.grids.values())

    @property
    def columns(self) -> dict[str, type]:
        """Every column of any deployment, with the type of its values."""
        found: dict[str, type] = {"deployment": str}
        for grid in self.grids.values():
            found |= {name: kind for name, kind in grid.columns.items() if name not in found}
        return found

    @property
    def axes(self) -> dict[str, Sequence[Any]]:
        """The values of each option over all deployments."""
        found: dict[str, list[Any]] = {}
        for grid in self.grids.values():
            for name, values in grid.axes.items():
                found.setdefault(name, []).extend(value for value in values if value not in found.get(name, ()))
        return dict(found)

    def chunks(self) -> Iterator[Chunk]:
        """The rows in the plan's order."""
        for name, grid in self.grids.items():
            for chunk in grid.chunks():
                yield Chunk(chunk.rows, {"deployment": name, **chunk.columns})
