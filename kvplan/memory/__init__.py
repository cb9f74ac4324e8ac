"""What a model keeps in memory: its tensors, parameters, weight bytes and caches."""
