"""Small made-up checkpoints: safetensors as the format's own text has it, with a config.json beside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from kvplan.importers.safetensors import DTYPE_BITS

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]  # type and shape by name


def header(tensors: Tensors, **metadata: str) -> tuple[bytes, int]:
    """The JSON of a header, and the bytes of data after it."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % 8), end


def raw(text: bytes, data: int) -> bytes:
    """A file of a header and so many bytes of nothing."""
    return len(text).to_bytes(8, "little") + text + bytes(data)


def write(path: Path, tensors: Tensors, *, sparse: bool = False) -> Path:
    """A file; a sparse one takes no room on the disk."""
    text, data = header(tensors, format="pt")
    path.write_bytes(raw(text, 0 if sparse else data))
    if sparse:
        with path.open("r+b") as file:
            file.truncate(8 + len(text) + data)
    return path


def write_shards(folder: Path, shards: Sequence[Tensors], *, index: bool = True, sparse: bool = False) -> Path:
    """A folder of shards and their index."""
    places: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write(folder / name, tensors, sparse=sparse)
        places |= dict.fromkeys(tensors, name)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 2048,
    "vocab_size": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}


def llama(dtype: str = "BF16", layers: int = 2) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of CONFIG."""
    found = {"model.embed_tokens.weight": (256, 64), "lm_head.weight": (256, 64), "model.norm.weight": (64,)}
    for i in range(layers):
        parts: dict[str, tuple[int, ...]] = {"input_layernorm": (64,), "post_attention_layernorm": (64,)}
        parts |= {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64)}
        parts |= {"self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64)}
        parts |= {"mlp.down_proj": (64, 128)}
        found |= {f"model.layers.{i}.{name}.weight": shape for name, shape in parts.items()}
    return {name: (dtype, shape) for name, shape in found.items()}


def model_folder(folder: Path, tensors: Tensors | None = None, **changes: Any) -> Path:
    """A folder with a config and its tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    write(folder / "model.safetensors", llama() if tensors is None else tensors)
    return folder
