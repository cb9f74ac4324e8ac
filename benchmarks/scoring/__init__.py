"""What benchmarks/accuracy.py computes and writes."""
