"""Options that are the same everywhere, declared once. A comma separates alternatives; the first is the base."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from kvplan.cli import completion
from kvplan.errors import InputError


def _option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - Typer's word
    return typer.Option(*names, help=help, show_default=False, **more)


Model = Annotated[
    str,
    _option(
        "--model", "-m", help="Zoo name, hub id, YAML file or checkpoint of a model.", autocompletion=completion.models
    ),
]
Gpu = Annotated[
    str | None,
    _option(
        "--gpu", "-g", help="Zoo name, 8xNAME, NAME:MIG-SLICE, YAML file, or local.", autocompletion=completion.gpus
    ),
]
Engine = Annotated[
    str, _option("--engine", help="generic (default), textbook or vllm.", autocompletion=completion.engines)
]
EngineVersion = Annotated[str | None, _option("--engine-version", help="Version of the engine's rules.")]
Context = Annotated[
    str | None, _option("--context", "-c", help="Live tokens of one conversation, e.g. 8k (default 4096).")
]
MaxModelLen = Annotated[str | None, _option("--max-model-len", help="Length the engine is set for (default: context).")]
Sessions = Annotated[str | None, _option("--sessions", "-n", help="Ask whether N conversations fit.")]
Weights = Annotated[
    str | None,
    _option(
        "--weights",
        "-w",
        help="Scheme, e.g. fp8, awq, q4_k_m (default: the model's).",
        autocompletion=completion.weights,
    ),
]
KvDtype = Annotated[
    str,
    _option(
        "--kv-dtype",
        help="Cache format, e.g. fp8, q8_0/q4_0 for K/V (default: auto).",
        autocompletion=completion.kv_dtypes,
    ),
]
Attention = Annotated[str | None, _option("--attention", help="What if: mha, mqa or gqa:N.")]
Tp = Annotated[str | None, _option("--tp", help="Tensor-parallel GPUs.")]
Pp = Annotated[str | None, _option("--pp", help="Pipeline stages.")]
Dp = Annotated[str | None, _option("--dp", help="Replicas.")]
Ep = Annotated[str | None, _option("--ep", help="GPUs that share the experts, a divisor of tp x dp (default 1).")]
MemoryFraction = Annotated[str | None, _option("--memory-fraction", help="Share of the memory to request.")]
MaxSeqs = Annotated[str | None, _option("--max-seqs", help="Most sessions a replica runs at once.")]
MaxBatchedTokens = Annotated[str | None, _option("--max-batched-tokens", help="Tokens of one forward pass.")]
BlockSize = Annotated[str | None, _option("--block-size", help="Tokens of a cache block.")]
Eager = Annotated[bool, _option("--eager", help="No CUDA graphs.")]
Reserve = Annotated[str | None, _option("--reserve", help="Memory to keep free, e.g. 2GiB.")]
KvBudget = Annotated[
    str | None, _option("--kv-budget", help="KV memory of a GPU, e.g. 60GiB; no --gpu is needed then.")
]
LoraRank = Annotated[str | None, _option("--lora-rank", help="Rank of LoRA adapters on the seven projections.")]
MaxLoras = Annotated[str | None, _option("--max-loras", help="Adapters held at once (default 1).")]
DraftModel = Annotated[
    str | None,
    _option("--draft-model", help="Draft model of speculative decoding.", autocompletion=completion.models),
]
SharedPrefix = Annotated[str | None, _option("--shared-prefix", help="Tokens all conversations share, stored once.")]
Extras = Annotated[str | None, _option("--extras", help="Vision towers and the like: all, none or names with +.")]
Strict = Annotated[bool, _option("--strict", help="A context above the model's maximum is an error.")]
Format = Annotated[
    str | None,
    _option(
        "--format",
        "-f",
        help="table, json, jsonl, csv or markdown (default: from --output, else table).",
        autocompletion=completion.formats,
    ),
]
Output = Annotated[Path | None, _option("--output", "-o", help="Write to this file.")]

LAUNCHED = "kvplan.launched"  # where a context keeps what --launch stands for


def take_launch(ctx: typer.Context, text: str | None) -> str | None:
    """Options of a server's command line become the defaults of ours; what is written beside it goes before."""
    if text is None:
        return None
    from kvplan.evidence.launch import parse_launch
    from kvplan.evidence.launched import launched

    found = launched(parse_launch(text))
    ctx.meta[LAUNCHED] = found
    sizes = {name: f"{value}B" for name, value in found.options.items() if name == "kv_budget"}
    written = {name: value if isinstance(value, bool) else str(value) for name, value in found.options.items()}
    ctx.default_map = {**(ctx.default_map or {}), **written, **sizes}
    return text


