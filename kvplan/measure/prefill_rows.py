"""Prompts: predicted from one layer of each kind at one length, observed over all layers at every length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

import torch

from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.parts import LayerTime, layer_times
from kvplan.measure.rates import time_calls
from kvplan.measure.reached import prefill_point
from kvplan.measure.rows import Row
from kvplan.measure.setting import Setting
from kvplan.measure.steps import prefill_of

LAYER_TOKENS = {"cpu": 256, "mps": 512, "cuda": 2048}  # of the layer that a prediction is made from
LAYER_REPEATS, PROMPT_REPEATS = 2, 3


def prompts(s: Setting) -> list[int]:
    """The lengths that are run, one prompt at a time."""
    return sorted({context for _, context in s.points if context <= s.prompt})


def prefill_rows(s: Setting, decoder: Decoder) -> Iterator[Row]:
    """Each length; layers and prompts take turns, so that both see the same machine."""
    tokens = min(LAYER_TOKENS[s.observer.device.type], s.prompt)
    for prompt in prompts(s):
        s.progress.begin(f"prefill of {prompt} tokens")
        work, samples, predicted = prefill_of(decoder, 1, prompt), [], []
        work()  # a warm-up
        for _ in range(PROMPT_REPEATS):
            if s.group.size == 1:  # layers of a divided model wait for each other
                layers = layer_times(decoder, tokens, LAYER_REPEATS, s.observer.synchronize)
                predicted.append(_predicted_s(s, decoder, layers, prompt))
            samples.append(_seconds(s, work))
        yield from prefill_point(s, samples, median(predicted) if predicted else None, 1, prompt)


def _seconds(s: Setting, work: Callable[[], object]) -> float:
    s.observer.synchronize()
    start = perf_counter()
    work()
    s.observer.synchronize()
    return perf_counter() - start


def _predicted_s(s: Setting, decoder: Decoder, layers: list[LayerTime], prompt: int) -> float:
    x = torch.full((1, decoder.model.hidden_size), 0.1, device=s.place.device, dtype=s.place.dtype)
    with torch.inference_mode():
        head = median(time_calls(lambda: decoder.head(x), LAYER_REPEATS, s.observer.synchronize))
    return sum(layer.seconds(prompt) for layer in layers) + head
