"""GGUF headers: keys and tensors of versions 2 and 3, every count and length bounded before anything is kept.

Layout (ggml, docs/gguf.md): magic, u32 version, u64 tensors, u64 keys; the keys; the tensors; padding; the data. The
arrays of a tokenizer are stepped over: of them only the length is kept.
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import NamedTuple, NoReturn

from kvplan.errors import Problem, SpecError
from kvplan.specs.scalars import shown

# ggml.h, enum ggml_type, with elements and bytes of a block (ggml-common.h)
GGML_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 36), 10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98), 19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110), 22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1), 25: ("i16", 1, 2), 26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56), 30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66),
    39: ("mxfp4-ggml", 32, 17), 40: ("nvfp4-ggml", 64, 36), 41: ("q1_0", 128, 18),
}  # fmt: skip
VERSIONS = (2, 3)
MAX_KEPT = 4096  # values of an array: a figure for each layer
MAX_TEXT = 65535  # bytes of a key or of a text that is kept
MAX_NAME = 64  # ggml.h, GGML_MAX_NAME
MAX_DEPTH = 3  # of arrays in arrays
MAX_KEYS, MAX_TENSORS = 100_000, 1_000_000
MAX_DIMENSIONS = 4  # ggml.h, GGML_MAX_DIMS
LARGEST = 2**53
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_BOOL, _TEXT, _ARRAY = 7, 8, 9
_LEAST_KEY, _LEAST_TENSOR = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8  # bytes that one takes at the least


class Skipped(NamedTuple):
    """An array that was not kept: how many values it has."""

    length: int


Value = int | float | str | bool | tuple[int | float | bool, ...] | Skipped


class GgufTensor(NamedTuple):
    """One tensor. Dimensions are as in the file, the length of a row first; `type` is a name of a format."""

    name: str
    type: str
    dimensions: tuple[int, ...]
    offset: int
    bytes: int

    @property
    def elements(self) -> int:
        """Weights of the tensor."""
        return prod(self.dimensions)


class GgufFile(NamedTuple):
    """What the header of one file says."""

    source: str
    version: int
    keys: dict[str, Value]
    tensors: list[GgufTensor]


def read_file(path: Path) -> GgufFile:
    """The header of one file; the data is mapped and not read."""
    source = str(path)
    if path.exists() and not path.is_file():
        refuse(source, "is not a file")
    try:
        with path.open("rb") as file:
            if not file.read(1):
                refuse(source, "is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data, source).file()
    except FileNotFoundError:
        refuse(source, "there is no such file")
    except (OSError, ValueError) as error:
        refuse(source, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def refuse(source: str, message: str, key: str = "") -> NoReturn:
    """Stop with a sentence about a file or one of its keys."""
    raise SpecError(source, [Problem(None, key, message)])


class _Reader:
    """Walks over the header; every step is checked against the end of the file."""

    def __init__(self, data: mmap.mmap, source: str) -> None:
        self.data, self.source, self.size = data, source, len(data)
        self.at = 0

    def file(self) -> GgufFile:
        version, tensors, keys = self._start()
        values: dict[str, Value] = {}
        for _ in range(keys):
            name = self._text(MAX_TEXT, "a key")
            if name in values:
                refuse(self.source, f"key '{shown(name)}' appears twice")
            values[name] = self._value(self._number("I"), name)
        infos = [self._tensor() for _ in range(tensors)]
        return GgufFile(self.source, version, values, self._placed(infos, values))

    def _start(self) -> tuple[int, int, int]:
        if self.size < 24 or self._take(4) != b"GGUF":
            refuse(self.source, "does not begin as a GGUF file does; older GGML files must be converted again")
        version = self._number("I")
        if version not in VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                refuse(self.source, "is a big-endian GGUF file; convert it with gguf-convert-endian first")
            refuse(self.source, f"is of GGUF version {version}; versions {VERSIONS[0]} and {VERSIONS[1]} can be read")
        tensors, keys = self._number("Q"), self._number("Q")
        bounds = (("keys", keys, _LEAST_KEY, MAX_KEYS), ("tensors", tensors, _LEAST_TENSOR, MAX_TENSORS))
        for what, count, least, most in bounds:
            if count > min(most, (self.size - self.at) // least):
                refuse(self.source, f"{count:,} {what} do not fit a file of {self.size:,} bytes: cut short or damaged")
        return version, tensors, keys

    def _take(self, count: int) -> bytes:
        """The next bytes."""
        start = self._skip(count)
        return self.data[start : self.at]

    def _skip(self, count: int) -> int:
        """Step over bytes; where they began."""
        start = self.at
        if count > self.size - start:
            refuse(self.source, f"ends in the middle of its header, at byte {self.size:,}; fetch it again")
        self.at = start + count
        return start

    def _number(self, code: str) -> int:
        return int(struct.unpack_from("<" + code, self.data, self._skip(struct.calcsize("<" + code)))[0])

    def _text(self, longest: int, what: str) -> str:
        length = self._number("Q")
        if length > longest:
            refuse(self.source, f"{what} of {length:,} bytes at byte {self.at:,} is longer than {longest:,}: damaged")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            refuse(self.source, f"{what} at byte {self.at:,} is not UTF-8 text: the file is damaged")

    def _value(self, kind: int, key: str) -> Value:
        if kind in _SCALARS:
            return self._scalars(kind, 1)[0]
        if kind == _TEXT:
            return self._long_text(key)
        if kind == _ARRAY:
            return self._array(key, 1)
        refuse(self.source, f"unknown type of value {kind}", shown(key))

    def _scalars(self, kind: int, count: int) -> tuple[int | float | bool, ...]:
        code = f"<{count}{_SCALARS[kind]}"
        values = struct.unpack_from(code, self.data, self._skip(struct.calcsize(code)))
        return tuple(map(bool, values)) if kind == _BOOL else values

    def _long_text(self, key: str) -> Value:
        """A text, or its length where it is too long to be of use (a chat template)."""
        length = self._number("Q")
        if length > MAX_TEXT:
            self._skip(length)
            return Skipped(length)
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            refuse(self.source, "is not UTF-8 text: the file is damaged", shown(key))

    def _array(self, key: str, depth: int) -> Value:
        kind, count = self._number("I"), self._number("Q")
        if depth > MAX_DEPTH:
            refuse(self.source, f"arrays are nested more than {MAX_DEPTH} deep", shown(key))
        if kind in _SCALARS:
            if count <= MAX_KEPT:
                return self._scalars(kind, count)
            self._skip(count * struct.calcsize(_SCALARS[kind]))
        elif kind not in (_TEXT, _ARRAY):
            refuse(self.source, f"unknown type of value {kind}", shown(key))
        elif count > (self.size - self.at) // 8:
            refuse(self.source, f"an array of {count:,} values does not fit the file: cut short or damaged", shown(key))
        elif kind == _TEXT:
            self._skip_texts(count)
        else:
            for _ in range(count):
                self._array(key, depth + 1)
        return Skipped(count)

    def _skip_texts(self, count: int) -> None:
        """Step over texts; the vocabularies of a file have half a million."""
        at, size, length_at, data = self.at, self.size, struct.Struct("<Q").unpack_from, self.data
        for _ in range(count):
            if size - at < 8:
                break
            at += 8 + length_at(data, at)[0]
        else:
            if at <= size:
                self.at = at
                return
        refuse(self.source, f"ends in the middle of its header, at byte {self.size:,}; fetch it again")

    def _tensor(self) -> GgufTensor:
        name = self._text(MAX_NAME, "the name of a tensor")
        count = self._number("I")
        if count > MAX_DIMENSIONS:
            refuse(self.source, f"tensor '{shown(name)}' has {count} dimensions; ggml has at most {MAX_DIMENSIONS}")
        dimensions = tuple(self._number("Q") for _ in range(count))
        kind, offset = self._number("I"), self._number("Q")
        if kind not in GGML_TYPES:
            refuse(self.source, f"tensor '{shown(name)}' is of ggml type {kind}, whose size kvplan does not know")
        type_name, block, block_bytes = GGML_TYPES[kind]
        elements = 1
        for each in dimensions:
            elements *= each
            if elements > LARGEST or not each:
                refuse(self.source, f"tensor '{shown(name)}' has dimensions {shown(str(dimensions))}: damaged")
        row = dimensions[0] if dimensions else 1
        if row % block:
            refuse(self.source, f"tensor '{shown(name)}': a row of {row} is not whole blocks of {type_name}")
        return GgufTensor(name, type_name, dimensions, offset, elements // block * block_bytes)

    def _placed(self, tensors: list[GgufTensor], keys: dict[str, Value]) -> list[GgufTensor]:
        """The tensors once their places are checked: aligned, apart, inside the file, each name once."""
        alignment = keys.get("general.alignment", 32)
        if type(alignment) is not int or not 8 <= alignment <= 2**20 or alignment % 8:
            refuse(self.source, "must be a multiple of 8", "general.alignment")
        if len({tensor.name for tensor in tensors}) != len(tensors):
            refuse(self.source, "has two tensors of one name")
        start = -(-self.at // alignment) * alignment
        end = 0
        for tensor in sorted(tensors, key=lambda each: each.offset):
            if tensor.offset % alignment:
                refuse(self.source, f"tensor '{shown(tensor.name)}' does not begin at a multiple of {alignment}")
            if tensor.offset < end:
                refuse(self.source, f"tensor '{shown(tensor.name)}' overlaps the one before it")
            end = tensor.offset + tensor.bytes
            if start + end > self.size:
                past = f"tensor '{shown(tensor.name)}' ends at byte {start + end:,} of {self.size:,}"
                refuse(self.source, f"{past}: the file is cut short; fetch it again")
        return tensors
