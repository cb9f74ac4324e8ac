"""Reading a log in one pass: lines are cleaned, looked at only where a known word stands, and given to their engine."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from kvplan.evidence.logs.clean import MAX_LINE, Line, clean
from kvplan.evidence.logs.engines import Engines, Open
from kvplan.evidence.logs.failures import SENTENCES, numbers
from kvplan.evidence.logs.model import EngineLog, Failure, Seen
from kvplan.evidence.logs.patterns import LONG, PATTERNS, READ, Pattern, size
from kvplan.evidence.logs.printed import closed, printed_pairs

_HEADER = re.compile(r"(?:^|[\s|\])])(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b|^\s*$")
_ARGUMENTS = re.compile(
    r"(?:non-default args:|\bargs:(?= ?Namespace\()|LLM engine(?: \(v[\w.+-]{1,80}\))? with config:)"
)
_SERVE = re.compile(
    r"(?:\bvllm serve |vllm\.entrypoints\.(?:openai\.)?api_server\b|(?:docker|podman) run [^\n]{0,300}vllm)"
)
_WORDS = tuple(
    dict.fromkeys(
        [pattern.trigger for pattern in PATTERNS]
        + [sentence.trigger for sentence in SENTENCES]
        + [
            "default args:",
            "args: Namespace(",
            "args:Namespace(",
            "with config:",
            "vllm serve ",
            "entrypoints",
            " run ",
        ]
    )
)
_AHEAD = 12  # lines that a broken sentence may go on for
_AHEAD_ARGUMENTS = 60
MAX_FACTS = 512  # values of one fact that are kept: ranks and restarts, not a flood


def read_log(text: str | Iterable[str]) -> list[EngineLog]:
    """What each engine in a log said while it started, in the order in which they appear; empty where none did."""
    raw = text.splitlines() if isinstance(text, str) else text
    engines = Engines()
    window = _Window(_pieces(raw))
    for number, line in window:
        if any(word in line.text for word in _WORDS):
            _look(number, line, window, engines)
    return engines.logs()


def _pieces(raw: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a very long one comes in pieces, so that no pattern meets megabytes at once."""
    for number, line in enumerate(raw, 1):
        for part in line.replace("\r", "\n").split("\n") if "\r" in line or "\n" in line else (line,):
            if len(part) <= MAX_LINE:
                yield number, part
            else:
                yield from ((number, part[start : start + MAX_LINE]) for start in range(0, len(part), MAX_LINE))


class _Window:
    """Cleaned lines one after the other, with a look at those to come."""

    def __init__(self, raw: Iterator[tuple[int, str]]) -> None:
        self._raw = ((number, clean(text)) for number, text in raw)
        self._ahead: deque[tuple[int, Line]] = deque()

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        while True:
            if self._ahead:
                yield self._ahead.popleft()
                continue
            following = next(self._raw, None)
            if following is None:
                return
            yield following

    def following(self, most: int) -> Iterator[Line]:
        """The lines after the current one that do not begin an entry of their own; they will come again."""
        missing = most - len(self._ahead)
        if missing > 0:
            self._ahead.extend(islice(self._raw, missing))
        for _, line in islice(self._ahead, most):
            if _begins(line.text):
                return
            yield line

    def take(self, most: int) -> list[Line]:
        """As `following`, and they do not come again."""
        found = list(self.following(most))
        for _ in found:
            self._ahead.popleft()
        return found


def _begins(text: str) -> bool:
    """Whether a line is the first of something, so that it cannot go on with what stands before it."""
    return bool(
        _HEADER.search(text[:200])
        or text.lstrip().startswith(LONG)
        or any(word in text for word in ("default args:", "args: Namespace(", "with config:"))
        or _SERVE.search(text)
    )


def _look(number: int, line: Line, window: _Window, engines: Engines) -> None:
    text = line.text
    if _ARGUMENTS.search(text):
        _arguments(number, line, window, engines)
    elif any(start in text for start in LONG):
        text = " ".join(chain([text], (each.text.strip() for each in window.take(_AHEAD))))[: 2 * MAX_LINE]
    if _SERVE.search(text):
        _command(number, line, window, engines)
    for pattern in PATTERNS:
        if pattern.trigger in text:
            for found in pattern.regex.finditer(text):
                _record(number, line, pattern, found, engines)
    for sentence in SENTENCES:
        if sentence.trigger in text:
            for match in sentence.regex.finditer(text):
                engine = engines.current(line, number)
                phase = sentence.phase or (engine.phase if sentence.kind == "oom" else "")
                engine.fail(Failure(sentence.kind, numbers(sentence, match), number, phase, line.rank))


def _record(number: int, line: Line, pattern: Pattern, found: re.Match[str], engines: Engines) -> None:
    groups = iter(found.groups())
    for fact, kind in pattern.facts:
        text = next(groups)
        step = 0.0
        value: Any
        if kind == "size":
            value, step = size(text, next(groups))
        elif kind == "gib":
            value, step = size(text, "GiB")
        else:
            value = READ[kind](text)
            step = 10.0 ** -len(text.partition(".")[2]) if kind in ("number", "share") else 0.0
        engine = engines.for_fact("loaded" if pattern.trigger == "took" else fact, value, line, number)
        engine.add(fact, Seen(value, number, line.rank, line.process, step), MAX_FACTS)


def _arguments(number: int, line: Line, window: _Window, engines: Engines) -> None:
    """Flags as vLLM prints them, perhaps over several lines."""
    found = _ARGUMENTS.search(line.text)
    if not found:
        return
    kind = "config" if "config" in found[0] else "arguments"
    text = line.text[found.end() :].strip()
    if kind == "config" or not closed(text):
        for each in window.following(_AHEAD_ARGUMENTS):
            if len(text) > MAX_LINE:
                break
            text += each.text
    pairs = printed_pairs(text)
    engine = engines.for_fact(kind, pairs, line, number)
    engine.set_arguments(kind, pairs)


def _command(number: int, line: Line, window: _Window, engines: Engines) -> None:
    """A server's command line as it was typed, perhaps over several lines."""
    parts = [line.text]
    for each in window.following(_AHEAD_ARGUMENTS):
        if not (parts[-1].rstrip().endswith(("\\", "^", "`")) or each.text.lstrip().startswith("-")):
            break
        parts.append(each.text)
    found = _SERVE.search(parts[0])
    start = found.start() if found else 0
    text = "\n".join([parts[0][start:], *parts[1:]])[:MAX_LINE]
    engine: Open = engines.for_fact("command", text, line, number)
    engine.command = engine.command or text
