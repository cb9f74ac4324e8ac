from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvplan.errors import Problem, SpecError
from kvplan.specs.fields import integer, key, list_of, raw, section, text
from kvplan.specs.reader import MAX_BYTES, Node, decode, load, merged, read_file, read_text, with_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    heads: int = key(integer(), "query heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str = key(text(), "the file's name")
    size: int = key(integer(), "width", default=8)
    small: int = key(integer(), "another", default=1)
    aliases: tuple[str, ...] = key(list_of(text()), "other names", default=())
    heads: Heads | None = key(section(Heads), "attention", default=None)
    rest: Node | None = key(raw({}), "read elsewhere", default=None)


def check(node: Node, problems: list[Problem]) -> object:
    return decode(Example, node, problems)


def example_of(content: str) -> Example:
    return load(Example, read_text(content, "f", check), "f")


def problems_of(content: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        example_of(content)
    return [f"{p.line} {p.path}: {p.message}" for p in caught.value.problems]


ANCHOR = "anchors and aliases are not allowed; write the value out"
BAD_LINES = [
    ("size: 3\nname: y", ["3 top level: key 'name' appears twice (first on line 1)"]),
    ("size: &a 3\nsmall: *a", [f"2 size: {ANCHOR}", f"3 small: {ANCHOR}"]),
    ("rest: &unused [1]", [f"2 rest: {ANCHOR}"]),
    ("rest: {<<: *a}", ["2 rest: key << is not text to all YAML readers; quote it", f"2 rest.<<: {ANCHOR}"]),
    ("rest: [!!python/object:os.system x]", [
        "2 rest[0]: the tag tag:yaml.org,2002:python/object:os.system is not allowed; remove it",
    ]),
    ("rest: [on]", [
        "2 rest[0]: on is not the same to all YAML readers; write true or false, or quote it if it is a name",
    ]),
    ('rest: "\\e[31m"', ["2 rest: text with a control character; leave it out"]),
    ('"\\a": 1', ["2 top level: a key with a control character; leave it out"]),
    ("rest: {'': 1}", ["2 rest: an empty key; write a name"]),
    ("rest: {7: 1}", ["2 rest: key 7 is not text to all YAML readers; quote it"]),
    ("rest: {a: 1, 'a': 2}", ["2 rest: key 'a' appears twice (first on line 2)"]),
    ("rest: {[a]: [b: 1, b: 2]}", ["2 rest: a list or mapping cannot be a key; write a name"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), BAD_LINES, ids=[line for line, _ in BAD_LINES])
def test_a_bad_line_after_a_good_one(line: str, expected: list[str]) -> None:
    assert problems_of(f"name: x\n{line}\n") == [p.replace(" top level:", " :") for p in expected]


BAD_FILES = [
    ("", "None : the file is empty"),
    ("# only a comment", "None : the file is empty"),
    ("---", "2 : expected a mapping, got nothing"),
    ("text", "1 : expected a mapping, got text 'text'"),
    ("a: 1\n---\nb: 2", "2 : a second document starts here; keep one to a file"),
    ("a: [1, 2\n\n\n", "1 : a list is opened with '[' and not closed"),
    ("\na: {b: 2\n", "2 : a mapping is opened with '{' and not closed"),
    ("a:\n\t- 1", "2 : a tab where only spaces can be; indent with spaces"),
    ("a: b: c", "1 : a ': ' where no key can be; check the indentation, or quote the value"),
    ("a: {: 1}", "1 : a value or a key is missing here"),
    ("a: @b", "1 : a value cannot start with this character; quote it"),
    ("a: 'x", "1 : a quote is opened and never closed"),
    ("- a\nb: 3", "2 : a line that does not fit the list around it; check the indentation"),
    ("a: 1\nb\nc: 3", "3 : a line that is not 'key: value'"),
    ("a: \x00", "1 : control character U+0000; write the file as plain UTF-8 text"),
    ("a: 1\r\nb: \ud800", "2 : control character U+D800; write the file as plain UTF-8 text"),
    ("[" * 100_000, "1 : nested more than 20 deep"),
    ("a: [" + "1," * 200_000 + "]", "1 : more than 100,000 values in one file"),
]


@pytest.mark.parametrize(("content", "expected"), BAD_FILES, ids=[content[:12] for content, _ in BAD_FILES])
def test_what_is_not_a_spec_at_all(content: str, expected: str) -> None:
    assert problems_of(content) == [expected]


def test_all_problems_of_a_file_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        example_of("size: '128'\nnmae: x\nsize: 3\nheads: {}\n")
    assert str(caught.value) == (
        "f has 5 problems\n"
        "  f:1: top level: missing key 'name' (the file's name)\n"
        "  f:1: size: expected a whole number of at least 1, got text '128'\n"
        "  f:2: top level: unknown key 'nmae'; did you mean 'name'?\n"
        "  f:3: top level: key 'size' appears twice (first on line 1)\n"
        "  f:4: heads: missing key 'heads' (query heads)"
    )


def test_a_hopeless_file_is_not_listed_to_the_end() -> None:
    problems = problems_of("name: x\n" + "".join(f"nmae{i}: 1\n" for i in range(1000)))
    assert len(problems) == 51
    assert problems[-1].endswith(": there are more problems than these; mend them first")


def test_reading_without_a_check_still_refuses_yaml_problems() -> None:
    with pytest.raises(SpecError, match="appears twice"):
        read_text("a: 1\na: 2", "f")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe\x00", "m.yaml:1: file: not UTF-8 text; save the file as UTF-8, or name another"),
        (b"a: 1\nb: \xe9", "m.yaml:2: file: not UTF-8 text; save the file as UTF-8, or name another"),
        (b"x" * (MAX_BYTES + 1), "m.yaml: larger than 1 MiB, which no spec is; is this the right file?"),
        (b"\x7fELF\x02", "m.yaml:1: top level: control character U+007F; write the file as plain UTF-8 text"),
        (b"", "m.yaml: the file is empty"),
    ],
)
def test_files_that_hold_something_else(data: bytes, message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_bytes(data)
    with pytest.raises(SpecError) as caught:
        read_file(Path("m.yaml"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.yaml", "there is no such file"), (".", "this is a directory"), ("a\0b", "null"), ("x" * 999, "too long")],
)
def test_files_that_cannot_be_read(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        read_file(tmp_path / name)


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_bytes(b"\xef\xbb\xbfname: x\r\nsize: 3\r\n")
    assert load(Example, read_file(tmp_path / "m.yaml"), "m") == Example(name="x", size=3)


def test_merging_goes_all_the_way_down() -> None:
    base = read_text("a: {b: 1, c: {d: 2, e: 3}}\nf: [1]", "f")
    over = read_text("a: {c: {d: 9}}\nf: [2, 3]\ng: 4", "f")
    assert _plain(merged(base, over)) == {"a": {"b": "1", "c": {"d": "9", "e": "3"}}, "f": ["2", "3"], "g": "4"}
    assert _plain(base) == {"a": {"b": "1", "c": {"d": "2", "e": "3"}}, "f": ["1"]}
    assert merged(base, over).key_lines == {"a": 1, "f": 2, "g": 3}


def test_setting_one_value() -> None:
    node, value = read_text("a: {b: 1}", "f"), Node(7, text="2")
    assert _plain(with_value(node, "a.b", value)) == {"a": {"b": "2"}}
    assert _plain(with_value(node, "a.new", value)) == {"a": {"b": "1", "new": "2"}}
    assert _plain(node) == {"a": {"b": "1"}}


@pytest.mark.parametrize(
    ("dotted", "message"),
    [
        ("x.b", "'x.b' cannot be set: there is no 'x' here"),
        ("a.b.c", "'c' cannot be set: there is no mapping to hold it"),
        ("", "'' cannot be set: there is no mapping to hold it"),
        ("a.", "'' cannot be set: there is no mapping to hold it"),
    ],
)
def test_setting_creates_no_mapping(dotted: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        with_value(read_text("a: {b: 1}", "f"), dotted, Node(1, text="2"))


SNIPPETS = [
    ": ",
    "\n- ",
    "---\n",
    "[",
    "}",
    "&a ",
    "*a",
    "!!int ",
    "'",
    '"\\',
    "|\n ",
    "\t",
    "\0",
    "? ",
    "1e9",
    "%YAML 1.2",
]
GOOD = "name: x\nsize: 1e9\nheads: {heads: 3}\naliases: [a, 'b', \"c\"]\nrest:\n  - 1\n  - |\n    text\n"
MUTATED = st.lists(st.tuples(st.integers(0, len(GOOD)), st.sampled_from(SNIPPETS) | st.characters()), max_size=5)


def _mutated(changes: list[tuple[int, str]]) -> str:
    content = GOOD
    for position, piece in changes:
        content = content[:position] + piece + content[position + len(piece) % 2 :]
    return content


@pytest.mark.parametrize("parser", ["CSafeLoader", "SafeLoader"])
@given(content=st.text(max_size=60) | MUTATED.map(_mutated) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
@example(content='"\\U99999999"')
@example(content="%YAML " + "1" * 5000 + ".1\n---\na: 1")
@example(content="a: 1e999999999")
@settings(deadline=None)
def test_nothing_but_a_spec_error_comes_out(parser: str, content: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "CSafeLoader", getattr(yaml, parser), raising=False)
        said = ""
        try:
            example_of(content)
        except SpecError as error:
            said = str(error)
        assert said.encode("utf-8") is not None  # a lone surrogate would raise here, and at the terminal


@pytest.mark.parametrize(("line", "expected"), BAD_LINES, ids=[line for line, _ in BAD_LINES])
def test_the_pure_python_parser_says_the_same(line: str, expected: list[str], monkeypatch: Any) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    test_a_bad_line_after_a_good_one(line, expected)


def _plain(node: Node) -> object:
    if node.entries is not None:
        return {name: _plain(value) for name, value in node.entries.items()}
    return node.text if node.items is None else [_plain(item) for item in node.items]
