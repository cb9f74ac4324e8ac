"""One estimate for people: what fills the card, what one conversation takes, and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kvplan.report.answer import answer, details
from kvplan.report.console import WIDTH, grid, plain
from kvplan.report.words import Row, counted, exact, printable, subject
from kvplan.units import human_bytes

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table
    from rich.text import Text


class Entry(NamedTuple):
    """One line of a table of bytes."""

    name: str
    bytes: int
    remark: str = ""
    style: str = ""
    low: int | None = None
    high: int | None = None


RULE: Final = None  # in the place of an entry: a line above a sum


def ledger_table(row: Row, *, notes: Sequence[str] = (), advice: Sequence[str] = (), width: int = WIDTH) -> str:
    """The estimate as plain text."""
    return plain(ledger_view(row, notes=notes, advice=advice), width)


def ledger_view(row: Row, *, notes: Sequence[str] = (), advice: Sequence[str] = ()) -> Group:
    """The estimate for the terminal, the answer last, where the eye is."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [Text(line, "bold" if i == 0 else "") for i, line in enumerate(subject(row))]
    sections = {_session_title(row): _session(row)}
    if row["gpu_memory_bytes"] is not None:
        sections = {_card_title(row): _card(row), **sections}
    label = max(len(entry.name) + 2 for entries in sections.values() for entry in entries if entry)
    label = max(label, *map(len, sections))
    for title, entries in sections.items():
        parts += ["", _bytes_table(title, entries, label)]
    parts += ["", Text(answer(row), "bold green" if row["fits"] else "bold red"), _pairs(details(row))]
    if advice:
        parts += ["", Text("To make it fit", "bold"), *(Padding(_text(line), (0, 0, 0, 2)) for line in advice)]
    if notes:
        parts += ["", _pairs([("note:", line) for line in notes], indent="")]
    return Group(*parts)


def _card_title(row: Row) -> str:
    if row["gpus"] == 1:
        return "What fills the card"
    return "What fills the fullest card" if row["pipeline_parallel"] > 1 else "What fills each card"


def _session_title(row: Row) -> str:
    if row["gpus"] == 1:
        return "One conversation"
    return "One conversation, fullest card" if row["pipeline_parallel"] > 1 else "One conversation, each card"


def _rest(row: Row) -> str:
    """What the rest of the memory is."""
    if any("left_for_the_cache" in line["terms"] for line in row["ledger"]):
        return "free beside the given blocks"
    fraction = row["memory_fraction"]
    return "not requested" if fraction is None else f"not requested (fraction {exact(fraction)})"


def _card(row: Row) -> list[Entry | None]:
    """Weights and their sum, overhead, cache, the rest, and the memory that they add up to."""
    memory = row["gpu_memory_bytes"]
    lines = row["ledger"]
    budget = row["kv_budget_bytes"]
    missing = budget < 0
    parts: list[Entry | None] = [
        *_entries(_under(lines, "weights/"), memory),
        RULE,
        Entry("weights", row["weights_bytes"], _share(row["weights_bytes"], memory), "bold"),
        *_entries(_under(lines, "overhead/"), memory),
        Entry(
            "KV budget, missing" if missing else "KV budget",
            budget,
            _share(budget, memory),
            "bold red" if missing else "bold",
            row.get("kv_budget_bytes_low"),
            row.get("kv_budget_bytes_high"),
        ),
        Entry(_rest(row), row["unrequested_bytes"], _share(row["unrequested_bytes"], memory)),
        RULE,
        Entry(f"GPU memory ({row['gpu_memory_source']})", memory, _share(memory, memory), "bold"),
    ]
    return parts


def _session(row: Row) -> list[Entry | None]:
    """What each kind of layer keeps for one conversation, and the sum."""
    lines = _under(row["ledger"], "session/")
    tokens = next((n for line in lines if (n := line["terms"].get("context_tokens"))), row["context_tokens"])
    reserved, live = row["kv_bytes_per_session"], row["kv_bytes_per_session_logical"]
    parts: list[Entry | None] = [
        *(Entry(_name(line), line["bytes"], _layers(line), "", line["low"], line["high"]) for line in lines),
        RULE,
        Entry("conversation" if reserved == live else "reserved", reserved, counted(tokens, "token"), "bold"),
    ]
    if reserved != live:
        parts.append(Entry("of that live", live, f"{live / reserved:.2%}" if reserved else ""))
    parts.append(Entry("added by the last token", row["kv_bytes_per_token"]))
    return parts


def _under(lines: Iterable[Row], prefix: str) -> list[Row]:
    return [line for line in lines if line["name"].startswith(prefix)]


def _entries(lines: Iterable[Row], memory: int) -> list[Entry]:
    return [Entry(_name(x), x["bytes"], _share(x["bytes"], memory), "", x["low"], x["high"]) for x in lines]


def _name(line: Row) -> str:
    return printable(line["name"])


def _layers(line: Row) -> str:
    layers: Any = line["terms"].get("layers")
    return "" if layers is None else counted(layers, "layer")


def _share(part: int, memory: int) -> str:
    return f"{part / memory:.1%}" if memory else ""


def _bytes_table(title: str, entries: Sequence[Entry | None], label: int) -> Table:
    """Exact bytes, the same for people, and a remark; a range where a line is not exact."""
    from rich.text import Text

    ranged = any(entry and entry.low is not None and entry.high is not None for entry in entries)
    share = "share" if all(entry.remark.endswith("%") for entry in entries if entry) else ""
    table = grid(title, "bytes", "", share, *(["between"] if ranged else []), right=frozenset({1, 2, 3}))
    for column, least in zip(table.columns, (label, 15, 11, 8 if ranged else 13), strict=False):
        column.min_width = least
    for entry in entries:
        if entry is None:
            table.add_row("", Text("-" * 15, "dim"))
            continue
        cells = [f"  {entry.name}", exact(entry.bytes), human_bytes(entry.bytes), entry.remark, _range(entry)]
        table.add_row(*(Text(cell, entry.style) for cell in cells[: len(table.columns)]))
    return table


def _range(entry: Entry) -> str:
    if entry.low is None or entry.high is None:
        return ""
    low, high = human_bytes(entry.low), human_bytes(entry.high)
    number, _, unit = low.partition(" ")
    return f"{number} - {high}" if high.endswith(f" {unit}") else f"{low} - {high}"


def _pairs(pairs: Iterable[tuple[str, str]], indent: str = "  ") -> Table:
    """Words and their texts, long texts wrapped beside their word."""
    from rich.text import Text

    table = grid("", "", head=False)
    table.columns[0].no_wrap = True
    for word, text in pairs:
        table.add_row(Text(f"{indent}{word}", "dim" if not indent else ""), _text(text))
    return table


def _text(text: str) -> Text:
    from rich.text import Text

    return Text(printable(text))
