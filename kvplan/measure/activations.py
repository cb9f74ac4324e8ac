"""The most that a pass of this decoder holds at once beside weights and cache.

Python keeps a tensor as long as a name or a call in progress refers to it, so a layer's peak is not what its last
operation needs but everything that is still alive then: the residual stream of the caller, what the attention gave,
its sum with the stream, the normalised input of the MLP, and both halves of the MLP. Each phase below lists what is
alive at its highest point; the largest phase of any layer is the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.measure.decoder.rope import rotary
from kvplan.measure.decoder.sinks import QUERIES
from kvplan.sharding import Rank
from kvplan.specs.layers import Attention, Latent, Layer, Moe
from kvplan.units import Line

FP32 = 4  # bytes
Sum = tuple[tuple[int, str], ...]  # (coefficient, width), elements a token
Product = Callable[..., Iterator["Phase"]]  # `_product` of a pass and a layer


class Pass(NamedTuple):
    """A pass over new tokens: a prompt (many) or a decode step (one), and where it runs."""

    batch: int
    tokens: int
    context: int
    value_bytes: int
    device: str  # cpu | cuda | mps
    threads: int = 1
    fp32_products: frozenset[tuple[int, int]] | None = frozenset()  # matrices that take and give fp32; None: all

    def in_fp32(self, rows: int, columns: int) -> bool:
        """Whether this matrix of a 16-bit decoder takes fp32 and gives fp32."""
        return self.fp32_products is None or (rows, columns) in self.fp32_products

    @property
    def norm_copies(self) -> int:
        """An RMS norm makes this many times its input: fused on CUDA; on a CPU step by step, 16 bit in fp32."""
        if self.device == "cuda":
            return 1
        return 2 if self.value_bytes == FP32 else 6


class Phase(NamedTuple):
    """What is alive: elements of every token, elements of every session, and bytes whatever the pass is."""

    name: str
    per_token: Sum
    per_session: Sum = ()
    fixed_bytes: int = 0

    def bytes(self, p: Pass, widths: dict[str, int]) -> int:
        """Bytes of the phase."""
        token, session = (sum(n * widths[name] for n, name in part) for part in (self.per_token, self.per_session))
        return p.batch * (p.tokens * token + session) * p.value_bytes + self.fixed_bytes

    def line(self, p: Pass, widths: dict[str, int]) -> Line:
        """The phase as a ledger line."""
        terms: dict[str, int | float] = {"batch": p.batch, "tokens": p.tokens, "value_bytes": p.value_bytes}
        terms |= {name: widths[name] for part in (self.per_token, self.per_session) for _, name in part}
        inner = f"tokens * ({_text(self.per_token)})" + (f" + {_text(self.per_session)}" if self.per_session else "")
        formula = f"batch * ({inner}) * value_bytes"
        if self.fixed_bytes:
            terms["scratch"] = self.fixed_bytes
            formula += " + scratch"
        return Line("overhead/activations", self.bytes(p, widths), formula, terms, f"what is alive in {self.name}")


def activation_line(rank: Rank, p: Pass) -> Line:
    """The largest phase of any layer, or of the head."""
    found = []
    for layer in dict.fromkeys(rank.layers):
        widths = _widths(layer, rank)
        found += [(phase, widths) for phase in _phases(layer, rank, p, widths)]
    edges = {"hidden": rank.model.hidden_size, "vocabulary": rank.vocab_rows}
    found += [(phase, edges) for phase in _edges(rank, p)]
    phase, widths = max(found, key=lambda each: each[0].bytes(p, each[1]))
    return phase.line(p, widths)


def _widths(layer: Layer, rank: Rank) -> dict[str, int]:
    """Elements a token of what the phases name."""
    a, m, e = layer.attention, layer.mlp, layer.moe
    widths = {"hidden": rank.model.hidden_size, "vocabulary": rank.vocab_rows}
    if a:
        queries, keys, values = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
        gate = queries if a.output_gate else 0
        _, turned = rotary(layer, rank.model.rope) or (None, 0)
        widths |= {
            "heads": a.heads,
            "queries": queries,
            "keys": keys,
            "values": values,
            "projected": queries + keys + values + gate,
            "rotated": turned * (a.heads + a.kv_heads),
            "attended": a.heads * a.v_head_dim,
        }
    if layer.latent:
        widths |= _latent_widths(layer.latent)
    if m:
        widths["inner"] = m.intermediate_size
    if e:
        widths |= {"inner": e.intermediate_size, "shared": e.shared_size or 0, "experts": e.experts}
    return widths


def _latent_widths(m: Latent) -> dict[str, int]:
    key = m.nope_dim + m.rope_dim
    queries = m.heads * key
    return {
        "compressed": m.q_rank or 0,
        "latent": m.kv_rank,
        "queries": queries,
        "down": (m.q_rank or queries) + m.kv_rank + m.rope_dim,
        "rotated": (m.heads + 1) * m.rope_dim,
        "expanded": m.heads * (m.nope_dim + m.v_dim),
        "widened": m.heads * max(key, m.v_dim),  # values as the kernel takes and gives them
        "attended": m.heads * m.v_dim,
    }


def _phases(layer: Layer, rank: Rank, p: Pass, widths: dict[str, int]) -> Iterator[Phase]:
    product = partial(_product, p, widths)
    if layer.attention:
        yield from _attention(layer, layer.attention, rank, p, product)
    if layer.latent:
        yield from _latent(layer, layer.latent, rank, p, product)
    if not (layer.mlp or layer.moe):
        return
    # the caller's stream, what attention gave, the sum of both, the normalised sum
    held = 4 if layer.attention or layer.latent else 2
    if layer.norms:
        yield Phase("the norm before the MLP", ((held - 1 + p.norm_copies, "hidden"),))
    if layer.mlp:
        yield from _mlp("the MLP", held, "inner", product, gated=layer.mlp.gated)
    elif layer.moe:
        yield from _moe(layer.moe, held, p, widths)


def _attention(layer: Layer, a: Attention, rank: Rank, p: Pass, product: Product) -> Iterator[Phase]:
    yield Phase("the norm before attention", ((1 + p.norm_copies, "hidden"),))
    yield from product("the projection of queries, keys and values", ((2, "hidden"),), (1, "projected"), into="hidden")
    stream: Sum = ((2, "hidden"), (1, "projected"))
    normed: Sum = ((1, "queries"), (1, "keys")) if a.qk_norm else ()
    if a.qk_norm:
        yield Phase("the norm of the queries", (*stream, (p.norm_copies, "queries")))
    if positions := rotary(layer, rank.model.rope):
        whole = positions[1] == a.head_dim
        more: Sum = ((3, "rotated"),) if whole else ((1, "rotated"), (1, "queries"), (1, "keys"))
        yield Phase("the rotary positions", (*stream, *normed, *more))
        normed = ((1, "queries"), (1, "keys"))
    copies: Sum = ()
    if p.device != "cuda" and p.tokens > 1 and p.batch > 1 and a.kv_heads < a.heads:
        copies = ((1, "queries"), (1, "keys"), (1, "values"))  # key-value heads moved into the batch
    block = min(p.tokens, a.window or a.chunk or p.tokens)  # queries of one call of the kernel
    sums = p.batch * block * a.heads * FP32  # one of each query's scores
    fixed = _flash_scratch(a.heads // a.kv_heads, a.v_head_dim, p, block) + sums
    if block < p.tokens:
        copies = ()
    if a.sinks and (p.device != "cpu" or a.head_dim != a.v_head_dim):
        fixed = _scores(a, p, block) + sums
    inside: Sum = (*stream, *normed, *copies, (1, "attended"))
    yield Phase("attention", inside, fixed_bytes=fixed)
    if a.sinks:
        yield Phase("the sinks", inside, fixed_bytes=3 * sums)  # the sums, less the sink, and its share
    if block < p.tokens:
        yield Phase("joining attention's pieces", (*stream, *normed, (2, "attended")))
    gate: Sum = ((2, "attended"),) if a.output_gate else ()
    alive = ((2, "hidden"), (1, "projected"), *normed, (1, "attended"), *gate)
    yield from product("the output projection", alive, (1, "hidden"), into="attended")


def _scores(a: Attention, p: Pass, block: int) -> int:
    """Of some queries, where two products make attention: scores and softmax in fp32, then rounded or by the values."""
    keys = block if block == p.tokens else min(p.tokens, 2 * block - 1)
    queries = min(block, QUERIES)
    values = a.v_head_dim * FP32  # of each query head
    last = values if p.value_bytes == FP32 else queries * p.value_bytes
    return int(p.batch * a.heads * keys * (queries * 2 * FP32 + last))


def _latent(layer: Layer, m: Latent, rank: Rank, p: Pass, product: Product) -> Iterator[Phase]:
    """A prompt: what the cache keeps is written over its own projection; then it is expanded for all heads."""
    yield Phase("the norm before attention", ((1 + p.norm_copies, "hidden"),))
    yield from product("the projection to queries and latents", ((2, "hidden"),), (1, "down"), into="hidden")
    alive: Sum = ((2, "hidden"), (1, "down"))
    if m.q_rank:
        yield Phase("the norm of the compressed queries", (*alive, (p.norm_copies, "compressed")))
        compressed: Sum = (*alive, (1, "compressed"))
        yield from product("the queries", compressed, (1, "queries"), into="compressed")
        alive = (*alive, (1, "queries"))
    if rotary(layer, rank.model.rope):
        yield Phase("the rotary positions", (*alive, (4, "rotated")))
    yield Phase("the norm of the latents", (*alive, (p.norm_copies, "latent")))
    yield from _expansion(m, alive, p)
    fixed = _flash_scratch(m.heads, m.v_dim, p, p.tokens) + p.batch * p.tokens * m.heads * FP32
    inside: Sum = (*alive, (1, "expanded"), (1, "queries"), (1, "widened"))  # keys are as wide as queries
    yield Phase("attention", inside, fixed_bytes=fixed)
    if m.v_dim < m.nope_dim + m.rope_dim:
        yield Phase("cutting the values out", (*inside, (1, "attended")))
    yield from product("the output projection", (*alive, (1, "attended")), (1, "hidden"), into="attended")


def _expansion(m: Latent, alive: Sum, p: Pass) -> Iterator[Phase]:
    """Its matrix is plain: in fp32 it is converted for each prompt."""
    if p.fp32_products == frozenset():
        yield Phase("the keys and values", (*alive, (1, "expanded")))
        return
    wide, matrix = FP32 // p.value_bytes, FP32 * m.heads * (m.nope_dim + m.v_dim) * m.kv_rank
    yield Phase("the keys and values, in fp32", (*alive, (wide, "latent"), (wide, "expanded")), fixed_bytes=matrix)
    yield Phase("the keys and values, rounded", (*alive, (wide + 1, "expanded")))


def _product(
    p: Pass, widths: dict[str, int], name: str, alive: Sum, out: tuple[int, str], *, into: str
) -> Iterator[Phase]:
    """A linear layer: its result beside what is alive; in fp32 first its input and result, then both results."""
    count, rows = out
    if not p.in_fp32(count * widths[rows], widths[into]):
        yield Phase(name, (*alive, out))
        return
    wide = FP32 // p.value_bytes
    yield Phase(f"{name}, in fp32", (*alive, (wide, into), (wide * count, rows)))
    yield Phase(f"{name}, rounded", (*alive, ((wide + 1) * count, rows)))


def _flash_scratch(group: int, v_width: int, p: Pass, queries: int) -> int:
    """Scores and sums of one block of queries in each thread (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp)."""
    if p.device != "cpu":
        return 0
    rows = queries if p.tokens > 1 else group
    q_block = min(rows, 256 if rows >= 768 else 64 if rows >= 192 else 32)
    kv_block = min(p.context, 2 * queries if queries < p.tokens else p.context, 512)
    reduced = 0 if p.value_bytes == FP32 else q_block * kv_block * p.value_bytes
    return p.threads * (FP32 * q_block * (kv_block + 2 + v_width) + reduced)


def _mlp(name: str, held: int, inner: str, product: Product, *, gated: bool) -> Iterator[Phase]:
    """Gate and up in one tensor, the activated gate, their product; or the inner values, activated, and the result."""
    stream = (held, "hidden")
    yield from product(f"{name}'s first matrix", (stream,), (2 if gated else 1, inner), into="hidden")
    if gated:
        yield Phase(name, (stream, (4, inner)))
    yield from product(name, (stream, (3 if gated else 2, inner)), (1, "hidden"), into=inner)


def _moe(m: Moe, held: int, p: Pass, widths: dict[str, int]) -> Iterator[Phase]:
    """As if routing were even: the busiest expert's share of the tokens is `active / experts` of them."""
    yield Phase("the router", ((held, "hidden"), (1 + 2 * FP32 // p.value_bytes, "experts")))
    share = max(1, m.experts // m.active)
    rows = ceil_div(p.batch * p.tokens, share)
    first = (2 if m.gated else 1) * m.intermediate_size
    wide = FP32 // p.value_bytes + 1 if p.in_fp32(first, widths["hidden"]) else 0  # its result in fp32, and rounded
    inside = rows * max(wide, 2) * first * p.value_bytes
    # the sum of the experts, and of this expert its tokens
    yield Phase("an expert", ((held + 1, "hidden"),), fixed_bytes=inside + rows * _hidden_of(m, p))
    if m.shared_size:
        yield from _mlp("the shared expert", held + 1, "shared", partial(_product, p, widths), gated=m.gated)


def _hidden_of(m: Moe, p: Pass) -> int:
    """The experts' input and output widths are the stream's; bytes of one token of it are counted with the rows."""
    return (m.latent_size or 0) * p.value_bytes


def _edges(rank: Rank, p: Pass) -> Iterator[Phase]:
    """The head computes the logits of the last token of each session."""
    yield Phase("the final norm", ((1 + p.norm_copies, "hidden"),))
    joined = 1 if rank.tp == 1 else 1 + 2 * rank.tp  # the ranks' parts, and the whole
    in_fp32 = p.in_fp32(rank.vocab_rows, rank.model.hidden_size)
    wide: Sum = ((FP32 // p.value_bytes, "vocabulary"),) if in_fp32 else ()
    yield Phase("the head", ((1, "hidden"),), ((joined, "vocabulary"), *wide))


def _text(parts: Sum) -> str:
    return " + ".join(name if n == 1 else f"{n} * {name}" for n, name in parts)
