"""The same shape decoded by transformers with its static cache, where transformers is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch

from kvplan.measure.rates import time_calls
from kvplan.measure.rows import Row, row

POINTS = ((1, 512), (1, 4096), (8, 4096))
REPEATS = 9


def rival_rows(device: str, *, tiny: bool) -> Iterator[Row]:
    """Steps at a few points; nothing but a note without transformers."""
    if find_spec("transformers") is None:
        yield row("transformers_step", "s", note="transformers is not installed")
        return
    model = _model(device, tiny)
    for batch, context in ((1, 32),) if tiny else POINTS:
        samples = time_calls(_step(model, batch, context), REPEATS if not tiny else 2, _synchronize(device))
        yield row(
            "transformers_step", "s", observed=median(samples), batch=batch, context_tokens=context, samples=samples,
            note="StaticCache, eager",
        )  # fmt: skip


def _model(device: str, tiny: bool) -> Any:
    import transformers

    sizes: dict[str, int] = {
        "hidden_size": 64 if tiny else 4096,
        "num_hidden_layers": 2 if tiny else 32,
        "num_attention_heads": 4 if tiny else 32,
        "num_key_value_heads": 2 if tiny else 8,
        "intermediate_size": 128 if tiny else 14336,
        "vocab_size": 512 if tiny else 128256,
    }
    dtype = torch.float32 if tiny else torch.bfloat16
    config = transformers.LlamaConfig(**sizes, attn_implementation="sdpa", max_position_embeddings=40000)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return transformers.LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def _step(model: Any, batch: int, context: int) -> Any:
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=context)
    tokens = torch.ones(batch, 1, dtype=torch.int64, device=model.device)
    position = torch.tensor([context - 1], device=model.device)

    def step() -> None:
        for layer in cache.layers:  # newer versions count the tokens themselves
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length.fill_(context - 1)
        with torch.inference_mode():
            model(tokens, past_key_values=cache, cache_position=position, use_cache=True, logits_to_keep=1)

    return step


def _synchronize(device: str) -> Any:
    return torch.cuda.synchronize if device == "cuda" else lambda: None
