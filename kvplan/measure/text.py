"""A checkpoint's own words: a prompt continued greedily."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import torch

from kvplan.errors import InputError
from kvplan.measure.checkpoint import load_tokenizer
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.generate import generate
from kvplan.measure.rows import Row, row
from kvplan.measure.setting import Setting


def text_row(s: Setting, decoder: Decoder) -> Row:
    """The prompt's continuation, and how fast it came."""
    assert s.options.checkpoint
    assert s.options.prompt
    tokenizer = load_tokenizer(s.options.checkpoint)
    prompt, new = prompt_text(s.options.prompt), s.options.new_tokens
    ids = tokenizer.encode(prompt).ids
    if not ids:
        raise InputError("--prompt holds no text")
    s.progress.begin(f"{new} tokens after a prompt of {len(ids)}")
    tokens = torch.tensor([ids], device=decoder.place.device)
    cache = ContiguousCache(decoder, batch=1, capacity=len(ids) + new)
    start = perf_counter()
    found = generate(decoder, cache, tokens, new)[0].tolist()
    seconds = perf_counter() - start
    text = tokenizer.decode(found)
    length = len(ids) + new
    return row("generation", "tokens/s", observed=new / seconds, context_tokens=length, prompt=prompt, text=text)


def prompt_text(given: str) -> str:
    """The text itself, or what the file of that name holds."""
    try:
        path = Path(given)
        return path.read_text("utf-8") if path.is_file() else given
    except OSError:  # a long text is no file name
        return given