Launch = Annotated[
    str | None,
    _option(
        "--launch",
        help="A server's own command line, 'vllm serve ...'; other options go before it.",
        is_eager=True,
        callback=take_launch,
    ),
]


RowsFormat = Annotated[
    str | None,
    _option(
        "--format",
        "-f",
        help="table, json, jsonl, csv, markdown or parquet (default: from --output, else table).",
        autocompletion=completion.formats,
    ),
]


class Scenario(NamedTuple):
    """The options of a scenario, in the order of the help."""

    model: Model
    gpu: Gpu = None
    context: Context = None
    sessions: Sessions = None
    weights: Weights = None
    kv_dtype: KvDtype = "auto"
    attention: Attention = None
    tp: Tp = None
    pp: Pp = None
    dp: Dp = None
    ep: Ep = None
    engine: Engine = "generic"
    engine_version: EngineVersion = None
    max_model_len: MaxModelLen = None
    memory_fraction: MemoryFraction = None
    max_seqs: MaxSeqs = None
    max_batched_tokens: MaxBatchedTokens = None
    block_size: BlockSize = None
    eager: Eager = False
    reserve: Reserve = None
    kv_budget: KvBudget = None
    lora_rank: LoraRank = None
    max_loras: MaxLoras = None
    draft_model: DraftModel = None
    shared_prefix: SharedPrefix = None
    extras: Extras = None


def with_scenario(command: Callable[..., int]) -> Callable[..., int]:
    """The command with all options of a scenario, which it gets as a dict in its first parameter."""
    types = get_type_hints(Scenario, include_extras=True)
    _, *own = inspect.signature(command, eval_str=True).parameters.values()

    @wraps(command)
    def run(**options: Any) -> int:
        given = {name: options.pop(name) for name in types}
        return command(given, **options)

    kind = inspect.Parameter.KEYWORD_ONLY
    defaults = {name: Scenario._field_defaults.get(name, inspect.Parameter.empty) for name in types}
    shared = [inspect.Parameter(name, kind, default=defaults[name], annotation=types[name]) for name in types]
    signature = inspect.Signature([*shared, *(parameter.replace(kind=kind) for parameter in own)])
    run.__signature__ = signature  # type: ignore[attr-defined]  # where Typer finds the parameters
    run.__annotations__ = {}
    return run


def split_lists(options: dict[str, Any]) -> tuple[dict[str, Sequence[Any]], dict[str, Any]]:
    """Options as lists of alternatives and as single values; raises InputError for an empty list or a wrong number."""
    from kvplan.planning.axes import OPTIONS, parse_axis

    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    axes = {name: parse_axis(name, value) if isinstance(value, str) else [value] for name, value in given.items()}
    lists = {name: values for name, values in axes.items() if len(values) > 1}
    return lists, {name: values[0] for name, values in axes.items() if len(values) == 1}


def keep_inputs(output: Path | None, *inputs: Any) -> None:
    """Raise InputError when the output would replace a file that is read, such as the model's own."""
    files = [Path(given) for given in inputs if isinstance(given, str | Path) and Path(given).is_file()]
    if output and output.exists() and any(output.samefile(file) for file in files):
        raise InputError(f"--output {output} is a file that is read here; name another")
