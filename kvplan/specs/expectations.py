"""Conditions on the columns of a row, as a plan writes them: floors, ceilings, plain values, and tolerances."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import InputError
from kvplan.specs.fields import one_or_more
from kvplan.specs.kinds import INVALID, Kind, nearest
from kvplan.specs.nodes import Node, join, report
from kvplan.specs.scalars import classify, real_number, shown
from kvplan.units import parse_size, parse_tokens

if TYPE_CHECKING:
    from kvplan.errors import Problem

_TEXTS = (
    "model", "gpu", "engine", "engine_version", "weight_scheme", "kv_dtype", "gpu_memory_source", "limited_by",
)  # fmt: skip
_FLAGS = ("checked", "fits")
_NUMBERS = ("memory_fraction",)
_COUNTS = (
    "gpus", "kv_heads", "tensor_parallel", "pipeline_parallel", "data_parallel", "max_seqs", "block_size", "parameters",
    "active_parameters", "max_sessions", "max_sessions_low", "max_sessions_high",
)  # fmt: skip
_TOKENS = (
    "context_tokens", "max_model_len", "max_batched_tokens", "kv_tokens", "kv_tokens_low", "kv_tokens_high",
    "max_context_tokens", "model_max_context",
)  # fmt: skip
_BYTES = (
    "gpu_memory_bytes", "weights_bytes", "overhead_bytes", "overhead_bytes_low", "overhead_bytes_high",
    "kv_budget_bytes", "kv_budget_bytes_low", "kv_budget_bytes_high", "unrequested_bytes", "kv_bytes_per_token",
    "kv_bytes_per_session", "kv_bytes_per_session_logical",
)  # fmt: skip

# Column of a row -> what it holds: text, flag, number, count, tokens or bytes.
COLUMNS: dict[str, str] = {
    name: unit
    for unit, names in (
        ("text", _TEXTS), ("flag", _FLAGS), ("number", _NUMBERS), ("count", _COUNTS), ("tokens", _TOKENS),
        ("bytes", _BYTES),
    )
    for name in names
}  # fmt: skip

_COMPARISON = re.compile(r"(>=|<=|==|!=|>|<)\s*(\S.*)", re.DOTALL)
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)\s*%")
_EXAMPLES = {"count": ">= 100", "tokens": ">= 32k", "bytes": "<= 60GiB", "number": "<= 0.9"}
_READERS: dict[str, Callable[[str], int]] = {"tokens": parse_tokens, "bytes": parse_size}


class Condition(NamedTuple):
    """A comparison that a figure has to pass; `text` shows it, without an operator where it is to be equal."""

    line: int
    column: str
    operator: str
    value: Any
    text: str


class Tolerance(NamedTuple):
    """How far a figure may move from its baseline: an amount, or a share of what it was."""

    amount: Fraction
    percent: bool
    text: str

    def allows(self, before: float, now: float) -> bool:
        """Whether the move stays within it."""
        moved = abs(Fraction(now) - Fraction(before))
        return moved <= (abs(Fraction(before)) * self.amount / 100 if self.percent else self.amount)


EXACT = Tolerance(Fraction(0), False, "0")


def conditions() -> Kind:
    """A mapping from columns to one condition or several."""
    return _ByColumn({name: one_or_more(_condition(name, unit)) for name, unit in COLUMNS.items()})


def tolerances() -> Kind:
    """A mapping from columns to tolerances."""
    return _ByColumn({name: _Tolerance(name, unit) for name, unit in COLUMNS.items()})


def _condition(column: str, unit: str) -> Kind:
    if unit == "flag":
        return _FlagCondition(column)
    return _TextCondition(column) if unit == "text" else _NumberCondition(column, unit)


def _split(text: str) -> tuple[str, str]:
    """Operator and value; a value alone has to be equal."""
    found = _COMPARISON.fullmatch(text.strip())
    return (found[1], found[2]) if found else ("==", text.strip())


def _joined(operator: str, value: str) -> str:
    return value if operator == "==" else f"{operator} {value}"


class _ByColumn(Kind):
    expected = "a mapping from columns"
    takes = frozenset(("mapping",))

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = kinds

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        entries = node.entries or {}
        for name in entries:
            if name not in self.kinds:
                near = (
                    nearest(name, self.kinds, problems) or "; columns are the keys that `kvplan estimate` has in JSON"
                )
                report(problems, node.key_lines.get(name, node.line), path, f"unknown column '{shown(name)}'{near}")
        known = {name: value for name, value in entries.items() if name in self.kinds}
        values = {name: self.kinds[name].parse(value, problems, join(path, name)) for name, value in known.items()}
        return INVALID if len(known) < len(entries) or INVALID in values.values() else values

    def schema(self) -> dict[str, Any]:
        shapes = {name: kind.schema() for name, kind in self.kinds.items()}
        return {"type": "object", "properties": shapes, "additionalProperties": False}


class _FlagCondition(Kind):
    expected = "true or false"
    takes = frozenset(("boolean", "text"))

    def __init__(self, column: str) -> None:
        self.column = column

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        operator, value = _split(node.text or "")
        if operator not in ("==", "!=") or value not in ("true", "false"):
            return self._refuse(node, problems, path)
        return Condition(node.line, self.column, operator, value == "true", _joined(operator, value))

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": r"^\s*((==|!=)\s*)?(true|false)\s*$"}]}


class _TextCondition(Kind):
    expected = "text"
    takes = frozenset(("text",))

    def __init__(self, column: str) -> None:
        self.column = column

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        operator, value = _split(node.text or "")
        if operator not in ("==", "!="):
            advice = f"'{self.column}' holds text, which is neither more nor less; write the text, or != and the text"
            report(problems, node.line, path, advice)
            return INVALID
        if not value:
            return self._refuse(node, problems, path, "; it must not be blank")
        return Condition(node.line, self.column, operator, value, _joined(operator, value))

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\s*([^\s<>]|<$|>$)"}


class _NumberCondition(Kind):
    takes = frozenset(("number", "text"))

    def __init__(self, column: str, unit: str) -> None:
        self.column, self.unit = column, unit
        self.expected = f"a comparison such as '{_EXAMPLES[unit]}'"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        operator, text = _split(node.text or "")
        try:
            value = _quantity(self.unit, text)
        except InputError as error:
            return self._refuse(node, problems, path, f"; {error}" if str(error) else "")
        return Condition(node.line, self.column, operator, value, _joined(operator, text))

    def schema(self) -> dict[str, Any]:
        written = {"type": "string", "pattern": r"^\s*((>=|<=|==|!=|>|<)\s*)?[-+.]?[0-9]"}
        return {"anyOf": [{"type": "number"}, written]}


class _Tolerance(Kind):
    takes = frozenset(("number", "text"))

    def __init__(self, column: str, unit: str) -> None:
        self.column, self.unit = column, unit
        self.expected = "a tolerance such as 2% or 0"

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        if self.unit in ("text", "flag"):
            advice = f"'{self.column}' holds no number; leave it out, and name what it has to be in `expect`"
            report(problems, node.line, path, advice)
            return INVALID
        text = (node.text or "").strip()
        percent = _PERCENT.fullmatch(text)
        try:
            amount = Fraction(percent[1]) if percent else Fraction(_quantity(self.unit, text))
        except InputError as error:
            return self._refuse(node, problems, path, f"; {error}" if str(error) else "")
        return Tolerance(amount, bool(percent), text) if amount >= 0 else self._refuse(node, problems, path)

    def schema(self) -> dict[str, Any]:
        if self.unit in ("text", "flag"):
            return {"not": {}}
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*[0-9]"}]}


def _quantity(unit: str, text: str) -> int | float:
    """A number in base units, or one with the units of its column; InputError says what is wrong with it."""
    if classify(text).type == "number":
        value = real_number(text)
        if value is None:
            raise InputError("no exact number can hold it")
        return value
    if unit not in _READERS or not text[:1].isdigit():
        raise InputError("")
    return _READERS[unit](text)
