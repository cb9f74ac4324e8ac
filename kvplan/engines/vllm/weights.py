"""Weights on a GPU as vLLM loads them: the tensors of the shapes, and what it allocates beside them.

Each rule was held against start-up logs of 0.6 to 0.31 (tests/data/vllm_logs.csv): 0.01 % at the median.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.engines.base import Held
from kvplan.engines.vllm.fused import allocations
from kvplan.engines.vllm.rules import Rules
from kvplan.memory.parameters import distinct_layers, edge_tensors
from kvplan.specs.layers import Attention, Latent, Layer, Rope
from kvplan.specs.model import ModelSpec
from kvplan.units import Line

VOCAB_STEP = 64  # vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE
MXFP4_STEP = 256  # the expert width is rounded up to it on Hopper
COMPUTE_BYTES = 2
BY_VERSION = ("weights/rotary_tables", "weights/mla_split_copy", "weights/mxfp4_padding")
MROPE_FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_6")
FOUR_BIT = ("gptq-int4", "awq-int4", "int4-", "nf4", "mxfp4", "nvfp4")


def weight_lines(held: Held, rules: Rules) -> list[Line]:
    """The lines of the shapes, then vLLM's own."""
    extra = (
        _vocabulary(held),
        _rotary(held, rules),
        _values_beside_keys(held),
        _split_copies(held, rules),
        _mxfp4(held, rules),
        _rounding(held),
    )
    return [*held.weights, *(line for line in extra if line)]


def under(held: Held, rules: Rules) -> Held:
    """What the same GPU holds under the rules of another version."""
    kept = [line for line in held.weights if line.name not in BY_VERSION]
    again = (_rotary(held, rules), _split_copies(held, rules), _mxfp4(held, rules))
    return held._replace(weights=[*kept, *(line for line in again if line)])


def compute_bytes(held: Held) -> int:
    """Bytes of a value in the compute dtype."""
    return 4 if held.scheme.name == "fp32" else COMPUTE_BYTES


def _vocabulary(held: Held) -> Line | None:
    """Rows up to a multiple of 64, in the embedding and in a head of its own."""
    rank = held.rank
    tables = [t for t in edge_tensors(rank) if t.rows == rank.vocab_rows and t.columns > 1 and not t.copies > 1]
    rows = int(ceil_div(ceil_div(rank.model.vocab_size, VOCAB_STEP) * VOCAB_STEP, rank.tp))
    if rows == rank.vocab_rows or not tables:
        return None
    terms: dict[str, int | float] = {
        "padded_rows": rows,
        "vocab_rows": rank.vocab_rows,
        "row_bytes": sum(table.columns for table in tables) * compute_bytes(held),
    }
    size = (rows - rank.vocab_rows) * int(terms["row_bytes"])
    formula = "(padded_rows - vocab_rows) * row_bytes"
    return Line("weights/vocabulary_padding", size, formula, terms, "vLLM: vocabulary to a multiple of 64")


def _values_beside_keys(held: Held) -> Line | None:
    """Layers whose values are their keys (Gemma 4) keep a value projection all the same, in the fused one."""
    rank = held.rank
    parts = [layer.attention for layer in rank.layers if layer.attention and layer.attention.value_from_key]
    if not parts:
        return None
    terms: dict[str, int | float] = {
        "layers": len(parts),
        "value_width": parts[0].kv_heads * parts[0].v_head_dim,
        "hidden_size": rank.model.hidden_size,
        "bytes_per_value": compute_bytes(held),
    }
    formula = "layers * value_width * hidden_size * bytes_per_value"
    size = prod(int(value) for value in terms.values())
    return Line("weights/value_projections", size, formula, terms, "vLLM: QKVParallelLinear holds q, k and v")


def _rotary(held: Held, rules: Rules) -> Line | None:
    """cos and sin of every position, once for each distinct width, base and stretching; whole on every rank."""
    tables = dict.fromkeys(_tables(held, rules))
    if not tables:
        return None
    terms: dict[str, int | float] = {}
    for number, table in enumerate(tables, 1):
        terms[f"positions_{number}"], terms[f"width_{number}"] = table.positions, table.width
        terms[f"value_bytes_{number}"] = table.value_bytes
    formula = " + ".join(f"positions_{n} * width_{n} * value_bytes_{n}" for n in range(1, len(tables) + 1))
    size = sum(table.positions * table.width * table.value_bytes for table in tables)
    return Line("weights/rotary_tables", size, formula, terms, "vLLM: cos_sin_cache")


class _Table(NamedTuple):
    positions: int
    width: int
    value_bytes: int
    theta: float
    scaling: str | None


