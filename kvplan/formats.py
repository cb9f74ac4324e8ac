"""How one weight matrix is stored: the bytes of its packed weights and of everything that belongs to them.

A stored tensor is a grid of equal blocks over the matrix, or over its elements in one run, so each format is a list
of such grids and both the bytes and their formula come from that list. Lookup tables that are the same for every
matrix (the 16 values of nf4, the 256 of its nested scales) and activation scales (`input_scale`) are not counted.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.errors import InputError, did_you_mean


class Stored(NamedTuple):
    """One stored tensor: `bytes` for each block of `rows` x `columns` weights, edges rounded up; 0 is a whole axis."""

    rows: int
    columns: int
    bytes: int

    def size(self, rows: int, columns: int) -> int:
        """Bytes of the tensor."""
        return _blocks(rows, self.rows) * _blocks(columns, self.columns) * self.bytes

    def formula(self, rows: int, columns: int) -> str:
        """Text that evaluates to `size`."""
        return _product([_blocks_text(rows, self.rows), _blocks_text(columns, self.columns)], self.bytes)


class Flat(NamedTuple):
    """One stored tensor: `bytes` for each run of `elements` weights of the flattened matrix, the last one counted."""

    elements: int
    bytes: int

    def size(self, rows: int, columns: int) -> int:
        """Bytes of the tensor."""
        return _blocks(rows * columns, self.elements) * self.bytes

    def formula(self, rows: int, columns: int) -> str:
        """Text that evaluates to `size`."""
        return _product([_pieces_text(f"{rows}*{columns}", rows * columns, self.elements)], self.bytes)


class Format(NamedTuple):
    """How one matrix is stored. Rows are output features, columns input features (the length of a row)."""

    name: str
    nominal_bits: float  # bits a weight in conversation: 4 for every 4-bit format; ggml types count their scales
    tensors: tuple[Stored | Flat, ...]
    divides: int = 1  # a row must be a multiple of this to fill whole blocks
    fallback_name: str = ""  # ggml only: what llama.cpp stores when it does not

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of the matrix with its scales, zero points and group indices."""
        self._check(columns)
        return sum(tensor.size(rows, columns) for tensor in self.tensors)

    def formula(self, rows: int, columns: int) -> str:
        """Text that evaluates to `matrix_bytes`, for example `1024*4096*2` or `4096*(4096//256)*144`."""
        self._check(columns)
        return " + ".join(tensor.formula(rows, columns) for tensor in self.tensors)

    def accepts(self, columns: int) -> bool:
        """Whether rows of this length divide into the format's blocks."""
        return columns % self.divides == 0

    def fallback(self, columns: int) -> Format:
        """This format, or the ggml type that takes its place for rows that it cannot cut into blocks."""
        if not self.fallback_name or self.accepts(columns):
            return self
        return FORMATS[self.fallback_name].fallback(columns)

    def _check(self, columns: int) -> None:
        if self.fallback_name and not self.accepts(columns):
            raise InputError(
                f"{self.name} stores rows in blocks of {self.divides}, and {columns} is not a multiple of it;"
                f" llama.cpp stores such a row as {self.fallback(columns).name}"
            )


def _blocks(length: int, block: int) -> int:
    count: int = ceil_div(length, block) if block else 1
    return count


def _blocks_text(length: int, block: int) -> str:
    if block == 0:
        return ""
    return str(length) if block == 1 else _pieces_text(str(length), length, block)


def _pieces_text(text: str, length: int, block: int) -> str:
    return f"(({text} + {block - 1})//{block})" if length % block else f"({text}//{block})"


def _product(factors: list[str], count: int) -> str:
    known = [factor for factor in factors if factor]
    return "*".join(known if known and count == 1 else [*known, str(count)])


def _plain(name: str, size: int) -> Format:
    return Format(name, 8 * size, (Stored(1, 1, size),))


def _packed(name: str, bits: int, group: int, *extra: Stored) -> Format:
    """GPTQ and AWQ: zero points packed along the outputs into int32, fp16 scales, one of each per group of inputs.

    Both round the groups of a row up (AutoGPTQ qlinear: ceil of infeatures/group_size).
    """
    per_int = 32 // bits
    return Format(name, bits, (*extra, Stored(1, group, 2), Stored(per_int, group, 4)), group)


