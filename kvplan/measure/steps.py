"""Decode steps and prefills as they are timed, on each kind of device."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.cuda_graph import GraphedDecode
from kvplan.measure.decoder.decoder import Decoder

Work = Callable[[], object]
SPARE = 4  # steps before the timed ones: warm-ups of the capture, and of the timing


class Decoding:
    """Steps of one batch at several contexts: one cache on a CPU, a captured graph for each context on CUDA."""

    def __init__(self, decoder: Decoder, batch: int, contexts: list[int]) -> None:
        self.decoder, self.batch, self.contexts = decoder, batch, contexts
        self.tokens = torch.zeros(batch, dtype=torch.int64, device=decoder.place.device)
        self.graphs = decoder.place.device.type == "cuda"
        self.refused: str | None = None  # why steps run without a graph
        self.cache = None if self.graphs else ContiguousCache(decoder, batch=batch, capacity=max(contexts))
        if self.cache is not None:
            self.cache.pretend(max(contexts) - 1)

    def step_at(self, context: int, steps: int) -> Work:
        """A call that decodes the token that becomes number `context`; at most `steps` calls."""
        if self.cache is None:
            return self._graphed(context, steps)
        cache, decoder, tokens = self.cache, self.decoder, self.tokens

        def step() -> None:
            cache.seek(context - 1)
            decoder.step(tokens, cache)

        return step

    def _graphed(self, context: int, steps: int) -> Work:
        """A static cache reads all its slots at every length, so each step does the work of `context` tokens."""
        cache = StaticCache(self.decoder, batch=self.batch, capacity=context)
        cache.pretend(max(0, context - steps - SPARE))
        graph = GraphedDecode(self.decoder, cache)
        self.refused = graph.refused
        start = cache.length

        def step() -> None:
            if cache.length >= context:
                cache.seek(start)
            graph.step(self.tokens)

        return step


def prefill_of(decoder: Decoder, batch: int, tokens: int) -> Work:
    """A call that runs a prompt of random tokens into a cache that is used again."""
    device = decoder.place.device
    cache = ContiguousCache(decoder, batch=batch, capacity=tokens)
    generator = torch.Generator().manual_seed(tokens)
    prompt = torch.randint(0, decoder.model.vocab_size, (batch, tokens), generator=generator).to(device)

    def prefill() -> None:
        cache.seek(0)
        decoder.prefill(prompt, cache)

    return prefill
