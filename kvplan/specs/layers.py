"""What one layer is made of: a mixer (attention, a latent, a recurrent state, or several), an MLP or experts, norms.

Every field of a layer in a model file is declared here once; the reader and the JSON Schema follow from it.
"""

from __future__ import annotations

from kvplan.records import Record
from kvplan.specs.fields import boolean, choice, either, integer, key, number, section, text


class Rope(Record):
    """Rotary positions: base, the part of a head that turns, and how the trained length was stretched."""

    theta: float = key(number(above=0), "base of the rotary frequencies", default=10000.0)
    dim: int | None = key(integer(), "elements of a head that are rotated (default: all)", default=None)
    scaling: str | None = key(
        choice("linear", "dynamic", "llama3", "yarn", "longrope"), "how positions are stretched", default=None
    )
    factor: float | None = key(number(above=0), "factor of the stretching", default=None)
    original_context: int | None = key(integer(), "length the model was trained on before stretching", default=None)


class Indexer(Record):
    """The small scorer of sparse attention (DeepSeek V3.2, MiniMax M3): it caches one key of `dim` elements a token."""

    heads: int = key(integer(), "scoring heads")
    dim: int = key(integer(), "width of a scoring head and of the cached key")
    topk: int = key(integer(), "tokens kept for attention")


class Attention(Record):
    """Softmax attention with its own keys and values: MHA, GQA or MQA, full, windowed or chunked."""

    heads: int = key(integer(), "query heads")
    kv_heads: int = key(integer(), "key and value heads (default: heads)", default=0)
    head_dim: int = key(integer(), "width of a query and key head (default: hidden_size / heads)", default=0)
    v_head_dim: int = key(integer(), "width of a value head (default: head_dim)", default=0)
    window: int | None = key(integer(), "sliding window in tokens, the current one included", default=None)
    chunk: int | None = key(integer(), "chunk of local attention in tokens (Llama 4)", default=None)
    qkv_bias: bool = key(boolean(), "biases on the query, key and value projections", default=False)
    out_bias: bool = key(boolean(), "a bias on the output projection", default=False)
    qk_norm: str | None = key(
        choice("head", "full", "each"),
        "norms of queries and keys: one of head width, over the full width, or one for each head",
        default=None,
    )
    sinks: bool = key(boolean(), "one learned sink logit a head (gpt-oss)", default=False)
    output_gate: bool = key(boolean(), "a gate as wide as the queries, from the query projection", default=False)
    head_gate: bool = key(boolean(), "one gate a query head, from the layer's input (Step 3.7)", default=False)
    indexer: Indexer | None = key(section(Indexer), "indexer of sparse attention (MiniMax M3)", default=None)
    value_from_key: bool = key(boolean(), "no value projection: values are the keys' (both are cached)", default=False)
    cache_of: str | None = key(text(), "kind of layer whose nearest earlier cache this one reads", default=None)
    input_size: int | None = key(integer(), "width of the input (default: hidden_size)", default=None)
    rope: Rope | str | None = key(
        either(choice("none"), section(Rope)), "rotary positions of this kind, or none", default=None
    )

    def __post_init__(self) -> None:
        kv_heads = self.kv_heads or self.heads
        if self.heads % kv_heads:
            divisors = ", ".join(str(n) for n in range(1, self.heads + 1) if self.heads % n == 0)
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({kv_heads}); possible: {divisors}")
        if self.window and self.chunk:
            raise ValueError("window and chunk exclude each other; keep the one the model uses")
        object.__setattr__(self, "kv_heads", kv_heads)

    @property
    def reach(self) -> int | None:
        """Tokens the cache has to keep; None when it grows without end."""
        return self.window or self.chunk


class Latent(Record):
    """Multi-head latent attention (MLA): one compressed vector and one rotary key a token, shared by all heads."""

    heads: int = key(integer(), "query heads")
    q_rank: int | None = key(integer(), "rank of the query compression (default: none)", default=None)
    kv_rank: int = key(integer(), "rank of the cached latent")
    rope_dim: int = key(integer(0), "width of the cached rotary key")
    nope_dim: int = key(integer(), "width of a head without positions")
    v_dim: int = key(integer(), "width of a value head")
    output_gate: bool = key(boolean(), "a gate as wide as the values, from the input (Kimi K3)", default=False)
    indexer: Indexer | None = key(section(Indexer), "indexer of sparse attention", default=None)


class Mamba1(Record):
    """Selective state space (Gu and Dao 2023)."""

    inner: int = key(integer(), "inner width")
    state: int = key(integer(), "state elements a channel")
    dt_rank: int = key(integer(), "rank of the time step")
    conv: int = key(integer(), "width of the convolution", default=4)
    inner_norms: bool = key(boolean(), "norms on the time step, B and C (Jamba)", default=False)


