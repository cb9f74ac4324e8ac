"""safetensors headers: name, type, shape and place of every tensor. The weights themselves are never read.

Layout (safetensors, README): u64 length, a JSON object of that length, then the data without gaps.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kvplan.errors import Problem, SpecError
from kvplan.importers.config_json import read_json
from kvplan.specs.scalars import shown

# safetensors/src/tensor.rs, Dtype::bitsize
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
MAX_HEADER = 100_000_000  # tensor.rs, MAX_HEADER_SIZE
MAX_DIMENSIONS, MAX_NAME = 16, 1024
LARGEST = 2**53  # of a size in bytes: what JSON numbers hold exactly
INDEX = ".safetensors.index.json"
SUFFIX = ".safetensors"
_SHARD = re.compile(r"(.*-)(\d{1,6})-of-(\d{1,6})\.safetensors")


class TensorInfo(NamedTuple):
    """One tensor of a checkpoint; `offset` counts from the start of the data in its file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    file: str = ""

    @property
    def elements(self) -> int:
        """Elements of the shape; packed weights hold several in one."""
        return prod(self.shape)


def read_header(path: Path) -> list[TensorInfo]:
    """Every tensor of a file, an index or a folder of shards; SpecError says what is wrong with it."""
    found: list[TensorInfo] = []
    expected: dict[str, str] = {}
    if not path.is_dir() and not path.name.endswith(INDEX):
        return read_file_header(path)
    index = path if path.name.endswith(INDEX) else find_index(path)
    if index is not None:
        expected = weight_map(index)
        files = [index.parent / name for name in sorted(set(expected.values()))]
        _check_present(index, files)
    else:
        files = shards_of(path)
    for file in files:
        found += read_file_header(file)
    check_together(found, expected, str(index or path))
    return found


def find_index(folder: Path) -> Path | None:
    """The index of a folder; where there are several the usual name counts."""
    found = sorted(each for each in folder.iterdir() if each.name.endswith(INDEX))
    usual = [each for each in found if each.name == f"model{INDEX}"]
    if len(found) > 1 and not usual:
        refuse(str(folder), f"has {len(found)} indexes; name one of them: {', '.join(each.name for each in found[:4])}")
    return next(iter(usual or found), None)


def weight_map(index: Path) -> dict[str, str]:
    """Which file holds each tensor, as an index has it."""
    return checked_map(read_json(index).get("weight_map"), str(index))


def checked_map(mapping: Any, source: str) -> dict[str, str]:
    """The `weight_map` of an index, whose files lie beside it."""
    if not isinstance(mapping, dict) or not mapping:
        refuse(source, "has no 'weight_map' that names the file of each tensor; is it the index of a checkpoint?")
    for file in set(map(str, mapping.values())):
        if not file.endswith(SUFFIX) or file != os.path.basename(file) or "\\" in file or "\0" in file:
            refuse(source, f"weight_map names '{shown(file)}', which is not a safetensors file beside the index")
    return {name: str(file) for name, file in mapping.items()}


def _check_present(index: Path, files: list[Path]) -> None:
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        refuse(str(index), f"{', '.join(missing[:3])}{more} missing beside the index; fetch all of {len(files)} files")


def shards_of(folder: Path) -> list[Path]:
    """The safetensors files of a folder without an index: `model*` where other layouts lie beside it."""
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(SUFFIX) and each.is_file())
    if not names:
        refuse(str(folder), "has no safetensors files")
    chosen = [name for name in names if name.startswith("model")] or names
    for prefix, count in {(found[1], found[3]) for name in chosen if (found := _SHARD.fullmatch(name))}:
        there = [name for name in chosen if name.startswith(prefix) and name.endswith(f"-of-{count}{SUFFIX}")]
        if len(there) != int(count):
            wanted = (f"{prefix}{number:0{len(count)}}-of-{count}{SUFFIX}" for number in range(1, int(count) + 1))
            absent = next(name for name in wanted if name not in there)
            refuse(str(folder), f"{absent} is missing: {len(there)} of {int(count)} shards are there; fetch the others")
    return [folder / name for name in chosen]


def check_together(tensors: Iterable[TensorInfo], expected: dict[str, str], source: str) -> None:
    """No tensor twice over all shards, and each where the index has it."""
    seen: dict[str, str] = {}
    for tensor in tensors:
        if tensor.name in seen:
            refuse(source, f"tensor '{shown(tensor.name)}' is in {seen[tensor.name]} and in {tensor.file}")
        seen[tensor.name] = tensor.file
    for name, file in expected.items():
        if seen.get(name) != file:
            refuse(source, f"tensor '{shown(name)}' is not in {file}, where the index has it; fetch the files again")


