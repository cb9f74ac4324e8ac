"""An engine's figures beside the plan, for people: who it was, the rows, and what explains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvplan.report.console import grid
from kvplan.report.words import Row, exact, human, printable
from kvplan.units import human_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAMES = {
    "weights_bytes": "weights",
    "activation_bytes": "activation peak",
    "non_torch_bytes": "outside PyTorch",
    "graphs_bytes": "CUDA graphs, estimate",
    "consumed_bytes": "weights, and outside PyTorch",
    "requested_bytes": "requested",
    "kv_budget_bytes": "KV cache",
    "num_blocks": "blocks",
    "reported_tokens": "tokens",
    "max_concurrency": "requests at once",
    "num_blocks_at_logged_kv": "blocks, from the logged KV memory",
    "reported_tokens_at_logged_kv": "tokens, from the logged KV memory",
    "max_concurrency_at_logged_kv": "requests, from the logged KV memory",
    "kv_bytes_per_session": "one request",
    "fitting_length": "longest request",
    "block_tokens": "tokens of a block",
    "padding_layers": "padding layers",
}
_LAYOUT = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"))


def verification_view(verdict: Row) -> RenderableType:
    """One engine: `run`, `rows`, and the sentences under `failures`, `fixes`, `reasons` and `notes`."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(printable(line)) for line in _subject(verdict["run"])]
    if verdict["rows"]:
        parts += [Text(""), _table(verdict["rows"])]
    for title, key in (
        ("The start failed:", "failures"),
        ("It would fit with", "fixes"),
        ("Likely reasons:", "reasons"),
        ("Notes:", "notes"),
    ):
        if verdict.get(key):
            lines = [Padding(Text(printable(line)), (0, 0, 0, 2)) for line in verdict[key]]
            parts += [Text(""), Text(title), *lines]
    return Group(*parts)


def _subject(run: Mapping[str, Any]) -> list[str]:
    where = f" on {run['gpu']}" if run.get("gpu") else ""
    version = f" {run['engine_version']}" if run.get("engine_version") else ""
    layout = [f"{short} {run[key]}" for key, short in _LAYOUT if run.get(key, 1) != 1]
    settings = [f"length {exact(run['max_model_len'])}"] if run.get("max_model_len") else []
    settings += [f"fraction {run['memory_fraction']:g}"] if run.get("memory_fraction") else []
    settings += [f"{exact(run['max_seqs'])} sequences"] if run.get("max_seqs") else []
    settings += [f"{exact(run['max_batched_tokens'])} batched tokens"] if run.get("max_batched_tokens") else []
    settings += [f"weights {run['weights']}"] if run.get("weights") else []
    settings += [f"KV cache {run['kv_dtype']}"] if run.get("kv_dtype") else []
    settings += ["without CUDA graphs"] if run.get("eager") else []
    first = f"{run['model']}{where}, engine {run['engine']}{version}"
    return [line for line in (first, ", ".join([*layout, *settings])) if line]


def _table(rows: Sequence[Row]) -> RenderableType:
    from rich.text import Text

    table = grid("", "planned", "between", "observed", "error", "", right=frozenset((1, 3, 4)))
    for row in rows:
        cells = [
            _NAMES.get(row["quantity"], row["quantity"].replace("_", " ")),
            _value(row, row["predicted"]),
            _between(row),
            _value(row, row["observed"]),
            "-" if row["error"] is None else f"{row['error']:+.2%}",
            {True: "within", False: "outside", None: ""}[row["within"]],
        ]
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "-"
    return human_bytes(value) if row["unit"] == "bytes" else human(row["unit"], round(value, 2))


def _between(row: Row) -> str:
    low, high = row["predicted_low"], row["predicted_high"]
    return "" if low is None or high is None or low == high else f"{_value(row, low)} - {_value(row, high)}"
