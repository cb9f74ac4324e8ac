"""Decode on one CPU core: kvplan's decoder beside transformers, llama.cpp and the memory's own speed.

One process, one thread, the same random weights, cases in turn (A B C A B C ...), medians: read the ratios, since
shared machines are noisy. Steps start at a context whose cache is filled with random numbers, so no prompt is run.

    python benchmarks/decode_cpu.py                     # needs torch and transformers; xllamacpp and gguf for llama.cpp
    python benchmarks/decode_cpu.py --quick             # the 100M shape at two contexts, a minute or two
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parent))
from decode_report import DYNAMIC, LLAMA, OURS, OURS_PLAIN, STATIC, Case, markdown, verdicts
from hub_rival import dynamic, hub_model, static

from kvplan.kv_formats import kv_pair
from kvplan.measure.decode_path import choose_paths
from kvplan.measure.decoder.build import build_decoder
from kvplan.measure.decoder.cache.contiguous import ContiguousCache
from kvplan.measure.decoder.decoder import Decoder
from kvplan.measure.decoder.packing import choose_layouts, pack_linears
from kvplan.measure.observe_cpu import cpu_name, prefer_heap
from kvplan.measure.rates import measure_peaks
from kvplan.measure.step_model import step_work
from kvplan.specs.layers import Attention, Layer, Mlp
from kvplan.specs.model import ModelSpec

RESULTS = Path(__file__).parent / "results" / "decode_cpu.json"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PACKAGES = ("torch", "transformers", "xllamacpp", "gguf")
Step = Callable[[], object]


class Shape(NamedTuple):
    """A Llama of these sizes."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocab: int
    tied: bool

    def model(self, name: str) -> ModelSpec:
        head_dim = self.hidden // self.heads
        attention = Attention(heads=self.heads, kv_heads=self.kv_heads, head_dim=head_dim, v_head_dim=head_dim)
        layer = Layer(attention=attention, mlp=Mlp(intermediate_size=self.inner))
        return ModelSpec(
            name=name, hidden_size=self.hidden, vocab_size=self.vocab, tied=self.tied, layers=self.layers,
            stack=(layer,) * self.layers, stack_kinds=("layer",) * self.layers,
        )  # fmt: skip


SHAPES = {
    "100M": Shape(12, 768, 12, 4, 2048, 32000, tied=True),
    "1B": Shape(22, 2048, 32, 4, 5632, 32000, tied=False),
}


def ours(decoder: Decoder, case: Case) -> Step:
    cache = ContiguousCache(decoder, batch=case.batch, capacity=case.context)
    cache.pretend(case.context - 1)
    tokens = torch.ones(case.batch, dtype=torch.int64)

    def step() -> None:
        cache.seek(case.context - 1)
        decoder.step(tokens, cache)

    return step


def in_turn(steps: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Seconds of each; a step that returns a number timed itself."""
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            own = step()
            seconds = own if isinstance(own, float) else time.perf_counter() - start
            if turn:
                samples[name].append(seconds)
    return samples


def run_case(case: Case, decoders: dict[str, Decoder], hub: Any, llama: Any, repeats: int) -> dict[str, Any]:
    steps: dict[str, Step] = {name: ours(decoder, case) for name, decoder in decoders.items()}
    if hub is not None:
        steps |= {DYNAMIC: dynamic(hub, case), STATIC: static(hub, case)}
    if llama is not None and case.batch == 1:
        steps[LLAMA] = llama.step_at(case.context)
    samples = in_turn(steps, repeats)
    seconds = {name: median(each) for name, each in samples.items()}
    rank = next(iter(decoders.values())).rank
    work = step_work(rank, case.dtype, case.batch, case.context)
    return {
        **case._asdict(),
        "bytes": work.bytes,
        "tokens_per_s": {name: case.batch / each for name, each in seconds.items()},
        "bytes_per_s": work.bytes / seconds[OURS],
        "share_of_copy": work.bytes / seconds[OURS] / _copy_rate(),
        "ratios": {name: each / seconds[OURS] for name, each in seconds.items() if name != OURS},
        "samples_s": samples,
    }


def _copy_rate() -> float:
    """In the same moment as the case: shared machines change."""
    return measure_peaks(torch.device("cpu"), torch.float32, lambda: None).copy_bytes_per_s


def run_shape(name: str, dtype: str, cases: list[Case], options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases of one set of weights; ours are put in order anew for each batch."""
    model = SHAPES[name].model(name)
    plain = build_decoder(model, dtype=DTYPES[dtype])
    hub = hub_model(SHAPES[name], plain) if find_spec("transformers") else None
    llama = llama_of(name, dtype, plain, options)
    rows = []
    for batch in dict.fromkeys(case.batch for case in cases):
        ordered = build_decoder(model, dtype=DTYPES[dtype])
        packing = pack_linears(ordered, choose_layouts(ordered, [batch]), batch)
        decoders = {OURS: ordered, **({OURS_PLAIN: plain} if options.plain else {})}
        for case in (case for case in cases if case.batch == batch):
            orders = [*packing.names, *choose_paths(ordered, [batch], case.context)]
            row = run_case(case, decoders, hub, llama, options.repeats)
            rows.append({**row, "orders": orders})
            show(rows[-1])
        del ordered, decoders
        gc.collect()
    return rows


def llama_of(name: str, dtype: str, decoder: Decoder, options: argparse.Namespace) -> Any:
    if options.no_llama or not (find_spec("xllamacpp") and find_spec("gguf")):
        return None
    from llama_cpp_rival import Llama

    return Llama(SHAPES[name], dtype, decoder)


def show(row: dict[str, Any]) -> None:
    rates = ", ".join(f"{name} {rate:.1f}" for name, rate in row["tokens_per_s"].items())
    ratios = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in row["ratios"].items())
    at = f"{row['shape']} {row['dtype']} batch {row['batch']} context {row['context']}"
    print(f"{at}: tokens/s {rates}; {row['bytes_per_s'] / 1e9:.1f} GB/s; {ratios}", flush=True)


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100M, batch 1, three repeats")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--shapes", default="100M,1B")
    parser.add_argument("--dtypes", default="bf16,fp32")
    parser.add_argument("--no-llama", action="store_true")
    parser.add_argument("--plain", action="store_true", help="also our decoder with weights in plain order")
    parser.add_argument("--note", default="", help="what a reader should know of the machine")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats, options.shapes = min(options.repeats, 3), "100M"
    return options


def conditions(note: str) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu_name(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in PACKAGES},
        "copy_bytes_per_s": _copy_rate(),
        "note": note,
    }


def save(result: dict[str, Any], path: Path) -> None:
    """After every set of weights, so that a long run loses nothing."""
    result["run"]["copy_after_bytes_per_s"] = _copy_rate()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(result), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    options = parsed(argv)
    torch.set_num_threads(1)
    prefer_heap()
    batches = (1,) if options.quick else (1, 8)
    result: dict[str, Any] = {"run": conditions(options.note), "rows": []}
    for shape in options.shapes.split(","):
        for dtype in options.dtypes.split(","):
            kv_pair(dtype)  # refuses a mistyped format before anything is built
            cases = [Case(shape, dtype, batch, context) for batch in batches for context in (128, 2048)]
            result["rows"] += run_shape(shape, dtype, cases, options)
            gc.collect()
            save(result, options.output)
    print("\n".join(verdicts(result)))


if __name__ == "__main__":
    main()
