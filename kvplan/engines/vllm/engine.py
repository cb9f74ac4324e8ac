"""The engine vllm: budget, pool and admission as vLLM computes them, version by version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kvplan.arithmetic import at_most, ceil_div, session_units
from kvplan.engines.base import Budget, CachePlan, Defaults, EngineOptions, Held
from kvplan.engines.vllm.blocks import Group, Layout, printed
from kvplan.engines.vllm.budget import divide, divide_over
from kvplan.engines.vllm.caches import Chosen, cache_layout
from kvplan.engines.vllm.rules import CHECKED, Flags, device_defaults, read_flags, rules, version_name, with_flags
from kvplan.engines.vllm.support import possible_versions, range_text
from kvplan.engines.vllm.weights import weight_lines
from kvplan.errors import InputError
from kvplan.memory.cache_groups import CacheGroup
from kvplan.sharding import Rank
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.model import ModelSpec
from kvplan.units import Line

SOURCE = "vLLM: kv_cache_interface, max_memory_usage_bytes"
KV_FORMATS = (
    "fp32",
    "bf16",
    "fp16",
    "fp8",
    "int8",
    "nvfp4",
    "fp8_ds_mla",
)  # --kv-cache-dtype (int8: per token and head)
UNSEEN = ("kimi_delta", "lightning", "short_conv", "mamba1")  # states without a log to check them against


class Vllm:
    """vLLM: a fraction of the memory less weights, the profile run's peak and graphs, handed out in blocks."""

    name = "vllm"
    unused: tuple[str, ...] = ()
    seqs_in_budget = True  # the sampler is profiled with all of them

    def __init__(self, version: str | None = None) -> None:
        self.version: str | None = version_name(version)
        self.assumed = version is None
        self.rules = rules(version_name(version))
        self.memory_fraction = self.rules.memory_fraction

    def defaults(self, gpu: GpuSpec | None) -> Defaults:
        """Of the server, by version and card."""
        device = device_defaults(gpu, version_name(self.version))
        return Defaults(self.memory_fraction, device.max_seqs, device.max_batched_tokens)

    def length_in_budget(self, flags: Mapping[str, Any]) -> bool:
        """V0 profiled with prompts of the whole length."""
        return self.rules.generation == 0 or not read_flags(dict(flags)).v1

    def memory_bytes(self, gpu: GpuSpec) -> tuple[int, str]:
        """What the runtime offers a process (torch total), which the fraction is taken of."""
        return gpu.memory_bytes()

    def weights(self, held: Held, options: EngineOptions) -> list[Line]:  # noqa: ARG002 - the protocol's
        """The tensors it allocates."""
        return weight_lines(held, self.rules)

    def parameters(self, rank: Rank, from_shapes: int) -> int:  # noqa: ARG002 - the protocol's
        """As the shapes give them."""
        return from_shapes

    def flags(self, options: EngineOptions) -> Flags:
        """The engine's own choices; a version that was not given is unknown."""
        found = read_flags(dict(options.flags))
        if not found.speculative_tokens and "mtp" in (options.extras or ()):
            found = found._replace(speculative_tokens=1)
        return found._replace(unknown=(*found.unknown, "version")) if self.assumed else found

    def budget(self, memory_bytes: int, held: Held, options: EngineOptions) -> Budget:
        """Requested share, less weights, profile peak, memory outside PyTorch and (from 0.21) graphs."""
        flags = self.flags(options)
        if "version" not in flags.unknown:
            return divide(memory_bytes, held, options, with_flags(self.rules, flags), flags)
        versions = possible_versions(held.rank.model, flags).versions
        middle = rules(versions[-1]) if self.assumed else self.rules
        return divide_over(memory_bytes, held, options, with_flags(middle, flags), flags, versions=versions)

    def reserve(self, stages: list[list[CacheGroup]], options: EngineOptions) -> list[CachePlan]:
        """Blocks, charged as the scheduler admits; a unit is one block id."""
        for part in options.kv:
            if part.name not in KV_FORMATS:
                raise InputError(f"vllm has no cache in {part.name}; it has {', '.join(KV_FORMATS)}")
        return self._plans(version_name(self.version), stages, options)

    def other_plans(
        self, model: ModelSpec, stages: list[list[CacheGroup]], options: EngineOptions
    ) -> list[list[CachePlan]]:
        """By the rules of every version that a server of unknown version may be of."""
        found = []
        for version in possible_versions(model, self.flags(options)).versions if self.assumed else ():
            with suppress(InputError):  # a version that cannot serve it so
                found.append(self._plans(version, stages, options))
        return found

    def _plans(self, version: str, stages: list[list[CacheGroup]], options: EngineOptions) -> list[CachePlan]:
        flags = self.flags(options)
        chosen = Chosen(version, with_flags(rules(version), flags), options, flags)
        found = cache_layout(_with_mtp(stages, options), chosen)
        blocks = flags.num_gpu_blocks if chosen.rules.blocks_overridden else None
        return [CachePlan(unit, found.charges, found.fixed, found, blocks) for unit in found.unit_bytes]

    def session_lines(
        self,
        plan: CachePlan,
        own: list[CacheGroup],  # noqa: ARG002 - the protocol's
        draft: list[CacheGroup],  # noqa: ARG002
        options: EngineOptions,  # noqa: ARG002
        context: int,
    ) -> list[Line]:
        """Blocks of each kind of layer, whole in every tensor of the pool."""
        return [_group_line(group, plan.unit_bytes, context) for group in plan.layout.groups]

    def detail(
        self, plans: Sequence[CachePlan], kv_budgets: Sequence[int], options: EngineOptions, context: int
    ) -> dict[str, Any]:
        """What the log prints, and what decoding holds."""
        found: Layout = plans[0].layout
        blocks = max(0, min(budget // plan.unit_bytes for budget, plan in zip(kv_budgets, plans, strict=True)))
        said = printed(found, blocks, options.max_model_len)
        held = sum(_steady_blocks(group, context) for group in found.groups)
        new = self.rules.tokens_by_concurrency
        return {
            "num_blocks": blocks,
            "num_groups": found.num_groups,
            "block_tokens": found.block_tokens,
            "padding_layers": found.padding_layers,
            "blocks_per_session": session_units(found.charges, found.fixed, context),
            "max_concurrency": round(said.max_concurrency, 4),
            "reported_tokens": said.tokens_from_v021 if new else said.tokens_to_v020,
            "starts": said.max_concurrency >= 1 or (plans[0].units is not None and not self.rules.override_checked),
            "steady_sessions": blocks // held if held else 0,
        }

    def checked(self, model: ModelSpec, options: EngineOptions) -> bool:
        """Versions and kinds of layers of which there are logs."""
        unseen = any(getattr(layer, name) for layer in set(model.stack) for name in UNSEEN)
        unseen |= any(part and part.indexer for layer in set(model.stack) for part in (layer.attention, layer.latent))
        vendor = options.gpu is None or options.gpu.vendor == "NVIDIA"
        return self.version in CHECKED and not unseen and vendor

    def notes(self, model: ModelSpec, options: EngineOptions) -> list[str]:
        """Which version was assumed, and what no log has checked."""
        found = []
        if self.assumed:
            flags = self.flags(options)
            possible = possible_versions(model, flags)
            rules_of = possible.versions[-1]
            which = "its" if rules_of == self.version else f"{self.version}'s"
            band = "" if flags.num_gpu_blocks else f", the band is that of {range_text(possible)}"
            found.append(f"no --engine-version: vllm {rules_of} and {which} defaults are assumed{band}")
        if not self.checked(model, options):
            found.append(f"no start-up log of vllm {self.version} with such layers and cards has checked this plan")
        return found


def _with_mtp(stages: list[list[CacheGroup]], options: EngineOptions) -> list[list[CacheGroup]]:
    """A prediction layer that is served has a cache like the model's full or latent layers, on the last stage."""
    if "mtp" not in (options.extras or ()):
        return stages
    kinds = [group for groups in stages for group in groups if group.kind in ("full", "latent")]
    return [*stages[:-1], [*stages[-1], kinds[-1]._replace(layers=1)]] if kinds else stages


def _group_line(group: Group, unit_bytes: int, context: int) -> Line:
    spec, charge = group.spec, group.charge
    terms: dict[str, int | float] = {"block_bytes": unit_bytes, "groups": group.groups}
    if charge is None:
        terms["blocks"] = group.fixed // group.groups
        size = unit_bytes * group.fixed
        return Line(f"session/{spec.kind}", size, "block_bytes * groups * blocks", terms, _text(group))
    terms |= {"context_tokens": context, "block_tokens": charge.block}
    tokens = "context_tokens"
    if charge.limit is not None:
        terms["charged_tokens"] = charge.limit
        tokens = "min(context_tokens, charged_tokens)"
    blocks = f"ceil({tokens} / block_tokens)"
    if charge.extra:
        terms["extra_blocks"] = charge.extra
        blocks = f"({blocks} + extra_blocks)"
    size = unit_bytes * session_units([charge], 0, context)
    return Line(f"session/{spec.kind}", size, f"block_bytes * groups * {blocks}", terms, _text(group))


def _text(group: Group) -> str:
    spec = group.spec
    if spec.kind == "window":
        return f"{SOURCE}: window {spec.reach} - 1 plus {group.in_flight} tokens in flight, and a block"
    if spec.kind == "chunk":
        return f"{SOURCE}: chunk {spec.reach} plus {group.in_flight} tokens in flight"
    if spec.kind == "state":
        return f"{SOURCE}: state blocks, mode {spec.mode}"
    return SOURCE


def _steady_blocks(group: Group, context: int) -> int:
    """Blocks that a request holds while it decodes: of a window only what it covers."""
    charge, spec = group.charge, group.spec
    if charge is None:
        return group.fixed
    tokens = at_most(context, spec.reach)
    return group.groups * int(ceil_div(tokens, charge.block))
