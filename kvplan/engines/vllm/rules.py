"""vLLM's rules by version, as data. A version has the rules of the last entry that is not newer.

Sources: PR numbers of vllm-project/vllm where a change is known; "logs" where start-up logs of that version show it
(tests/data/vllm_logs.csv; docs/vllm.md says how well each rule held).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from kvplan.errors import InputError, did_you_mean
from kvplan.specs.gpu import GpuSpec
from kvplan.units import GIB

NEWEST = "0.31"
FIRST_V1 = "0.8"  # the V1 engine became the default

EARLIER_SAMPLER, LATER_SAMPLER = 9.515, 3.616


class Rules(NamedTuple):
    """What changed between versions; the defaults are those of the oldest one modelled."""

    memory_fraction: float = 0.90  # gpu_memory_utilization
    generation: int = 0  # V0 or V1 engine
    hybrid_groups: bool = False  # window and chunk layers in groups of their own
    group_threshold: float = 1.25  # #36684, 2026-03: 1.5
    sampler_factor: float = EARLIER_SAMPLER  # copies of the logits in fp32 at the sampler's peak
    other_sampler: float | None = LATER_SAMPLER  # FlashInfer's, where it was installed and chosen; widens the band
    second_runner: bool = False  # some models run on model runner V2, whose profile run takes neither top-k nor top-p
    second_runner_graphs: bool = False  # and which takes graphs off, as the first runner does; #53306
    non_torch_gib: tuple[float, float, float] = (0.1, 0.3, 0.3)  # tp 1, 2, 4 and more
    least_non_torch_gib: float | None = None  # seen with tp 2 and more all the same; widens the band
    graphs_reserved: bool = False  # #38284, 2026-04-21
    tokens_by_concurrency: bool = False  # the size line; #40694, #41069
    in_flight_batches: int = 1  # steps whose tokens a windowed layer must hold; #47728
    state_mode: str = "none"  # recurrent state with prefix caching on: align
    mrope_factor: int = 4  # positions of multimodal rotary tables, times the config's
    mla_absorbed: bool = False  # projections multiplied together beside the stored ones
    latent_step: int = 1  # bytes of a token's latent are a multiple of it
    mxfp4_expert_bytes: tuple[int, int] = (0, 0)  # kept beside each mxfp4 expert of a layer: tp 1, tp 2 and more
    blocks_overridden: bool = True  # --num-gpu-blocks-override decides the pool
    override_checked: bool = False  # and the check that one longest request fits looks at it; #41069


_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("0.6", {}),
    ("0.7", {"mla_absorbed": True, "latent_step": 256}),  # log: 640 elements where the latent has 576
    (FIRST_V1, {"generation": 1, "mla_absorbed": False, "latent_step": 1, "blocks_overridden": False}),
    ("0.9", {"blocks_overridden": True}),  # #19503, in 0.9.2
    ("0.10", {"hybrid_groups": True}),
    ("0.11", {"non_torch_gib": (0.13, 0.55, 0.55)}),  # logs
    # Top-k and top-p by a Triton kernel instead of a sort (#33538); logs: Qwen3-14B 5.64 GiB in 0.16, 2.23 in 0.17
    ("0.17", {"sampler_factor": LATER_SAMPLER, "other_sampler": None, "mxfp4_expert_bytes": (242_000, 348_000)}),
    ("0.18", {"non_torch_gib": (0.25, 2.08, 2.17), "group_threshold": 1.5}),  # logs of 0.18 and 0.19
    (
        "0.21",
        {"memory_fraction": 0.92, "graphs_reserved": True, "tokens_by_concurrency": True, "override_checked": True},
    ),
    # Dense Qwen3 (#39337), then Llama and Mistral in 0.23, all dense models in 0.25 (#44443), all in 0.29 (#53183)
    ("0.22", {"second_runner": True, "least_non_torch_gib": 0.6}),  # 0.6 on each of four H100 in July 2026: #48601
    ("0.25", {"state_mode": "align"}),  # logs: off up to 0.22, on in 0.28 and 0.29
    ("0.26", {"in_flight_batches": 2, "mrope_factor": 1}),  # async scheduling; weights of Qwen3.8-27B-FP8
    ("0.29", {"second_runner_graphs": True}),
)
# What a version may change without the memory for the cache being another.
_NOT_IN_BUDGET: dict[str, Any] = {
    name: Rules._field_defaults[name]
    for name in (
        "hybrid_groups", "group_threshold", "tokens_by_concurrency", "in_flight_batches",
        "state_mode", "latent_step", "blocks_overridden", "override_checked",
    )
}  # fmt: skip
OLDEST = _CHANGES[0][0]
# Versions of which there are start-up logs that the rules were checked against.
CHECKED = tuple(f"0.{minor}" for minor in (11, 13, 15, 16, 17, 18, 19, 20, 21, 22, 25, 26, 28, 29, 31))
VERSIONS = tuple(f"0.{minor}" for minor in range(6, 32))

_BUILD = re.compile(r"v?0\.(\d+)\.[1-9]\d*rc\d+\.dev\d+.*")  # of the main branch after that minor's release
_VERSION = re.compile(r"v?(\d+\.\d+)(?:\.\d+)?(?:[.+-]?(?:rc|dev|post|a|b)?[\w.+-]*)?")


def version_name(text: str | None) -> str:
    """`0.19` of 0.19, v0.19.1 or 0.19.1rc1.dev5; raises InputError for a version that is not modelled."""
    if text is None:
        return NEWEST
    build, found = _BUILD.fullmatch(text.strip()), _VERSION.fullmatch(text.strip())
    if build:
        return version_name(f"0.{min(int(build[1]) + 1, minor(NEWEST))}")
    name = found[1] if found else text[:40]
    if name not in VERSIONS:
        near = did_you_mean(name, VERSIONS) or ";"
        raise InputError(f"vllm version '{text[:40]}' is not modelled{near} known: {OLDEST} to {NEWEST}")
    return name


def rules(version: str) -> Rules:
    """The rules of a version that `version_name` gave."""
    found: dict[str, object] = {}
    for since, changed in _CHANGES:
        if minor(since) <= minor(version):
            found |= changed
    return Rules(**found)  # type: ignore[arg-type]  # the names are the fields


def minor(version: str) -> int:
    """The number after 0 of a version that `version_name` gave."""
    return int(version.partition(".")[2])


@cache
def distinct_budgets(versions: tuple[str, ...]) -> tuple[Rules, ...]:
    """The rules of the versions as far as the division of the memory depends on them, each once."""
    return tuple(dict.fromkeys(rules(version)._replace(**_NOT_IN_BUDGET) for version in versions))


def with_flags(found: Rules, flags: Flags) -> Rules:
    """The rules of a version under the engine's own flags."""
    if not flags.v1:
        found = found._replace(generation=0, hybrid_groups=False, blocks_overridden=True)
    if flags.graph_estimate is not None:
        found = found._replace(graphs_reserved=flags.graph_estimate)
    return found


