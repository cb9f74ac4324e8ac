"""Made-up GGUF models of every family of llama.cpp, with the layers and caches that a reader must find in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gguf_models import (
    HIDDEN,
    Tensors,
    attention,
    delta,
    dense,
    edges,
    experts,
    in_block,
    keys,
    latent,
    mamba1,
    mamba2,
    mlp,
    norms,
    short_conv,
)

Made = tuple[dict[str, Any], Tensors]
POST = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


def biased() -> Made:
    k, t = dense(2, tied=True)
    for i in range(2):
        t |= {f"blk.{i}.attn_{n}.bias": (w,) for n, w in (("q", 256), ("k", 64), ("v", 64))}
    return k, t


def with_qk_norm() -> Made:
    k, t = dense(2)
    for i in range(2):
        t |= in_block(i, {"attn_q_norm": (32,), "attn_k_norm": (32,)})
    return k, t


def fused() -> Made:
    t = {**edges(), "rope_factors_long.weight": (16,), "rope_factors_short.weight": (16,)}
    for i in range(2):
        t |= {**norms(i), **in_block(i, {"attn_qkv": (384, HIDDEN), "attn_output": (HIDDEN, 256)})}
        t |= in_block(i, {"ffn_up": (1024, HIDDEN), "ffn_down": (HIDDEN, 512)})
    return keys(2, attention__sliding_window=64), t


def windowed(names: tuple[str, ...] = POST, **more: Any) -> Callable[[int], Made]:
    def made(layers: int) -> Made:
        t = edges(tied=True)
        for i in range(layers):
            t |= {**norms(i, *names), **attention(i), **mlp(i)}
        return keys(layers, attention__sliding_window=64, **more), t

    return made


def gpt_oss() -> Made:
    t = edges()
    for i in range(4):
        t |= {**norms(i, "attn_norm", "post_attention_norm"), **attention(i), **experts(i)}
        t |= {f"blk.{i}.attn_{n}.bias": (w,) for n, w in (("q", 256), ("k", 64), ("v", 64), ("output", 256))}
        t |= {f"blk.{i}.ffn_{n}_exps.bias": (4, w) for n, w in (("gate", 64), ("up", 64), ("down", HIDDEN))}
        t |= {f"blk.{i}.attn_sinks.weight": (8,), f"blk.{i}.ffn_gate_inp.bias": (4,)}
    return keys(4, attention__sliding_window=128, expert_count=4, expert_used_count=2), t


def sparse(shared: int = 0, dense_first: int = 0, predicted: int = 0, bias: bool = False) -> Made:
    t = edges()
    for i in range(3 + predicted):
        t |= {**norms(i), **attention(i), **(mlp(i) if i < dense_first else experts(i, shared=shared))}
        if bias and i >= dense_first:
            t[f"blk.{i}.exp_probs_b.bias"] = (4,)
        if i >= 3:
            t |= {f"blk.{i}.nextn.eh_proj.weight": (HIDDEN, 2 * HIDDEN), f"blk.{i}.nextn.enorm.weight": (HIDDEN,)}
    more = {"nextn_predict_layers": predicted} if predicted else {}
    return keys(3 + predicted, expert_count=4, expert_used_count=2, leading_dense_block_count=dense_first, **more), t


def deepseek(split: bool) -> Made:
    t = edges()
    for i in range(3):
        t |= {**norms(i), **latent(i, split=split), **(mlp(i) if i == 0 else experts(i, shared=64))}
    widths = (
        {"key_length": 144, "value_length": 128, "key_length_mla": 48, "value_length_mla": 32, "head_count_kv": 1}
        if split
        else {"key_length": 48, "value_length": 32, "head_count_kv": 4}
    )
    more = {f"attention.{name}": value for name, value in widths.items()}
    rope = {"rope.dimension_count": 16, "attention.q_lora_rank": 64, "attention.kv_lora_rank": 128}
    return {**keys(3, attention__head_count=4, expert_count=4, expert_used_count=2), **rope, **more}, t


def ssm_keys(layers: int, kv: list[int] | None = None, **more: Any) -> dict[str, Any]:
    ssm = {"inner_size": 512, "state_size": 16, "conv_kernel": 4, "time_step_rank": 8, "group_count": 1}
    found = {**keys(layers, **more), **{f"ssm.{name}": value for name, value in ssm.items()}}
    return {**found, "attention.head_count_kv": kv} if kv else found


def mamba() -> Made:
    t = edges(tied=True)
    for i in range(2):
        t |= {**norms(i, "attn_norm"), **mamba1(i)}
    found = {**ssm_keys(2), "ssm.time_step_rank": 16, "attention.head_count": 0, "feed_forward_length": 0}
    del found["attention.head_count_kv"]
    return found, t


def mamba_2() -> Made:
    t = edges(tied=True)
    for i in range(2):
        t |= {**norms(i, "attn_norm"), **mamba2(i)}
    return ssm_keys(2), t


def falcon_h1() -> Made:
    t = edges()
    for i in range(2):
        t |= {**norms(i), **attention(i), **mamba2(i), **mlp(i)}
    return ssm_keys(2), t


def granite_hybrid() -> Made:
    t = edges(tied=True)
    for i in range(4):
        t |= {**norms(i), **(attention(i) if i == 2 else mamba2(i)), **experts(i, shared=64)}
    return ssm_keys(4, [0, 0, 2, 0], expert_count=4, expert_used_count=2), t


def nemotron_h() -> Made:
    t = edges()
    for i, part in enumerate((mamba2(0), mlp(1, gated=False), attention(2), mlp(3, gated=False))):
        t |= {**norms(i, "attn_norm"), **part}
    return {**ssm_keys(4, [0, 0, 2, 0]), "feed_forward_length": [0, 512, 0, 512]}, t


def jamba() -> Made:
    t = edges()
    for i in range(4):
        mixer = attention(i) if i == 1 else mamba1(i, norms=True)
        t |= {**norms(i), **mixer, **(experts(i) if i % 2 else mlp(i))}
    return {**ssm_keys(4, [0, 2, 0, 0], expert_count=4, expert_used_count=2), "ssm.time_step_rank": 16}, t


def lfm2() -> Made:
    t = {"token_embd.weight": (512, HIDDEN), "token_embd_norm.weight": (HIDDEN,)}
    for i in range(3):
        mixer = (
            short_conv(i) if i != 1 else {**attention(i), **in_block(i, {"attn_q_norm": (32,), "attn_k_norm": (32,)})}
        )
        t |= {**norms(i), **mixer, **mlp(i)}
    return {**keys(3, shortconv__l_cache=3), "attention.head_count_kv": [0, 2, 0]}, t


def qwen3_next() -> Made:
    t = edges()
    for i in range(4):
        mixer = delta(i)
        if i == 3:
            mixer = {
                **attention(i),
                **in_block(i, {"attn_q": (512, HIDDEN), "attn_q_norm": (32,), "attn_k_norm": (32,)}),
            }
        t |= {**norms(i, "attn_norm", "post_attention_norm"), **mixer, **experts(i, shared=64)}
        t |= {f"blk.{i}.ffn_gate_inp_shexp.weight": (1, HIDDEN)}
    found = ssm_keys(4, expert_count=4, expert_used_count=2)
    widths = {"inner_size": 128, "state_size": 32, "group_count": 2, "time_step_rank": 4}
    more = {"attention.key_length": 32, "attention.value_length": 32, "full_attention_interval": 4}
    return {**found, **{f"ssm.{name}": value for name, value in widths.items()}, **more}, t


def gemma_3n() -> Made:
    t: Tensors = {**edges(tied=True), "per_layer_token_embd.weight": (512, 5 * 32)}
    t |= {"per_layer_model_proj.weight": (5 * 32, HIDDEN), "per_layer_proj_norm.weight": (32,)}
    t |= {"altup_proj.weight": (3, HIDDEN, HIDDEN), "altup_unembd_proj.weight": (3, HIDDEN, HIDDEN)}
    for i in range(5):
        t |= {**norms(i, *POST), **attention(i), **mlp(i), **in_block(i, {"attn_q_norm": (32,), "attn_k_norm": (32,)})}
        side: Tensors = {"inp_gate": (32, HIDDEN), "proj": (HIDDEN, 32), "post_norm": (HIDDEN,)}
        side |= {"laurel_l": (64, HIDDEN), "laurel_r": (HIDDEN, 64), "laurel_post_norm": (HIDDEN,)}
        side |= {"altup_router": (4, HIDDEN), "altup_router_norm": (HIDDEN,), "altup_correct_scale": (HIDDEN,)}
        side |= {"altup_correct_coef": (4, 4), "altup_predict_coef": (16, 4)}
        t |= in_block(i, side)
    more = {"embedding_length_per_layer_input": 32, "attention.shared_kv_layers": 1}
    pattern = {"attention.sliding_window_pattern": [True, True, False, True, True]}
    return {**keys(5, attention__sliding_window=64), **more, **pattern}, t


def gemma_4() -> Made:
    t = edges(tied=True)
    for i in range(4):
        wide = i % 2
        own = attention(i, kv=1 if wide else 2, dim=64 if wide else 32)
        if wide:
            del own[f"blk.{i}.attn_v.weight"]
        head = 64 if wide else 32
        t |= {**norms(i, *POST), **own, **mlp(i), **in_block(i, {"attn_q_norm": (head,), "attn_k_norm": (head,)})}
        t[f"blk.{i}.layer_output_scale.weight"] = (1,)
    widths = {"key_length": 64, "value_length": 64, "key_length_swa": 32, "value_length_swa": 32, "sliding_window": 64}
    found = {**keys(4), **{f"attention.{name}": value for name, value in widths.items()}}
    pattern = {"attention.sliding_window_pattern": [True, False, True, False]}
    return {**found, **pattern, "attention.head_count_kv": [2, 1, 2, 1]}, t


def gpt2() -> Made:
    t: Tensors = {**edges(), "position_embd.weight": (64, HIDDEN), "output_norm.bias": (HIDDEN,)}
    for i in range(2):
        t |= {
            **norms(i),
            **in_block(i, {"attn_qkv": (768, HIDDEN), "attn_output": (HIDDEN, 256)}),
            **mlp(i, gated=False),
        }
        widths = {
            "attn_norm": 256,
            "ffn_norm": 256,
            "attn_qkv": 768,
            "attn_output": 256,
            "ffn_up": 512,
            "ffn_down": 256,
        }
        t |= {f"blk.{i}.{name}.bias": (width,) for name, width in widths.items()}
    found = keys(2)
    del found["attention.head_count_kv"]
    return found, t


# architecture, what is in the file, kinds of its layers, and caches as (kind, layers, heads, K, V, window, conv, state)
FAMILIES = [
    ("llama", dense(2), ("", ""), [("full", 2, 2, 32, 32, None, 0, 0)]),
    ("qwen2", biased(), ("", ""), [("full", 2, 2, 32, 32, None, 0, 0)]),
    ("qwen3", with_qk_norm(), ("", ""), [("full", 2, 2, 32, 32, None, 0, 0)]),
    ("qwen3moe", sparse(), ("",) * 3, [("full", 3, 2, 32, 32, None, 0, 0)]),
    ("phi3", fused(), ("", ""), [("full", 2, 2, 32, 32, None, 0, 0)]),
    ("gpt2", gpt2(), ("", ""), [("full", 2, 8, 32, 32, None, 0, 0)]),
    ("gemma2", windowed()(4), ("local", "global") * 2,
     [("window", 2, 2, 32, 32, 64, 0, 0), ("full", 2, 2, 32, 32, None, 0, 0)]),
    ("gemma3", windowed()(7), ("local",) * 5 + ("global", "local"),
     [("window", 6, 2, 32, 32, 64, 0, 0), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("cohere2", windowed(("attn_norm",))(4), ("local",) * 3 + ("global",),
     [("window", 3, 2, 32, 32, 64, 0, 0), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("llama4", windowed(("attn_norm", "ffn_norm"))(4), ("local",) * 3 + ("global",),
     [("chunk", 3, 2, 32, 32, 8192, 0, 0), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("gpt-oss", gpt_oss(), ("local", "global") * 2,
     [("window", 2, 2, 32, 32, 128, 0, 0), ("full", 2, 2, 32, 32, None, 0, 0)]),
    ("gemma3n", gemma_3n(), ("local", "local", "global", "local", "local_reuse"),
     [("window", 3, 2, 32, 32, 64, 0, 0), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("gemma4", gemma_4(), ("local", "global") * 2,
     [("window", 2, 2, 32, 32, 64, 0, 0), ("full", 2, 1, 64, 64, None, 0, 0)]),
    ("deepseek2", deepseek(True), ("dense", "sparse", "sparse"), [("latent", 3, 1, 128, 16, None, 0, 0)]),
    ("deepseek2", deepseek(False), ("dense", "sparse", "sparse"), [("latent", 3, 1, 128, 16, None, 0, 0)]),
    ("glm4moe", sparse(64, 1, 1, bias=True), ("dense", "sparse", "sparse"), [("full", 3, 2, 32, 32, None, 0, 0)]),
    ("mamba", mamba(), ("", ""), [("state", 2, 0, 0, 0, None, 3 * 512, 512 * 16)]),
    ("mamba2", mamba_2(), ("", ""), [("state", 2, 0, 0, 0, None, 3 * 544, 512 * 16)]),
    ("falcon-h1", falcon_h1(), ("", ""),
     [("full", 2, 2, 32, 32, None, 0, 0), ("state", 2, 0, 0, 0, None, 3 * 544, 512 * 16)]),
    ("granitehybrid", granite_hybrid(), ("mamba", "mamba", "attention", "mamba"),
     [("state", 3, 0, 0, 0, None, 3 * 544, 512 * 16), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("nemotron_h", nemotron_h(), ("mamba", "mlp", "attention", "mlp"),
     [("state", 1, 0, 0, 0, None, 3 * 544, 512 * 16), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("jamba", jamba(), ("mamba_dense", "attention_sparse", "mamba_dense", "mamba_sparse"),
     [("state", 3, 0, 0, 0, None, 3 * 512, 512 * 16), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("lfm2", lfm2(), ("conv", "attention", "conv"),
     [("state", 2, 0, 0, 0, None, 2 * 256, 0), ("full", 1, 2, 32, 32, None, 0, 0)]),
    ("qwen3next", qwen3_next(), ("linear",) * 3 + ("attention",),
     [("state", 3, 0, 0, 0, None, 3 * 256, 4 * 32 * 32), ("full", 1, 2, 32, 32, None, 0, 0)]),
]  # fmt: skip
