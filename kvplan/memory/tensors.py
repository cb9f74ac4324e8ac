"""Every tensor of a layer once. Parameters, bytes, active parameters, LoRA slots and FLOPs are sums over this list.

Shapes follow the reference implementations in Hugging Face transformers; the zoo's published totals check them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kvplan.specs import layers as shape
    from kvplan.specs.layers import Layer


class Tensor(NamedTuple):
    """`copies` matrices of `rows` output by `columns` input elements; a token passes through `used` of them."""

    component: str
    name: str
    rows: int
    columns: int = 1
    role: str = "linear"  # linear: multiplied, may be quantised; table: looked up; vector: norms, biases, kernels
    copies: int = 1
    used: float = 1  # of a rank that holds some of the experts: those a token finds there on average
    lora: bool = False  # one of the seven projections that adapters usually train

    @property
    def parameters(self) -> int:
        """Elements of all copies."""
        return self.rows * self.columns * self.copies

    @property
    def active_parameters(self) -> int:
        """Elements that one token passes through."""
        return int(self.rows * self.columns * self.used)


class Widths(NamedTuple):
    """What a layer's tensors need to know of the model around it."""

    hidden: int
    norm_vectors: int  # vectors a norm keeps: scale and bias 2, scale 1, none 0
    per_layer_input: int = 0
    altup_inputs: int = 0
    laurel_rank: int = 0
    attention_residuals: bool = False


def layer_tensors(layer: Layer, widths: Widths) -> Iterator[Tensor]:
    """The tensors of one layer, mixers first."""
    hidden = widths.hidden
    for name, tensors_of in _PARTS.items():
        if part := getattr(layer, name):
            yield from tensors_of(part, hidden)
    if layer.norms and widths.norm_vectors:
        yield Tensor("norms", "layer_norms", layer.norms * widths.norm_vectors, hidden, "vector")
    if layer.scalars:
        yield Tensor("norms", "layer_scalars", layer.scalars, 1, "vector")
    yield from _side_paths(widths)
    yield from _own_tensors(layer, hidden)


def stored_tensors(layer: Layer, widths: Widths) -> Iterator[Tensor]:
    """The tensors this layer keeps: a layer that uses another's weights again keeps only its own additions."""
    if layer.weights_of:
        return _own_tensors(layer, widths.hidden)
    return layer_tensors(layer, widths)


def _own_tensors(layer: Layer, hidden: int) -> Iterator[Tensor]:
    """What each use of a shared block has for itself (Zamba2): an output projection and a low-rank MLP adapter."""
    if layer.use_projection:
        yield Tensor("other", "use_projection", hidden, hidden)
    if layer.use_adapter_rank and layer.mlp:
        yield Tensor("other", "use_adapter_a", layer.use_adapter_rank, hidden)
        yield Tensor("other", "use_adapter_b", 2 * layer.mlp.intermediate_size, layer.use_adapter_rank)


def _attention(a: shape.Attention, hidden: int) -> Iterator[Tensor]:
    width_in = a.input_size or hidden
    q_width, k_width, v_width = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.v_head_dim
    yield Tensor("attention", "q_proj", q_width * (2 if a.output_gate else 1), width_in, lora=True)
    yield Tensor("attention", "k_proj", k_width, width_in, lora=True)
    if not a.value_from_key:
        yield Tensor("attention", "v_proj", v_width, width_in, lora=True)
    yield Tensor("attention", "o_proj", hidden, a.heads * a.v_head_dim, lora=True)
    if a.qkv_bias:
        yield Tensor("attention", "qkv_bias", q_width + k_width + v_width, 1, "vector")
    if a.out_bias:
        yield Tensor("attention", "o_bias", hidden, 1, "vector")
    if a.qk_norm:
        yield Tensor("norms", "qk_norm", 2 * a.head_dim if a.qk_norm == "head" else q_width + k_width, 1, "vector")
    if a.sinks:
        yield Tensor("attention", "sinks", a.heads, 1, "vector")
    if a.indexer:
        yield Tensor("attention", "indexer_qk_proj", (a.indexer.heads + 1) * a.indexer.dim, width_in)
        yield Tensor("norms", "indexer_norms", 2 * a.indexer.dim, 1, "vector")
    if a.head_gate:
        yield Tensor("attention", "head_gate", a.heads, width_in)


