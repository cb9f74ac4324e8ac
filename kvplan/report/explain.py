"""Every figure of an estimate with its formula, the values filled in, the result, and whose rule it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from kvplan.report.console import WIDTH
from kvplan.report.words import Row, exact, printable
from kvplan.units import human_bytes

_SECTIONS = {"weights/": "Weights", "overhead/": "Overhead", "": "Memory of the GPU", "session/": "One conversation"}
_TOTALS = {"weights/": "weights_bytes", "overhead/": "overhead_bytes", "session/": "kv_bytes_per_session"}
_LONG = re.compile(r"(?<![\w.])\d{5,}(?![\w.])")  # whole numbers worth grouping
_BODY = "    "
_HEAD = ["tensor", "count", "rows", "columns", "format", "bytes of one", "", "bytes of all"]
_DECIMAL = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"))
_WORDS = ("tensor", "format", "bytes of one")


def explain_text(
    row: Row,
    *,
    tensors: Sequence[Row] = (),
    counts: Sequence[Row] = (),
    work: Sequence[Row] = (),
    width: int = WIDTH,
) -> str:
    """Every ledger line and the tensors behind it, then counts, then the work of prefill and decode."""
    lines: list[str] = []
    counted = {count["name"] for count in counts}
    for prefix, title in _SECTIONS.items():
        entries = [line for line in row["ledger"] if _prefix(line["name"]) == prefix]
        total = [] if _TOTALS.get(prefix) in counted else _total(row, prefix, entries)
        blocks = [_entry(line, tensors, width) for line in entries] + [total] * bool(total)
        lines += _section(title, blocks)
    lines += _section("Sessions and tokens", [_derivation(each, _amount(each), width) for each in counts])
    lines += _section("Work of prefill and decode", [_derivation(each, _amount(each), width) for each in work])
    return "".join(f"{line.rstrip()}\n" for line in lines[1:])


def fill(formula: str, terms: Mapping[str, int | float]) -> str:
    """The formula with each term's value in place of its whole name; digits in groups, as Python reads them."""
    names = sorted(terms, key=len, reverse=True)
    if not names:
        return grouped(formula)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
    filled = pattern.sub(lambda found: _operand(terms[found.group()]), formula)
    return grouped(filled)


def grouped(formula: str) -> str:
    """The formula with its long whole numbers in groups: 1_073_741_824 (a comma would part arguments)."""
    return _LONG.sub(lambda found: f"{int(found.group()):_}", formula)


def _operand(value: int | float) -> str:
    return f"({value})" if value < 0 else str(value)


def _prefix(name: str) -> str:
    head, slash, _ = name.partition("/")
    return head + slash if head + slash in _SECTIONS else ""


def _section(title: str, blocks: Sequence[list[str]]) -> list[str]:
    if not blocks:
        return []
    return ["", title, *(line for block in blocks for line in ("", *block))]


def _entry(line: Row, tensors: Iterable[Row], width: int) -> list[str]:
    low, high = line.get("low"), line.get("high")
    between = [] if low is None or high is None else [f"{_BODY}between {_bytes(low)} and {_bytes(high)}"]
    component = line["name"].removeprefix("weights/")
    mine = [t for t in tensors if line["name"].startswith("weights/") and t["component"] == component]
    return [*_derivation(line, _bytes(line["bytes"]), width), *between, *_tensor_table(mine, width)]


def _total(row: Row, prefix: str, entries: Sequence[Row]) -> list[str]:
    """The sum of a section under the name that later formulas use; nothing where one line is the whole."""
    name = _TOTALS.get(prefix)
    if name is None or len(entries) < 2 or row[name] != sum(line["bytes"] for line in entries):
        return []
    return [f"  {name} = {_bytes(row[name])}", f"{_BODY}= the sum of the {len(entries)} lines above"]


def _bytes(count: int) -> str:
    return f"{exact(count)} bytes" + (f" ({human_bytes(count)})" if abs(count) >= 1024 else "")


def _amount(entry: Row) -> str:
    """A value with its unit, and once more for people where it is long."""
    unit, value = printable(str(entry.get("unit") or "")), entry["value"]
    if unit == "bytes":
        return _bytes(value)
    text = f"{exact(value)} {unit}".rstrip()
    for factor, prefix in _DECIMAL if unit.startswith("FLOP") else ():
        if value >= factor:
            return f"{text} ({value / factor:,.2f} {prefix}{unit})"
    return text


def _derivation(entry: Row, result: str, width: int) -> list[str]:
    """Name and result, the formula, the formula with values where that says more, and the source."""
    formula, terms = printable(entry["formula"]), entry["terms"]
    steps = dict.fromkeys((grouped(formula), fill(formula, terms)))
    lines = [f"  {printable(entry['name'])} = {result}"]
    for step in steps:
        lines += _wrapped(f"= {step}", width, hang="  ")
    return lines + _wrapped(f"source: {printable(entry['source'])}", width, hang="        ")


def _wrapped(text: str, width: int, hang: str) -> list[str]:
    return wrap(
        text,
        width,
        initial_indent=_BODY,
        subsequent_indent=_BODY + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _tensor_table(tensors: Sequence[Row], width: int) -> list[str]:
    """The tensors of a component: how many, their shape and format, the formula of one, and the bytes of all."""
    if not tensors:
        return []
    order = list(dict.fromkeys(tensor["name"] for tensor in tensors))
    cells = [_HEAD, *(_tensor(tensor) for tensor in sorted(tensors, key=lambda t: order.index(t["name"])))]
    lines = _aligned(cells)
    if max(map(len, lines)) > width:  # the formula of one holds the shape too
        lines = _aligned([[*line[:2], *line[4:]] for line in cells])
    return lines


def _aligned(cells: list[list[str]]) -> list[str]:
    """Columns two spaces apart: words stand left, figures right."""
    words = [header in _WORDS for header in cells[0]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [f"{{:{'<' if word else '>'}{width}}}" for word, width in zip(words, widths, strict=True)]
    return [_BODY + "  ".join(pad.format(cell) for pad, cell in zip(pads, line, strict=True)) for line in cells]


def _tensor(tensor: Row) -> list[str]:
    wanted: Any = tensor.get("fallback_from")
    form = f"{tensor['format']}, not {wanted}" if wanted else tensor["format"]
    return [
        printable(tensor["name"]),
        exact(tensor["count"]),
        exact(tensor["rows"]),
        exact(tensor["columns"]),
        printable(form),
        grouped(printable(tensor["formula"])),
        f"= {exact(tensor['bytes_each'])}",
        exact(tensor["bytes"]),
    ]
