"""Options that are the same everywhere, declared once. A comma separates alternatives; the first is the base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan.errors import InputError

SCENARIO, OUTPUT = "Scenario", "Output"


def _option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002 - Typer's word
    return typer.Option(*names, help=help, show_default=False, **more)


Model = Annotated[str, _option("--model", "-m", help="Zoo name, hub id or YAML file of a model.")]
Gpu = Annotated[str | None, _option("--gpu", "-g", help="Zoo name, 8xNAME, NAME:MIG-SLICE, YAML file, or local.")]
Engine = Annotated[str, _option("--engine", help="generic (default) or textbook.")]
EngineVersion = Annotated[str | None, _option("--engine-version", help="Version of the engine's rules.")]
Context = Annotated[str, _option("--context", "-c", help="Live tokens of one conversation, e.g. 8k (default 4096).")]
MaxModelLen = Annotated[str | None, _option("--max-model-len", help="Length the engine is set for (default: context).")]
Sessions = Annotated[int | None, _option("--sessions", "-n", min=1, help="Ask whether N conversations fit.")]
Weights = Annotated[
    str | None, _option("--weights", "-w", help="Scheme, e.g. fp8, awq, q4_k_m (default: the model's).")
]
KvDtype = Annotated[str, _option("--kv-dtype", help="Cache format, e.g. fp8, q8_0/q4_0 for K/V (default: auto).")]
Attention = Annotated[str | None, _option("--attention", help="What if: mha, mqa or gqa:N.")]
Tp = Annotated[str | None, _option("--tp", help="Tensor-parallel GPUs.")]
Pp = Annotated[str | None, _option("--pp", help="Pipeline stages.")]
Dp = Annotated[str | None, _option("--dp", help="Replicas.")]
Ep = Annotated[str, _option("--ep", help="GPUs that share the experts, a divisor of tp x dp (default 1).")]
MemoryFraction = Annotated[str | None, _option("--memory-fraction", help="Share of the memory to request.")]
MaxSeqs = Annotated[str | None, _option("--max-seqs", help="Most sessions a replica runs at once.")]
MaxBatchedTokens = Annotated[int | None, _option("--max-batched-tokens", min=1, help="Tokens of one forward pass.")]
BlockSize = Annotated[int | None, _option("--block-size", min=1, help="Tokens of a cache block.")]
Eager = Annotated[bool, _option("--eager", help="No CUDA graphs.")]
Reserve = Annotated[str | None, _option("--reserve", help="Memory to keep free, e.g. 2GiB.")]
KvBudget = Annotated[
    str | None, _option("--kv-budget", help="KV memory of a GPU, e.g. 60GiB; no --gpu is needed then.")
]
LoraRank = Annotated[int | None, _option("--lora-rank", min=1, help="Rank of LoRA adapters on the seven projections.")]
MaxLoras = Annotated[int | None, _option("--max-loras", min=1, help="Adapters held at once (default 1).")]
DraftModel = Annotated[str | None, _option("--draft-model", help="Draft model of speculative decoding.")]
SharedPrefix = Annotated[str | None, _option("--shared-prefix", help="Tokens all conversations share, stored once.")]
Extras = Annotated[str | None, _option("--extras", help="Vision towers and the like: all, none or names with +.")]
Strict = Annotated[bool, _option("--strict", help="A context above the model's maximum is an error.")]
Format = Annotated[
    str | None,
    _option("--format", "-f", help="table, json, jsonl, csv or markdown (default: from --output, else table)."),
]
Output = Annotated[Path | None, _option("--output", "-o", help="Write to this file.")]

LISTS = (
    "model",
    "gpu",
    "engine",
    "weights",
    "kv_dtype",
    "attention",
    "tp",
    "pp",
    "dp",
    "memory_fraction",
    "max_seqs",
    "context",
)
WHOLE_NUMBERS = ("tp", "pp", "dp", "max_seqs", "ep")


def split_lists(options: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Options with a comma become lists of alternatives; raises InputError for an empty one or a wrong number."""
    lists = {name: _values(name, str(options[name])) for name in LISTS if options.get(name) is not None}
    fixed = {name: value for name, value in options.items() if name not in lists and value is not None}
    for name in WHOLE_NUMBERS:
        if name in fixed:
            fixed[name] = _number(name, str(fixed[name]))
    return {n: v for n, v in lists.items() if len(v) > 1}, {
        **{n: v[0] for n, v in lists.items() if len(v) == 1},
        **fixed,
    }


def _values(name: str, text: str) -> list[Any]:
    parts = [part.strip() for part in text.split(",")]
    option = "--" + name.replace("_", "-")
    if not all(parts):
        raise InputError(f"{option} '{text}': there is an empty value between the commas")
    repeated = [part for index, part in enumerate(parts) if part in parts[:index]]
    if repeated:
        raise InputError(f"{option} '{text}': '{repeated[0]}' appears twice")
    return [_number(name, part) for part in parts]


def _number(name: str, text: str) -> Any:
    option = "--" + name.replace("_", "-")
    if name in WHOLE_NUMBERS:
        if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 2**53):
            raise InputError(f"{option}: expected a whole number of at least 1, got '{text}'")
        return int(text)
    if name == "memory_fraction":
        try:
            return float(text)
        except ValueError:
            raise InputError(f"{option}: expected a number above 0 and at most 1 such as 0.9, got '{text}'") from None
    return text
