"""What people have instead of a YAML: a model folder, a config, safetensors, GGUF or a model of the hub."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.importers.config import import_config
from kvplan.importers.config_json import read_json
from kvplan.importers.gguf import Gguf, model_of, read_gguf
from kvplan.importers.gguf_model import parts_of
from kvplan.importers.gguf_names import BUFFERS, HOST
from kvplan.importers.hub import PREFIX, Repository
from kvplan.importers.safetensors import INDEX, SUFFIX, TensorInfo, read_header
from kvplan.importers.safetensors_names import place
from kvplan.specs.model import ModelSpec
from kvplan.specs.scalars import shown

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class Found(NamedTuple):
    """One tensor of a checkpoint, whatever its kind of file."""

    name: str
    component: str
    parameters: int  # 0 for scales and buffers
    bytes: int
    dtype: str
    packed: str = ""
    host: bool = False  # llama.cpp keeps it in the memory of the host


class Checkpoint(NamedTuple):
    """What was found: the model where its config is there, and every tensor where their files are."""

    source: str
    kind: str  # config, safetensors or gguf
    model: ModelSpec | None
    tensors: list[Found]


def import_model(text: str) -> ModelSpec:
    """The model of a path or an `hf:` name; headers of safetensors are left alone. InputError or SpecError."""
    model = read_checkpoint(text, tensors=False).model
    if model is None:
        raise InputError(
            f"'{shown(text)}' has no config.json beside it, and tensors alone do not say heads or windows;"
            " put the config.json there, or write a model file in YAML (`kvplan schema model`)"
        )
    return model


def read_checkpoint(text: str, *, tensors: bool = True) -> Checkpoint:
    """All that a path or an `hf:` name holds; `tensors` false leaves out what the model does not need."""
    if text.startswith(PREFIX):
        return _from_hub(text, tensors)
    path = Path(text)
    low = path.name.lower()
    if low.endswith(PICKLES):
        raise InputError(
            f"'{shown(text)}' may hold a pickle, which runs code when it is opened; name its folder with config.json,"
            " or convert it to safetensors"
        )
    if path.is_dir():
        return _from_folder(path, tensors)
    if low.endswith(".gguf"):
        return _from_gguf(read_gguf(path))
    if low.endswith((SUFFIX, INDEX)):
        config = path.parent / "config.json"
        return _from_config(text, config if config.is_file() else None, path)
    return _from_config(text, path, None)


def _from_folder(folder: Path, tensors: bool) -> Checkpoint:
    config, names = folder / "config.json", sorted(each.name for each in folder.iterdir())
    has_tensors = any(name.endswith((SUFFIX, INDEX)) for name in names)
    if config.is_file():
        return _from_config(str(folder), config, folder if tensors and has_tensors else None)
    gguf = [name for name in names if name.lower().endswith(".gguf") and not name.lower().startswith("mmproj")]
    single = [name for name in gguf if "-of-" not in name or "-00001-of-" in name]
    if len(single) == 1:
        return _from_gguf(read_gguf(folder / single[0]))
    if gguf:
        listed = ", ".join(map(shown, single[:4]))
        raise InputError(f"'{folder}' has {len(single)} GGUF models; name one of the files: {listed}")
    if has_tensors:
        return _from_config(str(folder), None, folder)
    pickled = "; its *.bin or *.pt files are not opened" if any(name.endswith(PICKLES) for name in names) else ""
    raise InputError(f"'{folder}' has no config.json, safetensors or GGUF file{pickled}; name a model folder or file")


def _from_config(source: str, config: Path | None, files: Path | None) -> Checkpoint:
    model = import_config(config) if config else None
    found = read_header(files) if files else []
    return Checkpoint(source, "safetensors" if files else "config", model, _placed(found, model, config))


def _placed(tensors: list[TensorInfo], model: ModelSpec | None, config: Path | None) -> list[Found]:
    layers = len(model.stack) if model else None
    bits = _packed_bits(read_json(config)) if config and tensors else 4
    return [
        Found(each.tensor.name, each.component, each.parameters, each.tensor.bytes, each.tensor.dtype, each.packed)
        for each in place(tensors, layers, bits)
    ]


def _packed_bits(config: dict[str, Any]) -> int:
    """Bits of compressed-tensors' packed weights, which no shape tells."""
    inside = config.get("text_config")
    said = config.get("quantization_config") or (
        inside.get("quantization_config") if isinstance(inside, dict) else None
    )
    groups = said.get("config_groups") if isinstance(said, dict) else None
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        bits = weights.get("num_bits") if isinstance(weights, dict) else None
        if bits in (2, 4, 8):
            return int(bits)
    return 4


def _from_gguf(found: Gguf) -> Checkpoint:
    model = model_of(found)
    parts = parts_of(found.tensors, len(model.stack))
    return Checkpoint(
        found.source,
        "gguf",
        model,
        [
            Found(
                part.tensor.name,
                "buffers" if part.tensor.name.startswith(BUFFERS) else part.component,
                0 if part.tensor.name.startswith(BUFFERS) else part.tensor.elements,
                part.tensor.bytes,
                part.tensor.type,
                host=part.tensor.name in HOST,
            )
            for part in parts
        ],
    )


def _from_hub(text: str, tensors: bool) -> Checkpoint:
    repository = Repository(text)
    with _folder_of(repository) as folder:
        model = import_config(folder / "config.json")
        found = repository.tensors() if tensors else []
        placed = _placed(found, model, folder / "config.json")
    at = f" at {repository.commit or repository.revision}" if repository.commit or repository.revision else ""
    source = f"config.json of {repository.name}{at}"
    named = replace(model, source=(source,), aliases=(repository.name,))
    return Checkpoint(text, "safetensors" if found else "config", named, placed)


@contextmanager
def _folder_of(repository: Repository) -> Iterator[Path]:
    """A folder of the model's name with its config, for the importer of configs."""
    with tempfile.TemporaryDirectory(prefix="kvplan-") as temporary:
        folder = Path(temporary) / repository.name.rpartition("/")[2]
        folder.mkdir()
        for name, data in repository.config_files().items():
            (folder / name).write_bytes(data)
        yield folder
