"""The flags of vLLM's server as data: what each takes, and what it means for memory.

Names are vLLM's arguments with underscores, as its log prints them too (vllm/engine/arg_utils.py and
vllm/entrypoints/openai/cli_args.py, releases 0.4 to 0.31; flags that are gone stay, for old command lines).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Takes = Literal["value", "switch", "list", "json"]


def names(text: str) -> list[str]:
    """A list written as words."""
    return text.split()


class Flag(NamedTuple):
    """One flag: `option` is kvplan's own, `engine_flag` what only this engine knows; neither where memory is the same.

    `refused` says why kvplan cannot plan with it, `note` what a reader should know although the figures ignore it.
    """

    name: str
    takes: Takes
    option: str | None = None
    engine_flag: str | None = None
    meaning: str = ""
    refused: str | None = None
    note: str | None = None

    @property
    def matters(self) -> bool:
        """Whether memory depends on it."""
        return bool(self.option or self.engine_flag or self.refused or self.note)


def _option(name: str, option: str, meaning: str, takes: Takes = "value") -> Flag:
    return Flag(name, takes, option=option, meaning=meaning)


def _engine(name: str, meaning: str, takes: Takes = "value", flag: str | None = None) -> Flag:
    return Flag(name, takes, engine_flag=flag or name, meaning=meaning)


_RELEVANT = (
    _option("model", "model", "the model"),
    _option("tensor_parallel_size", "tp", "GPUs that share each layer"),
    _option("pipeline_parallel_size", "pp", "stages of layers"),
    _option("data_parallel_size", "dp", "replicas"),
    _option("enable_expert_parallel", "ep", "experts are spread over all ranks", "switch"),
    _option("max_model_len", "max_model_len", "the longest request"),
    _option("gpu_memory_utilization", "memory_fraction", "share of the memory that is requested"),
    _option("max_num_seqs", "max_seqs", "requests at once; the sampler is profiled with as many"),
    _option("max_num_batched_tokens", "max_batched_tokens", "tokens of one forward pass, which is profiled"),
    _option("block_size", "block_size", "tokens of a cache block"),
    _option("enforce_eager", "eager", "no CUDA graphs", "switch"),
    _option("kv_cache_dtype", "kv_dtype", "format of the cache"),
    _option("kv_cache_memory_bytes", "kv_budget", "memory of the cache, instead of what the profile leaves"),
    _option("kv_cache_memory", "kv_budget", "memory of the cache, instead of what the profile leaves"),
    _option("quantization", "weights", "format of the weights"),
    _option("dtype", "weights", "compute format, and that of weights that are not quantised"),
    _option("enable_lora", "lora_rank", "slots for adapters are allocated with the weights", "switch"),
    _option("max_lora_rank", "lora_rank", "rank the adapter slots are made for"),
    _option("max_loras", "max_loras", "adapter slots"),
    _option("speculative_config", "draft_model", "drafting: its weights and its cache", "json"),
    _option("speculative_model", "draft_model", "draft model: its weights and its cache"),
    _option("language_model_only", "extras", "vision and audio towers are not loaded", "switch"),
    _option("limit_mm_per_prompt", "extras", "items of a modality; 0 of all leaves the towers out", "json"),
    _engine("num_gpu_blocks_override", "blocks of the cache, instead of what the memory leaves", flag="num_gpu_blocks"),
    _engine("num_speculative_tokens", "tokens drafted at once", flag="speculative_tokens"),
    _engine("enable_prefix_caching", "prefix caching: recurrent state may be kept twice", "switch", "prefix_caching"),
    _engine("enable_chunked_prefill", "long prompts in pieces (always in V1)", "switch", "chunked_prefill"),
    _engine("decode_context_parallel_size", "GPUs that share one request's cache", flag="context_parallel"),
    _engine("prefill_context_parallel_size", "GPUs that share one prompt", flag="pcp"),
    _engine("disable_hybrid_kv_cache_manager", "windowed layers keep all tokens", "switch", "hybrid_manager"),
    _engine("mamba_cache_dtype", "format of the recurrent state and the convolution"),
    _engine("mamba_ssm_cache_dtype", "format of the recurrent state"),
    _engine("mamba_block_size", "tokens between kept states"),
    _engine("mamba_cache_mode", "which states are kept for prefix caching", flag="state_mode"),
    _engine("skip_mm_profiling", "the vision tower is not profiled", "switch", "multimodal_profile"),
    _engine("mm_encoder_tp_mode", "whether the vision tower is divided or copied"),
    _engine("async_scheduling", "two batches in flight", "switch"),
    _engine("max_cudagraph_capture_size", "largest batch with a CUDA graph"),
    _engine("cudagraph_capture_sizes", "batches with a CUDA graph", "list"),
    _engine("cuda_graph_sizes", "batches with a CUDA graph", "list", "cudagraph_capture_sizes"),
    _engine("compilation_config", "CUDA graphs", "json"),
    _engine("optimization_level", "0 is without CUDA graphs"),
)

_REFUSED = {
    "cpu_offload_gb": ("value", "weights kept in host memory are not modelled; leave it out"),
    "offload_backend": ("value", "weights kept in host memory are not modelled; leave it out"),
    "offload_group_size": ("value", "weights kept in host memory are not modelled; leave it out"),
    "disable_sliding_window": ("switch", "it caps the context at the window: give --max-model-len instead"),
    "override_attention_dtype": ("value", "another attention format is not modelled"),
    "kv_cache_dtype_skip_layers": ("list", "cache formats by layer are not modelled"),
}

_NOTED = {
    "hf_overrides": ("json", "changes to the model's config are not followed"),
    "rope_scaling": ("json", "rope scaling changes the rotary table (tens of MiB), which is not followed"),
    "rope_theta": ("value", "the rotary table keeps its size"),
    "kv_transfer_config": ("json", "a KV connector keeps buffers of its own, and may turn the hybrid cache off"),
    "ec_transfer_config": ("json", "an encoder connector keeps buffers of its own"),
    "enable_eplb": ("switch", "copies of busy experts are not counted"),
    "eplb_config": ("json", "copies of busy experts are not counted"),
    "num_redundant_experts": ("value", "copies of busy experts are not counted"),
    "fully_sharded_loras": ("switch", "adapter slots are counted as not sharded"),
    "enable_sleep_mode": ("switch", "another allocator is used; figures may differ a little"),
    "enable_dbo": ("switch", "two half batches keep two sets of buffers, which are not counted"),
    "config": ("value", "the flags in the config file are not read: write them here"),
    "task": ("value", "figures are those of text generation"),
    "runner": ("value", "figures are those of text generation"),
    "convert": ("value", "figures are those of text generation"),
    "use_v2_block_manager": ("switch", "no effect on the size of the cache"),
    "attention_backend": ("value", "some backends ask for larger blocks: give --block-size where the log says so"),
    "attention_config": ("json", "some backends ask for larger blocks: give --block-size where the log says so"),
    "kv_sharing_fast_prefill": ("switch", "the layers that share a cache are the model's"),
}

_VALUES = names("""
    host port uds uvicorn_log_level allowed_origins allowed_methods allowed_headers api_key chat_template
    chat_template_content_format response_role ssl_keyfile ssl_certfile ssl_ca_certs ssl_cert_reqs ssl_ciphers
    root_path tool_call_parser tool_parser_plugin tool_server log_config_file max_log_len api_server_count tokenizer
    tokenizer_mode tokenizer_revision tokenizer_pool_size tokenizer_pool_type tokenizer_pool_extra_config seed
    hf_config_path hf_token allowed_local_media_path revision code_revision max_seq_len_to_capture max_logprobs
    logprobs_mode config_format logits_processor_pattern generation_config model_impl load_format download_dir
    pt_load_map_location safetensors_load_strategy guided_decoding_backend structured_outputs_config reasoning_parser
    reasoning_parser_plugin distributed_executor_backend data_parallel_rank data_parallel_start_rank
    data_parallel_size_local data_parallel_address data_parallel_rpc_port data_parallel_backend eplb_window_size
    eplb_step_interval max_parallel_loading_workers worker_cls worker_extension_cls swap_space
    prefix_caching_hash_algo lora_dtype lora_extra_vocab_size max_cpu_loras long_lora_scaling_factors
    show_hidden_metrics_for_version otlp_traces_endpoint max_num_partial_prefills max_long_partial_prefills
    long_prefill_token_threshold num_lookahead_slots scheduler_delay_factor preemption_mode num_scheduler_steps
    scheduling_policy scheduler_cls device speculative_model_quantization speculative_draft_tensor_parallel_size
    speculative_max_model_len speculative_disable_by_batch_size ngram_prompt_lookup_max ngram_prompt_lookup_min
    spec_decoding_acceptance_method typical_acceptance_sampler_posterior_threshold
    typical_acceptance_sampler_posterior_alpha qlora_adapter_name_or_path max_prompt_adapters max_prompt_adapter_token
    quantization_param_path all2all_backend expert_placement_strategy nnodes node_rank master_addr master_port
    distributed_timeout_seconds dbo_decode_token_threshold dbo_prefill_token_threshold ubatch_size kv_offloading_size
    kv_offloading_backend mamba_backend mamba_cache_philox_rounds mm_processor_cache_gb mm_processor_cache_type
    mm_shm_cache_max_object_size_mb mm_encoder_attn_backend video_pruning_rate io_processor_plugin moe_backend
    linear_backend gdn_prefill_backend kda_prefill_backend performance_mode stream_interval
    cp_kv_cache_interleave_size dcp_kv_cache_interleave_size dcp_comm_backend kv_cache_metrics_sample
    h11_max_incomplete_event_size h11_max_header_count disable_access_log_for_endpoints shutdown_timeout
    renderer_num_workers max_num_scheduled_tokens mm_tensor_ipc
