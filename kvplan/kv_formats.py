"""How one cached vector is stored: bytes of a token's keys or values in one layer, scales included."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.errors import InputError, did_you_mean


class KvFormat(NamedTuple):
    """`block_bytes` for each `block` elements of one head's vector, plus `head_bytes` of scales for it.

    A ggml type cuts the row of all heads into blocks instead (`whole_row`).
    """

    name: str
    block: int
    block_bytes: int
    head_bytes: int = 0
    whole_row: bool = False

    def vector_bytes(self, heads: int, width: int) -> int:
        """Bytes of one token's `heads` keys, or values, of `width` elements in one layer."""
        self._check(heads, width)
        if self.whole_row:
            return heads * width // self.block * self.block_bytes
        return heads * (width // self.block * self.block_bytes + self.head_bytes)

    def formula(self, heads: int, width: int) -> str:
        """Text that evaluates to `vector_bytes`, for example `8*128*2`, `8*(128 + 4)` or `8*128//32*34`."""
        self._check(heads, width)
        vector = self._vector_text(str(width))
        if self.whole_row or (self.block == 1 and not self.head_bytes):
            return f"{heads}*{vector}"
        return f"{heads}*({vector})"

    def latent_bytes(self, kv_rank: int, rope_dim: int) -> int:
        """Bytes of one token's MLA latent in one layer: one vector that serves as key and as value."""
        return self.vector_bytes(1, kv_rank + rope_dim)

    def latent_formula(self, kv_rank: int, rope_dim: int) -> str:
        """Text that evaluates to `latent_bytes`."""
        self._check(1, kv_rank + rope_dim)
        return self._vector_text(f"({kv_rank} + {rope_dim})")

    def indexer_bytes(self, dim: int) -> int:
        """Bytes of one token's key for the indexer of sparse attention in one layer."""
        return self.vector_bytes(1, dim)

    def indexer_formula(self, dim: int) -> str:
        """Text that evaluates to `indexer_bytes`."""
        return self.formula(1, dim)

    def _vector_text(self, width: str) -> str:
        blocks = f"{width}//{self.block}" if self.block > 1 else width
        packed = f"{blocks}*{self.block_bytes}" if self.block_bytes > 1 else blocks
        return f"{packed} + {self.head_bytes}" if self.head_bytes else packed

    def _check(self, heads: int, width: int) -> None:
        length, what = (heads * width, "a row") if self.whole_row else (width, "a head")
        if length % self.block:
            raise InputError(
                f"KV format {self.name} stores blocks of {self.block} elements and {what} of {length} does not divide"
                " into them; use fp16 or bf16, which take any length"
            )


class DeepSeekFp8(KvFormat):
    """The latent of DeepSeek-V3.2 in vLLM: fp8 with an fp32 scale for 128 elements, its rope part in bf16.

    512 + 64 elements are 512 + 16 + 128 = 656 bytes (vllm/v1/kv_cache_interface.py, MLAAttentionSpec).
    """

    def latent_bytes(self, kv_rank: int, rope_dim: int) -> int:
        """Bytes of one token's latent in one layer."""
        scales: int = ceil_div(kv_rank, 128)
        return kv_rank + scales * 4 + rope_dim * 2

    def latent_formula(self, kv_rank: int, rope_dim: int) -> str:
        """Text that evaluates to `latent_bytes`."""
        return f"{kv_rank} + ({kv_rank} + 127)//128*4 + {rope_dim}*2"

    def indexer_bytes(self, dim: int) -> int:
        """The indexer's key in fp8 with an fp32 scale for 128 elements: 132 bytes for 128."""
        scales: int = ceil_div(dim, 128)
        return dim + scales * 4

    def indexer_formula(self, dim: int) -> str:
        """Text that evaluates to `indexer_bytes`."""
        return f"{dim} + ({dim} + 127)//128*4"

    def _check(self, heads: int, width: int) -> None:
        raise InputError(
            f"KV format {self.name} stores MLA latents only, not {heads} keys or values of {width} elements;"
            " use fp8 or bf16 for this model"
        )


class KvPair(NamedTuple):
    """The format of the keys and that of the values."""

    key: KvFormat
    value: KvFormat


def _ggml(name: str, size: int) -> KvFormat:
    """Blocks of 32 over the row of all heads (ggml/src/ggml-common.h); llama.cpp offers these for the cache."""
    return KvFormat(name, 32, size, whole_row=True)


_KNOWN = (
    KvFormat("fp32", 1, 4),
    KvFormat("bf16", 1, 2),
    KvFormat("fp16", 1, 2),
    KvFormat("fp8", 1, 1),  # scales are per tensor and live with the weights
    KvFormat("int8", 1, 1, head_bytes=4),  # vLLM, int8 per token and head: one fp32 scale for each vector
    _ggml("q8_0", 34),
    _ggml("q5_1", 24),
    _ggml("q5_0", 22),
    _ggml("q4_1", 20),
    _ggml("q4_0", 18),
    _ggml("iq4_nl", 18),
    KvFormat("nvfp4", 16, 9),  # vLLM: 16 elements in 8 bytes and one e4m3 scale
    DeepSeekFp8("fp8_ds_mla", 1, 1),
)
_ALIASES = {"f32": "fp32", "f16": "fp16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}

KV_FORMATS: dict[str, KvFormat] = {known.name: known for known in _KNOWN}


def kv_pair(name: str) -> KvPair:
    """The pair named `q8_0` (both) or `q8_0/q4_0` (keys, then values), in any case; InputError names the near ones."""
    key, slash, value = name.lower().partition("/")
    return KvPair(_kv_format(key, name), _kv_format(value if slash else key, name))


def _kv_format(part: str, whole: str) -> KvFormat:
    found = KV_FORMATS.get(_ALIASES.get(part, part))
    if found is None:
        names = [*KV_FORMATS, *_ALIASES]
        place = "" if part == whole.lower() else f" in '{whole}'"
        raise InputError(
            f"unknown KV format '{part}'{place}{did_you_mean(part, names)} (known: {', '.join(names)};"
            " write KEYS/VALUES for two)"
        )
    return found
