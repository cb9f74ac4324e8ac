"""What this machine does beside what was predicted: the only package of kvplan that imports PyTorch and NVML."""
