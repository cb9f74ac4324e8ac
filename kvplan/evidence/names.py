"""Model names as servers are given them: hub ids, folders, caches of the hub, and ids of quantised copies."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from kvplan.importers.zoo_checkpoints import checkpoints
from kvplan.specs import zoo

_HUB_CACHE = re.compile(r"models--([\w.-]{1,100}?)--([\w.-]{1,150})")
_QUANTISED: tuple[tuple[re.Pattern[str], str | None], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), scheme)
    for pattern, scheme in (
        (r"[-_.]fp8[-_.]?(?:dynamic|dyn)", "fp8-channel"),
        (r"[-_.]fp8(?:[-_.]?(?:block|kv|static))?", "fp8"),
        (r"[-_.](?:quantized[-_.])?w8a8(?:[-_.]?int8)?", "int8"),
        (r"[-_.](?:quantized[-_.])?w4a16(?:[-_.]g128)?", "int4-g128"),
        (r"[-_.](?:quantized[-_.])?w8a16", "gptq-int8"),
        (r"[-_.](?:nv)fp4(?:[-_.]?(?:a16|qad))?", "nvfp4"),
        (r"[-_.]mxfp4", "mxfp4"),
        (r"[-_.]awq(?:[-_.](?:int4|4bit|marlin))?", "awq"),
        (r"[-_.]gptq[-_.]?(?:int8|8bit)", "gptq-int8"),
        (r"[-_.]gptq(?:[-_.]?(?:int4|4bit|g128))?", "gptq"),
        (r"[-_.](?:bnb[-_.]?4bit|nf4)", "nf4"),
        (r"[-_.](?:int4[-_.]?autoround|autoround[-_.]?int4|autoround)", "int4-g128"),
        (r"[-_.](?:fp16|bf16|float16)", None),
    )
)
_VARIANT = re.compile(r"[-_.](?:instruct|chat|it|base|hf|pt|thinking|2503|2506|2507|0731)$", re.IGNORECASE)


class FoundModel(NamedTuple):
    """A model of the zoo and, for a quantised copy of it, the scheme its name promises."""

    name: str
    weights: str | None
    exact: bool  # whether the id itself is known


def find_model(text: str) -> FoundModel | None:
    """The zoo's model for what a server was given, or None."""
    for candidate in _candidates(text):
        found = zoo.lookup("models", candidate)
        if found:
            return FoundModel(found, None, True)
        known = checkpoints().get(candidate.lower())
        if known:
            alike = isinstance(known.get("weights"), str)  # formats by component come with the checkpoint itself
            return FoundModel(known["model"], known["weights"], True) if alike else FoundModel(candidate, None, True)
    base = _candidates(text)[-1]
    found = _by_last_part(base)
    if found:
        return FoundModel(found, None, "/" not in text)
    for pattern, scheme in _QUANTISED:
        plain = pattern.sub("", base)
        if plain != base and (found := _by_last_part(plain)):
            return FoundModel(found, scheme, False)
    return None


def _candidates(text: str) -> list[str]:
    """The id itself, the id in a path of the hub's cache, the last two parts of a path, the last part."""
    cleaned = text.strip().strip("'\"").rstrip("/\\")[:400]
    cached = _HUB_CACHE.search(cleaned)
    if cached:
        return [f"{cached[1]}/{cached[2]}", cached[2]]
    parts = [part for part in re.split(r"[/\\]", cleaned) if part]
    return [cleaned, "/".join(parts[-2:]), parts[-1] if parts else cleaned]


def _by_last_part(base: str) -> str | None:
    """The model whose alias ends in this part, also without -Instruct and the like."""
    known = _last_parts()
    name = base.lower()
    for _ in range(3):
        if name in known:
            return known[name]
        shorter = _VARIANT.sub("", name)
        if shorter == name:
            return None
        name = shorter
    return None


@cache
def _last_parts() -> dict[str, str]:
    """Last part of every alias, and of it without its variant; a part that means two models is left out."""
    pairs = [(alias.rpartition("/")[2], name) for alias, name in zoo.aliases("models").items()]
    pairs += [(name, name) for name in zoo.names("models")]
    found: dict[str, str | None] = {}
    for part, name in pairs:
        found[part] = name if found.get(part, name) == name else None
    return {part: name for part, name in found.items() if name}
