"""GGUF headers against the gguf package; damaged ones are refused with a sentence, at once and within bounds."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from gguf_models import dense, in_block, keys, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traced_memory import traced_peak

from kvplan.errors import InputError, SpecError
from kvplan.formats import FORMATS
from kvplan.importers.gguf import import_gguf, read_gguf
from kvplan.importers.gguf_header import GGML_TYPES, read_file


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = {"attn_norm": (32,), "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    parts |= {"ffn_norm": (32,), "ffn_up": (64, 32), "ffn_gate": (64, 32), "ffn_down": (32, 64)}
    t = {"token_embd.weight": (8, 32), "output_norm.weight": (32,), **in_block(0, parts)}
    k = keys(1, embedding_length=32, attention__head_count=2, attention__head_count_kv=1)
    more = {"tokenizer.ggml.tokens": ["a", "bc"], "tokenizer.ggml.scores": [0.5, 1.5], "attention.causal": True}
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf", "llama", {**k, **more}, t)


def test_types_are_those_of_ggml() -> None:
    known = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    known[9] = (32, 36)  # Q8_1: the package has the 40 bytes of two f32, ggml-common.h two f16
    assert {kind: (block, size) for kind, (_, block, size) in GGML_TYPES.items()} == known
    for name, block, size in GGML_TYPES.values():
        if name in FORMATS:
            assert FORMATS[name].matrix_bytes(1, block) == size


def test_keys_and_tensors_are_read_as_the_package_reads_them(small: Path) -> None:
    found, reader = read_file(small), gguf.GGUFReader(small)
    for tensor, other in zip(found.tensors, reader.tensors, strict=True):
        assert tensor.name == other.name
        assert tensor.dimensions == tuple(int(d) for d in other.shape)
        assert tensor.bytes == int(other.n_bytes)
        assert tensor.elements == int(other.n_elements)
        assert GGML_TYPES[int(other.tensor_type)][0] == tensor.type
    assert found.keys["llama.block_count"] == 1
    assert found.keys["llama.attention.causal"] is True
    assert found.keys["tokenizer.ggml.tokens"] == (2,)  # only the length
    assert found.keys["tokenizer.ggml.scores"] == (0.5, 1.5)


def test_version_2_is_the_same(small: Path, tmp_path: Path) -> None:
    data = bytearray(small.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    older = tmp_path / "small.gguf"
    older.write_bytes(data)
    assert read_file(older).tensors == read_file(small).tensors


def header(keys: int = 0, tensors: int = 0, body: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + body + bytes(64)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str = "t", dimensions: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


DAMAGED = [
    (b"", "is empty"),
    (b"GGUF", "does not begin as a GGUF file"),
    (b"ggjt" + bytes(64), "does not begin as a GGUF file"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
    (header(version=1), "version 1; versions 2 and 3"),
    (header(keys=2**60), "keys do not fit"),
    (header(tensors=2**60), "tensors do not fit"),
    (header(1, body=struct.pack("<Q", 2**40)), "a key of 1,099,511,627,776 bytes"),
    (header(1, body=text("k") + struct.pack("<I", 99)), "unknown type of value 99"),
    (header(1, body=text("k") + struct.pack("<IIQ", 9, 8, 2**50)), "does not fit the file"),
    (header(1, body=text("k") + struct.pack("<IIQ", 9, 4, 2**50)), "in the middle of its header"),
    (header(1, body=text("k") + struct.pack("<IIQQ", 9, 8, 1, 2**63)), "in the middle of its header"),
    (header(1, body=text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 4), "nested more than 3 deep"),
    (header(1, body=text("k") + struct.pack("<IQ", 8, 2**62)), "in the middle of its header"),
    (header(1, body=text("k") + struct.pack("<IQ", 8, 1) + b"\xff"), "not UTF-8"),
    (header(2, body=(text("k") + struct.pack("<IB", 0, 1)) * 2), "'k' appears twice"),
    (header(0, 1, tensor("t" * 65)), "longer than 64"),
    (header(0, 1, tensor(dimensions=(1,) * 5)), "5 dimensions"),
    (header(0, 1, tensor(dimensions=(2**40, 2**40))), "damaged"),
    (header(0, 1, tensor(dimensions=(0,))), "damaged"),
    (header(0, 1, tensor(dimensions=(33,), kind=2)), "33 is not whole blocks of q4_0"),
    (header(0, 1, tensor(dimensions=(), kind=2)), "1 is not whole blocks of q4_0"),
    (header(0, 1, tensor(kind=77)), "ggml type 77"),
    (header(0, 1, tensor(dimensions=(2**20,))), "cut short"),
    (header(0, 1, tensor(offset=1)), "multiple of 32"),
    (header(0, 2, tensor("a", (16,)) + tensor("b", (16,))), "overlaps"),
    (header(0, 2, tensor("a", (8,)) + tensor("a", (8,), offset=32)), "two tensors of one name"),
    (header(1, body=text("general.alignment") + struct.pack("<II", 4, 7)), "multiple of 8"),
]


@pytest.mark.parametrize(("data", "said"), DAMAGED, ids=[said for _, said in DAMAGED])
def test_damage_is_told(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with traced_peak() as peak, pytest.raises(SpecError, match=said):
        read_file(path)
    assert peak.bytes < 2_000_000


def test_a_file_cut_at_any_byte_is_refused(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    for length in reversed(range(len(data) - 32)):  # the last 32 may be padding
        if length < 1600 or length % 997 == 0:
            os.truncate(path, length)
            with pytest.raises(SpecError):
                read_file(path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_never_break_the_reader(changes: list[tuple[int, int]], small: Path, tmp_path: Path) -> None:
    data = bytearray(small.read_bytes())
    for place, value in changes:
        data[place] = value
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with contextlib.suppress(InputError, SpecError):
        import_gguf(path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=300), keys=st.integers(0, 9), tensors=st.integers(0, 9))
def test_anything_behind_the_magic_is_refused_or_read(body: bytes, keys: int, tensors: int, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(header(keys, tensors, body))
    with contextlib.suppress(InputError, SpecError):
        import_gguf(path)


def split(tmp_path: Path) -> list[Path]:
    k, t = dense(4)
    write(tmp_path / "big.gguf", "llama", k, t, split_max_tensors=20)
    (tmp_path / "big.gguf").unlink(missing_ok=True)
    return sorted(tmp_path.glob("big-*.gguf"))


def test_every_part_of_a_split_file_counts(tmp_path: Path) -> None:
    parts = split(tmp_path)
    assert len(parts) == 2
    found = [read_gguf(part) for part in parts]
    assert found[0] == found[1]
    assert found[0].name == "big"
    assert found[0].bytes == sum(int(t.n_bytes) for part in parts for t in gguf.GGUFReader(part).tensors)
    assert len(import_gguf(parts[1]).stack) == 4


def rename(parts: list[Path]) -> None:
    parts[0].rename(parts[0].with_name("one.gguf"))


def swap(parts: list[Path]) -> None:
    other = parts[0].read_bytes()
    parts[0].write_bytes(parts[1].read_bytes())
    parts[1].write_bytes(other)


def uncounted(parts: list[Path]) -> None:
    data = parts[0].read_bytes()
    at = data.index(b"split.tensors.count") + len(b"split.tensors.count") + 4
    parts[0].write_bytes(data[:at] + struct.pack("<i", 5) + data[at + 4 :])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts[1].unlink(), "big-00002-of-00002.gguf is missing"),
        (rename, "not named like NAME-00001-of-00002"),
        (swap, "is not part 1 of 2"),
        (uncounted, "says 5, but the 2 parts hold 39"),
    ],
)
def test_a_wrong_set_of_parts_is_told(change: Callable[[list[Path]], object], said: str, tmp_path: Path) -> None:
    parts = split(tmp_path)
    change(parts)
    named = parts[0] if parts[0].exists() else parts[0].with_name("one.gguf")
    with pytest.raises(SpecError, match=said):
        read_gguf(named)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        read_file(tmp_path / "x.gguf")
    with pytest.raises(SpecError, match="is not a file"):
        read_file(tmp_path)
