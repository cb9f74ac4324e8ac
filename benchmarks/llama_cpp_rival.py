"""llama.cpp on the same weights, through the xllamacpp wheel: a GGUF file is written from our decoder and served.

Query and key rows are put in llama.cpp's order of rotary pairs (neighbours instead of halves).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kvplan.measure.decoder.decoder import Decoder

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
EDGES = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
NEW_TOKENS = 8
LONGEST = 2048 + 64


class Llama:
    """A server in this process; a step is the mean of a few generated tokens after a prompt that it keeps."""

    def __init__(self, shape: Any, dtype: str, decoder: Decoder) -> None:
        xllamacpp = import_module("xllamacpp")
        self.folder = tempfile.TemporaryDirectory(prefix="kvplan-gguf-")
        path = Path(self.folder.name) / "model.gguf"
        write_gguf(path, shape, dtype, decoder)
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.n_gpu_layers = LONGEST, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        params.warmup = False
        params.verbosity = -1
        self.server = xllamacpp.Server(params)

    def step_at(self, context: int) -> Callable[[], float]:
        """Seconds of one token that follows about `context` others."""
        prompt = [(7 * i) % 20000 + 300 for i in range(context - NEW_TOKENS // 2)]
        request = {
            "prompt": prompt,
            "n_predict": NEW_TOKENS,
            "cache_prompt": True,
            "ignore_eos": True,
            "temperature": 0,
        }

        def step() -> float:
            found = self.server.handle_completions(request)
            found = json.loads(found) if isinstance(found, str) else found
            return float(found["timings"]["predicted_per_token_ms"]) / 1000

        return step


def write_gguf(path: Path, shape: Any, dtype: str, decoder: Decoder) -> None:
    """A whole file with a vocabulary of bytes and fillers."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if dtype == "bf16" else gguf.LlamaFileType.ALL_F32)
    _vocabulary(writer, gguf, shape.vocab)
    for name, slot in decoder.slots():
        _add(writer, gguf, _name(name), _ordered(name, slot.target, shape), dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(writer: Any, gguf: Any, size: int) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokens += [f"word{i}" for i in range(size - len(tokens))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (size - 259)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)


def _name(ours: str) -> str:
    if ours in EDGES:
        return EDGES[ours]
    _, layer, rest = ours.split(".", 2)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def _ordered(name: str, tensor: Tensor, shape: Any) -> Tensor:
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return tensor
    rows, columns = tensor.shape
    return tensor.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def _add(writer: Any, gguf: Any, name: str, tensor: Tensor, dtype: str) -> None:
    """Norms stay in fp32, as llama.cpp has them."""
    if tensor.dim() == 1 or dtype == "fp32":
        writer.add_tensor(name, tensor.float().contiguous().numpy())
        return
    raw = tensor.contiguous().view(torch.int16).numpy().view(np.uint8)
    writer.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=gguf.GGMLQuantizationType.BF16)
