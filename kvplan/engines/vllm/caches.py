"""From the caches of a rank to vLLM's layer specs: block sizes, the hybrid block, modes of recurrent state."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple

from kvplan.arithmetic import ceil_div
from kvplan.engines.base import EngineOptions
from kvplan.engines.vllm.blocks import LayerSpec, Layout, layout
from kvplan.engines.vllm.rules import Flags, Rules, mla_block
from kvplan.kv_formats import KV_FORMATS
from kvplan.memory.cache_groups import CONV_BYTES, STATE_BYTES, CacheGroup, token_bytes

BLOCK = 16  # tokens; vllm/config/cache.py, and the smallest block of FlashAttention's kernels
STATE_CHUNK = 256  # tokens a Mamba-2 kernel works on at once, after which mode "all" stores a state


class Chosen(NamedTuple):
    """What the rules look at: the version's, the user's options, the engine's own flags."""

    version: str
    rules: Rules
    options: EngineOptions
    flags: Flags

    @property
    def state_mode(self) -> str:
        """mamba_cache_mode: `align` keeps a second state for the prefix cache, `all` one for each block."""
        if self.flags.state_mode:
            return self.flags.state_mode
        if self.flags.prefix_caching is None:
            return self.rules.state_mode
        return "align" if self.flags.prefix_caching else "none"

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that the steps under way may add: of one step, from 0.26 on of all concurrent ones (#47728)."""
        return (self.options.max_batched_tokens or 0) * (self.flags.in_flight_batches or self._batches)

    @property
    def _batches(self) -> int:
        if self.rules.in_flight_batches == 1:
            return 1
        return self.options.pp + 1 if self.flags.async_scheduling else self.options.pp


def cache_layout(stages: Sequence[Sequence[CacheGroup]], chosen: Chosen) -> Layout:
    """The block layout of all stages; raises InputError where vLLM has no such cache."""
    groups = [group for each in stages for group in each]
    block = _block_tokens(groups, chosen)
    state_page = _state_page(groups, chosen, block)
    apart = _windows_apart(groups, chosen)
    specs = [[_spec(group, chosen, block, state_page, apart) for group in each] for each in stages]
    return layout(specs, chosen.in_flight_tokens, chosen.rules.group_threshold)


def _windows_apart(groups: list[CacheGroup], chosen: Chosen) -> bool:
    """Whether windowed and chunked layers keep only what they need: before the hybrid manager only if all are alike."""
    alike = {(group.kind, group.window) for group in groups}
    return chosen.flags.hybrid_manager and (chosen.rules.hybrid_groups or len(alike) == 1)


def _block_tokens(groups: list[CacheGroup], chosen: Chosen) -> int:
    """Tokens of a block: as asked or the backend's, enlarged until a page of attention holds a state.

    vllm/model_executor/models/config.py, HybridAttentionMambaModelConfig; checked against the sizes that logs print.
    """
    asked = chosen.options.block_size or BLOCK
    if chosen.options.block_size is None and any(group.kind == "latent" for group in groups):
        sparse = any(group.kind == "indexer" for group in groups)
        asked = mla_block(chosen.options.gpu, chosen.version, sparse)
    states = [_state_bytes(group, chosen) for group in groups if group.kind == "state"]
    attention = [token_bytes(group, chosen.options.kv) for group in groups if group.kind not in ("state", "indexer")]
    if not states or not attention:
        return asked
    step = lcm(STATE_CHUNK, asked) if chosen.state_mode == "all" else max(asked, BLOCK)
    return step * int(ceil_div(max(states), step * max(attention)))


def _state_page(groups: list[CacheGroup], chosen: Chosen, block: int) -> int | None:
    """Bytes that a state is padded to: a page of attention; None where there is none."""
    pages = [
        block * token_bytes(group, chosen.options.kv) for group in groups if group.kind not in ("state", "indexer")
    ]
    return max(pages, default=None)


def _state_bytes(group: CacheGroup, chosen: Chosen) -> int:
    """A state and its convolution, which keeps as many more inputs as tokens are speculated (three without)."""
    conv, more = group.conv_elements, chosen.flags.speculative_tokens
    size = STATE_BYTES[chosen.options.state_dtype or "bf16"]
    return conv * (3 + more) // 3 * CONV_BYTES + group.state_elements * size


def _token_bytes(group: CacheGroup, chosen: Chosen) -> int:
    """As the cache's format has it; the indexer of sparse MLA always caches fp8 with a scale (132 bytes for 128)."""
    if group.kind == "indexer":
        return KV_FORMATS["fp8_ds_mla"].indexer_bytes(group.k_width)
    return token_bytes(group, chosen.options.kv)


def _spec(group: CacheGroup, chosen: Chosen, block: int, state_page: int | None, apart: bool) -> LayerSpec:
    if group.kind == "state":
        mode, speculative = chosen.state_mode, chosen.flags.speculative_tokens
        tokens = chosen.options.max_model_len if mode == "none" else block
        return LayerSpec(
            "state", group.layers, state_page or _state_bytes(group, chosen), tokens, None, mode, speculative
        )
    each = _token_bytes(group, chosen)
    if group.kind == "latent":
        each = int(ceil_div(each, chosen.rules.latent_step)) * chosen.rules.latent_step
    if group.kind in ("window", "chunk") and apart:
        return LayerSpec(group.kind, group.layers, block * each, block, group.window)
    return LayerSpec("full", group.layers, block * each, block * chosen.flags.context_parallel)