""")

_SWITCHES = names("""
    headless disable_uvicorn_access_log allow_credentials enable_ssl_refresh return_tokens_as_token_ids
    disable_frontend_multiprocessing enable_request_id_headers enable_auto_tool_choice disable_fastapi_docs
    enable_offline_docs enable_prompt_tokens_details enable_server_load_tracking enable_force_include_usage
    enable_tokenizer_info_endpoint trust_remote_code disable_cascade_attn skip_tokenizer_init enable_prompt_embeds
    disable_async_output_proc use_tqdm_on_load guided_decoding_disable_fallback guided_decoding_disable_any_whitespace
    guided_decoding_disable_additional_properties data_parallel_hybrid_lb data_parallel_external_lb
    eplb_log_balancedness ray_workers_use_nsight disable_custom_all_reduce enable_multimodal_encoder_data_parallel
    calculate_kv_scales disable_mm_preprocessor_cache interleave_mm_strings enable_lora_bias multi_step_stream_outputs
    disable_chunked_mm_input disable_log_stats disable_log_requests enable_log_requests enable_log_outputs
    enable_log_deltas enable_prompt_adapter enable_reasoning worker_use_ray engine_use_ray
    speculative_disable_mqa_scorer disable_logprobs_during_spec_decoding aggregate_engine_logging log_error_stack
    exclude_tools_when_tool_choice_none trust_request_chat_template tokens_only grpc enable_mm_embeds
    enable_mamba_cache_stochastic_rounding enable_elastic_ep disable_nccl_for_dp_synchronization cudagraph_metrics
    kv_cache_metrics enable_layerwise_nvtx_tracing enable_mfu_metrics enable_logging_iteration_details
    enable_return_routed_experts scheduler_reserve_full_isl enable_tower_connector_lora specialize_active_lora
    enable_flashinfer_autotune fail_on_environ_validation
