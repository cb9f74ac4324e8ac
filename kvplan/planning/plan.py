"""A plan file with everything in it looked up: deployments whose options are ready for `estimate` and for a grid."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from kvplan.engines import load_engine
from kvplan.errors import InputError, Problem, SpecError
from kvplan.kv_formats import kv_pair
from kvplan.loading import load_model
from kvplan.planning.axes import NUMERIC, OPTIONS, parse_axis
from kvplan.records import Record
from kvplan.schemes import scheme
from kvplan.specs.expectations import Condition, Tolerance
from kvplan.specs.gpu_lookup import GpuChoice, parse_gpu
from kvplan.specs.model import ModelSpec
from kvplan.specs.nodes import join, report
from kvplan.specs.plan import Deployment, PlanText, Value, read_plan
from kvplan.specs.reader import read_file

MAX_SCENARIOS = 1000  # of one deployment where each is computed on its own
_FILES = ("model", "draft_model", "gpu")  # may name a file beside the plan
_YAML, _CHECKPOINTS = (".yaml", ".yml"), (".json", ".gguf", ".safetensors")
_COUNTED = re.compile(r"([0-9]+[xX])?(.*)", re.DOTALL)
_OPTION = re.compile(r"--([a-z][a-z-]*)")
_FIRST_WORD = re.compile(r"([a-z_]+)\b")


class PlannedDeployment(Record):
    """A deployment: `axes` are values as `estimate` and `Grid` take them, paths of files made whole."""

    name: str
    line: int
    axes: dict[str, Sequence[Any]]
    lines: dict[str, int]  # of each option
    written: dict[str, str]  # a file's path -> as it is in the plan
    conditions: tuple[Condition, ...]

    def __len__(self) -> int:
        total = 1
        for values in self.axes.values():
            total *= len(values)
        return total

    def scenarios(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every combination of the lists with its label, the last option changing fastest."""
        varying = [name for name, values in self.axes.items() if len(values) > 1]
        for values in product(*self.axes.values()):
            options = dict(zip(self.axes, values, strict=True))
            yield ", ".join(f"{name}={self._label(options[name])}" for name in varying), options

    def _label(self, value: Any) -> str:
        text = self.written.get(value, value) if isinstance(value, str) else value
        return str(text).lower() if isinstance(text, bool) else str(text)

    def line_of(self, message: str) -> int:
        """The line of the option that a message begins with, else that of the deployment."""
        first = _FIRST_WORD.match(message)
        return self.lines.get(first[1], self.line) if first else self.line


class LoadedPlan(Record):
    """A plan with its names, numbers and files looked up, each by itself; `problems` says which are wrong."""

    source: str
    problems: tuple[Problem, ...]
    deployments: tuple[PlannedDeployment, ...]
    tolerances: dict[str, Tolerance]
    models: dict[str, ModelSpec]  # by the text that stands in `axes`
    gpus: dict[str, GpuChoice]

    def is_good(self, deployment: PlannedDeployment) -> bool:
        """Whether nothing is wrong with a deployment by itself."""
        path = join("deployments", deployment.name)
        return not any(problem.path == path or problem.path.startswith(f"{path}.") for problem in self.problems)


def load_plan(path: Path) -> LoadedPlan:
    """The plan of a file; SpecError tells everything that is wrong with it."""
    plan = look_up(path)
    if plan.problems:
        raise SpecError(plan.source, plan.problems)
    return plan


def look_up(path: Path) -> LoadedPlan:
    """The plan of a file, with its problems for those who have more to find; SpecError where it is no YAML."""
    problems: list[Problem] = []
    found: PlanText = read_plan(read_file(path, read_plan), problems)
    reader = _Reader(path.parent, problems)
    deployments = tuple(reader.deployment(name, each, found.lines[name]) for name, each in found.deployments.items())
    return LoadedPlan(
        source=str(path),
        problems=tuple(problems),
        deployments=deployments,
        tolerances=found.tolerances,
        models=reader.models,
        gpus=reader.gpus,
    )