def _latent(m: shape.Latent, hidden: int) -> Iterator[Tensor]:
    q_width = m.heads * (m.nope_dim + m.rope_dim)
    if m.q_rank:
        yield Tensor("attention", "q_a_proj", m.q_rank, hidden)
        yield Tensor("norms", "q_a_norm", m.q_rank, 1, "vector")
        yield Tensor("attention", "q_b_proj", q_width, m.q_rank)
    else:
        yield Tensor("attention", "q_proj", q_width, hidden, lora=True)
    yield Tensor("attention", "kv_a_proj", m.kv_rank + m.rope_dim, hidden)
    yield Tensor("norms", "kv_a_norm", m.kv_rank, 1, "vector")
    yield Tensor("attention", "kv_b_proj", m.heads * (m.nope_dim + m.v_dim), m.kv_rank)
    yield Tensor("attention", "o_proj", hidden, m.heads * m.v_dim, lora=True)
    if m.output_gate:
        yield Tensor("attention", "output_gate", m.heads * m.v_dim, hidden)
    if m.indexer:
        yield Tensor("attention", "indexer_q_proj", m.indexer.heads * m.indexer.dim, m.q_rank or hidden)
        yield Tensor("attention", "indexer_k_proj", m.indexer.dim, hidden)
        yield Tensor("attention", "indexer_weights", m.indexer.heads, hidden)
        yield Tensor("norms", "indexer_norm", 2 * m.indexer.dim, 1, "vector")  # a layer norm: scale and bias


def _mamba1(m: shape.Mamba1, hidden: int) -> Iterator[Tensor]:
    yield Tensor("state", "in_proj", 2 * m.inner, hidden)
    yield Tensor("state", "conv", m.inner, m.conv + 1, "vector")  # kernel and bias
    yield Tensor("state", "x_proj", m.dt_rank + 2 * m.state, m.inner)
    yield Tensor("state", "dt_proj", m.inner, m.dt_rank)
    yield Tensor("state", "dt_bias", m.inner, 1, "vector")
    yield Tensor("state", "A_log", m.inner, m.state, "vector")
    yield Tensor("state", "D", m.inner, 1, "vector")
    if m.inner_norms:
        yield Tensor("norms", "inner_norms", m.dt_rank + 2 * m.state, 1, "vector")
    yield Tensor("state", "out_proj", hidden, m.inner)


def _mamba2(m: shape.Mamba2, hidden: int) -> Iterator[Tensor]:
    yield Tensor("state", "in_proj", m.inner + m.conv_width + m.heads, hidden)  # gate, (x, B, C), time step
    yield Tensor("state", "conv", m.conv_width, m.conv + 1, "vector")
    yield Tensor("state", "A_D_dt", 3 * m.heads, 1, "vector")
    if m.norm:
        yield Tensor("norms", "state_norm", m.inner, 1, "vector")
    yield Tensor("state", "out_proj", hidden, m.inner)


def _delta(d: shape.Delta, hidden: int) -> Iterator[Tensor]:
    k_width, v_width = d.k_heads * d.k_dim, d.v_heads * d.v_dim
    yield Tensor("state", "in_proj_qkv", 2 * k_width + v_width, hidden)
    yield Tensor("state", "in_proj_z", v_width, hidden)
    yield Tensor("state", "in_proj_ba", 2 * d.v_heads, hidden)
    yield Tensor("state", "conv", 2 * k_width + v_width, d.conv, "vector")
    yield Tensor("state", "A_dt", 2 * d.v_heads, 1, "vector")
    yield Tensor("norms", "state_norm", d.v_dim, 1, "vector")
    yield Tensor("state", "out_proj", hidden, v_width)


def _kimi_delta(d: shape.KimiDelta, hidden: int) -> Iterator[Tensor]:
    width = d.heads * d.head_dim
    for name in ("q_proj", "k_proj", "v_proj", *(("g_proj",) if d.full_rank_gate else ())):
        yield Tensor("state", name, width, hidden)
    yield Tensor("state", "conv", 3 * width, d.conv, "vector")
    for gate in ("f",) if d.full_rank_gate else ("f", "g"):  # forget and output, through a bottleneck of one head
        yield Tensor("state", f"{gate}_a_proj", d.head_dim, hidden)
        yield Tensor("state", f"{gate}_b_proj", width, d.head_dim)
    yield Tensor("state", "b_proj", d.heads, hidden)
    yield Tensor("state", "A_dt", d.heads + width, 1, "vector")
    yield Tensor("norms", "state_norm", d.head_dim, 1, "vector")
    yield Tensor("state", "o_proj", hidden, width)


