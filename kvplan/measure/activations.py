"""The most that a pass of this decoder holds at once beside weights and cache.

Python keeps a tensor as long as a name or a call in progress refers to it, so a layer's peak is not what its last
operation needs but everything that is still alive then: the residual stream of the caller, what the attention gave,
its sum with the stream, the normalised input of the MLP, and both halves of the MLP. Each phase below lists what is
alive at its highest point; the largest phase of any layer is the peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.sharding import Rank
from kvplan.specs.layers import Attention, Layer, Moe, Rope
from kvplan.units import Line

FP32 = 4  # bytes
Sum = tuple[tuple[int, str], ...]  # (coefficient, width), elements a token


class Pass(NamedTuple):
    """A pass over new tokens: a prompt (many) or a decode step (one), and where it runs."""

    batch: int
    tokens: int
    context: int
    value_bytes: int
    device: str  # cpu | cuda | mps
    threads: int = 1
    fp32_products: bool = False  # matrices that take fp32 and give fp32, in a 16-bit decoder

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
        found += [(phase, widths) for phase in _phases(layer, rank, p)]
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
        rope = a.rope or rank.model.rope or Rope()
        turned = (rope.dim or a.head_dim) * (a.heads + a.kv_heads) if isinstance(rope, Rope) else 0
        widths |= {
            "heads": a.heads,
            "queries": queries,
            "keys": keys,
            "values": values,
            "projected": queries + keys + values + gate,
            "rotated": turned,
            "attended": a.heads * a.v_head_dim,
        }
    if m:
        widths["inner"] = m.intermediate_size
    if e:
        widths |= {"inner": e.intermediate_size, "shared": e.shared_size or 0, "experts": e.experts}
    return widths


def _phases(layer: Layer, rank: Rank, p: Pass) -> Iterator[Phase]:
    if layer.attention:
        yield from _attention(layer.attention, rank, p)
    if not (layer.mlp or layer.moe):
        return
    # the caller's stream, what attention gave, the sum of both, the normalised sum
    held = 4 if layer.attention else 2
    if layer.norms:
        yield Phase("the norm before the MLP", ((held - 1 + p.norm_copies, "hidden"),))
    if layer.mlp:
        yield from _mlp("the MLP", held, "inner", p, gated=layer.mlp.gated)
    elif layer.moe:
        yield from _moe(layer.moe, held, p)


def _attention(a: Attention, rank: Rank, p: Pass) -> Iterator[Phase]:
    yield Phase("the norm before attention", ((1 + p.norm_copies, "hidden"),))
    yield from _product("the projection of queries, keys and values", ((2, "hidden"),), (1, "projected"), "hidden", p)
    stream: Sum = ((2, "hidden"), (1, "projected"))
    normed: Sum = ((1, "queries"), (1, "keys")) if a.qk_norm else ()
    if a.qk_norm:
        yield Phase("the norm of the queries", (*stream, (p.norm_copies, "queries")))
    rope = a.rope or rank.model.rope or Rope()
    if isinstance(rope, Rope):
        whole = rope.dim in (None, a.head_dim)
        more: Sum = ((3, "rotated"),) if whole else ((1, "rotated"), (1, "queries"), (1, "keys"))
        yield Phase("the rotary positions", (*stream, *normed, *more))
        normed = ((1, "queries"), (1, "keys"))
    copies: Sum = ()
    if p.device != "cuda" and p.tokens > 1 and p.batch > 1 and a.kv_heads < a.heads:
        copies = ((1, "queries"), (1, "keys"), (1, "values"))  # key-value heads moved into the batch
    block = min(p.tokens, a.window or a.chunk or p.tokens)  # queries of one call of the kernel
    fixed = _flash_scratch(a, p, block) + p.batch * block * a.heads * FP32
    if block == p.tokens:
        yield Phase("attention", (*stream, *normed, *copies, (1, "attended")), fixed_bytes=fixed)
    else:
        yield Phase("attention in pieces", (*stream, *normed, (1, "attended")), fixed_bytes=fixed)
        yield Phase("joining attention's pieces", (*stream, *normed, (2, "attended")))
    gate: Sum = ((2, "attended"),) if a.output_gate else ()
    alive = ((2, "hidden"), (1, "projected"), *normed, (1, "attended"), *gate)
    yield from _product("the output projection", alive, (1, "hidden"), "attended", p)


def _product(name: str, alive: Sum, out: tuple[int, str], into: str, p: Pass) -> Iterator[Phase]:
    """A linear layer: its result beside what is alive; in fp32 first its input and result, then both results."""
    count, rows = out
    if not p.fp32_products:
        yield Phase(name, (*alive, out))
        return
    wide = FP32 // p.value_bytes
    yield Phase(f"{name}, in fp32", (*alive, (wide, into), (wide * count, rows)))
    yield Phase(f"{name}, rounded", (*alive, ((wide + 1) * count, rows)))


def _flash_scratch(a: Attention, p: Pass, queries: int) -> int:
    """Scores and sums of one block of queries in each thread (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp)."""
    if p.device != "cpu":
        return 0
    rows = queries if p.tokens > 1 else a.heads // a.kv_heads
    q_block = min(rows, 256 if rows >= 768 else 64 if rows >= 192 else 32)
    kv_block = min(p.context, 2 * queries if queries < p.tokens else p.context, 512)
    reduced = 0 if p.value_bytes == FP32 else q_block * kv_block * p.value_bytes
    return p.threads * (FP32 * q_block * (kv_block + 2 + a.v_head_dim) + reduced)


def _mlp(name: str, held: int, inner: str, p: Pass, *, gated: bool) -> Iterator[Phase]:
    """Gate and up in one tensor, the activated gate, their product; or the inner values, activated, and the result."""
    stream = (held, "hidden")
    yield from _product(f"{name}'s first matrix", (stream,), (2 if gated else 1, inner), "hidden", p)
    if gated:
        yield Phase(name, (stream, (4, inner)))
    yield from _product(name, (stream, (3 if gated else 2, inner)), (1, "hidden"), inner, p)


def _moe(m: Moe, held: int, p: Pass) -> Iterator[Phase]:
    """As if routing were even: the busiest expert's share of the tokens is `active / experts` of them."""
    yield Phase("the router", ((held, "hidden"), (1 + 2 * FP32 // p.value_bytes, "experts")))
    share = max(1, m.experts // m.active)
    rows = ceil_div(p.batch * p.tokens, share)
    wide = FP32 // p.value_bytes + 1 if p.fp32_products else 0  # the first matrix's result in fp32, and rounded
    inside = rows * (max(2 * wide, 4) if m.gated else max(wide, 2)) * m.intermediate_size * p.value_bytes
    # the sum of the experts, and of this expert its tokens
    yield Phase("an expert", ((held + 1, "hidden"),), fixed_bytes=inside + rows * _hidden_of(m, p))
    if m.shared_size:
        yield from _mlp("the shared expert", held + 1, "shared", p, gated=m.gated)


def _hidden_of(m: Moe, p: Pass) -> int:
    """The experts' input and output widths are the stream's; bytes of one token of it are counted with the rows."""
    return (m.latent_size or 0) * p.value_bytes


def _edges(rank: Rank, p: Pass) -> Iterator[Phase]:
    """The head computes the logits of the last token of each session."""
    yield Phase("the final norm", ((1 + p.norm_copies, "hidden"),))
    joined = 1 if rank.tp == 1 else 1 + 2 * rank.tp  # the ranks' parts, and the whole
    wide: Sum = ((FP32 // p.value_bytes, "vocabulary"),) if p.fp32_products else ()
    yield Phase("the head", ((1, "hidden"),), ((joined, "vocabulary"), *wide))


def _text(parts: Sum) -> str:
    return " + ".join(name if n == 1 else f"{n} * {name}" for n, name in parts)