class Mamba2(Record):
    """State space duality (Dao and Gu 2024)."""

    heads: int = key(integer(), "state heads")
    head_dim: int = key(integer(), "width of a state head")
    state: int = key(integer(), "state elements a channel")
    groups: int = key(integer(), "groups that share B and C", default=1)
    conv: int = key(integer(), "width of the convolution", default=4)
    norm: bool = key(boolean(), "a gated norm before the output projection", default=True)

    @property
    def inner(self) -> int:
        """Inner width."""
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels that pass the convolution: the inner ones, B and C."""
        return self.inner + 2 * self.groups * self.state


class Delta(Record):
    """Gated DeltaNet (Yang et al. 2024), as in Qwen3-Next and Qwen3.5."""

    k_heads: int = key(integer(), "query and key heads")
    v_heads: int = key(integer(), "value heads")
    k_dim: int = key(integer(), "width of a key head")
    v_dim: int = key(integer(), "width of a value head")
    conv: int = key(integer(), "width of the convolution", default=4)


class KimiDelta(Record):
    """Kimi Delta Attention (Kimi Linear 2025): DeltaNet with a gate for each channel."""

    heads: int = key(integer(), "heads")
    head_dim: int = key(integer(), "width of a head")
    conv: int = key(integer(), "width of the convolution", default=4)
    full_rank_gate: bool = key(boolean(), "an output gate without a bottleneck (Kimi K3)", default=False)


class Lightning(Record):
    """Lightning attention (MiniMax-01 2025): linear attention with one square state a head."""

    heads: int = key(integer(), "heads")
    head_dim: int = key(integer(), "width of a head")


class ShortConv(Record):
    """Gated short convolution (LFM2)."""

    conv: int = key(integer(2), "width of the convolution")
    channels: int = 0  # channels on this rank (0: hidden_size); set by sharding, never read from a file


class Mlp(Record):
    """A dense feed-forward block."""

    intermediate_size: int = key(integer(), "inner width")
    gated: bool = key(boolean(), "gate, up and down (SwiGLU) instead of up and down", default=True)
    bias: bool = key(boolean(), "biases on its projections", default=False)


class Moe(Record):
    """A mixture of experts: routed experts, a router, and shared experts that every token uses."""

    experts: int = key(integer(), "routed experts")
    active: int = key(integer(), "routed experts a token uses")
    intermediate_size: int = key(integer(), "inner width of a routed expert")
    shared_size: int = key(integer(0), "inner width of the shared experts together (default: none)", default=0)
    shared_gate: bool = key(boolean(), "a learned gate on the shared experts", default=False)
    gated: bool = key(boolean(), "gate, up and down instead of up and down", default=True)
    bias: bool = key(boolean(), "biases on the experts' projections", default=False)
    router_bias: bool = key(boolean(), "one bias an expert in the router", default=False)
    router_scales: bool = key(boolean(), "input and expert scales in the router (Gemma 4)", default=False)
    latent_size: int | None = key(integer(), "width the experts work in (default: hidden_size)", default=None)
    latent_norm: bool = key(boolean(), "a norm of latent_size (Kimi K3)", default=False)
    here: int = 0  # experts on this rank; set by sharding, never read from a file

    def __post_init__(self) -> None:
        if self.active > self.experts:
            raise ValueError(f"active ({self.active}) cannot be more than experts ({self.experts})")
        if not self.here:
            object.__setattr__(self, "here", self.experts)


class Layer(Record):
    """One layer; a mixer and a feed-forward part may stand alone, together, or (Falcon-H1) two mixers in parallel."""

    attention: Attention | None = key(section(Attention), "softmax attention", default=None)
    latent: Latent | None = key(section(Latent), "multi-head latent attention", default=None)
    mamba1: Mamba1 | None = key(section(Mamba1), "Mamba-1 state", default=None)
    mamba2: Mamba2 | None = key(section(Mamba2), "Mamba-2 state", default=None)
    delta: Delta | None = key(section(Delta), "gated DeltaNet state", default=None)
    kimi_delta: KimiDelta | None = key(section(KimiDelta), "Kimi delta state", default=None)
    lightning: Lightning | None = key(section(Lightning), "lightning attention state", default=None)
    short_conv: ShortConv | None = key(section(ShortConv), "gated short convolution", default=None)
    mlp: Mlp | None = key(section(Mlp), "dense feed-forward block", default=None)
    moe: Moe | None = key(section(Moe), "mixture of experts", default=None)
    norms: int = key(integer(0), "norms of hidden width in the layer (default: 2)", default=2)
    scalars: int = key(integer(0), "learned scalars (Gemma 4)", default=0)
    weights_of: str | None = key(text(), "kind whose weights this layer uses again (Zamba2)", default=None)
    use_projection: bool = key(boolean(), "each use of the block ends in a projection of its own", default=False)
    use_adapter_rank: int | None = key(integer(), "rank of the MLP adapter each use has", default=None)


MIXERS = ("attention", "latent", "mamba1", "mamba2", "delta", "kimi_delta", "lightning", "short_conv")
STATE_MIXERS = MIXERS[2:]
