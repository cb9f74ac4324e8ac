"""Without PyTorch nothing here can run: the base set-up passes without these tests."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob: list[str] = []
if all(find_spec(name) for name in ("torch", "transformers", "safetensors")):
    import torch

    torch.set_num_threads(1)  # two threads collapse when another process takes a core
else:
    collect_ignore_glob = ["decoder/*", "test_checkpoint.py"]
