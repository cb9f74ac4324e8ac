"""Engine vllm: vLLM's memory rules by version. `block_plan` is its block arithmetic on explicit layer specs."""

from kvplan.engines.vllm.blocks import BlockPlan, LayerSpec, block_plan
from kvplan.engines.vllm.engine import Vllm

__all__ = ["BlockPlan", "LayerSpec", "Vllm", "block_plan"]
