"""A GGUF file, or all parts of a split one: its keys, its tensors, and the model they make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kvplan.importers.gguf_header import GgufFile, GgufTensor, Value, read_file, refuse
from kvplan.importers.gguf_model import build
from kvplan.specs.model import ModelSpec
from kvplan.specs.scalars import shown

SUFFIX = ".gguf"
MAX_PARTS = 1000
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class Gguf(NamedTuple):
    """All that the headers of a model say."""

    source: str
    name: str
    keys: dict[str, Value]
    tensors: list[GgufTensor]
    parts: int = 1

    @property
    def bytes(self) -> int:
        """Exact bytes of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors)


def import_gguf(path: Path) -> ModelSpec:
    """The model of a GGUF file; SpecError says what is wrong with the file or not understood in it."""
    return model_of(read_gguf(path))


def model_of(found: Gguf) -> ModelSpec:
    """The model that keys and tensors make."""
    return build(found.source, found.name, found.keys, found.tensors)


def read_gguf(path: Path) -> Gguf:
    """One file, or every part of a split model when any of them is named; a part that is missing is told."""
    first = read_file(path)
    count = first.keys.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= MAX_PARTS:
        refuse(first.source, f"must be a number of files up to {MAX_PARTS}", "split.count")
    if count <= 1:
        return Gguf(first.source, _name(path.name.removesuffix(SUFFIX)), first.keys, first.tensors)
    named = _PART.fullmatch(path.name)
    if not named or int(named[3]) != count:
        refuse(first.source, f"is one of {count} files, but is not named like NAME-00001-of-{count:05}.gguf")
    paths = [path.with_name(f"{named[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [each.name for each in paths if not each.is_file()]
    if missing:
        refuse(first.source, f"{missing[0]} is missing ({len(missing)} of {count} files); fetch all of them")
    parts = [first if each == path else read_file(each) for each in paths]
    return Gguf(str(paths[0]), _name(named[1]), parts[0].keys, _together(parts), count)


def _together(parts: list[GgufFile]) -> list[GgufTensor]:
    for number, part in enumerate(parts):
        if part.keys.get("split.no") != number or part.keys.get("split.count") != len(parts):
            refuse(part.source, f"is not part {number + 1} of {len(parts)}, as its name says", "split.no")
    tensors = [tensor for part in parts for tensor in part.tensors]
    if len({tensor.name for tensor in tensors}) != len(tensors):
        refuse(parts[0].source, "two of its parts hold a tensor of one name")
    stated = parts[0].keys.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        message = f"says {shown(str(stated))}, but the {len(parts)} parts hold {len(tensors)}; fetch them again"
        refuse(parts[0].source, message, "split.tensors.count")
    return tensors


def _name(stem: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", stem.lower()).strip("-._") or "model"