""")

_LISTS = names("""
    served_model_name lora_modules prompt_adapters middleware ignore_patterns collect_detailed_traces
    allowed_media_domains logits_processors
""")

_JSON = names("""
    override_neuron_config override_pooler_config pooler_config override_generation_config model_loader_extra_config
    mm_processor_kwargs media_io_kwargs default_mm_loras kv_events_config additional_config
    default_chat_template_kwargs kernel_config profiler_config weight_transfer_config reasoning_config
    observability_config quantization_config ir_op_priority
""")

# The release that brought a flag, by vLLM's release notes: a server that was given it is of no earlier version.
SINCE = {
    "ssl_ciphers": "0.15",  # #30937
    "disable_access_log_for_endpoints": "0.16",  # #30011
    "performance_mode": "0.17",  # #34936
    "grpc": "0.18",  # #36169
}

SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dcp": "decode_context_parallel_size",
    "pcp": "prefill_context_parallel_size",
    "q": "quantization",
    "O": "optimization_level",
    "cc": "compilation_config",
    "sc": "speculative_config",
    "ac": "attention_config",
    "asc": "api_server_count",
    "ep": "enable_expert_parallel",
    "n": "nnodes",
    "r": "node_rank",
    "dpn": "data_parallel_rank",
    "dpr": "data_parallel_start_rank",
    "dpl": "data_parallel_size_local",
    "dpa": "data_parallel_address",
    "dpp": "data_parallel_rpc_port",
    "dpb": "data_parallel_backend",
    "dph": "data_parallel_hybrid_lb",
    "dpe": "data_parallel_external_lb",
}


def _table() -> dict[str, Flag]:
    found = {flag.name: flag for flag in _RELEVANT}
    for name, (takes, why) in _REFUSED.items():
        found[name] = Flag(name, takes, refused=why)  # type: ignore[arg-type]
    for name, (takes, why) in _NOTED.items():
        found[name] = Flag(name, takes, note=why)  # type: ignore[arg-type]
    plain: tuple[tuple[Takes, list[str]], ...] = (
        ("value", _VALUES),
        ("switch", _SWITCHES),
        ("list", _LISTS),
        ("json", _JSON),
    )
    for takes, listed in plain:
        for name in listed:
            found.setdefault(name, Flag(name, takes))
    return found


FLAGS = _table()
