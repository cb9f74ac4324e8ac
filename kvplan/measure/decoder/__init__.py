"""A real decoder of any model file's shapes, small enough to read beside the papers.

Letters of the shape comments: B batch, T new tokens, S cached tokens, H query heads, K key-value heads, G = H / K,
D width of a query and key head, V of a value head, M hidden size, F inner width of the MLP.
"""
