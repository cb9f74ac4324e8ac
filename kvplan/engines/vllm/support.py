"""Which versions a server of unknown version can be: those that run the model and know the flags it was given.

Sources are vLLM's release notes, with the PR that brought the model, unless another is named. Families that are not
in the table, and those that vLLM ran before 0.8, keep the whole range.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.engines.vllm.rules import FIRST_V1, VERSIONS, Flags, minor
from kvplan.specs.model import ModelSpec

LAST_V0 = "0.10"  # 0.11 removed the V0 engine


class First(NamedTuple):
    """The first version that runs a family of models."""

    version: str
    source: str


FAMILIES = {
    "gpt_oss": First("0.10", "github.com/OpenPipe/ART/issues/490: 0.10.0 does not"),
    "glm4_moe": First("0.10", "github.com/zai-org/GLM-4.5/pull/5"),
    "qwen3_next": First("0.10", "github.com/vllm-project/vllm-ascend/pull/2919: with 0.10.2"),
    "deepseek_v32": First("0.11", "#25896"),
    "olmo3": First("0.11", "#24534"),
    "minimax_m2": First("0.11", "github.com/MiniMax-AI/MiniMax-M2/issues/40: 0.11.0 does not"),
    "mimo_v2": First("0.14", "#30836"),
    "exaone_moe": First("0.14", "#31621"),
    "glm4_moe_lite": First("0.15", "#31386"),
    "glm_moe_dsa": First("0.16", "#34124"),
    "qwen3_5": First("0.17", "#34110"),
    "qwen3_5_moe": First("0.17", "#34110"),
    "gemma4": First("0.19", "#38826"),
    "kimi_k3": First("0.27", "#50089"),
}


class Possible(NamedTuple):
    """Versions that a server may be of, oldest first, and why it is none before them."""

    versions: tuple[str, ...]
    why: str


def possible_versions(model: ModelSpec, flags: Flags) -> Possible:
    """The versions that run the model under these flags; without a version only V1 is meant, unless V0 is asked for."""
    if not flags.v1:
        return Possible(tuple(v for v in VERSIONS if minor(v) <= minor(LAST_V0)), "the V0 engine")
    first, why = FIRST_V1, "the V1 engine is the default"
    family = FAMILIES.get(model.family or "")
    if family and minor(family.version) > minor(first):
        first, why = family.version, f"it runs {model.family} models"
    if flags.since and minor(flags.since) > minor(first):
        first, why = flags.since, "it has the flags that were given"
    return Possible(tuple(v for v in VERSIONS if minor(v) >= minor(first)), f"since {first} {why}")


def range_text(found: Possible) -> str:
    """The range with its reason, for notes."""
    return f"{found.versions[0]} to {found.versions[-1]} ({found.why})"
