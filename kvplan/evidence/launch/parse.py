"""A server's command line as a scenario: what matters for memory, what does not, and what cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.launch.flags import FLAGS, SINCE, Flag
from kvplan.evidence.launch.meaning import Meaning, meaning_of
from kvplan.evidence.launch.shell import find_command
from kvplan.evidence.launch.values import boolean, structure
from kvplan.evidence.launch.words import Given, read_words
from kvplan.records import Record


class Said(NamedTuple):
    """A flag that matters: as it was written, its value, and what it decides."""

    flag: str
    value: Any
    meaning: str


class Launch(Record):
    """A command line, understood.

    `options` are kvplan's own, `engine_flags` what only the engine's rules know; `refused` are sentences, and a
    launch that has some cannot be planned.
    """

    engine: str = "vllm"
    version: str | None = None  # of the container image; None where the command does not say
    model: str | None = None
    options: Mapping[str, Any]
    engine_flags: Mapping[str, Any]
    relevant: tuple[Said, ...] = ()
    irrelevant: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def check(self) -> Launch:
        """Itself; InputError with every reason why it cannot be planned."""
        if len(self.refused) == 1:
            raise InputError(f"--launch: {self.refused[0]}")
        if self.refused:
            raise InputError(
                "\n".join([f"--launch has {len(self.refused)} problems", *(f"  {r}" for r in self.refused)])
            )
        return self


def parse_launch(text: str) -> Launch:
    """What a pasted `vllm serve ...` (or its older forms, or docker run) starts; InputError when it is none."""
    command = find_command(text)
    words = read_words(command.words)
    arguments = _arguments(words.given)
    problems = list(words.problems)
    if words.positional:
        arguments.setdefault("model", words.positional[0])
        problems += [f"'{extra[:60]}' stands where a flag was expected" for extra in words.positional[1:]]
    meant = meaning_of(arguments)
    _environment(command.environment, meant)
    since = max((SINCE[each.flag.name] for each in words.given if each.flag.name in SINCE), default=None)
    if since:
        meant.engine_flags["since"] = since
    options = dict(meant.options)
    return Launch(
        version=command.version,
        model=options.pop("model", None),
        options=options,
        engine_flags=meant.engine_flags,
        relevant=tuple(_said(given) for given in words.given if given.flag.matters),
        irrelevant=tuple(_name(given.flag) for given in words.given if not given.flag.matters),
        refused=tuple(problems + meant.problems),
        notes=tuple(meant.notes),
    )


def _arguments(given: list[Given]) -> dict[str, Any]:
    """The last value of every flag; parts of JSON objects are put together."""
    found: dict[str, Any] = {}
    for each in given:
        name, value = each.flag.name, each.value
        before = found.get(name)
        if isinstance(value, dict) and before is not None:
            value = {**(structure(before) or {}), **value}
        found[name] = value
    return found


def _said(given: Given) -> Said:
    flag = given.flag
    return Said(_name(flag), given.value, flag.meaning or flag.refused or flag.note or "")


def _name(flag: Flag) -> str:
    return "--" + flag.name.replace("_", "-")


def _environment(environment: Mapping[str, str], found: Meaning) -> None:
    """Variables that change how memory is divided."""
    if boolean(environment.get("VLLM_USE_V1")) is False:
        found.engine_flags["v1"] = False
    estimate = environment.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    if boolean(estimate) is not None:
        found.engine_flags["graph_estimate"] = boolean(estimate)
    if boolean(environment.get("VLLM_MLA_DISABLE")):
        found.problems.append("VLLM_MLA_DISABLE: a latent cache stored as whole heads is not modelled")
    if "VLLM_ATTENTION_BACKEND" in environment:
        found.notes.append(f"VLLM_ATTENTION_BACKEND: {FLAGS['attention_backend'].note}")
    visible = environment.get("CUDA_VISIBLE_DEVICES") or environment.get("HIP_VISIBLE_DEVICES")
    needed = found.options.get("tp", 1) * found.options.get("pp", 1)
    if visible and len(visible.split(",")) < needed:
        found.notes.append(f"CUDA_VISIBLE_DEVICES shows {len(visible.split(','))} GPUs, tp x pp needs {needed}")
