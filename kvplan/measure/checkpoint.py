"""Real weights: a checkpoint folder as published on the Hugging Face hub, read through memory maps.

Every name and shape is checked before a byte is copied, and all that does not fit is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvplan.errors import InputError, MissingPackageError
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.hub_config import checked_type, disagreements, numerics_from, read_json
from kvplan.measure.decoder.numerics import Numerics

FLOATS = ("F64", "F32", "F16", "BF16")
LISTED = 20  # problems shown of one checkpoint
_IGNORED = re.compile(r"\.rotary_emb\.inv_freq$")  # buffers that old Llama checkpoints carry
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_EXPERT = re.compile(r"\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.")


class Stored(NamedTuple):
    """A tensor of the checkpoint: the open file, its name there, shape and format."""

    file: Any
    name: str
    shape: tuple[int, ...]
    dtype: str

    def read(self) -> Tensor:
        """The tensor, mapped from the file."""
        return self.file.get_tensor(self.name)


def checkpoint_numerics(folder: str | Path) -> Numerics:
    """The constants of a checkpoint's config.json, for `build_decoder(numerics=...)`."""
    return numerics_from(_config(Path(folder)))


def load_checkpoint(decoder: Decoder, folder: str | Path) -> None:
    """Fill a decoder, built with `checkpoint_numerics(folder)` and not packed yet, with a checkpoint's weights.

    Raises InputError with all tensors that are missing, left over or of another shape.
    """
    folder = Path(folder)
    config = _config(folder)
    if decoder.numerics != numerics_from(config):
        raise ValueError("build the decoder with numerics=checkpoint_numerics(folder)")
    with ExitStack() as files:
        stored = {our_name(t.name): t for path in _paths(folder) for t in _tensors(path, files)}
        problems = [*disagreements(config, decoder.model), *_mismatches(decoder, stored)]
        if problems:
            raise InputError(_told(folder, decoder, problems))
        with torch.inference_mode():
            for name, slot in decoder.slots():
                slot.fill(stored[name].read())


def load_tokenizer(folder: str | Path) -> Any:
    """The checkpoint's tokenizer (`encode(text).ids`, `decode(ids)`)."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingPackageError("a prompt needs the tokenizers package; install it: pip install tokenizers") from None
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{folder} has no tokenizer.json, which a prompt needs")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more precise
        raise InputError(f"{path} is no tokenizer: {error}") from None


def our_name(hub_name: str) -> str:
    """A hub name as the decoder's slots have it."""
    name = hub_name.removeprefix("model.")
    name = _EXPERT.sub(lambda found: f".mlp.experts.{found[1]}.{_MIXTRAL[found[2]]}.", name)
    return name.replace(".block_sparse_moe.gate.", ".mlp.gate.").replace(".shared_experts.", ".shared_expert.")


def _config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(f"--checkpoint {folder}: no such folder; give one with config.json and safetensors files")
    config = read_json(folder / "config.json")
    checked_type(config, folder)
    return config


def _paths(folder: Path) -> list[Path]:
    """The safetensors files: those of the index, or the only one."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        if not single.is_file():
            raise InputError(f"{folder} has neither model.safetensors nor model.safetensors.index.json")
        return [single]
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(s, str) and Path(s).name == s for s in shards.values()):
        raise InputError(f"{index}: expected a weight_map from tensors to files of the same folder")
    paths = [folder / name for name in sorted(set(shards.values()))]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        raise InputError(f"{folder} lacks {', '.join(absent)}, named in {index.name}; copy or download them")
    return paths


def _tensors(path: Path, files: ExitStack) -> Iterator[Stored]:
    """What a file holds, by its header; the file stays open until `files` is closed."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingPackageError("--checkpoint needs safetensors; install it: pip install safetensors") from None
    try:
        file = files.enter_context(safe_open(str(path), framework="pt"))
    except (SafetensorError, OSError) as error:
        message = f"{path} is not a whole safetensors file ({error}); copy or download it again"
        raise InputError(message) from None
    for name in file.keys():  # noqa: SIM118  # not a dict
        part = file.get_slice(name)
        yield Stored(file, name, tuple(part.get_shape()), part.get_dtype())


def _mismatches(decoder: Decoder, stored: dict[str, Stored]) -> Iterator[str]:
    """Tensors that are missing, of another shape or format, and left over."""
    slots = dict(decoder.slots())
    for name, slot in slots.items():
        if name not in stored:
            yield f"missing: {name} {_shape(slot.full)}"
        elif stored[name].shape != slot.full:
            yield f"shape: {stored[name].name} is {_shape(stored[name].shape)}, expected {_shape(slot.full)}"
        elif stored[name].dtype not in FLOATS:
            yield f"format: {stored[name].name} is {stored[name].dtype}; quantised checkpoints are not read"
    for name, tensor in stored.items():
        if name not in slots and not _passed_over(name, decoder):
            yield f"left over: {tensor.name} {_shape(tensor.shape)}"


def _passed_over(name: str, decoder: Decoder) -> bool:
    """Tensors that may be there unused: buffers, a second copy of a tied head, layers that were cut off."""
    layer = re.match(r"layers\.(\d+)\.", name)
    cut = layer is not None and int(layer[1]) >= len(decoder.layers)
    return cut or bool(_IGNORED.search(name)) or (name == "lm_head.weight" and decoder.model.tied)


def _told(folder: Path, decoder: Decoder, problems: list[str]) -> str:
    start = f"{folder} does not hold {decoder.model.name}"
    if len(problems) == 1:
        return f"{start}: {problems[0]}"
    more = [f"... and {len(problems) - LISTED} more"] if len(problems) > LISTED else []
    lines = "\n".join(f"  {line}" for line in [*problems[:LISTED], *more])
    return f"{start}: {len(problems)} problems\n{lines}"


def _shape(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))
