"""A scenario: one model on one kind of GPU under one set of choices, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from kvplan.engines import load_engine
from kvplan.engines.base import Defaults, Engine, EngineOptions
from kvplan.errors import InputError
from kvplan.kv_formats import KvPair, kv_pair
from kvplan.loading import load_model
from kvplan.records import Record
from kvplan.schemes import Scheme, scheme
from kvplan.specs.attention import with_attention
from kvplan.specs.gpu import GpuSpec
from kvplan.specs.gpu_lookup import parse_gpu
from kvplan.specs.model import ModelSpec
from kvplan.units import MAX_TOKENS, parse_size, parse_tokens

DEFAULT_CONTEXT = 4096
DEFAULT_KV = "bf16"  # 16 bit


class Scenario(Record):
    """What is asked. Sizes are bytes and lengths tokens; None is the engine's or the model's own choice."""

    model: ModelSpec
    gpu: GpuSpec | None
    engine: Engine
    context: int = DEFAULT_CONTEXT
    max_model_len: int = DEFAULT_CONTEXT
    sessions: int | None = None
    weights: Scheme
    kv_dtype: str = DEFAULT_KV
    kv: KvPair
    attention: str | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    memory_fraction: float | None = None
    max_seqs: int | None = None
    max_batched_tokens: int | None = None
    block_size: int | None = None
    eager: bool = False
    reserve: int | None = None
    kv_budget: int | None = None
    lora_rank: int | None = None
    max_loras: int = 0
    draft_model: ModelSpec | None = None
    shared_prefix: int = 0
    extras: frozenset[str] | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs of the deployment."""
        return self.tp * self.pp * self.dp

    @property
    def own_tokens(self) -> int:
        """Tokens of a session that are not in the shared prefix."""
        return self.context - self.shared_prefix

    @property
    def engine_options(self) -> EngineOptions:
        """What the engine's rules look at, its defaults where nothing was said."""
        given = {name: getattr(self, name) for name in Defaults._fields}
        defaults = self.engine.defaults(self.gpu)._asdict()
        return EngineOptions(
            kv=self.kv,
            state_dtype=self.model.state_dtype,
            max_model_len=self.max_model_len,
            eager=self.eager,
            gpu=self.gpu,
            tp=self.tp,
            pp=self.pp,
            extras=self.extras,
            flags=self.flags,
            own_fraction=self.memory_fraction is None,
            **{name: defaults[name] if value is None else value for name, value in given.items()},
        )


def make_scenario(
    model: str | Path | ModelSpec,
    gpu: str | GpuSpec | None = None,
    *,
    engine: str = "generic",
    engine_version: str | None = None,
    context: int | str = DEFAULT_CONTEXT,
    max_model_len: int | str | None = None,
    weights: str | None = None,
    kv_dtype: str = "auto",
    attention: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int = 1,
    reserve: int | str | None = None,
    kv_budget: int | str | None = None,
    lora_rank: int | None = None,
    max_loras: int | None = None,
    draft_model: str | Path | ModelSpec | None = None,
    shared_prefix: int | str | None = None,
    extras: str | None = None,
    flags: Mapping[str, Any] | None = None,
    **numbers: Any,
) -> Scenario:
    """Check options and load what they name; the names are the command line's. Raises InputError and SpecError.

    `flags` are choices that only one engine knows, which its own command line has (see docs/vllm.md).
    """
    spec = with_attention(model if isinstance(model, ModelSpec) else load_model(model), attention)
    chosen, count = _gpu(gpu, kv_budget)
    context_tokens = _tokens("context", context)
    kv_name = (spec.kv_dtype or DEFAULT_KV) if kv_dtype == "auto" else kv_dtype
    tp, pp, dp = _parallel(tp, pp, dp, count)
    scenario = Scenario(
        model=spec,
        gpu=chosen,
        engine=load_engine(engine, engine_version),
        context=context_tokens,
        max_model_len=context_tokens if max_model_len is None else _tokens("max_model_len", max_model_len),
        weights=scheme(weights or spec.weights),
        kv_dtype=kv_name,
        kv=kv_pair(kv_name),
        attention=attention,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=_positive("ep", ep),
        reserve=None if reserve is None else _size("reserve", reserve),
        kv_budget=None if kv_budget is None else _size("kv_budget", kv_budget),
        lora_rank=None if lora_rank is None else _positive("lora_rank", lora_rank),
        max_loras=(1 if lora_rank else 0) if max_loras is None else _positive("max_loras", max_loras),
        draft_model=load_model(draft_model) if isinstance(draft_model, str | Path) else draft_model,
        shared_prefix=0 if shared_prefix is None else _tokens("shared_prefix", shared_prefix),
        extras=_extras(spec, extras),
        flags=dict(flags or {}),
        **_checked_numbers(numbers),
    )
    _check_together(scenario)
    return scenario


