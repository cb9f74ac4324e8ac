"""Fields that nobody read: harmless ones are known by name, those that may shape the model are refused by name."""

from __future__ import annotations

import re

from kvplan.errors import Problem, SpecError
from kvplan.importers.config_fields import Fields
from kvplan.specs.nodes import join
from kvplan.specs.scalars import shown

# Switches of code beside checkpoints that kvplan knows in one position only.
_ONLY: dict[str, object] = {
    "apply_query_key_layer_scaling": True,
    "bias_dropout_fusion": True,
    "full_attn_mod": 1,
    "gated_linear_unit": True,
    "interpolate_factor": 1,
    "mamba_inner_layernorms": True,
    "mamba_use_mlp": True,
    "moe_gate": "topk",
    "no_bias": True,
    "norm_before_gate": True,
    "normalization_function": "rmsnorm",
    "normalization_layer_name": "rms_norm",
    "post_layer_norm": True,
    "qk_norm": True,
    "rms_norm": True,
    "rmsnorm": True,
    "skip_bias_add": True,
    "tie_embedding": True,
    "use_embedding_sharing": True,
    "use_falcon_mambapy": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_rmsnorm": True,
    "use_shared_mlp_adapter": True,
}

# A field with one of these words may say how large something is, or what a layer has.
_STRUCTURE = re.compile(
    r"size|dim|rank|layer|head|expert|window|conv|state|kv|width|depth|channel|hidden|inter|group|block|bias|norm"
    r"|embed|attn|attention|share|tie|gate|moe|mla|ssm|mamba|rope|lora|adapter|vocab|index|mtp|pattern|period|freq"
    r"|use_cla|cla_|swiglu|gated|glu"
)

