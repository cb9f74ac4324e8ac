"""A start-up log beside the plan: rows of predicted and observed, one verdict for each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kvplan.errors import InputError
from kvplan.evidence.conditions import Conditions, assumed_note, conditions_of
from kvplan.evidence.explain import explain_failures, reasons
from kvplan.evidence.launch import parse_launch
from kvplan.evidence.logs import EngineLog, Seen
from kvplan.evidence.metrics import in_use
from kvplan.evidence.prediction import Predicted, predict
from kvplan.records import Record

DEFAULT_TOLERANCE = 0.02
JUDGED = (
    "weights_bytes", "kv_budget_bytes", "num_blocks", "reported_tokens", "max_concurrency",
    "num_blocks_at_logged_kv", "reported_tokens_at_logged_kv", "max_concurrency_at_logged_kv",
    "kv_bytes_per_session", "fitting_length",
)  # fmt: skip


class Observed(NamedTuple):
    """A figure of the log and what its last digit is worth."""

    value: float
    step: float = 0


class Verdict(Record):
    """What one engine of a log printed beside what was planned for it.

    `rows` are those of the contract; `within` is None where nothing could be compared.
    """

    log: EngineLog
    conditions: Conditions
    rows: tuple[Mapping[str, Any], ...]
    run: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()

    @property
    def within(self) -> bool | None:
        """Whether every judged row lies inside the tolerance."""
        judged = [row["within"] for row in self.rows if row["within"] is not None]
        return all(judged) if judged else None


def verify_log(
    log: EngineLog,
    given: Mapping[str, Any],
    tolerance: float = DEFAULT_TOLERANCE,
    *,
    launch: str | None = None,
) -> Verdict:
    """One engine's figures beside the plan; `given` are options that go before what the log tells.

    `launch` is the server's command line, for what the log leaves out.

    Raises InputError when the log does not tell enough, naming the options that would.
    """
    if launch is not None:
        parse_launch(launch).check()
        log = replace(log, command=launch)
    conditions = conditions_of(log, given)
    predicted = predict(conditions, log)
    rows = [row for row in _rows(log, predicted, tolerance) if row]
    if not rows and not log.failures:
        raise InputError(
            "there is nothing to compare: the log prints neither weights, KV memory nor tokens; is its end missing?"
        )
    run = _run(log, conditions)
    explained = explain_failures(log, conditions, predicted)
    assumed, now = assumed_note(conditions), in_use(log)
    return Verdict(
        log=log,
        conditions=conditions,
        rows=tuple({**row, "run": run} for row in rows),
        run={**run, "failures": list(explained.failures), "fixes": list(explained.fixes)} if log.failures else run,
        notes=tuple(dict.fromkeys([*filter(None, [now, *conditions.notes, assumed]), *predicted.notes])),
        reasons=tuple(reasons(log, conditions, predicted, rows, tolerance)),
        failures=tuple(explained.failures),
        fixes=tuple(explained.fixes),
    )


def _rows(log: EngineLog, predicted: Predicted, tolerance: float) -> list[dict[str, Any] | None]:
    """Every figure that both sides have, in the order in which a start prints them."""
    rows = [
        _row(quantity, predicted, _observed(log, fact, predicted.stage_rank), tolerance)
        for quantity, fact in (
            ("weights_bytes", "weights"),
            ("activation_bytes", "activation"),
            ("non_torch_bytes", "non_torch"),
            ("consumed_bytes", "consumed"),
            ("graphs_bytes", "graph_estimate"),
            ("requested_bytes", "requested"),
        )
    ]
    available = _deciding(log)
    rows.append(_row("kv_budget_bytes", predicted, available, tolerance))
    for suffix in ("", "_at_logged_kv"):
        rows += [
            _row(f"num_blocks{suffix}", predicted, _single(log, "num_blocks"), tolerance),
            _row(f"reported_tokens{suffix}", predicted, _single(log, "kv_tokens"), tolerance),
            _row(f"max_concurrency{suffix}", predicted, _single(log, "max_concurrency"), tolerance),
        ]
    rows += [
        _row("block_tokens", predicted, _single(log, "block_tokens"), tolerance),
        _row("padding_layers", predicted, _single(log, "padding_layers"), tolerance),
    ]
    for failure in log.failures:
        if failure.kind == "kv_too_small":
            needed, fitting = failure.numbers.get("needed"), failure.numbers.get("fitting_length")
            step = 0.01 * 2**30
            rows.append(_row("kv_bytes_per_session", predicted, Observed(needed, step) if needed else None, tolerance))
            rows.append(_row("fitting_length", predicted, Observed(fitting) if fitting else None, tolerance))
    unique: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row:
            unique.setdefault(str(row["quantity"]), row)
    return list(unique.values())


def _row(quantity: str, predicted: Predicted, observed: Observed | None, tolerance: float) -> dict[str, Any] | None:
    value = predicted.values.get(quantity)
    if observed is None or value is None:
        return None
    low, high, basis = predicted.bands.get(quantity, (None, None, "formula"))
    difference = value - observed.value
    error = difference / abs(observed.value) if observed.value else None
    whole = observed.value if observed.value > 0 else predicted.values.get("requested_bytes", 0)
    within = abs(difference) <= max(tolerance * whole, observed.step / 2)  # the log rounds by as much
    if quantity.endswith("_logged_kv") and low is not None and high is not None:
        within = within or low <= observed.value <= high
    return {
        "quantity": quantity,
        "unit": "bytes"
        if "bytes" in quantity.split("_")
        else "requests"
        if "concurrency" in quantity
        else _unit(quantity),
        "predicted": value,
        "predicted_low": low,
        "predicted_high": high,
        "observed": observed.value,
        "error": None if error is None else round(error, 6),
        "within": within if quantity in JUDGED else None,
        "basis": basis,
    }


def _unit(quantity: str) -> str:
    return "tokens" if "tokens" in quantity or "length" in quantity else quantity.split("_")[1]


def _single(log: EngineLog, fact: str) -> Observed | None:
    """A figure of the whole engine; with several, the last start's."""
    found = log.all(fact)
    return Observed(found[-1].value, found[-1].step) if found else None


