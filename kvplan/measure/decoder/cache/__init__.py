"""What a decoder keeps of earlier tokens, one slab a session or in blocks."""