def _gpu(gpu: str | GpuSpec | None, kv_budget: int | str | None) -> tuple[GpuSpec | None, int | None]:
    if gpu is None:
        if kv_budget is None:
            raise InputError("name a GPU with --gpu, or give the KV memory of one with --kv-budget; see `kvplan gpus`")
        return None, None
    if isinstance(gpu, GpuSpec):
        return gpu, None
    if not isinstance(gpu, str):
        raise InputError(f"a GPU is a name, a file or a GpuSpec, not {gpu!r}")
    choice = parse_gpu(gpu)
    return choice.gpu, choice.count


def _parallel(tp: int | None, pp: int | None, dp: int | None, count: int | None) -> tuple[int, int, int]:
    """tp x pp x dp must equal the count of GPUs; what is not given is inferred, tp first, else more replicas."""
    for name, degree in (("tp", tp), ("pp", pp), ("dp", dp)):
        if degree is not None:
            _positive(name, degree)
    if count is None:
        return tp or 1, pp or 1, dp or 1
    given = (tp or 1) * (pp or 1) * (dp or 1)
    if count % given == 0:
        rest = count // given
        if tp is None:
            return rest, pp or 1, dp or 1
        if dp is None:
            return tp, pp or 1, rest
        if pp is None:
            return tp, rest, dp
    if count != given:
        raise InputError(f"tp {tp or 1} x pp {pp or 1} x dp {dp or 1} is {given} GPUs, not {count}; change one of them")
    return tp or 1, pp or 1, dp or 1


def _tokens(name: str, value: int | str) -> int:
    tokens = _parsed(name, value, parse_tokens) if isinstance(value, str) else _positive(name, value)
    if tokens > MAX_TOKENS:
        raise InputError(f"{_option(name)}: {tokens} is more than {MAX_TOKENS:,} tokens")
    return tokens


def _size(name: str, value: int | str) -> int:
    return _parsed(name, value, parse_size) if isinstance(value, str) else _positive(name, value)


def _parsed(name: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except InputError as error:
        raise InputError(f"{_option(name)}: {error}") from None


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{_option(name)}: expected a whole number of at least 1, got {value!r}")
    return value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _checked_numbers(numbers: dict[str, Any]) -> dict[str, Any]:
    known = ("sessions", "max_seqs", "max_batched_tokens", "block_size", "memory_fraction", "eager")
    for name, value in numbers.items():
        if name not in known:
            raise TypeError(f"unknown option '{name}'")
        if value is None or name == "eager":
            continue
        if name == "memory_fraction":
            if isinstance(value, bool | str) or not 0 < value <= 1:
                raise InputError(f"--memory-fraction: expected a number above 0 and at most 1, got {value!r}")
        else:
            _positive(name, value)
    return numbers


def _extras(spec: ModelSpec, extras: str | None) -> frozenset[str] | None:
    """Names of extras to serve: all, none, or a list with +; None leaves it to the rule (all but speculation)."""
    if extras is None:
        return None
    if extras in ("all", "none"):
        return frozenset(spec.extras if extras == "all" else ())
    wanted = frozenset(extras.split("+"))
    unknown = sorted(wanted - set(spec.extras))
    if unknown:
        known = ", ".join(spec.extras) or "it has none"
        raise InputError(f"--extras: {spec.name} has no extra '{unknown[0]}'; its extras: {known}")
    return wanted


def check_lengths(context: int, shared_prefix: int, max_model_len: int | None) -> None:
    """Raise InputError when a context does not go with the prefix it includes or with the engine's own length."""
    if max_model_len is not None and max_model_len < context:
        raise InputError(f"--max-model-len {max_model_len} is below --context {context}; raise it or leave it out")
    if shared_prefix and shared_prefix >= context:
        raise InputError(f"--shared-prefix {shared_prefix} must be below --context {context}, which includes it")


def _check_together(s: Scenario) -> None:
    check_lengths(s.context, s.shared_prefix, s.max_model_len)
    if (s.tp * s.dp) % s.ep:
        raise InputError(f"--ep {s.ep} must divide tp x dp, which is {s.tp * s.dp}")
    if s.ep > 1 and not any(layer.moe for layer in s.model.stack):
        raise InputError(f"--ep {s.ep}: {s.model.name} has no experts to share out; leave it out")
    if s.gpu and s.gpu.unified_memory and s.memory_fraction is s.reserve is s.kv_budget is None:
        raise InputError(
            f"{s.gpu.name} shares its memory with the CPU, so say how much of it to use: "
            "--memory-fraction 0.8, --reserve 16GiB or --kv-budget 60GiB"
        )
    if s.max_loras and not s.lora_rank:
        raise InputError("--max-loras needs --lora-rank")