def _deciding(log: EngineLog) -> Observed | None:
    """Memory for the cache of the rank that has the least."""
    ranks = list(log.by_rank("available").values())
    least = min(ranks, key=lambda seen: seen.value, default=None)
    return Observed(least.value, least.step) if least else None


def _observed(log: EngineLog, fact: str, stage_rank: str) -> Observed | None:
    """A figure of one GPU: of the planned stage where ranks are named, else the largest."""
    ranks = log.by_rank(fact)
    of_stage = [seen for seen in ranks.values() if stage_rank and stage_rank in f"{seen.rank}_"]
    chosen: list[Seen] = of_stage or list(ranks.values())
    most = max(chosen, key=lambda seen: seen.value, default=None)
    return Observed(most.value, most.step) if most else None


def _run(log: EngineLog, conditions: Conditions) -> dict[str, Any]:
    """The run's conditions, flat: what was planned with, and where each comes from."""
    options = conditions.options
    shown = (
        "engine_version", "tp", "pp", "dp", "ep", "weights", "kv_dtype", "max_model_len", "memory_fraction", "max_seqs",
        "max_batched_tokens", "block_size", "eager", "extras", "lora_rank", "max_loras", "kv_budget",
    )  # fmt: skip
    return {
        "engine": log.engine,
        "model": conditions.model.name,
        "logged_model": log.model,
        "gpu": conditions.card.gpu.name if conditions.card else None,
        "gpu_source": conditions.card.source if conditions.card else None,
        **{name: options[name] for name in shown if options.get(name) is not None},
        "flags": {name: value for name, value in options["flags"].items() if name != "unknown"},
        "sources": dict(conditions.sources),
        "first_line": log.first_line,
        **({"log_source": log.source} if log.source else {}),
    }
