"""safetensors headers against the package of that name; damage is refused with a sentence and within bounds."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from checkpoint_files import header, llama, raw, write, write_shards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traced_memory import traced_peak

from kvplan.errors import SpecError
from kvplan.importers.safetensors import DTYPE_BITS, read_file_header, read_header

# no F6 and C64: some releases of the package do not know them yet
EVERY_TYPE = {f"t.{name}": (name, (2, 8)) for name in DTYPE_BITS if not name.startswith(("F6", "C"))}

deserialize: Callable[[bytes], list[tuple[str, Any]]] = safetensors.deserialize


def test_files_of_the_package_are_read_back(tmp_path: Path) -> None:
    arrays = {
        name: np.zeros((3, index + 1), name)
        for index, name in enumerate(
            ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
        )
    }
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors", {"format": "np"})
    found = {tensor.name: tensor for tensor in read_header(tmp_path / "a.safetensors")}
    assert {name: (t.shape, t.bytes) for name, t in found.items()} == {
        n: (a.shape, a.nbytes) for n, a in arrays.items()
    }
    assert {t.file for t in found.values()} == {"a.safetensors"}


def test_every_type_is_measured_as_the_package_measures_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {**EVERY_TYPE, "scalar": ("F32", ()), "none": ("F32", (0, 4))})
    ours = {tensor.name: (tensor.dtype, tensor.bytes) for tensor in read_header(path)}
    theirs = {name: (view["dtype"], len(view["data"])) for name, view in deserialize(path.read_bytes())}
    assert ours == theirs


def entry(shape: Any = (2,), dtype: Any = "F32", offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def text(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


DAMAGED = [
    (b"", "0 bytes are too few"),
    (b"\x02\0\0", "too few"),
    ((2**62).to_bytes(8, "little") + bytes(64), "more than 100,000,000"),
    ((4096).to_bytes(8, "little") + bytes(64), "does not fit a file"),
    (raw(b"\xff\xfe", 0), "not valid JSON"),
    (raw(b"[" * 5000, 0), "not valid JSON"),
    (raw(b"[1]", 0), "not a JSON object"),
    (raw(b'{"a":{},"a":{}}', 0), "names 'a' twice"),
    (raw(text(a=3), 8), "expected dtype, shape and data_offsets"),
    (raw(text(a={**entry(), "more": 1}), 8), "expected dtype"),
    (raw(text(**{"norm" * 999: entry()}), 8), "a name of 3,996 characters"),
    (raw(text(__metadata__=[1]), 0), "__metadata__ is not a mapping"),
    (raw(text(a=entry(dtype="F31")), 8), "unknown type F31"),
    (raw(text(a=entry(dtype=["F32"])), 8), "unknown type"),
    (raw(text(a=entry([-2])), 8), "at most 16 whole numbers"),
    (raw(text(a=entry([2.0])), 8), "at most 16 whole numbers"),
    (raw(text(a=entry([True, 2])), 8), "at most 16 whole numbers"),
    (raw(text(a=entry([2**70])), 8), "at most 16 whole numbers"),
    (raw(text(a=entry([1] * 17)), 8), "at most 16 whole numbers"),
    (raw(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', 8), "at most 16 whole numbers"),
    (raw(text(a=entry([2**40, 2**40])), 8), "does not take the 8 bytes"),
    (raw(text(a=entry([3])), 8), "does not take the 8 bytes"),
    (raw(text(a=entry([1], "F4", [0, 1])), 1), "does not take"),
    (raw(text(a=entry(offsets=[8, 0])), 8), "in order"),
    (raw(text(a=entry(offsets=[0])), 8), "in order"),
    (raw(text(a=entry(), b=entry()), 16), "overlaps the tensor before it"),
    (raw(text(a=entry(), b=entry(offsets=[4, 12])), 12), "overlaps"),
    (raw(text(a=entry(offsets=[8, 16])), 16), "leaves a gap"),
    (raw(text(a=entry(), b=entry(offsets=[16, 24])), 24), "leaves a gap"),
    (raw(text(a=entry()), 4), "the file is cut short"),
    (raw(text(a=entry()), 12), "belong to no tensor"),
]


@pytest.mark.parametrize(("data", "said"), DAMAGED, ids=[f"{n}-{said}" for n, (_, said) in enumerate(DAMAGED)])
def test_damage_is_told(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with traced_peak() as peak, pytest.raises(SpecError, match=said):
        read_file_header(path)
    assert peak.bytes < 2_000_000


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", {"a": ("F32", (2, 3)), "b": ("BF16", (5,))})
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        with pytest.raises(SpecError):
            read_header(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_what_is_accepted_is_accepted_by_the_package(changes: list[tuple[int, int]], tmp_path: Path) -> None:
    data = bytearray(raw(*header({"a": ("F32", (2, 3)), "bb": ("BF16", (5,)), "c": ("I8", (7, 1))}, format="pt")))
    for place, value in changes:
        data[place] = value
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    try:
        found = read_header(path)
    except SpecError:
        return
    theirs = {name: len(view["data"]) for name, view in deserialize(bytes(data))}
    assert {tensor.name: tensor.bytes for tensor in found} == theirs


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "a"]), inner),
        max_leaves=8,
    )
)
def test_any_json_is_refused_or_read(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(json.dumps(value).encode(), 0))
    with contextlib.suppress(SpecError):
        read_header(path)


def test_shards_with_and_without_an_index(tmp_path: Path) -> None:
    whole = llama()
    names = list(whole)
    parts = [{name: whole[name] for name in names[:9]}, {name: whole[name] for name in names[9:]}]
    write_shards(tmp_path, parts)
    found = read_header(tmp_path)
    assert {t.name: (t.dtype, t.shape) for t in found} == whole
    index = tmp_path / "model.safetensors.index.json"
    assert read_header(index) == found
    index.unlink()
    assert read_header(tmp_path) == found
    write(tmp_path / "consolidated.safetensors", whole)  # the same weights in another layout
    assert read_header(tmp_path) == found


def without_a_shard(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


def without_index_and_shard(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    without_a_shard(folder)


def twice(folder: Path) -> None:
    write(folder / "model-00002-of-00002.safetensors", {"a": ("F32", (2,))})


def elsewhere(folder: Path) -> None:
    write(folder / "model-00002-of-00002.safetensors", {"c": ("F32", (2,))})


def mapped(**places: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places or 3}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_shard, "model-00002-of-00002.safetensors missing beside the index"),
        (without_index_and_shard, "model-00002-of-00002.safetensors is missing: 1 of 2 shards"),
        (twice, "'a' is in model-00001-of-00002.safetensors and in model-00002"),
        (elsewhere, "'b' is not in model-00002-of-00002.safetensors"),
        (mapped(), "no 'weight_map'"),
        (mapped(a="../x.safetensors"), "not a safetensors file beside the index"),
        (mapped(a="/etc/passwd"), "not a safetensors file beside the index"),
        (mapped(a="x.bin"), "not a safetensors file beside the index"),
        (mapped(a=7), "not a safetensors file beside the index"),
    ],
)
def test_a_wrong_set_of_shards_is_told(change: Callable[[Path], object], said: str, tmp_path: Path) -> None:
    write_shards(tmp_path, [{"a": ("F32", (2,))}, {"b": ("F32", (2,))}])
    change(tmp_path)
    with pytest.raises(SpecError, match=said):
        read_header(tmp_path)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        read_header(tmp_path / "a.safetensors")
    with pytest.raises(SpecError, match="has no safetensors files"):
        read_header(tmp_path)
    (tmp_path / "b.safetensors").mkdir()
    with pytest.raises(SpecError, match="is not a file"):
        read_file_header(tmp_path / "b.safetensors")


def test_forty_shards_of_a_terabyte_take_milliseconds_each(tmp_path: Path) -> None:
    # 40 shards of 512 tensors of 50 MB: sparse files, of which nothing but the headers is there
    shard = {f"model.layers.{{}}.mlp.experts.{i}.up_proj.weight": ("BF16", (5000, 5000)) for i in range(512)}
    write_shards(tmp_path, [{n.format(s): each for n, each in shard.items()} for s in range(40)], sparse=True)
    with traced_peak() as peak:
        began = time.perf_counter()
        found = read_header(tmp_path)
        took = time.perf_counter() - began
    assert len(found) == 40 * 512
    assert sum(t.bytes for t in found) == 40 * 512 * 50_000_000
    assert peak.bytes < 40_000_000  # 32 MiB of it a buffer for the index, which is filled as far as the file goes
    assert took < 8  # tracing makes it some ten times slower
