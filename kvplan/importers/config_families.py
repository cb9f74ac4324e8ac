"""What the architecture of a `model_type` adds to the fields of its config: biases, norms, defaults it leaves unsaid.

As the reference implementations build them (Hugging Face transformers, or the code beside a checkpoint). A family is
listed only when published totals or those implementations confirm its count.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """A switch that a field of the config decides."""

    name: str
    default: bool = False


Switch = bool | Field

ATTENTION_BIAS, MLP_BIAS = Field("attention_bias"), Field("mlp_bias")


class Family(NamedTuple):
    """What is true of all models of a family, or which field says it."""

    norm: str = "rms"
    norms: int = 2
    qkv_bias: Switch = ATTENTION_BIAS
    out_bias: Switch = ATTENTION_BIAS
    mlp_bias: Switch = MLP_BIAS
    head_bias: Switch = False
    gated: bool = True
    qk_norm: str | None = None
    qk_norm_if: Switch = True
    output_gate: Switch = False
    head_gate: bool = False
    sinks: bool = False
    scalars: int = 0
    tied: bool = False  # where the config does not say
    router_bias: Switch = False
    shared_gate: bool = False
    state: str = ""  # what a layer without softmax attention is
    rope: bool = True
    windows: str = ""  # without layer_types: every layer | first | late | each N-th full
    full_every: int = 0
    rope_in_full: bool = True  # layers of full attention beside windowed ones have rotary positions
    scaled_windows: bool = True  # windowed layers stretch their positions too
    state_dtype: str | None = None
    learned_positions: bool = False
    defaults: tuple[tuple[str, Any], ...] = ()  # fields that published configs leave out, as the code has them


PLAIN = Family()
NO_BIAS = Family(qkv_bias=False, out_bias=False, mlp_bias=False)
QKV = NO_BIAS._replace(qkv_bias=True)
GPT = Family(
    norm="layer",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    gated=False,
    rope=False,
    learned_positions=True,
    tied=True,
)
QWEN3 = Family(mlp_bias=False, qk_norm="head")
QWEN_DELTA = QWEN3._replace(
    output_gate=Field("attn_output_gate", True), state="delta", full_every=4, shared_gate=True, state_dtype="fp32"
)
GEMMA = Family(mlp_bias=False, tied=True, defaults=(("head_dim", 256),))
GEMMA3 = GEMMA._replace(
    norms=4,
    qk_norm="head",
    full_every=6,
    scaled_windows=False,
    defaults=(
        ("vocab_size", 262208), ("num_attention_heads", 8), ("num_key_value_heads", 4), ("head_dim", 256),
        ("max_position_embeddings", 131072), ("sliding_window", 4096), ("rope_theta", 1000000),
        ("rope_local_base_freq", 10000),
    ),
)  # fmt: skip
GLM = Family(out_bias=False, mlp_bias=False)
MLA = Family(mlp_bias=False, router_bias=Field("noaux_tc", True))
COHERE = Family(
    norm="layer-no-bias", norms=1, mlp_bias=False, tied=True, qk_norm="each", qk_norm_if=Field("use_qk_norm")
)
GRANITE_MOE = Family(mlp_bias=False)
OLMO2 = Family(mlp_bias=False, qk_norm="full")
EXAONE4 = NO_BIAS._replace(qk_norm="head", full_every=4, rope_in_full=False)
USE_BIAS = Field("use_bias")
ERNIE = Family(qkv_bias=USE_BIAS, out_bias=USE_BIAS, mlp_bias=USE_BIAS, tied=True, router_bias=True)
BAILING = Family(
    qkv_bias=Field("use_qkv_bias"),
    out_bias=USE_BIAS,
    mlp_bias=USE_BIAS,
    qk_norm="head",
    qk_norm_if=Field("use_qk_norm"),
    router_bias=Field("moe_router_enable_expert_bias"),
)
MAMBA = NO_BIAS._replace(norms=1, tied=True, rope=False)
LFM2 = NO_BIAS._replace(qk_norm="head", tied=True, state="short_conv")
LLAMA4 = Family(
    mlp_bias=False, rope_in_full=False, defaults=(("no_rope_layer_interval", 4),)
)  # its norm of queries and keys has no weights
KIMI = MLA._replace(state="kimi_delta", rope=False, router_bias=True)
FALCON = Family(
    norm="layer",
    qkv_bias=Field("bias"),
    out_bias=Field("bias"),
    mlp_bias=Field("bias"),
    gated=False,
    tied=True,
    defaults=(("max_position_embeddings", 2048), ("rope_theta", 10000)),
)
STABLELM = NO_BIAS._replace(
    norm="layer", qkv_bias=Field("use_qkv_bias"), qk_norm="each", qk_norm_if=Field("qk_layernorm")
)

FAMILIES: dict[str, Family] = {
    "afmoe": QWEN3._replace(norms=4, output_gate=True, full_every=4, rope_in_full=False, router_bias=True),
    "apertus": Family(gated=False, mlp_bias=False, qk_norm="head", scalars=2),
    "arcee": Family(gated=False),
    "baichuan": NO_BIAS,
    "bailing_moe": BAILING,
    "bailing_moe_v2": BAILING,
    "bamba": PLAIN._replace(state="mamba2"),
    "bloom": GPT._replace(learned_positions=False),
    "chatglm": NO_BIAS._replace(qkv_bias=Field("add_qkv_bias"), out_bias=Field("add_bias_linear")),
    "cohere": COHERE,
    "cohere2": COHERE._replace(qk_norm=None, qk_norm_if=False, full_every=4, rope_in_full=False),
    "dbrx": NO_BIAS._replace(norm="layer-no-bias"),
    "deepseek": Family(mlp_bias=False),
    "deepseek_v2": MLA._replace(router_bias=Field("noaux_tc")),
    "deepseek_v3": MLA,
    "deepseek_v32": MLA,
    "dots1": QWEN3._replace(router_bias=True),
    "ernie4_5": ERNIE,
    "ernie4_5_moe": NO_BIAS._replace(tied=True, router_bias=True),
    "exaone": NO_BIAS,
    "exaone4": EXAONE4,
    "exaone_moe": EXAONE4._replace(router_bias=True),
    "falcon": FALCON,
    "falcon_h1": PLAIN._replace(state="mamba2"),
    "falcon_mamba": MAMBA._replace(state="mamba1"),
    "flex_olmo": OLMO2,
    "gemma": GEMMA,
    "gemma2": GEMMA._replace(norms=4, full_every=2, defaults=(("head_dim", 256), ("sliding_window", 4096))),
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3._replace(full_every=5),
    "gemma4": GEMMA3._replace(defaults=(("rope_theta", 1000000), ("rope_local_base_freq", 10000)), scalars=1),
    "glm": GLM._replace(qkv_bias=Field("attention_bias", True)),
    "glm4": GLM._replace(norms=4),
    "glm4_moe": GLM._replace(qk_norm="head", qk_norm_if=Field("use_qk_norm"), router_bias=True),
    "glm4_moe_lite": MLA,
    "glm4v": QKV._replace(norms=4),
    "glm4v_moe": GLM._replace(qkv_bias=Field("attention_bias", True), router_bias=True),
    "glm_moe_dsa": MLA,
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neo": GPT._replace(qkv_bias=False),
    "gpt_neox": GPT._replace(
        qkv_bias=Field("attention_bias", True), out_bias=Field("attention_bias", True), rope=True, tied=False,
        learned_positions=False, defaults=(("rotary_pct", 0.25),),
    ),
    "gpt_oss": Family(
        qkv_bias=Field("attention_bias", True), out_bias=Field("attention_bias", True), mlp_bias=True, sinks=True,
        router_bias=True, full_every=2,
    ),
    "gptj": GPT._replace(
        norms=1, qkv_bias=False, out_bias=False, head_bias=True, rope=True, tied=False, learned_positions=False
    ),
    "granite": PLAIN,
    "granitemoe": GRANITE_MOE,
    "granite_swa": PLAIN,
    "granitemoe_swa": GRANITE_MOE,
    "iquestcoder": PLAIN,
    "mistral4": MLA._replace(router_bias=False),
    "granitemoehybrid": GRANITE_MOE._replace(state="mamba2"),
    "granitemoeshared": GRANITE_MOE,
    "helium": PLAIN,
    "hunyuan": Family(qk_norm="head", qk_norm_if=Field("use_qk_norm", True)),
    "internlm2": NO_BIAS._replace(qkv_bias=Field("bias"), out_bias=Field("bias")),
    "internlm3": NO_BIAS._replace(qkv_bias=Field("qkv_bias"), out_bias=Field("bias"), mlp_bias=Field("bias")),
    "jais2": Family(
        norm="layer", qkv_bias=Field("attention_bias", True), out_bias=Field("attention_bias", True),
        mlp_bias=Field("mlp_bias", True), gated=False,
    ),
    "jamba": NO_BIAS._replace(state="mamba1", rope=False),
    "kimi_k2": MLA,
    "kimi_linear": KIMI,
    "lfm2": LFM2,
    "lfm2_moe": LFM2._replace(router_bias=Field("use_expert_bias", True)),
    "llama": PLAIN,
    "llama4": LLAMA4,
    "mamba": MAMBA._replace(state="mamba1"),
    "mamba2": MAMBA._replace(state="mamba2", tied=False),
    "mimo": QKV._replace(qkv_bias=ATTENTION_BIAS),
    "mimo_v2": Family(out_bias=False, mlp_bias=False, router_bias=True),
    "minicpm": PLAIN._replace(tied=True),
    "minicpm3": MLA._replace(tied=True),
    "minimax": NO_BIAS._replace(state="lightning"),
    "minimax_m2": NO_BIAS._replace(
        qk_norm="full", qk_norm_if=Field("use_qk_norm", True), router_bias=Field("use_routing_bias", True)
    ),
    "minimax_m3": NO_BIAS._replace(
        qk_norm="head", qk_norm_if=Field("use_qk_norm", True), router_bias=Field("use_routing_bias", True)
    ),
    "mistral": NO_BIAS._replace(windows="all"),
    "mixtral": NO_BIAS._replace(windows="all"),
    "mpt": GPT._replace(norm="layer-no-bias", qkv_bias=False, out_bias=False, mlp_bias=False, learned_positions=False),
    "nemotron": Family(norm="layer", gated=False),
    "nemotron_h": Family(norms=1, mlp_bias=MLP_BIAS, gated=False, rope=False, state="mamba2", router_bias=True),
    "nemotron_nas": PLAIN,
    "olmo": Family(norm="none", mlp_bias=False),
    "olmo2": OLMO2,
    "olmo3": OLMO2._replace(full_every=4, scaled_windows=False),
    "olmoe": OLMO2,
    "openelm": NO_BIAS._replace(qk_norm="head", qk_norm_if=Field("normalize_qk_projections"), tied=True),
    "opt": GPT._replace(
        qkv_bias=Field("enable_bias", True), out_bias=Field("enable_bias", True), mlp_bias=Field("enable_bias", True)
    ),
    "orion": NO_BIAS._replace(norm="layer"),
    "phi": GPT._replace(
        norms=1, rope=True, learned_positions=False, head_bias=True, tied=False,
        defaults=(("partial_rotary_factor", 0.5),),
    ),
    "phi3": NO_BIAS._replace(windows="all"),
    "phimoe": NO_BIAS._replace(
        norm="layer", qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, head_bias=Field("lm_head_bias"), windows="all"
    ),
    "qwen": QKV,
    "qwen2": QKV._replace(windows="late"),
    "qwen2_moe": QKV._replace(qkv_bias=Field("qkv_bias", True), shared_gate=True, windows="late"),
    "qwen3": QWEN3._replace(windows="late"),
    "qwen3_5": QWEN_DELTA,
    "qwen3_5_moe": QWEN_DELTA,
    "qwen3_moe": QWEN3._replace(windows="late"),
    "qwen3_next": QWEN_DELTA._replace(output_gate=True),
    "sarvam_mla": MLA._replace(router_bias=True),
    "sarvam_moe": BAILING._replace(qk_norm_if=Field("use_qk_norm", True), router_bias=True),
    "seed_oss": Family(qkv_bias=Field("attention_bias", True), out_bias=Field("attention_out_bias")),
    "smollm3": PLAIN._replace(tied=True, windows="late", defaults=(("no_rope_layer_interval", 4),)),
    "solar_open": GLM._replace(router_bias=True),
    "stablelm": STABLELM._replace(defaults=(("partial_rotary_factor", 0.25),)),
    "step3p7": NO_BIAS._replace(qk_norm="head", head_gate=True, router_bias=True),
    "starcoder2": GPT._replace(
        qkv_bias=Field("use_bias", True), out_bias=Field("use_bias", True), mlp_bias=Field("use_bias", True),
        rope=True, learned_positions=False, windows="all",
    ),
    "vaultgemma": GEMMA._replace(full_every=2, defaults=(("head_dim", 256), ("sliding_window", 4096))),
    "zamba2": Family(norms=3, mlp_bias=False, qkv_bias=False, out_bias=False, state="mamba2", tied=True, rope=False),
}  # fmt: skip
