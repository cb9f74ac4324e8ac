"""Many scenarios at once: structure one combination at a time, numbers as arrays, by the lines of an estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.arithmetic import NO_LIMIT
from kvplan.engines.base import Budget
from kvplan.errors import InputError
from kvplan.planning.axes import given_inputs, parse_axis
from kvplan.planning.estimate import checked_bytes
from kvplan.planning.figures import Numbers, figures
from kvplan.planning.row import Labels, constants, results
from kvplan.planning.scenario import Scenario, check_lengths, make_scenario
from kvplan.planning.structure import Stage, budget_of, stages_of
from kvplan.units import MAX_TOKENS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Options in the order in which a grid runs through them: the last changes fastest. Structure first, numbers last.
STRUCTURE = (
    "model", "gpu", "engine", "engine_version", "weights", "kv_dtype", "attention", "extras", "tp", "pp", "dp", "ep",
    "max_model_len", "max_batched_tokens", "block_size", "eager", "lora_rank", "max_loras", "draft_model",
    "shared_prefix", "reserve",
)  # fmt: skip
BUDGET = ("memory_fraction", "kv_budget")
NUMBERS = ("max_seqs", "sessions", "context")
OPTIONS = STRUCTURE + BUDGET + NUMBERS

CHUNK_ROWS = 16_384  # arrays of this length stay in the cache: twice as fast as a million at once
MAX_STRUCTURES = 100_000
DEFAULT_CONTEXT = 4096


class Chunk(NamedTuple):
    """Rows of one structure: each column is one value for all of them, or an array with a value for each.

    `max_context_tokens` holds arithmetic.NO_LIMIT where memory sets no limit.
    """

    rows: int
    columns: dict[str, Any]

    def at(self, index: int) -> dict[str, Any]:
        """One row, in plain Python values."""
        found = {name: _plain(value, index) for name, value in self.columns.items()}
        if found.get("max_context_tokens") == NO_LIMIT:
            found["max_context_tokens"] = None
        return found


class Grid:
    """Every combination of the values of the options, computed as it is iterated; nothing is kept."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise InputError(f"unknown option '{unknown[0]}'")
        self.axes = {name: _axis(name, options[name]) for name in OPTIONS if options.get(name) is not None}
        if "model" not in self.axes:
            raise InputError("a grid needs a model")
        structures = self._count(STRUCTURE + BUDGET)
        if structures > MAX_STRUCTURES:
            raise InputError(f"{structures:,} combinations of models, GPUs and so on are more than {MAX_STRUCTURES:,}")

    def __len__(self) -> int:
        return self._count(OPTIONS)

    def _count(self, names: Sequence[str]) -> int:
        total = 1
        for name in names:
            total *= len(self.axes.get(name, (None,)))
        return total

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """The rows in order, at most `rows` at a time."""
        names = [name for name in (*STRUCTURE, *BUDGET) if name in self.axes]
        numbers = _NumberAxes(*(self.axes.get(name) for name in NUMBERS))
        for values in product(*(self.axes[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            found = _combination(options)
            for start in range(0, numbers.length, rows):
                for asked in _split(options, numbers.slice(start, min(start + rows, numbers.length))):
                    yield _chunk(options, found, asked)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict a row, in plain Python values."""
        for chunk in self.chunks():
            for index in range(chunk.rows):
                yield chunk.at(index)

    def to_frame(self) -> pd.DataFrame:
        """The whole grid as a pandas frame; raises MissingPackageError without pandas."""
        from kvplan.planning.frame import frame

        return frame(self.chunks())


def sweep(model: Any, gpu: Any = None, **options: Any) -> Grid:
    """The grid of every combination: options are single values, lists, or texts such as "2k:128k:x2"."""
    return Grid({"model": model, "gpu": gpu, **options})


class _Asked(NamedTuple):
    """The numbers of a chunk's rows."""

    max_seqs: np.ndarray | None
    sessions: np.ndarray | None
    context: np.ndarray

    def part(self, start: int, stop: int) -> _Asked:
        """Some of the rows."""
        max_seqs, sessions = (None if part is None else part[start:stop] for part in self[:2])
        return _Asked(max_seqs, sessions, self.context[start:stop])


class _NumberAxes:
    """The product of the three numeric axes, cut into slices without ever being whole."""

    def __init__(self, max_seqs: Any, sessions: Any, context: Any) -> None:
        self.given = max_seqs is not None, sessions is not None
        self.axes = (max_seqs or (0,), sessions or (1,), context or (DEFAULT_CONTEXT,))
        self.length = len(self.axes[0]) * len(self.axes[1]) * len(self.axes[2])

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        import numpy as np

        return [
            np.arange(axis.start, axis.stop, axis.step) if isinstance(axis, range) else np.array(axis, dtype=np.int64)
            for axis in self.axes
        ]

    def slice(self, start: int, stop: int) -> _Asked:
        """The numbers of rows start to stop."""
        import numpy as np

        max_seqs, sessions, context = self._arrays
        if not any(self.given):
            return _Asked(None, None, context[start:stop])
        outer, inner = np.divmod(np.arange(start, stop), len(context))
        first, second = np.divmod(outer, len(sessions))
        return _Asked(
            max_seqs[first] if self.given[0] else None,
            sessions[second] if self.given[1] else None,
            context[inner],
        )


class _Combination(NamedTuple):
    """A structure with its budget, and the part of its rows that is always the same."""

    scenario: Scenario
    stages: tuple[Stage, ...]
    budgets: list[Budget | None]
    kv_budgets: list[int]
    constants: dict[str, Any]


def _combination(options: Mapping[str, Any]) -> _Combination | InputError:
    """With a context that contradicts nothing (each row's own is checked with its numbers); an error is a result."""
    context = max(options.get("max_model_len") or 0, (options.get("shared_prefix") or 0) + 1)
    try:
        scenario = make_scenario(**{**options, "context": context})
        stages = stages_of(scenario)
        budgets = [budget_of(scenario, stage) for stage in stages]
        kv_budgets = [checked_bytes(b.kv.bytes if b else scenario.kv_budget or 0) for b in budgets]
    except InputError as error:
        return error
    return _Combination(scenario, stages, budgets, kv_budgets, constants(scenario, stages))


def _split(options: Mapping[str, Any], asked: _Asked) -> list[_Asked]:
    """Runs of rows whose context goes with the length and the prefix that were given; each other row alone."""
    import numpy as np

    fits = (asked.context <= (options.get("max_model_len") or MAX_TOKENS)) & (
        asked.context > (options.get("shared_prefix") or 0)
    )
    if fits.all():
        return [asked]
    cuts = [0, *(np.flatnonzero(~(fits[1:] & fits[:-1])) + 1).tolist(), len(fits)]  # each refused row alone
    return [asked.part(start, stop) for start, stop in pairwise(cuts)]


def _chunk(options: Mapping[str, Any], found: _Combination | InputError, asked: _Asked) -> Chunk:
    rows, given = len(asked.context), _given(asked)
    try:
        if isinstance(found, InputError):
            raise found
        check_lengths(int(asked.context[0]), found.scenario.shared_prefix, options.get("max_model_len"))
    except InputError as error:
        return Chunk(rows, {**given_inputs(options), **given, "fits": False, "error": str(error)})
    scenario = found.scenario
    numbers = Numbers(
        own_tokens=asked.context - scenario.shared_prefix if scenario.shared_prefix else asked.context,
        sessions=1 if asked.sessions is None else asked.sessions,
        max_seqs=asked.max_seqs,
        shared_prefix=scenario.shared_prefix,
        dp=scenario.dp,
        kv_given=scenario.kv_budget is not None,
    )
    figured = results(found.stages, found.budgets, figures(found.stages, found.kv_budgets, numbers))
    if options.get("max_model_len") is None:
        given["max_model_len"] = asked.context
    return Chunk(rows, {**found.constants, **figured, **given, "error": None})


def _given(asked: _Asked) -> dict[str, Any]:
    """The numbers that were asked, under the keys of a row."""
    found: dict[str, Any] = {"context_tokens": asked.context}
    if asked.max_seqs is not None:
        found["max_seqs"] = asked.max_seqs
    if asked.sessions is not None:
        found["sessions"] = asked.sessions
    return found


def _axis(name: str, value: Any) -> Sequence[Any]:
    """The values of an option: a text is parsed, a list may hold texts, anything else is one value."""
    if isinstance(value, str):
        return parse_axis(name, value)
    if isinstance(value, range):
        return value
    if isinstance(value, list | tuple):
        if not value:
            raise InputError(f"{name}: the list is empty")
        return [each for part in value for each in _axis(name, part)]
    return [value]


def _plain(value: Any, index: int) -> Any:
    """One value of a column, as JSON has it."""
    if isinstance(value, Labels):
        return value.texts[value.codes[index]]
    if not hasattr(value, "dtype"):
        return value
    found = value[index] if value.ndim else value
    return found.item()