def _lightning(m: shape.Lightning, hidden: int) -> Iterator[Tensor]:
    width = m.heads * m.head_dim
    yield Tensor("state", "qkv_proj", 3 * width, hidden)
    yield Tensor("state", "output_gate", width, hidden)
    yield Tensor("norms", "state_norm", width, 1, "vector")
    yield Tensor("state", "out_proj", hidden, width)


def _short_conv(c: shape.ShortConv, hidden: int) -> Iterator[Tensor]:
    channels = c.channels or hidden
    yield Tensor("state", "in_proj", 3 * channels, hidden)
    yield Tensor("state", "conv", channels, c.conv, "vector")
    yield Tensor("state", "out_proj", hidden, channels)


def _mlp(m: shape.Mlp, hidden: int) -> Iterator[Tensor]:
    if m.gated:
        yield Tensor("mlp", "gate_proj", m.intermediate_size, hidden, lora=True)
    yield Tensor("mlp", "up_proj", m.intermediate_size, hidden, lora=True)
    yield Tensor("mlp", "down_proj", hidden, m.intermediate_size, lora=True)
    if m.bias:
        yield Tensor("mlp", "mlp_bias", m.intermediate_size * (2 if m.gated else 1) + hidden, 1, "vector")


def _active_here(m: shape.Moe) -> float:
    """Experts of this rank that a token uses; with ep the router spreads them evenly over the ranks."""
    return m.active if m.here == m.experts else m.active * m.here / m.experts


def _moe(m: shape.Moe, hidden: int) -> Iterator[Tensor]:
    width, active = m.latent_size or hidden, _active_here(m)
    yield Tensor("router", "router", m.experts, hidden)
    if m.router_bias:
        yield Tensor("router", "router_bias", m.experts, 1, "vector")
    if m.router_scales:
        yield Tensor("router", "router_scales", m.experts + hidden, 1, "vector")
    if m.latent_size:
        yield Tensor("mlp", "latent_down", m.latent_size, hidden)
        yield Tensor("mlp", "latent_up", hidden, m.latent_size)
    if m.latent_norm and m.latent_size:
        yield Tensor("norms", "latent_norm", m.latent_size, 1, "vector")
    if m.gated:
        yield Tensor("experts", "gate_proj", m.intermediate_size, width, copies=m.here, used=active)
    yield Tensor("experts", "up_proj", m.intermediate_size, width, copies=m.here, used=active)
    yield Tensor("experts", "down_proj", width, m.intermediate_size, copies=m.here, used=active)
    if m.bias:
        elements = m.intermediate_size * (2 if m.gated else 1) + width
        yield Tensor("experts", "expert_bias", elements, 1, "vector", m.here, active)
    if m.shared_size:
        for name in ("gate_proj", "up_proj") if m.gated else ("up_proj",):
            yield Tensor("shared_experts", name, m.shared_size, hidden)
        yield Tensor("shared_experts", "down_proj", hidden, m.shared_size)
    if m.shared_gate:
        yield Tensor("router", "shared_gate", 1, hidden)


def _side_paths(w: Widths) -> Iterator[Tensor]:
    """Per-layer inputs (Gemma 3n and 4), AltUp and the learned residual (Gemma 3n), attention residuals (Kimi K3)."""
    if w.per_layer_input:
        yield Tensor("other", "per_layer_gate", w.per_layer_input, w.hidden)
        yield Tensor("other", "per_layer_projection", w.hidden, w.per_layer_input)
        yield Tensor("norms", "per_layer_norm", w.hidden, 1, "vector")
    if w.laurel_rank:
        yield Tensor("other", "laurel_left", w.laurel_rank, w.hidden)
        yield Tensor("other", "laurel_right", w.hidden, w.laurel_rank)
        yield Tensor("norms", "laurel_norm", w.hidden, 1, "vector")
    if w.altup_inputs:
        n = w.altup_inputs
        yield Tensor("other", "altup_router", n, w.hidden)
        yield Tensor("other", "altup_coefficients", n + n * n, n)  # correction n x n, prediction n^2 x n
        yield Tensor("norms", "altup_norm_and_scale", 2, w.hidden, "vector")
    if w.attention_residuals:
        yield Tensor("norms", "attention_residuals", 4, w.hidden, "vector")  # before mixer and MLP: norm and query


_PARTS: dict[str, Callable[[Any, int], Iterator[Tensor]]] = {
    "attention": _attention,
    "latent": _latent,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "delta": _delta,
    "kimi_delta": _kimi_delta,
    "lightning": _lightning,
    "short_conv": _short_conv,
    "mlp": _mlp,
    "moe": _moe,
}
