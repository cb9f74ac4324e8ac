"""Many scenarios at once: structure one combination at a time, numbers as arrays, by the lines of an estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.arithmetic import NO_LIMIT
from kvplan.engines import load_engine
from kvplan.engines.base import Budget
from kvplan.errors import InputError
from kvplan.loading import load_model
from kvplan.planning.axes import BUDGET, NUMBERS, OPTIONS, STRUCTURE, parse_axis
from kvplan.planning.estimate import checked_bytes, kv_ends
from kvplan.planning.figures import Numbers, ends, figures, longest_alone
from kvplan.planning.grid_columns import column_types, refused_inputs, told_apart
from kvplan.planning.grid_numbers import Asked, NumberAxes
from kvplan.planning.row import Labels, band, constants, results
from kvplan.planning.scenario import Scenario, check_lengths, make_scenario
from kvplan.planning.structure import Stage, budgets_of, kv_budgets_of, stages_of
from kvplan.specs.gpu_lookup import GpuChoice, parse_gpu
from kvplan.specs.model import ModelSpec
from kvplan.units import MAX_TOKENS

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 16_384  # arrays of this length stay in the cache
MAX_STRUCTURES = 100_000
MAX_ROWS = 10_000_000_000  # hours of work


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
        self._structure = STRUCTURE + BUDGET + _numbers_in_budget(self.axes)
        structures = self._count(self._structure)
        if structures > MAX_STRUCTURES:
            raise InputError(f"{structures:,} combinations of models, GPUs and so on are more than {MAX_STRUCTURES:,}")
        numbers = {name: values for name, values in self.axes.items() if name not in self._structure}
        self._numbers = NumberAxes(numbers)
        if (rows := self._count(OPTIONS)) > MAX_ROWS:
            raise InputError(f"{rows:,} rows are more than {MAX_ROWS:,}; shorten the lists and ranges")

    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self._count(OPTIONS)

    @property
    def columns(self) -> dict[str, type]:
        """Every column in order, with the type of its values."""
        return column_types(self.axes)

    def _count(self, names: Sequence[str]) -> int:
        total = 1
        for name in names:
            total *= len(self.axes.get(name, (None,)))
        return total

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """The rows in order, at most `rows` at a time."""
        names = [name for name in self._structure if name in self.axes]
        load, choose = cache(load_model), cache(parse_gpu)  # a file is read once for all its combinations
        for values in product(*(self.axes[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            found = _combination(options, load, choose)
            if isinstance(found, InputError) and self._count(names) == 1:
                raise found
            told = told_apart(self.axes, options)
            shortest, longest = (options.get("shared_prefix") or 0) + 1, options.get("max_model_len") or MAX_TOKENS
            fixed: dict[str, Sequence[Any]] = {
                name: [options[name]] for name in ("sessions", "context") if name in options
            }
            axes = NumberAxes(fixed) if fixed else self._numbers
            for asked, good in axes.blocks(rows, shortest, longest):
                columns = _figured(options, found, asked, good)
                yield Chunk(asked.rows, {**columns, **told} if told else columns)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dict a row, in plain Python values."""
        for chunk in self.chunks():
            for index in range(chunk.rows):
                yield chunk.at(index)

    def to_frame(self) -> pd.DataFrame:
        """The whole grid as a pandas frame; raises MissingPackageError without pandas."""
        from kvplan.planning.frame import frame

        return frame(self.chunks(), self.columns)


def sweep(model: Any, gpu: Any = None, **options: Any) -> Grid:
    """The grid of every combination: options are single values, lists, or texts such as "2k:128k:x2"."""
    return Grid({"model": model, "gpu": gpu, **options})


class _Combination(NamedTuple):
    """A structure with its budget, and the part of its rows that is always the same."""

    scenario: Scenario
    stages: tuple[Stage, ...]
    budgets: tuple[Budget | None, ...]
    kv_budgets: list[int]
    longest: int  # conversation
    constants: dict[str, Any]


