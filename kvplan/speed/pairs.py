"""How many (query, key) pairs attention scores, in closed form: per token, per prefill, per naive generation.

A token at position t attends to t tokens, itself included; to at most `window` of them; or only to those of its own
chunk. The exact causal triangle is counted; kernels that do not skip the masked half do up to twice as much.
"""

from __future__ import annotations


def token_pairs(position: int, window: int | None = None, chunk: int | None = None) -> int:
    """Keys that the token at this position (from 1) scores."""
    if chunk:
        return (position - 1) % chunk + 1
    return min(position, window) if window else position


def prefill_pairs(tokens: int, window: int | None = None, chunk: int | None = None) -> int:
    """Sum of token_pairs over positions 1 to `tokens`: n(n+1)/2 where nothing limits it."""
    if chunk:
        whole, rest = divmod(tokens, chunk)
        return whole * _triangle(chunk) + _triangle(rest)
    inside = min(tokens, window) if window else tokens
    return _triangle(inside) + (tokens - inside) * inside


def naive_pairs(tokens: int, window: int | None = None, chunk: int | None = None) -> int:
    """Sum of prefill_pairs over lengths 1 to `tokens`: generation that recomputes everything, n(n+1)(n+2)/6."""
    if chunk:
        whole, rest = divmod(tokens, chunk)
        earlier = _triangle(chunk) * (chunk * _triangle(whole - 1) + whole * rest) if whole else 0
        return earlier + whole * _tetrahedron(chunk) + _tetrahedron(rest)
    inside = min(tokens, window) if window else tokens
    beyond = tokens - inside
    return _tetrahedron(inside) + beyond * _triangle(inside) + inside * _triangle(beyond)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _tetrahedron(n: int) -> int:
    return n * (n + 1) * (n + 2) // 6
