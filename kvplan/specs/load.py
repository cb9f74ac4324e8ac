"""From what people write to specs: a zoo name, an alias or a hub id, or a file of their own."""

from __future__ import annotations

from pathlib import Path

from kvplan.errors import InputError
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import parse_gpu
from kvplan.specs.model import ModelSpec, load_model_file

_NOT_YET = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth")


def load_model(name: str | Path) -> ModelSpec:
    """The model of a zoo name, an alias, a hub id or a YAML file; raises InputError or SpecError."""
    text = str(name)
    if text.lower().endswith(_NOT_YET):
        raise InputError(
            f"'{text}' cannot be read yet; write a model file in YAML (`kvplan schema model` describes it)"
        )
    if text and Path(text).is_dir():
        raise InputError(f"'{text}' is a directory, which cannot be read yet; name a model or a YAML file of one")
    if isinstance(name, Path) or zoo.is_path(text):
        return load_model_file(Path(text))
    return load_model_file(zoo.find("models", text))


def load_gpu(name: str | Path) -> GpuSpec:
    """The GPU of a name such as h100-sxm or h100-sxm:1g.10gb, a YAML file, or `local`.

    Raises InputError, SpecError, and for `local` NoDeviceError or MissingPackageError.
    """
    choice = parse_gpu(str(name))
    if choice.count is not None:
        raise InputError(f"'{name}' is {choice.count} GPUs; name one of them here")
    return choice.gpu
