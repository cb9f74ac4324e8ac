"""Decode steps replayed from a CUDA graph: one launch a step instead of one for every kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from kvplan.measure.decoder.cache.static import StaticCache
from kvplan.measure.decoder.decoder import Decoder

WARM_UPS = 3  # before capture, on a stream of their own: libraries allocate their workspaces at first use


class GraphedDecode:
    """`decoder.step` on fixed buffers; `refused` says why it runs step by step instead."""

    def __init__(self, decoder: Decoder, cache: StaticCache) -> None:
        self.decoder, self.cache = decoder, cache
        self.graph: torch.cuda.CUDAGraph | None = None
        self.refused: str | None = None
        self.tokens = torch.zeros(cache.batch, dtype=torch.int64, device=decoder.place.device)
        self.logits = torch.empty(0)
        if decoder.place.device.type != "cuda":
            self.refused = "graphs are captured on CUDA devices only"
            return
        try:
            self._capture()
        except RuntimeError as error:  # such as experts, whose choice the host has to know
            self.graph = None
            self.refused = str(error).splitlines()[0]
            torch.cuda.synchronize(decoder.place.device)

    @torch.inference_mode()
    def _capture(self) -> None:
        start, device = self.cache.length, self.decoder.place.device
        try:
            stream = torch.cuda.Stream(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self.decoder.step(self.tokens, self.cache)
                    self.cache.seek(start)  # the next step overwrites what this one stored
            torch.cuda.current_stream(device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.logits = self.decoder.step(self.tokens, self.cache)
            self.graph = graph
        finally:
            torch.cuda.synchronize(device)
            self.cache.seek(start)

    def step(self, tokens: Tensor) -> Tensor:
        """One more token of each conversation; the logits (B, vocabulary) are overwritten by the next call."""
        if self.graph is None:
            return self.decoder.step(tokens, self.cache)
        self.cache.check_room(1)
        self.tokens.copy_(tokens)
        self.graph.replay()  # advances the position on the device
        self.cache.length += 1
        return self.logits
