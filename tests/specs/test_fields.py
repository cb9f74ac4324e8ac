"""What each kind of field accepts, and the exact words when it does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kvplan.errors import Problem, SpecError
from kvplan.specs.fields import (
    boolean,
    choice,
    decode,
    either,
    integer,
    key,
    list_of,
    mapping_of,
    number,
    one_or_more,
    raw,
    section,
    text,
)
from kvplan.specs.reader import Node, load, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    heads: int = key(integer(), "query heads")
    kv_heads: int = key(integer(), "key-value heads", default=1)
    norm: str = key(choice("head", "full", "none"), "norm of queries and keys", default="none")

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str = key(text(), "the file's name")
    size: int = key(integer(), "width", default=8)
    small: int = key(integer(1, 4), "one to four", default=1)
    rate: float = key(number(above=0, maximum=1e15), "per second", default=1.0)
    tied: bool = key(boolean(), "shared", default=False)
    aliases: tuple[str, ...] = key(list_of(text()), "other names", default=())
    source: tuple[str, ...] = key(one_or_more(text()), "origins", default=())
    extra: dict[str, int] = key(mapping_of(integer(-10)), "signed counts", default=dict)
    layers: int | str = key(either(integer(), text()), "count or order", default=1)
    heads: Heads | None = key(section(Heads), "attention", default=None)
    rope: Heads | str = key(either(choice("off-by-default"), section(Heads)), "either", default="off-by-default")
    rest: Node | None = key(raw({}), "read elsewhere", default=None)
    internal: list[int] = field(default_factory=list)


def check(node: Node, problems: list[Problem]) -> object:
    return decode(Example, node, problems)


def example_of(content: str) -> Example:
    return load(Example, read_text(content, "f", check), "f")


def problems_of(content: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        example_of(content)
    return [f"{p.line} {p.path}: {p.message}" for p in caught.value.problems]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("size: 1e9", "size", 10**9),
        ("size: 1.5e1", "size", 15),
        ("size: 9007199254740992", "size", 2**53),
        ("rate: 3.35e12", "rate", 3.35e12),
        ("rate: 5", "rate", 5),
        ("tied: true", "tied", True),
        ("aliases: []", "aliases", ()),
        ("aliases: [a, '7', \"yes\"]", "aliases", ("a", "7", "yes")),
        ("source: config.json, read 2026-11-29", "source", ("config.json, read 2026-11-29",)),
        ("source:\n- a\n- b", "source", ("a", "b")),
        ("source: |\n  two\n  lines", "source", ("two\nlines\n",)),
        ("extra: {vision: -3, 'no': 4}", "extra", {"vision": -3, "no": 4}),
        ("layers: 32", "layers", 32),
        ("layers: 10 (5 local, global), 2 local", "layers", "10 (5 local, global), 2 local"),
        ("heads: {heads: 32, kv_heads: 8}", "heads", Heads(heads=32, kv_heads=8)),
        ("rope: {heads: 4}", "rope", Heads(heads=4)),
    ],
)
def test_values(line: str, name: str, value: object) -> None:
    assert getattr(example_of(f"name: x\n{line}\n"), name) == value


NOT_WHOLE = "expected a whole number of at least 1, got"
BAD_LINES = [
    ("size: '128'", [f"2 size: {NOT_WHOLE} text '128'"]),
    ("size: abc", [f"2 size: {NOT_WHOLE} text 'abc'"]),
    ("size: 0", [f"2 size: {NOT_WHOLE} 0"]),
    ("size: 0.5", [f"2 size: {NOT_WHOLE} 0.5"]),
    ("size: 9007199254740993", [f"2 size: {NOT_WHOLE} 9007199254740993; the limit is 2^53"]),
    ("size: true", [f"2 size: {NOT_WHOLE} true"]),
    ("size:", [f"2 size: {NOT_WHOLE} nothing"]),
    ("size: [1]", [f"2 size: {NOT_WHOLE} a list"]),
    ("size: {a: 1}", [f"2 size: {NOT_WHOLE} a mapping"]),
    ("size: 010", ["2 size: 010 is not the same to all YAML readers; write 10, or 8 if octal was meant"]),
    ("small: 5", ["2 small: expected a whole number from 1 to 4, got 5"]),
    ("rate: 0", ["2 rate: expected a number above 0 and of at most 1000000000000000.0, got 0"]),
    ("rate: 1e400", [
        "2 rate: expected a number above 0 and of at most 1000000000000000.0, got 1e400; no float can hold it",
    ]),
    ("tied: 'true'", ["2 tied: expected true or false, got text 'true'"]),
    ("tied: yes", [
        "2 tied: yes is not the same to all YAML readers; write true or false, or quote it if it is a name",
    ]),
    ("aliases: a", ["2 aliases: expected a list (each item text), got text 'a'"]),
    ("aliases: [a, 7, ' ']", [
        "2 aliases[1]: expected text, got number 7; quote it",
        "2 aliases[2]: expected text, got text ' '; it must not be blank",
    ]),
    ("source: []", ["2 source: expected text, or a list of such, got a list that is empty"]),
    ("source: 7", ["2 source: expected text, or a list of such, got number 7; quote it"]),
    ("extra: {a: x}", ["2 extra.a: expected a whole number of at least -10, got text 'x'"]),
    ("extra: {no: 1}", ["2 extra: key no is not text to all YAML readers; quote it"]),
    ("extra: {7: 1}", ["2 extra: key 7 is not text to all YAML readers; quote it"]),
    ("extra: {[a]: 1}", ["2 extra: a list or mapping cannot be a key; write a name"]),
    ("layers: [1]", ["2 layers: expected a whole number of at least 1 or text, got a list"]),
    ("layers: true", ["2 layers: expected a whole number of at least 1 or text, got true; quote it"]),
    ("heads: 3", ["2 heads: expected a mapping, got number 3"]),
    ("heads: {kv_heads: 2}", ["2 heads: missing key 'heads' (query heads)"]),
    ("heads:\n  heads: 3\n  kv_heads: 2", ["3 heads: heads (3) must be a multiple of kv_heads (2)"]),
    ("heads: {heads: 3, norm: heads}", [
        "2 heads.norm: expected one of head, full, none, got text 'heads'; did you mean 'head'?",
    ]),
    ("sise: 3", ["2 top level: unknown key 'sise'; did you mean 'size'?"]),
    ("internal: [1]", ["2 top level: unknown key 'internal'"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), BAD_LINES, ids=[line for line, _ in BAD_LINES])
def test_a_bad_line_after_a_good_one(line: str, expected: list[str]) -> None:
    assert problems_of(f"name: x\n{line}\n") == [p.replace(" top level:", " :") for p in expected]


def test_a_value_that_no_file_holds_is_checked_as_well() -> None:
    problems: list[Problem] = []
    assert decode(Heads, Node(3, entries={"heads": Node(3, text="010")}), problems) is None
    assert problems == [
        Problem(3, "heads", "010 is not the same to all YAML readers; write 10, or 8 if octal was meant")
    ]


def test_a_raw_field_is_the_node() -> None:
    assert example_of("name: x\nrest: [1]").rest == Node(2, items=(Node(2, text="1"),))


def test_defaults_are_not_shared() -> None:
    assert example_of("name: x").extra is not example_of("name: x").extra
