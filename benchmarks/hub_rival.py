"""transformers with our decoder's weights: steps with a dynamic and with a static cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from decode_report import Case

from kvplan.measure.decoder.decoder import Decoder

Step = Callable[[], object]


def hub_model(shape: Any, decoder: Decoder) -> Any:
    """transformers' Llama that shares the decoder's numbers: copies, since ours are put in another order."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, intermediate_size=shape.inner, vocab_size=shape.vocab,
        tie_word_embeddings=shape.tied, max_position_embeddings=4096, rms_norm_eps=1e-5,
        attn_implementation="sdpa", torch_dtype=decoder.place.dtype,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    state = {f"model.{n}" if n != "lm_head.weight" else n: slot.target.clone() for n, slot in decoder.slots()}
    if shape.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True, strict=False)
    rotary = type(model.model.rotary_emb)(config)
    model.model.rotary_emb = rotary
    return model.eval()


def dynamic(model: Any, case: Case) -> Step:
    """Grows by a token at every step, as generation does, from a fresh copy of the same length each time."""
    from transformers import DynamicCache

    config = model.config
    size = (case.batch, config.num_key_value_heads, case.context - 1, config.hidden_size // config.num_attention_heads)
    kept = [[torch.randn(size, dtype=model.dtype) for _ in range(2)] for _ in range(config.num_hidden_layers)]
    tokens, position = torch.ones(case.batch, 1, dtype=torch.int64), torch.tensor([case.context - 1])

    def step() -> float:
        cache = DynamicCache()
        for index, (key, value) in enumerate(kept):
            cache.update(key[:, :, :-1], value[:, :, :-1], index)  # copied, as the first of two updates
        start = time.perf_counter()
        with torch.inference_mode():
            model(tokens, past_key_values=cache, cache_position=position, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start

    return step


def static(model: Any, case: Case) -> Step:
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=case.context)
    tokens = torch.ones(case.batch, 1, dtype=torch.int64)
    with torch.inference_mode():  # layers of the cache are made by the first token
        model(tokens, past_key_values=cache, cache_position=torch.tensor([0]), use_cache=True)

    def step() -> float:
        for layer in cache.layers:  # newer versions count the tokens themselves
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length.fill_(case.context - 1)
        position = torch.tensor([case.context - 1])
        start = time.perf_counter()
        with torch.inference_mode():
            model(tokens, past_key_values=cache, cache_position=position, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start

    return step