def _gptq(name: str, bits: int, group: int) -> Format:
    """`qweight` packs along the inputs; `g_idx` is one int32 for each input (AutoGPTQ, nn_modules/qlinear)."""
    return _packed(name, bits, group, Stored(1, 32 // bits, 4), Stored(0, 1, 4))


def _awq(name: str, group: int) -> Format:
    """`qweight` packs along the outputs; no group index (AutoAWQ, awq/modules/linear/gemm.py)."""
    return _packed(name, 4, group, Stored(8, 1, 4))


def _ggml(name: str, block: int, size: int, fallback: str = "f16") -> Format:
    """Whole blocks in every row: ggml_row_size refuses others, so llama-quantize picks another type."""
    return Format(name, 8 * size / block, (Stored(1, block, size),), block, fallback)


WEIGHT = Stored(1, 1, 1)  # one byte for each weight
NIBBLES = Stored(1, 2, 1)  # two weights in a byte, packed along the row
SCALAR = Stored(0, 0, 4)  # one fp32 for the matrix

_HUGGING_FACE = (
    _plain("fp32", 4),
    _plain("bf16", 2),
    _plain("fp16", 2),
    Format("fp8", 8, (WEIGHT, SCALAR)),  # weight_scale; a static input_scale is an activation's and not counted
    Format("fp8-channel", 8, (WEIGHT, Stored(1, 0, 4))),  # fp32 for each output row, as vLLM keeps it
    Format("fp8-block128", 8, (WEIGHT, Stored(128, 128, 4))),  # weight_scale_inv (DeepSeek-V3, inference/kernel.py)
    Format("int8", 8, (WEIGHT, Stored(1, 0, 4))),  # SCB, absolute maximum of a row (bitsandbytes, nn/modules.py)
    *(_gptq(f"gptq-int4-g{group}", 4, group) for group in (128, 64, 32)),
    _gptq("gptq-int8-g128", 8, 128),
    *(_awq(f"awq-int4-g{group}", group) for group in (128, 64, 32)),
    # bitsandbytes, functional.py, quantize_4bit: two weights in a byte and an fp32 maximum for 64, over the flat matrix
    Format("nf4", 4, (Flat(2, 1), Flat(64, 4))),
    # compress_statistics: the maxima become bytes with an fp32 maximum for 256 of them, and one fp32 mean is kept
    Format("nf4-double", 4, (Flat(2, 1), Flat(64, 1), Flat(64 * 256, 4), SCALAR)),
    # compressed-tensors, pack-quantized and symmetric: packed weights and one 16-bit scale for each group (Kimi K2)
    *(Format(f"int4-g{group}", 4, (NIBBLES, Stored(1, group, 2)), group) for group in (32, 64, 128)),
    # OCP Microscaling Formats 1.0: e8m0 scale for 32; gpt-oss keeps blocks and scales in two tensors
    Format("mxfp4", 4, (NIBBLES, Stored(1, 32, 1)), 32),
    # ModelOpt: e4m3 weight_scale for 16 and one fp32 weight_scale_2
    Format("nvfp4", 4, (NIBBLES, Stored(1, 16, 1), SCALAR), 16),
)

# ggml/src/ggml-common.h (block sizes); src/llama-quant.cpp, tensor_type_fallback (what replaces what). A 32-block type
# has no replacement there; the converters write such a tensor as f16.
_GGML = (
    _plain("f32", 4),
    _plain("f16", 2),
    _ggml("q4_0", 32, 18),
    _ggml("q4_1", 32, 20),
    _ggml("q5_0", 32, 22),
    _ggml("q5_1", 32, 24),
    _ggml("q8_0", 32, 34),
    _ggml("q8_1", 32, 36),
    _ggml("q2_k", 256, 84, "q4_0"),
    _ggml("q3_k", 256, 110, "q4_0"),
    _ggml("q4_k", 256, 144, "q5_0"),
    _ggml("q5_k", 256, 176, "q5_1"),
    _ggml("q6_k", 256, 210, "q8_0"),
    _ggml("q8_k", 256, 292, "q8_0"),  # never in a file: an intermediate of the matrix product
    _ggml("iq1_s", 256, 50, "iq4_nl"),
    _ggml("iq1_m", 256, 56, "iq4_nl"),
    _ggml("iq2_xxs", 256, 66, "iq4_nl"),
    _ggml("iq2_xs", 256, 74, "iq4_nl"),
    _ggml("iq2_s", 256, 82, "iq4_nl"),
    _ggml("iq3_xxs", 256, 98, "iq4_nl"),
    _ggml("iq3_s", 256, 110, "iq4_nl"),
    _ggml("iq4_nl", 32, 18),
    _ggml("iq4_xs", 256, 136, "iq4_nl"),
    _ggml("tq1_0", 256, 54, "q4_0"),
    _ggml("tq2_0", 256, 66, "q4_0"),
    _ggml("mxfp4-ggml", 32, 17),
    _ggml("nvfp4-ggml", 64, 36),
)

FORMATS: dict[str, Format] = {known.name: known for known in (*_HUGGING_FACE, *_GGML)}


def weight_format(name: str) -> Format:
    """The format of this name, in any case; InputError names the near ones."""
    found = FORMATS.get(name.lower())
    if found is None:
        near = did_you_mean(name.lower(), FORMATS)
        raise InputError(f"unknown weight format '{name}'{near} (known: {', '.join(FORMATS)})")
    return found