def _tables(held: Held, rules: Rules) -> Iterator[_Table]:
    """DeepSeek's stretched table (yarn with MLA) stays in fp32."""
    model = held.rank.model
    for layer, _ in distinct_layers(held.rank.layers):
        rope, width = _layer_rope(model, layer)
        if rope and width:
            size = 4 if layer.latent and rope.scaling == "yarn" else compute_bytes(held)
            yield _Table(_positions(model, rope, rules), width, size, rope.theta, rope.scaling)


def _layer_rope(model: ModelSpec, layer: Layer) -> tuple[Rope | None, int]:
    """The rotary positions of a layer and the elements of a head that turn."""
    part: Attention | Latent | None = layer.attention or layer.latent
    if part is None or model.learned_positions:
        return None, 0
    own = part.rope if isinstance(part, Attention) else None
    rope = model.rope if own is None else own
    if rope == "none":
        return None, 0
    rope = rope if isinstance(rope, Rope) else Rope()
    if isinstance(part, Attention):
        whole = rope.dim is None or (model.family or "").startswith("gemma4")  # gemma 4 fills the rest with zeros
        return rope, part.head_dim if whole else rope.dim or 0
    return rope, part.rope_dim


def _positions(model: ModelSpec, rope: Rope, rules: Rules) -> int:
    """Positions of a table: the config's maximum, stretched where the scaling says so."""
    limit, factor = model.max_context or 0, rope.factor or 1
    if rope.scaling == "linear":
        return int(limit * factor)
    if rope.scaling == "yarn" and rope.original_context:
        return int(rope.original_context * factor)
    if rope.scaling == "longrope":
        return limit + (rope.original_context or 0)
    return limit * (rules.mrope_factor if model.family in MROPE_FAMILIES else 1)


def _split_copies(held: Held, rules: Rules) -> Line | None:
    """MLA keeps kv_b_proj and a second copy of it, split into keys and values, in the compute dtype.

    0.7 also multiplied it into the query and output projections (VLLM_MLA_PERFORM_MATRIX_ABSORPTION).
    """
    layers = [layer.latent for layer in held.rank.layers if layer.latent]
    if not layers:
        return None
    first = layers[0]
    terms: dict[str, int | float] = {
        "layers": len(layers),
        "heads": first.heads,
        "head_width": first.nope_dim + first.v_dim,
        "kv_rank": first.kv_rank,
        "bytes_per_value": COMPUTE_BYTES,
    }
    formula = "layers * heads * head_width * kv_rank * bytes_per_value"
    size = prod(int(value) for value in terms.values())
    if rules.mla_absorbed:
        terms |= {"rope_dim": first.rope_dim, "query_in": first.q_rank or held.rank.model.hidden_size}
        terms |= {"hidden_size": held.rank.model.hidden_size}
        formula += " + layers * heads * ((kv_rank + rope_dim) * query_in + kv_rank * hidden_size) * bytes_per_value"
        wide = (first.kv_rank + first.rope_dim) * int(terms["query_in"]) + first.kv_rank * int(terms["hidden_size"])
        size += len(layers) * first.heads * wide * COMPUTE_BYTES
    return Line("weights/mla_split_copy", size, formula, terms, "vLLM: W_UK and W_UV beside kv_b_proj")


def _mxfp4(held: Held, rules: Rules) -> Line | None:
    """Experts in mxfp4 are padded to a width that the kernels take; later kernels keep scales in a wider layout."""
    experts = [t for t in held.tensors if t.component == "experts" and t.format == "mxfp4"]
    widths = {layer.moe.intermediate_size for layer in held.rank.layers if layer.moe}
    if not experts or len(widths) != 1:
        return None
    width = widths.pop()
    terms: dict[str, int | float] = {
        "stored": sum(t.bytes for t in experts),
        "width": width,
        "padded_width": int(ceil_div(width, MXFP4_STEP)) * MXFP4_STEP,
        "experts": sum(layer.moe.here for layer in held.rank.layers if layer.moe),
        "kept_for_each": rules.mxfp4_expert_bytes[min(held.rank.tp, 2) - 1],
    }
    size = int(terms["stored"]) * (int(terms["padded_width"]) - width) // width
    size += int(terms["experts"] * terms["kept_for_each"])
    formula = "stored * (padded_width - width) // width + experts * kept_for_each"
    return Line("weights/mxfp4_padding", size, formula, terms, "vLLM on Hopper: expert width to a multiple of 256")


def _rounding(held: Held) -> Line | None:
    """What PyTorch's allocator adds to large tensors."""
    terms: dict[str, int | float] = {}
    for each in allocations(held.rank, held.scheme):
        if each.rounding and not each.packed:
            name = each.name.replace(" ", "_")
            terms[name] = terms.get(name, 0) + each.times * each.rounding
    if not terms:
        return None
    source = "PyTorch: large blocks in steps of 2 MiB, the end kept up to 1 MiB"
    return Line("weights/allocator_rounding", int(sum(terms.values())), " + ".join(terms), terms, source)