class Device(NamedTuple):
    """Defaults that depend on the card (vllm/engine/arg_utils.py, get_batch_defaults; the server's, not LLM()'s)."""

    max_batched_tokens: int
    max_seqs: int


LARGE = Device(8192, 1024)  # from 70 GiB on, except the A100; also where no card is named
SMALL = Device(2048, 256)
V0_DEVICE = Device(2048, 256)


def device_defaults(gpu: GpuSpec | None, version: str) -> Device:
    """Batched tokens and sequences that the server takes by itself."""
    if rules(version).generation == 0:
        return V0_DEVICE
    if gpu is None:
        return LARGE
    large = gpu.memory_bytes().bytes >= 70 * GIB and not gpu.name.startswith("a100")
    return LARGE if large else SMALL


def mla_block(gpu: GpuSpec | None, version: str, sparse: bool) -> int:
    """Tokens of a block with MLA: 64 for FlashMLA, 128 for CUTLASS, 16 for FLASH_ATTN_MLA (log of 0.19 on an H100)."""
    if sparse:
        return 64
    if gpu is not None and (gpu.compute_capability or "").startswith("10."):
        return 128
    return 64 if 8 <= minor(version) < 11 else 16


class Flags(NamedTuple):
    """Choices of the engine that have no option of their own; None is the version's default."""

    prefix_caching: bool | None = None
    state_mode: str | None = None  # mamba_cache_mode: none | align | all
    in_flight_batches: int | None = None
    async_scheduling: bool = True
    hybrid_manager: bool = True  # off: --disable-hybrid-kv-cache-manager
    context_parallel: int = 1  # --decode-context-parallel-size
    speculative_tokens: int = 0
    multimodal_profile: bool = True  # off: --skip-mm-profiling
    graph_estimate: bool | None = None  # VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS, in 0.17 to 0.20
    v1: bool = True  # off: VLLM_USE_V1=0
    num_gpu_blocks: int | None = None  # --num-gpu-blocks-override
    since: str | None = None  # the oldest version that has the flags of a command line
    unknown: tuple[str, ...] = ()  # what a log does not tell: version, max_seqs; widens the band


def read_flags(given: dict[str, object]) -> Flags:
    """The flags of a mapping; raises InputError for one that is not known."""
    for name in given:
        if name not in Flags._fields:
            near = did_you_mean(name, Flags._fields) or ";"
            raise InputError(f"vllm has no flag '{name[:40]}'{near} known: {', '.join(Flags._fields)}")
    found = Flags(**given)  # type: ignore[arg-type]  # checked below where it matters
    found = found._replace(since=version_name(str(found.since)) if found.since else None)
    if found.state_mode not in (None, "none", "align", "all"):
        raise InputError(f"state_mode: expected none, align or all, got '{found.state_mode}'")
    for name in ("in_flight_batches", "context_parallel", "num_gpu_blocks"):
        value = getattr(found, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}")
    return found