# Training, sampling, kernels, tokens, scaling factors: nothing that is stored or cached.
_NAMES = """
    attn_implementation mlp_type d_inner ssm_cfg pad_vocab_size_multiple rope_max_length org_vocab_size num_media_embeds
    dense_list moe_drop_tokens moe_random_routing_dropped_token use_rotary_pos_emb activation_fn_name router_dtype
    norm_softmax multi_gate output_dropout rotary_type mlp_expansion_factor init_method prefix_projection pre_seq_len
    mask_init_id ff_factor for_llm_compressor skip_bias_add_qkv
    activation_function activation_func hidden_act hidden_activation mlp_hidden_act mamba_hidden_act ffn_act_fn
    act_fn activation activation_type ffn_activation mlp_activation hidden_act_fn activation_sparsity_pattern
    architectures auto_map model_type transformers_version torch_dtype dtype is_decoder is_encoder_decoder use_cache
    attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop emb_pdrop embedding_dropout residual_dropout
    embed_dropout resid_dropout dropout layerdrop ffn_dropout attention_probs_dropout_prob hidden_dropout_prob
    attention_dropout_prob attn_dropout_prob emb_dropout_prob mlp_dropout activation_dropout classifier_dropout
    attn_config ffn_config init_config init_device init_std init_method_std initializer_range
    initializer_cutoff_factor rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon
    rms_norm_epsilon mixer_rms_eps normalization_epsilon embedding_multiplier residual_multiplier
    attention_multiplier lm_head_multiplier key_multiplier attention_out_multiplier attention_in_multiplier
    ssm_multipliers ssm_in_multiplier mlp_multipliers ssm_out_multiplier logits_scaling logit_scale logits_soft_cap
    attn_logit_softcapping final_logit_softcapping query_pre_attn_scalar attn_logit_soft_capping
    router_aux_loss_coef output_router_logits router_jitter_noise input_jitter_noise aux_loss_alpha seq_aux
    norm_topk_prob scoring_func routed_scaling_factor n_group topk_group topk_method num_expert_group
    moe_renormalize moe_router_activation_func use_grouped_topk moe_router_dtype moe_router_use_sigmoid
    moe_router_topk_scaling_factor moe_router_scaling_factor moe_router_bias_update_rate score_function route_norm
    route_scale num_expert_groups num_limited_groups expert_dtype scale_fmt swiglu_limit swiglu_alpha moe_capacity
    moe_use_aux_free moe_aux_loss_coef moe_norm_min moe_group moe_norm_topk_prob moe_gate_act moe_loss_weight
    moe_shared_expert_overlap moe_dropout_prob z_loss_coefficient router_z_loss_coef load_balance_coeff
    pretraining_tp ep_size parallel_embedding group_limited_greedy tokenizer_class tokenizer_name bos_token_id
    eos_token_id pad_token_id sep_token_id unk_token_id rope_interleave indexer_rope_interleave rope_interleaved
    rope_3d mrope_section use_mrope freq_allocation max_window_layers position_embedding_type rotary rope_ratio
    original_rope rope_impl alibi_bias_max index_share_for_mtp_iteration index_skip_topk_offset index_topk_freq
    index_topk_pattern chunk_size chunk_size_feed_forward mamba_chunk_size use_mamba_kernels time_step_floor
    time_step_limit time_step_max time_step_min time_step_scale time_step_init_scheme use_mambapy
    use_associative_scan rescale_prenorm_residual residual_in_fp32 num_logits_to_keep mamba_ssm_cache_dtype
    mamba_ssm_dtype use_mem_eff_path expand mamba_expand mamba_norm_before_gate fused_add_norm linear_a_log_min
    linear_a_log_max linear_dt_min linear_dt_max linear_dt_init_floor linear_allow_neg_eigval output_gate_type
    mamba_act attention_value_scale attn_temperature_tuning attn_scale floor_scale use_bidirectional_attention
    altup_active_idx altup_coef_clip altup_correct_scale activation_situ_beta activation_situ_linear_beta
    mla_use_nope scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
    attention_softmax_in_fp32 scale_attention_softmax_in_fp32 summary_type summary_use_proj summary_activation
    summary_proj_to_labels summary_first_dropout slow_but_exact apply_residual_connection_post_layernorm
    use_parallel_residual gradient_checkpointing offset_alibi seq_length masked_softmax_fusion attention_types
    scale_emb scale_depth dim_model_base mup_enabled mup_denominator use_mup lambda_std_dev full_attn_alpha_factor
    full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor
    layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha
    layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta postnorm shared_moe_mode block_size
    qk_norm_type num_mtp_modules mtp_transformer_layers use_mtp mtp_use_dedicated_embeddings mtp_loss_scaling_factor
    mtp_hybrid_override_pattern mtp_layers_block_type output_hidden_states top_k top_p length_penalty
    num_return_sequences repetition_penalty temperature typical_p diversity_penalty do_sample
    original_max_position_embeddings output_attentions output_scores return_dict return_dict_in_generate torchscript
    use_bfloat16 verbose order_of_interleaved_layers layer_rope_theta use_long_context use_mem_rope theta
    time_step_rank mamba_dt_rank norm_type attn_dropout attention_probs_dropout use_flash_attn use_flash_attention
    use_cache_quantization use_cache_kernel use_dynamic_ntk use_logn_attn softmax_in_fp32 fp16 bf16 fp32 onnx_safe
    qk_head_dim moe_topk_method nope_layer_interval z_loss_weight max_z_loss cross_attention_hidden_size
    encoder_no_repeat_ngram_size num_beam_groups min_length max_length num_beams id2label label2id pruned_heads
    prefix problem_type task_specific_params finetuning_task bad_words_ids vision_config audio_config talker_config
    code2wav_config quantization_config compression_config pretraining_type classifier_activation use_sliding_window
    tie_encoder_decoder unsloth_fixed unsloth_version _name_or_path vocab_size_per_layer_input im_end_id im_start_id
    kv_cache_scheme expert_layer_offset attn_layer_offset resid_scale torch_compile
"""
_HARMLESS = frozenset(_NAMES.split())
_HARMLESS_ENDINGS = ("_token_id", "_token_ids", "_token_index", "_dropout", "_pdrop", "_eps", "_epsilon", "_act",
                     "_attn_implementation", "_id", "_ids", "_index")  # fmt: skip


def check_leftovers(f: Fields) -> list[str]:
    """Names of fields that are not used and look harmless; SpecError lists those that do not."""
    left = [name for name, value in f.values.items() if name not in f.used and not _is_off(value)]
    left = [name for name in left if name not in _ONLY or f.values[name] != _ONLY[name]]
    left = [name for name in left if name not in _HARMLESS and not name.endswith(_HARMLESS_ENDINGS)]
    left = [name for name in left if not name.startswith("_")]
    structural = [name for name in left if _STRUCTURE.search(name.lower())]
    if structural:
        message = "this field may change the shape and is not known for this architecture"
        raise SpecError(f.source, [Problem(None, join(f.where, name), message) for name in structural[:20]])
    return [shown(name) for name in left]


def _is_off(value: object) -> bool:
    """Null, false, zero and nothing switch a field off."""
    return value is None or value is False or (value is not True and value in (0, "", "none")) or value in ([], {})
