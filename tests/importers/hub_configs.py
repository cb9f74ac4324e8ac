"""Small configs written as the hub's files of these families are, with the zoo's model that each must become.

The fields and their spelling follow the published files; many old ones leave out what their code has as a default.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


HUB_CONFIGS: dict[str, Config] = {
    "qwen-7b": {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "seq_length": 8192, "no_bias": True,
        "rotary_pct": 1.0, "rotary_emb_base": 10000, "use_dynamic_ntk": True, "use_logn_attn": True, "bf16": True,
        "max_position_embeddings": 32768, "tie_word_embeddings": False, "scale_attn_weights": True,
    },
    "baichuan2-13b": {
        "model_type": "baichuan", "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
        "num_attention_heads": 40, "vocab_size": 125696, "model_max_length": 4096, "gradient_checkpointing": False,
        "tie_word_embeddings": False, "z_loss_weight": 0, "_from_model_config": True,
    },
    "orion-14b": {
        "model_type": "orion", "hidden_size": 5120, "intermediate_size": 15360, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "vocab_size": 84608, "max_position_embeddings": 4096,
        "max_sequence_length": 4096, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False,
    },
    "internlm2-7b": {
        "model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92544, "max_position_embeddings": 32768,
        "rope_theta": 1000000, "bias": False, "rope_scaling": {"type": "dynamic", "factor": 1.0},
    },
    "minicpm-2b": {
        "model_type": "minicpm", "hidden_size": 2304, "intermediate_size": 5760, "num_hidden_layers": 40,
        "num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122753, "max_position_embeddings": 4096,
        "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "rope_scaling": None,
    },
    "ling-lite": {
        "model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 126464, "num_experts": 64,
        "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408, "first_k_dense_replace": 0,
        "use_qkv_bias": False, "use_bias": False, "max_position_embeddings": 32768, "rope_theta": 600000,
        "norm_head": False, "norm_softmax": False, "multi_gate": False, "output_dropout": 0.0,
    },
    "ling-1t": {
        "model_type": "bailing_moe", "hidden_size": 8192, "intermediate_size": 18432, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 157184, "num_experts": 256,
        "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 4,
        "use_qkv_bias": False, "use_bias": False, "use_qk_norm": True, "moe_router_enable_expert_bias": True,
        "n_group": 8, "topk_group": 4, "score_function": "sigmoid", "partial_rotary_factor": 0.5,
        "max_position_embeddings": 32768, "num_nextn_predict_layers": 0, "mtp_loss_scaling_factor": 0,
    },
    "hunyuan-a13b": {
        "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128, "head_dim": 128,
        "vocab_size": 128167, "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
        "moe_intermediate_size": [3072] * 32, "use_mixed_mlp_moe": True, "use_qk_norm": True, "use_cla": False,
        "cla_share_factor": 2, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "max_position_embeddings": 32768, "norm_type": "rms", "moe_layer_num_skipped": 0, "use_rotary_pos_emb": True,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    },
    "dbrx": {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100352, "emb_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": False,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "", "rope_theta": 500000},
        "ffn_config": {
            "ffn_hidden_size": 10752, "model_type": "", "moe_jitter_eps": 0.01, "moe_loss_weight": 0.05,
            "moe_num_experts": 16, "moe_top_k": 4,
        },
    },
    "minimax-text-01": {
        "model_type": "minimax_text_01", "hidden_size": 6144, "intermediate_size": 9216, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
        "num_local_experts": 32, "num_experts_per_tok": 2, "attn_type_list": ([0] * 7 + [1]) * 10, "rotary_dim": 64,
        "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "postnorm": True, "rope_theta": 10000000,
        "max_position_embeddings": 10240000, "sliding_window": None, "layernorm_mlp_alpha": 3.5565588200778455,
        "layernorm_mlp_beta": 1.0,
    },
    "gemma-3-4b": {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 256,
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
        },
    },
    "gemma-3n-e2b": {
        "model_type": "gemma3n",
        "audio_config": {"model_type": "gemma3n_audio", "hidden_size": 1536},
        "vision_config": {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc"},
        "text_config": {
            "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [8192] * 30,
            "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
            "vocab_size": 262400, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
            "altup_num_inputs": 4, "altup_active_idx": 0, "laurel_rank": 64, "num_kv_shared_layers": 10,
            "sliding_window": 512, "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 6,
            "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "max_position_embeddings": 32768,
            "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
        },
    },
    "gemma-4-e2b": {
        "model_type": "gemma4",
        "audio_config": {"model_type": "gemma4_audio", "hidden_size": 1024},
        "vision_config": {
            "model_type": "gemma4_vision", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
            "num_attention_heads": 12, "head_dim": 64, "patch_size": 16, "position_embedding_size": 10240,
            "standardize": False,
        },
        "text_config": {
            "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35,
            "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512,
            "vocab_size": 262144, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
            "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "attention_k_eq_v": False,
            "enable_moe_block": False, "num_global_key_value_heads": None, "sliding_window": 512,
            "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "max_position_embeddings": 131072,
            "rope_parameters": {
                "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            },
        },
    },
    "kimi-linear": {
        "model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72, "vocab_size": 163840,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "mla_use_nope": True, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
        "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1, "model_max_length": 1048576,
        "moe_router_activation_func": "sigmoid", "routed_scaling_factor": 2.446, "num_nextn_predict_layers": 0,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "kda_layers": [i for i in range(1, 27) if i % 4],
            "head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4,
        },
        "tie_word_embeddings": False,
    },
    "falcon-7b": {
        "model_type": "RefinedWebModel", "hidden_size": 4544, "n_layer": 32, "n_head": 71, "vocab_size": 65024,
        "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False, "hidden_dropout": 0.0,
        "apply_residual_connection_post_layernorm": False, "layer_norm_epsilon": 1e-05,
    },
    "glm-4-9b": {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40,
        "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
        "padded_vocab_size": 151552, "vocab_size": 151552, "add_bias_linear": False, "add_qkv_bias": True,
        "seq_length": 131072, "rmsnorm": True, "post_layer_norm": True, "rope_ratio": 500, "original_rope": True,
        "tie_word_embeddings": False, "bias_dropout_fusion": True, "layernorm_epsilon": 1.5625e-07,
        "attention_softmax_in_fp32": True, "fp32_residual_connection": False, "interleaved_qkv": False,
        "apply_query_key_layer_scaling": True, "apply_residual_connection_post_layernorm": False,
    },
    "mistral-small-3.1": {
        "model_type": "mistral3", "image_token_index": 10, "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "vision_feature_layer": -1,
        "text_config": {
            "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
            "max_position_embeddings": 131072, "rope_theta": 1000000000.0, "sliding_window": None,
            "attention_dropout": 0.0, "hidden_act": "silu",
        },
        "vision_config": {
            "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "num_channels": 3, "patch_size": 14, "image_size": 1540, "head_dim": 64,
        },
    },
    "lfm2-8b-a1b": {
        "model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
        "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
        "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2, "use_expert_bias": True,
        "conv_L_cache": 3, "conv_bias": False, "max_position_embeddings": 128000, "rope_theta": 1000000.0,
        "layer_types": ["conv", "conv", *(["full_attention", "conv", "conv", "conv"] * 4),
                        *(["full_attention", "conv", "conv"] * 2)],
    },
    "lfm2-1.2b": {
        "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 65536, "block_ff_dim": 12288, "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "block_dim": 2048, "conv_dim": 2048,
        "conv_L_cache": 3, "conv_bias": False, "block_use_swiglu": True, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "max_position_embeddings": 128000, "num_heads": 32, "tie_embedding": True, "theta": 1000000.0,
    },
    "jamba-v0.1": {
        "model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "num_experts": 16,
        "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
        "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
        "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_inner_layernorms": True, "sliding_window": None,
        "max_position_embeddings": 262144, "tie_word_embeddings": False, "use_mamba_kernels": True,
    },
    "granite-4.0-h-tiny": {
        "model_type": "granitemoehybrid", "hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 40,
        "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352, "num_local_experts": 64,
        "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "tie_word_embeddings": True,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, "mamba_n_heads": 48, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_expand": 2, "mamba_chunk_size": 256,
        "mamba_conv_bias": True, "mamba_proj_bias": False, "position_embedding_type": "nope",
        "normalization_function": "rmsnorm", "max_position_embeddings": 131072, "rope_theta": 10000,
        "attention_bias": False, "init_method": "mup",
    },
    "falcon-h1-0.5b": {
        "model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 36,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 32784, "mamba_d_ssm": 1536,
        "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1,
        "mamba_expand": 2, "mamba_chunk_size": 128, "mamba_conv_bias": True, "mamba_proj_bias": False,
        "mamba_rms_norm": False, "mamba_use_mlp": True, "projectors_bias": False, "mlp_expansion_factor": 8,
        "max_position_embeddings": 16384, "rope_theta": 100000000000.0, "attn_layer_indices": None,
        "attention_in_multiplier": 1.0, "ssm_multipliers": [0.35, 0.25, 0.17, 0.5, 0.35],
    },
    "smollm3-3b": {
        "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 128256, "max_position_embeddings": 65536,
        "no_rope_layers": [1, 1, 1, 0] * 9, "no_rope_layer_interval": 4, "rope_theta": 5000000.0,
        "layer_types": ["full_attention"] * 36, "max_window_layers": 28, "use_sliding_window": False,
        "sliding_window": None, "attention_bias": False, "mlp_bias": False,
    },
    "command-r7b": {
        "model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 256000, "layer_switch": 4,
        "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj", "logit_scale": 0.25,
        "rotary_pct": 1.0, "rope_theta": 50000, "sliding_window": 4096, "sliding_window_pattern": 4,
        "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
        "use_parallel_embedding": False, "max_position_embeddings": 8192, "attention_bias": False,
    },
    "mamba-2.8b": {
        "model_type": "mamba", "hidden_size": 2560, "d_model": 2560, "d_inner": 5120, "intermediate_size": 5120,
        "n_layer": 64, "num_hidden_layers": 64, "conv_kernel": 4, "expand": 2, "state_size": 16, "vocab_size": 50280,
        "time_step_rank": 160, "use_bias": False, "use_conv_bias": True, "fused_add_norm": True, "rms_norm": True,
        "residual_in_fp32": True, "pad_vocab_size_multiple": 8, "ssm_cfg": {},
    },
}  # fmt: skip
