"""Where tensors live and in which format."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Place(NamedTuple):
    """A device and a number format."""

    device: torch.device
    dtype: torch.dtype

    def empty(self, *sizes: int) -> nn.Parameter:
        """A parameter with no values yet; kvplan never trains."""
        return nn.Parameter(torch.empty(sizes, device=self.device, dtype=self.dtype), requires_grad=False)
