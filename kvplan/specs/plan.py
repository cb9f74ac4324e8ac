"""A plan: deployments by name, each a set of options for `estimate`, and what is expected of them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.records import Record
from kvplan.specs.expectations import Condition, Tolerance, conditions, tolerances
from kvplan.specs.fields import INVALID, decode, key, mapping_of, one_or_more, section
from kvplan.specs.kinds import Kind
from kvplan.specs.nodes import Node, join, report
from kvplan.specs.scalars import whole_number

if TYPE_CHECKING:
    from kvplan.errors import Problem


class Value(NamedTuple):
    """A value of an option as text, and its line."""

    line: int
    text: str


class _Option(Kind):
    """A value whose type is looked at here and whose text is read by the rules of the command line."""

    def __init__(self, expected: str, takes: tuple[str, ...], *shapes: dict[str, Any]) -> None:
        self.expected, self.takes, self.shapes = expected, frozenset(takes), shapes

    def _read(self, node: Node, problems: list[Problem], path: str) -> Any:
        text = (node.text or "").strip()
        if not text:
            return self._refuse(node, problems, path)
        whole = whole_number(text) if node.type == "number" else None
        return Value(node.line, text if whole is None else str(whole))  # 1e6 is as good as 1000000

    def schema(self) -> dict[str, Any]:
        return dict(self.shapes[0]) if len(self.shapes) == 1 else {"anyOf": list(self.shapes)}


_TEXT = {"type": "string", "pattern": r"\S"}
_WHOLE = {"type": "integer", "minimum": 1}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}

_NAME = one_or_more(_Option("text", ("text",), _TEXT))
_COUNT = one_or_more(_Option("a whole number", ("number", "text"), _WHOLE, _TEXT))
_TOKENS = one_or_more(_Option("tokens such as 4096 or 32k", ("number", "text"), _WHOLE, _TEXT))
_SIZE = one_or_more(_Option("a size such as 60GiB", ("number", "text"), _TEXT))  # numbers are told what they lack
_FRACTION = one_or_more(_Option("a number such as 0.9", ("number", "text"), _SHARE, _TEXT))
_SWITCH = one_or_more(_Option("true or false", ("boolean",), {"type": "boolean"}))

Values = tuple[Value, ...] | None


class Deployment(Record):
    """A model on some kind of GPU under one set of choices, or under every combination of several."""

    model: Values = key(_NAME, "zoo name, hub id, or YAML file beside the plan")
    gpu: Values = key(_NAME, "zoo name, 8xNAME, NAME:MIG-SLICE, YAML file, or local", default=None)
    context: Values = key(_TOKENS, "live tokens of a conversation (default 4096)", default=None)
    sessions: Values = key(_COUNT, "conversations that have to fit", default=None)
    weights: Values = key(_NAME, "weight scheme", default=None)
    kv_dtype: Values = key(_NAME, "cache format", default=None)
    attention: Values = key(_NAME, "what if: mha, mqa or gqa:N", default=None)
    tp: Values = key(_COUNT, "tensor-parallel GPUs", default=None)
    pp: Values = key(_COUNT, "pipeline stages", default=None)
    dp: Values = key(_COUNT, "replicas", default=None)
    ep: Values = key(_COUNT, "GPUs that share the experts", default=None)
    engine: Values = key(_NAME, "whose rules", default=None)
    engine_version: Values = key(_NAME, "version of the rules, quoted", default=None)
    max_model_len: Values = key(_TOKENS, "length the engine is set for", default=None)
    memory_fraction: Values = key(_FRACTION, "share of the memory to request", default=None)
    max_seqs: Values = key(_COUNT, "most conversations a replica runs at once", default=None)
    max_batched_tokens: Values = key(_COUNT, "tokens of one forward pass", default=None)
    block_size: Values = key(_COUNT, "tokens of a cache block", default=None)
    eager: Values = key(_SWITCH, "no CUDA graphs", default=None)
    reserve: Values = key(_SIZE, "memory to keep free", default=None)
    kv_budget: Values = key(_SIZE, "KV memory of a GPU", default=None)
    lora_rank: Values = key(_COUNT, "rank of LoRA adapters", default=None)
    max_loras: Values = key(_COUNT, "adapters held at once", default=None)
    draft_model: Values = key(_NAME, "draft model of speculative decoding", default=None)
    shared_prefix: Values = key(_TOKENS, "tokens all conversations share", default=None)
    extras: Values = key(_NAME, "vision towers and the like: all, none or names with +", default=None)
    expect: dict[str, tuple[Condition, ...]] = key(conditions(), "conditions by column", default=dict)

    @property
    def options(self) -> dict[str, tuple[Value, ...]]:
        """The options that are given, by the names of `estimate`."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "expect"}
        return {name: values for name, values in given.items() if values is not None}


class Plan(Record):
    """A plan file."""

    deployments: dict[str, Deployment] = key(mapping_of(section(Deployment)), "deployments by name")
    tolerances: dict[str, Tolerance] = key(
        tolerances(), "how far figures may move from a baseline, by column (default 0)", default=dict
    )


class PlanText(NamedTuple):
    """A plan as far as it can be read: what has a problem is left out, so that the rest can be checked as well."""

    deployments: dict[str, Deployment]
    lines: dict[str, int]  # where each deployment starts
    tolerances: dict[str, Tolerance]


def read_plan(node: Node, problems: list[Problem]) -> PlanText:
    """The plan of a file's tree, with everything that is wrong in `problems`."""
    plan = decode(Plan, node, problems)
    part = (node.entries or {}).get("deployments")
    if part is None or part.entries is None:
        return PlanText({}, {}, {})
    if not part.entries and not part.flawed:
        report(problems, part.line, "deployments", "there is no deployment; name one, with its model and its GPU")
    return PlanText(
        plan.deployments if plan else _readable(part.entries),
        {name: part.key_lines.get(name, each.line) for name, each in part.entries.items()},
        plan.tolerances if plan else {},
    )


def _readable(deployments: dict[str, Node]) -> dict[str, Deployment]:
    """Deployments with those of their keys that can be read; what is wrong with the others is reported already."""
    known: dict[str, Any] = {f.name: f.metadata["kind"] for f in fields(Deployment)}
    found = {}
    for name, node in deployments.items():
        entries = {key: value for key, value in (node.entries or {}).items() if key in known}
        values = {key: known[key].parse(value, [], join(name, key)) for key, value in entries.items()}
        good = {key: value for key, value in values.items() if value is not INVALID}
        found[name] = Deployment(**{"model": None, **good})
    return found
