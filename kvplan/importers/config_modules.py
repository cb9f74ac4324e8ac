"""The names of a checkpoint's modules for the matrices of a layer, and lists that name modules, wildcards and all."""

from __future__ import annotations

from functools import cache

_ATTENTION = ("self_attn", "attn", "attention", "self_attention", "mixer", "linear_attn", "mamba", "conv", "temporal")
_MLP = ("mlp", "feed_forward", "ffn", "mixer", "block_sparse_moe", "moe", "shared_mlp", "")
_EXPERTS = ("mlp.experts", "experts", "block_sparse_moe.experts", "mixer.experts", "feed_forward.experts",
            "ffn.experts", "moe.experts", "mlp.moe.experts")  # fmt: skip
_SHARED = ("mlp.shared_experts", "mlp.shared_expert", "shared_experts", "mixer.shared_experts", "shared_mlp",
           "block_sparse_moe.shared_experts", "feed_forward.shared_expert", "mlp.shared_mlp", "moe.shared_experts",
           "feed_forward.shared_experts", "shared_expert")  # fmt: skip
_ROUTER = ("mlp.gate", "mlp.router", "router.proj", "router", "block_sparse_moe.gate", "mixer.gate", "moe.gate",
           "feed_forward.router", "feed_forward.gate", "block_sparse_moe.router", "mlp.gate.wg")  # fmt: skip

# What checkpoints call each of our matrices; a tuple of two is one matrix of ours in two modules.
_QKV = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "W_pack", "qkv")
_SPELLINGS: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "q_proj": ("q_proj", "wq", "query", *_QKV),
    "k_proj": ("k_proj", "wk", "key", *_QKV),
    "v_proj": ("v_proj", "wv", "value", *_QKV),
    "o_proj": ("o_proj", "out_proj", "wo", "dense", "c_proj", "out"),
    "qkv_proj": ("qkv_proj",),
    "kv_a_proj": ("kv_a_proj_with_mqa", "kv_a_proj", "fused_qkv_a_proj_with_mqa", "fused_qkv_a_proj"),
    "q_a_proj": ("q_a_proj", "fused_qkv_a_proj_with_mqa", "fused_qkv_a_proj"),
    "indexer_q_proj": ("indexer.wq_b",),
    "indexer_k_proj": ("indexer.wk",),
    "indexer_weights": ("indexer.weights_proj", "indexers_proj", "indexer.weights"),
    "in_proj_qkv": ("in_proj_qkv", "in_proj_qkvz"),
    "in_proj_z": ("in_proj_z", "in_proj_qkvz"),
    "in_proj_ba": ("in_proj_ba", ("in_proj_b", "in_proj_a")),
    "output_gate": ("output_gate", "g_proj"),
    "head_gate": ("g_proj",),
    "out_proj": ("out_proj", "o_proj"),
    "gate_proj": ("gate_proj", "gate_up_proj", "w1", "w13", "gate_and_up_proj", "input_linear", "fc1_g"),
    "up_proj": (
        "up_proj",
        "gate_up_proj",
        "w3",
        "w13",
        "w1_up",
        "fc1",
        "fc_in",
        "c_fc",
        "dense_h_to_4h",
        "input_linear",
    ),
    "down_proj": ("down_proj", "w2", "fc2", "fc_out", "c_proj", "dense_4h_to_h", "output_linear"),
    "latent_down": ("fc1_latent_proj",),
    "latent_up": ("fc2_latent_proj",),
}
_USUAL_EDGES = {
    "head": ("lm_head", "language_model.lm_head", "model.lm_head", "output", "embed_out", "thinker.lm_head"),
    "embedding": ("model.embed_tokens", "model.language_model.embed_tokens", "backbone.embeddings", "embed_tokens"),
}


@cache
def module_names(family: str | None, component: str, tensor: str) -> tuple[tuple[str, ...], ...]:
    """Names within a layer that a matrix may have; those of one tuple are stored together as one matrix of ours."""
    spellings = [word if isinstance(word, tuple) else (word,) for word in _SPELLINGS.get(tensor, (tensor,))]
    parents = {"experts": _EXPERTS, "shared_experts": _SHARED, "mlp": _MLP, "router": _ROUTER}.get(
        component, _ATTENTION
    )
    if (family, component) == ("gemma4", "experts"):  # its experts are beside the MLP, not in it
        parents = tuple(parent for parent in _EXPERTS if not parent.startswith("mlp"))
    if component == "router":
        return (("mlp.shared_expert_gate",),) if tensor == "shared_gate" else tuple((name,) for name in _ROUTER)
    names = [tuple(f"{parent}.{word}".lstrip(".") for word in words) for parent in parents for words in spellings]
    if component == "experts":  # one module for all of them in some checkpoints
        names += [(f"{parent}.0.{word}",) for parent in parents for words in spellings for word in words]
        names += [(parent,) for parent in parents]
    return tuple(names)


def edge_names(component: str) -> tuple[str, ...]:
    """Names of the embedding or of the head."""
    return _USUAL_EDGES[component]