def in_plan_words(message: str) -> str:
    """A message about options of the command line, about keys of a plan."""

    def word(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return name if name in OPTIONS else found[0]

    return _OPTION.sub(word, message)


class _Reader:
    """Looks up what the options of a plan say; every model and GPU is read once."""

    def __init__(self, folder: Path, problems: list[Problem]) -> None:
        self.folder, self.problems = folder, problems
        self.models: dict[str, ModelSpec] = {}
        self.gpus: dict[str, GpuChoice] = {}
        self._checks: dict[str, Callable[[str], object]] = {
            "model": self._model,
            "draft_model": self._model,
            "gpu": self._gpu,
            "engine": load_engine,
            "weights": scheme,
            "kv_dtype": lambda name: name == "auto" or kv_pair(name),
        }

    def deployment(self, name: str, given: Deployment, line: int) -> PlannedDeployment:
        """One deployment; what is wrong with its options goes to the problems."""
        written: dict[str, str] = {}
        options = given.options
        axes = {
            option: self._axis(option, options[option], join(join("deployments", name), option), written)
            for option in OPTIONS
            if option in options
        }
        return PlannedDeployment(
            name=name,
            line=line,
            axes=axes,
            lines={option: values[0].line for option, values in options.items()},
            written=written,
            conditions=tuple(each for conditions in given.expect.values() for each in conditions),
        )

    def _axis(self, option: str, values: tuple[Value, ...], path: str, written: dict[str, str]) -> Sequence[Any]:
        pieces = [self._piece(option, value, path, written) for value in values]
        if len(pieces) == 1:
            return pieces[0]
        found = [each for piece in pieces for each in piece]
        if len(set(found)) < len(found):
            twice = next(each for index, each in enumerate(found) if each in found[:index])
            report(self.problems, values[0].line, path, f"'{written.get(twice, twice)}' appears twice in the list")
        return found

    def _piece(self, option: str, value: Value, path: str, written: dict[str, str]) -> Sequence[Any]:
        """What one value stands for: itself, or several values with commas or as a range."""
        if option == "eager":
            return [value.text == "true"]
        try:
            found = parse_axis(option, value.text)
        except InputError as error:
            said = in_plan_words(str(error)).removeprefix(option).removeprefix(":").lstrip()
            report(self.problems, value.line, path, said)
            return []
        if option in NUMERIC:
            return found
        names = [self._beside_plan(text, written) if option in _FILES else text for text in found]
        for name in names:
            self._check(option, name, value.line, path)
        return names

    def _check(self, option: str, name: str, line: int, path: str) -> None:
        try:
            self._checks.get(option, str)(name)
        except SpecError as error:  # a file of its own, with its own lines
            for problem in error.problems:
                report(self.problems, line, path, str(SpecError(error.source, [problem])))
        except InputError as error:
            report(self.problems, line, path, in_plan_words(str(error)))

    def _model(self, name: str) -> None:
        if name not in self.models:
            self.models[name] = load_model(name)

    def _gpu(self, name: str) -> None:
        if name not in self.gpus:
            self.gpus[name] = parse_gpu(name)

    def _beside_plan(self, text: str, written: dict[str, str]) -> str:
        """A file's path from where the command runs, given that from where the plan lies; names stay as they are."""
        counted = _COUNTED.fullmatch(text)
        count, name = (counted[1] or "", counted[2]) if counted else ("", text)
        lower = name.lower()
        is_file = lower.endswith((*_YAML, *_CHECKPOINTS)) or lower.rpartition(":")[0].endswith(_YAML)
        if lower.startswith("hf:") or not (is_file or ("/" in name and (self.folder / name).exists())):
            return text
        whole = count + os.path.join(self.folder, name)
        written[whole] = text
        return whole


def chosen(plan: LoadedPlan, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the models and GPUs that are read already in place of their names."""
    found = {**options, "model": plan.models[options["model"]]}
    if "draft_model" in options:
        found["draft_model"] = plan.models[options["draft_model"]]
    gpu = plan.gpus.get(options.get("gpu", ""))
    if gpu is not None and gpu.count is None:
        found["gpu"] = gpu.gpu
    return found
