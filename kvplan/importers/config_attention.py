"""Softmax attention of a layer: with its own keys and values, or with a latent."""

from __future__ import annotations

from typing import Any

from kvplan.importers.config_fields import MOST_HEADS
from kvplan.importers.config_shape import Shape, layer_sections
from kvplan.specs.layers import Attention, Indexer, Latent, Rope

Mixer = dict[str, Any]


def softmax(s: Shape, index: int) -> Mixer:
    """The attention of layer `index`, as the part of a layer that it is."""
    if s.f.maybe("kv_lora_rank") is not None:
        return {"latent": _latent(s, index)}
    return {"attention": _attention(s, index)}


def _attention(s: Shape, index: int) -> Attention:
    f, family, word = s.f, s.family, s.mixers[index]
    heads, kv_heads, head_dim, v_head_dim = _widths(s, index)
    qk_norm = family.qk_norm if s.on(family.qk_norm_if) else None
    if s.name == "llama4":
        f.flag("use_qk_norm")  # it has no weights
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        window=f.size("window") if word == "window" else None,
        chunk=f.size("attention_chunk_size") if word == "chunk" else None,
        qkv_bias=s.on(family.qkv_bias),
        out_bias=s.on(family.out_bias),
        qk_norm=qk_norm,
        sinks=_sinks(s, word),
        output_gate=s.on(family.output_gate),
        head_gate=family.head_gate,
        indexer=_block_indexer(s, index),
        value_from_key=s.name == "gemma4" and word == "full" and f.flag("attention_k_eq_v"),
        rope=_rope(s, index),
    )


def _widths(s: Shape, index: int) -> tuple[int, int, int, int]:
    """Query heads, key-value heads, width of a key and of a value: these may differ by the kind of layer."""
    f, heads, kv_heads, head_dim = s.f, s.heads, s.kv_heads, s.head_dim
    windowed = s.mixers[index] == "window"
    v_head_dim = f.size("v_head_dim", head_dim)
    if windowed and s.name == "step3p7":
        heads = f.size("num_sliding_attention_heads", maximum=MOST_HEADS)
    elif windowed:
        heads = f.size("swa_num_attention_heads", heads, maximum=MOST_HEADS)
        wider = 2 if s.name == "mimo_v2" else 1  # where no field says it, twice the key-value heads
        kv_heads = f.size("swa_num_key_value_heads", wider * kv_heads, maximum=MOST_HEADS)
        v_head_dim = f.size("swa_v_head_dim", v_head_dim)
        head_dim = f.size("swa_head_dim", head_dim)
    elif s.name == "gemma4":
        global_kv = f.maybe("num_global_key_value_heads", 1, MOST_HEADS)
        kv_heads = global_kv if global_kv and f.flag("attention_k_eq_v") else kv_heads
        head_dim = v_head_dim = f.size("global_head_dim", head_dim)
    own = layer_sections(f, s.layers)[index]
    if own.values:
        kv_heads, head_dim = own.size("kv_heads", kv_heads, maximum=MOST_HEADS), own.size("head_dim", head_dim)
        v_head_dim = own.size("v_head_dim", head_dim)
    if heads % kv_heads:
        f.refuse("num_key_value_heads", f"{heads} query heads do not divide by {kv_heads} key-value heads")
    return heads, kv_heads, head_dim, v_head_dim


def _sinks(s: Shape, word: str) -> bool:
    if s.name == "mimo_v2":
        windowed, full = s.f.flag("add_swa_attention_sink_bias", True), s.f.flag("add_full_attention_sink_bias")
        return windowed if word == "window" else full
    return s.family.sinks


def _rope(s: Shape, index: int) -> Rope | str | None:
    if s.ropes.model == "none":
        return None
    if s.no_rope[index]:
        return "none"
    return s.ropes.windowed if s.mixers[index] == "window" else None


def _latent(s: Shape, index: int) -> Latent:
    f = s.f
    if s.on(s.family.qkv_bias):
        f.refuse("attention_bias", "biases beside a latent are not known to kvplan")
    nope, rope = f.size("qk_nope_head_dim"), f.size("qk_rope_head_dim", minimum=0)
    both = f.maybe("qk_head_dim")
    if both is not None and both != nope + rope:
        f.refuse("qk_head_dim", f"{both} is not qk_nope_head_dim + qk_rope_head_dim, which is {nope + rope}")
    return Latent(
        heads=s.heads,
        q_rank=f.maybe("q_lora_rank"),
        kv_rank=f.size("kv_lora_rank"),
        rope_dim=rope,
        nope_dim=nope,
        v_dim=f.size("v_head_dim", nope),
        output_gate=f.flag("mla_use_output_gate"),
        indexer=_indexer(s, index),
    )


def _indexer(s: Shape, index: int) -> Indexer | None:
    """The scorer of sparse attention; a layer that shares the choice of an earlier one has none."""
    f = s.f
    if f.maybe("index_topk") is None:
        return None
    kinds = f.texts("indexer_types", s.layers)
    if kinds is not None and set(kinds) - {"full", "shared"}:
        f.refuse("indexer_types", "an indexer is full or shared")
    if kinds is not None and kinds[index] == "shared":
        return None
    return Indexer(
        heads=f.size("index_n_heads", maximum=MOST_HEADS), dim=f.size("index_head_dim"), topk=f.size("index_topk")
    )


def _block_indexer(s: Shape, index: int) -> Indexer | None:
    """The scorer of MiniMax M3, which chooses whole blocks of tokens in the layers that are flagged."""
    if s.name != "minimax_m3":
        return None
    s.f.flag("use_gemma_norm")  # one is added to the scale, which is stored all the same
    part = s.f.section("sparse_attention_config")
    if part is None or not part.flag("use_sparse_attention", True):
        return None
    if not part.each("sparse_attention_freq", s.layers, 1, 0)[index]:
        return None
    if not part.each("sparse_disable_index_value", s.layers, 0, 0)[index]:
        part.refuse("sparse_disable_index_value", "an indexer with values of its own is not known to kvplan")
    return Indexer(
        heads=part.size("sparse_num_index_heads", maximum=MOST_HEADS),
        dim=part.size("sparse_index_dim"),
        topk=part.size("sparse_topk_blocks") * part.size("sparse_block_size"),
    )