def read_file_header(path: Path) -> list[TensorInfo]:
    """The tensors of one file; nothing beyond its header is read."""
    source = str(path)
    if path.exists() and not path.is_file():
        refuse(source, "is not a file")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = header_length(file.read(8), size, source)
            text = file.read(length)
    except FileNotFoundError:
        refuse(source, "there is no such file")
    except (OSError, ValueError) as error:
        refuse(source, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return parse_header(text, size - 8 - length, source)


def header_length(start: bytes, size: int, source: str) -> int:
    """Bytes of the JSON, from the first eight of a file of `size`."""
    if len(start) < 8:
        refuse(source, f"{size} bytes are too few for a safetensors file; fetch it again")
    length = int.from_bytes(start, "little")
    if length > MAX_HEADER:
        refuse(source, f"the header would take {length:,} bytes, more than {MAX_HEADER:,}; this is no safetensors file")
    if length > size - 8 or length < 2:
        refuse(
            source, f"a header of {length:,} bytes does not fit a file of {size:,}; it is cut short or of another kind"
        )
    return length


def parse_header(text: bytes, data_bytes: int, source: str) -> list[TensorInfo]:
    """The tensors of a header, checked against the bytes of data that follow it."""
    name = os.path.basename(source)
    values = _json(text, source)
    metadata = values.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        refuse(source, "__metadata__ is not a mapping")
    tensors = [_tensor(key, value, source)._replace(file=name) for key, value in values.items()]
    _check_places(tensors, data_bytes, source)
    return tensors


def _json(text: bytes, source: str) -> dict[str, Any]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            seen: set[str] = set()
            twice = next(key for key, _ in found if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            refuse(source, f"header names '{shown(twice)}' twice")
        return made

    try:
        values = json.loads(text.decode("utf-8"), object_pairs_hook=pairs, parse_int=_integer, parse_constant=_integer)
    except (ValueError, RecursionError) as error:
        refuse(
            source, f"the header is not valid JSON ({shown(str(error).partition(':')[0])}); is it a safetensors file?"
        )
    if not isinstance(values, dict):
        refuse(source, "the header is not a JSON object; is it a safetensors file?")
    return values


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= 20 and digits.lstrip("-").isdigit() else -1  # no size is longer, or NaN


def _tensor(name: str, value: Any, source: str) -> TensorInfo:
    def wrong(what: str) -> NoReturn:
        refuse(source, f"tensor '{shown(name)}': {what}")

    if len(name) > MAX_NAME:
        wrong(f"a name of {len(name):,} characters is longer than {MAX_NAME:,}")
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        wrong("expected dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        wrong(f"unknown type {shown(str(dtype))}; known: {', '.join(DTYPE_BITS)}")
    if not _sizes(shape) or len(shape) > MAX_DIMENSIONS:
        wrong(f"shape must be at most {MAX_DIMENSIONS} whole numbers of at least 0")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        wrong("data_offsets must be two whole numbers in order")
    elements = _bounded_product(shape)
    bits = None if elements is None else elements * DTYPE_BITS[dtype]
    if bits is None or bits % 8 or bits // 8 != offsets[1] - offsets[0]:
        wrong(
            f"shape {shown(str(shape))} of {dtype} does not take the {offsets[1] - offsets[0]:,} bytes of its offsets"
        )
    return TensorInfo(name, dtype, tuple(shape), offsets[0], offsets[1] - offsets[0])


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each <= LARGEST for each in value)


def _bounded_product(shape: list[int]) -> int | None:
    """The product, or None once it leaves the range of sizes."""
    if 0 in shape:
        return 0
    product = 1
    for each in shape:
        product *= each
        if product > LARGEST:
            return None
    return product


def _check_places(tensors: list[TensorInfo], data_bytes: int, source: str) -> None:
    """The data is the tensors one after another, with nothing between, before or after them."""
    end = 0
    for tensor in sorted(tensors, key=lambda each: (each.offset, each.bytes)):
        if tensor.offset != end:
            what = "overlaps the tensor before it" if tensor.offset < end else "leaves a gap before it"
            refuse(source, f"tensor '{shown(tensor.name)}' {what}, at byte {tensor.offset:,} of the data")
        end += tensor.bytes
    if end != data_bytes:
        what = "the file is cut short" if end > data_bytes else "bytes at the end belong to no tensor"
        refuse(source, f"the tensors take {end:,} bytes and the file holds {data_bytes:,}: {what}; fetch it again")


def refuse(source: str, message: str) -> NoReturn:
    """Stop with a sentence about a file."""
    raise SpecError(source, [Problem(None, "", message)])
