"""The decoder: embedding, layers, final norm, head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from kvplan.errors import InputError
from kvplan.measure.decoder.attention import Turn
from kvplan.measure.decoder.layer import Block
from kvplan.measure.decoder.linear import Linear
from kvplan.measure.decoder.norms import make_norm
from kvplan.measure.decoder.rope import RopeTable, rotary
from kvplan.measure.decoder.slots import Slot, whole
from kvplan.specs.layers import Rope

if TYPE_CHECKING:
    from kvplan.measure.decoder.cache.base import Cache
    from kvplan.measure.decoder.numerics import Numerics
    from kvplan.measure.decoder.parallel import Group
    from kvplan.measure.decoder.place import Place
    from kvplan.sharding import Rank


class Decoder(nn.Module):
    """One rank's part of a model; `build_decoder` checks the model and fills the weights."""

    def __init__(self, rank: Rank, numerics: Numerics, place: Place, group: Group) -> None:
        super().__init__()
        model = rank.model
        self.rank, self.model, self.numerics, self.place, self.group = rank, model, numerics, place, group
        self.embedding = place.empty(rank.vocab_rows, model.hidden_size)
        self.learned = place.empty(model.learned_positions, model.hidden_size) if model.learned_positions else None
        self.embedding_norm = (
            make_norm(model.norm, model.hidden_size, numerics, place) if model.embedding_norm else None
        )
        self.layers = nn.ModuleList(Block(layer, model, numerics, place, group) for layer in rank.layers)
        self.final_norm = make_norm(model.norm, model.hidden_size, numerics, place) if model.final_norm else None
        self.head = Linear(rank.vocab_rows, model.hidden_size, place, bias=model.head_bias)
        if model.tied:
            self.head.weight = self.embedding
        attentions = [block.attention for block in self.layers if block.attention is not None]
        self.kept = tuple(attention.kept for attention in attentions)
        for index, attention in enumerate(attentions):
            attention.layer_index = index
        self.tables = self._rope_tables()
        self.weight_bytes = sum(p.nbytes for p in self.parameters())  # as built; packing does not change it

    @torch.inference_mode()
    def forward(self, tokens: Tensor) -> Tensor:
        """Everything recomputed: (B, T) to the logits of every token, (B, T, vocabulary)."""
        self.reserve_positions(tokens.shape[1])
        return self._logits(self._run(tokens, slice(0, tokens.shape[1]), None))

    @torch.inference_mode()
    def prefill(self, tokens: Tensor, cache: Cache, *, every: bool = False) -> Tensor:
        """Prompts (B, T) into an empty cache; the logits of the last token (B, vocabulary), or of every one."""
        x = self._run(tokens, cache.begin(tokens.shape[1]), cache)
        cache.advance(tokens.shape[1])
        return self._logits(x) if every else self._logits(x[:, -1])

    @torch.inference_mode()
    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """One more token of each conversation, (B,), to the logits of the next, (B, vocabulary)."""
        x = self._run(tokens.unsqueeze(1), cache.begin(1), cache)
        cache.advance(1)
        return self._logits(x[:, 0])

    def _run(self, tokens: Tensor, positions: slice | Tensor, cache: Cache | None) -> Tensor:
        turn = Turn([table.at(positions) for table in self.tables], cache)
        x = self._embed(tokens, positions)  # (B, T, M)
        for layer in self.layers:
            x = layer(x, turn)
        return x if self.final_norm is None else self.final_norm(x)

    def _embed(self, tokens: Tensor, positions: slice | Tensor) -> Tensor:
        x = self._looked_up(tokens)
        if self.numerics.embedding_scale != 1:
            x = x * torch.tensor(self.numerics.embedding_scale, dtype=x.dtype)  # rounded first, as Gemma does
        if self.learned is not None:
            x = x + self.learned[positions]
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def _looked_up(self, tokens: Tensor) -> Tensor:
        """Rows of the embedding; each rank has its own rows and zeros for the others'."""
        if self.group.size == 1:
            return functional.embedding(tokens, self.embedding)
        local = tokens - self.group.rank * self.rank.vocab_rows
        here = (local >= 0) & (local < self.rank.vocab_rows)
        rows = functional.embedding(local.where(here, 0), self.embedding)
        return self.group.sum(rows.masked_fill_(~here.unsqueeze(-1), 0))

    def _logits(self, x: Tensor) -> Tensor:
        logits = self.group.join(self.head(x))
        return logits[..., : self.model.vocab_size] if self.group.size > 1 else logits  # without the padded rows

    def reserve_positions(self, length: int) -> None:
        """Rotary tables of this length; raises InputError beyond a learned position table."""
        if self.learned is not None and length > len(self.learned):
            raise InputError(f"{self.model.name} has learned positions for {len(self.learned)} tokens, not {length}")
        for table in self.tables:
            table.reserve(length)

    def _rope_tables(self) -> list[RopeTable]:
        """One table for each kind of rotary positions; each attention layer learns which is its own."""
        numbers: dict[tuple[Rope, int], int] = {}
        for block, layer in zip(self.layers, self.rank.layers, strict=True):
            if positions := rotary(layer, self.model.rope):
                block.attention.table = numbers.setdefault(positions, len(numbers))
        return [RopeTable(rope, width, self.place, self.numerics) for rope, width in numbers]

    @property
    def table_bytes(self) -> int:
        """Bytes of the rotary tables."""
        return sum(table.nbytes for table in self.tables)

    def slots(self) -> Iterator[tuple[str, Slot]]:
        """Where each named tensor of the whole model goes."""
        model, rank = self.model, self.group.rank
        first, rows = rank * self.rank.vocab_rows, model.vocab_size
        table = Slot(self.embedding, (rows, model.hidden_size), 0, first)
        yield "embed_tokens.weight", table
        if not model.tied:
            yield "lm_head.weight", table._replace(target=self.head.weight)
        if self.head.bias is not None:
            yield "lm_head.bias", Slot(self.head.bias, (rows,), 0, first)
        if self.learned is not None:
            yield "embed_positions.weight", whole(self.learned)
        for name, norm in (("embed_norm", self.embedding_norm), ("norm", self.final_norm)):
            if norm is not None:
                yield from ((f"{name}.{part}", whole(tensor)) for part, tensor in norm.named_parameters())
        for index, (block, full) in enumerate(zip(self.layers, model.stack[: len(self.layers)], strict=True)):
            yield from ((f"layers.{index}.{name}", slot) for name, slot in block.slots(full))
