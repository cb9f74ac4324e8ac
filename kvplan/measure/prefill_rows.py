"""Prompts: predicted from one layer of each kind at one length, observed over all layers at every length."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import torch

from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.parts import LayerTime, layer_times
from kvplan.measure.rates import time_calls
from kvplan.measure.reached import prefill_point
from kvplan.measure.rows import Row
from kvplan.measure.setting import Setting
from kvplan.measure.steps import prefill_of

LAYER_TOKENS = {"cpu": 256, "mps": 512, "cuda": 2048}  # of the layer that a prediction is made from
LAYER_REPEATS, PROMPT_REPEATS = 5, 3


def prompts(s: Setting) -> list[int]:
    """The lengths that are run, one prompt at a time."""
    return sorted({context for _, context in s.points if context <= s.prompt})


def prefill_rows(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """Each length; the layers are timed right before it, so that both see the same machine."""
    tokens = min(LAYER_TOKENS[s.observer.device.type], s.prompt)
    for prompt in prompts(s):
        s.progress.begin(f"prefill of {prompt} tokens")
        predicted = None
        if s.group.size == 1:
            layers = layer_times(decoder, tokens, LAYER_REPEATS, s.observer.synchronize)
            predicted = _predicted_s(s, decoder, layers, prompt)
        samples = time_calls(prefill_of(decoder, 1, prompt), PROMPT_REPEATS, s.observer.synchronize)
        yield from prefill_point(s, samples, predicted, 1, prompt)


def _predicted_s(s: Setting, decoder: Decoder, layers: list[LayerTime], prompt: int) -> float:
    x = torch.full((1, decoder.model.hidden_size), 0.1, device=s.place.device, dtype=s.place.dtype)
    with torch.inference_mode():
        head = median(time_calls(lambda: decoder.head(x), LAYER_REPEATS, s.observer.synchronize))
    return sum(layer.seconds(prompt) for layer in layers) + head
