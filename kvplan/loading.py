"""From what people write to specs: a zoo name, an alias or a hub id, or a file of their own."""

from __future__ import annotations

from pathlib import Path

from kvplan.errors import InputError
from kvplan.importers.zoo_checkpoints import load_checkpoint
from kvplan.specs import zoo
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import parse_gpu
from kvplan.specs.model import ModelSpec, load_model_file

_CHECKPOINTS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth", ".ckpt", ".pkl")


def load_model(name: str | Path) -> ModelSpec:
    """The model of a zoo name, an alias, a hub id, a YAML file, or a checkpoint; raises InputError or SpecError.

    A checkpoint is a folder, a config.json, safetensors, a GGUF file, or `hf:ORG/NAME` on the hub.
    """
    text = str(name)
    if text.startswith("hf:") or text.lower().endswith(_CHECKPOINTS) or (text and Path(text).is_dir()):
        from kvplan.importers.checkpoint import import_model  # not needed for the zoo

        return import_model(text)
    if isinstance(name, Path) or zoo.is_path(text):
        return load_model_file(Path(text))
    return load_checkpoint(text) or load_model_file(zoo.find("models", text))


def load_gpu(name: str | Path) -> GpuSpec:
    """The GPU of a name such as h100-sxm or h100-sxm:1g.10gb, a YAML file, or `local`.

    Raises InputError, SpecError, and for `local` NoDeviceError or MissingPackageError.
    """
    choice = parse_gpu(str(name))
    if choice.count is not None:
        raise InputError(f"'{name}' is {choice.count} GPUs; name one of them here")
    return choice.gpu