def _combination(
    options: Mapping[str, Any], load: Callable[[Any], ModelSpec], choose: Callable[[str], GpuChoice]
) -> _Combination | InputError:
    """With a context that contradicts nothing (each row's own is checked with its numbers); an error is a result."""
    free = max(options.get("max_model_len") or 0, (options.get("shared_prefix") or 0) + 1)
    context = options.get("context") or free
    model, gpu = options["model"], options.get("gpu")
    try:
        if not isinstance(model, ModelSpec):
            model = load(model)
        if isinstance(gpu, str) and choose(gpu).count is None:
            gpu = choose(gpu).gpu
        scenario = make_scenario(**{**options, "model": model, "gpu": gpu, "context": context})
        stages = stages_of(scenario)
        budgets = budgets_of(scenario, stages)
        kv_budgets = [checked_bytes(size) for size in kv_budgets_of(scenario, stages, budgets)]
    except InputError as error:
        return error
    longest = longest_alone(stages, kv_budgets, scenario.shared_prefix)
    return _Combination(scenario, stages, budgets, kv_budgets, longest, constants(scenario, stages))


def _figured(options: Mapping[str, Any], found: _Combination | InputError, asked: Asked, good: bool) -> dict[str, Any]:
    """The columns of a block of rows: figures, or what was asked and why it cannot be."""
    given = _given(asked)
    if options.get("max_model_len") is None:
        given["max_model_len"] = given["context_tokens"]
    if isinstance(found, InputError) or not good:
        reason = str(found) if isinstance(found, InputError) else _refusals(options, asked)
        return {**refused_inputs(options), **given, "fits": False, "error": reason}
    scenario = found.scenario
    numbers = Numbers(
        own_tokens=asked.context - scenario.shared_prefix if scenario.shared_prefix else asked.context,
        sessions=1 if asked.sessions is None else asked.sessions,
        max_seqs=scenario.engine_options.max_seqs if asked.max_seqs is None else asked.max_seqs,
        shared_prefix=scenario.shared_prefix,
        dp=scenario.dp,
        kv_given=scenario.kv_budget is not None,
    )
    of_rows = figures(found.stages, found.kv_budgets, numbers, found.longest)
    figured = results(found.stages, found.budgets, of_rows)
    least, most = kv_ends(found.budgets)
    if least and most:
        figured |= band(found.budgets, of_rows, *ends(found.stages, least, most, numbers, found.longest))
    made = {id(value): _column(asked, value) for value in figured.values()}  # some are the same figure twice
    columns = {name: made[id(value)] for name, value in figured.items()}
    return {**found.constants, **columns, **given, "error": None}


def _column(asked: Asked, value: Any) -> Any:
    if isinstance(value, Labels):
        return Labels(asked.column(value.codes), value.texts)
    return asked.column(value)


def _given(asked: Asked) -> dict[str, Any]:
    """The numbers that were asked, under the keys of a row."""
    found = {"context_tokens": asked.context, "max_seqs": asked.max_seqs, "sessions": asked.sessions}
    return {name: asked.column(value) for name, value in found.items() if value is not None}


def _refusals(options: Mapping[str, Any], asked: Asked) -> Labels:
    """Why each context does not go with the length or the prefix that was given."""
    import numpy as np  # the contexts are an array, so it is loaded already

    contexts, codes = np.unique(asked.context, return_inverse=True)
    return Labels(codes, tuple(_refusal(options, int(context)) for context in contexts))


def _refusal(options: Mapping[str, Any], context: int) -> str:
    try:
        check_lengths(context, options.get("shared_prefix") or 0, options.get("max_model_len"))
    except InputError as error:
        return str(error)
    raise AssertionError("a context that goes with the others was refused")


def _numbers_in_budget(axes: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Numbers that change what an engine leaves for the cache, so that they belong to the structure."""
    engines = []
    for name, version in product(axes.get("engine", ("generic",)), axes.get("engine_version", (None,))):
        with suppress(InputError):  # its rows will say what is wrong with it
            engines.append(load_engine(name, version))
    flags = [each or {} for each in axes.get("flags", (None,))]
    if "max_model_len" not in axes and any(engine.length_in_budget(each) for engine in engines for each in flags):
        return NUMBERS
    return ("max_seqs",) if "max_seqs" in axes and any(engine.seqs_in_budget for engine in engines) else ()


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
