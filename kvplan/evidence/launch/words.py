"""Words into flags: long and short forms, `=`, dashes or underscores, `--no-`, dotted JSON keys, values by kind."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kvplan.errors import did_you_mean
from kvplan.evidence.launch.flags import FLAGS, SHORT, Flag
from kvplan.evidence.launch.values import boolean

_LONG = "\u2013\u2014"
_NUMBER = re.compile(r"-\d[\d.]*")
_LEVEL = re.compile(r"O([0-3])")


class Given(NamedTuple):
    """One flag as it was written, and its value as text, list, truth or part of a JSON object."""

    flag: Flag
    written: str
    value: Any


class Words(NamedTuple):
    """What the words say: flags in order, the positional model, and a sentence for each that cannot be read."""

    given: list[Given]
    positional: list[str]
    problems: list[str]


def read_words(words: list[str]) -> Words:
    """Every word of a command line, taken in once."""
    found = Words([], [], [])
    rest = list(reversed(words))
    while rest:
        word = _dashes(rest.pop())
        if word.startswith("-") and len(word) > 1:
            _flag(word, rest, found)
        elif word:
            found.positional.append(word)
    return found


def _dashes(word: str) -> str:
    """The long dashes that text processors make of --."""
    return "--" + word.lstrip(_LONG) if word[:1] in tuple(_LONG) else word


def _flag(word: str, rest: list[str], found: Words) -> None:
    name, equals, value = word.partition("=")
    name, dot, path = name.partition(".")
    flag, negated = _known(name)
    if flag is None:
        level = _LEVEL.fullmatch(name.lstrip("-"))
        if level:
            found.given.append(Given(FLAGS["optimization_level"], word, level[1]))
            return
        found.problems.append(_unknown(name))
        _skip_value(rest)
        return
    if flag.takes == "switch":
        found.given.append(Given(flag, word, _switch(value if equals else None, rest) != negated))
    elif negated:
        found.problems.append(f"{name}: this flag takes a value and has no --no- form")
    elif flag.takes == "list" and not equals:
        found.given.append(Given(flag, word, _several(rest)))
    elif not equals and not _has_value(rest):
        found.problems.append(f"{name} needs a value")
    else:
        text = value if equals else rest.pop()
        found.given.append(Given(flag, word, _nested(path, text) if dot else text))


def _known(name: str) -> tuple[Flag | None, bool]:
    """The flag of a written name, and whether it is the --no- form of a switch."""
    bare = name.lstrip("-")
    plain = bare.replace("-", "_")
    if not name.startswith("--"):
        return FLAGS.get(SHORT.get(bare, plain)), False
    if plain in FLAGS:
        return FLAGS[plain], False
    if plain in SHORT:
        return FLAGS[SHORT[plain]], False
    inner = plain.removeprefix("no_")
    return (FLAGS.get(inner), True) if inner != plain else (None, False)


def _unknown(name: str) -> str:
    shown = name[:60]
    near = did_you_mean("--" + shown.lstrip("-").replace("_", "-"), ["--" + known.replace("_", "-") for known in FLAGS])
    return f"unknown flag '{shown}'{near or '; it is none of vLLM that kvplan knows'}"


def _switch(value: str | None, rest: list[str]) -> bool:
    """A switch is on, unless a truth value follows it."""
    if value is None and rest and rest[-1].lower() in ("true", "false"):
        value = rest.pop()
    return boolean(value) is not False


def _has_value(rest: list[str]) -> bool:
    return bool(rest) and (not _dashes(rest[-1]).startswith("-") or bool(_NUMBER.fullmatch(rest[-1])))


def _several(rest: list[str]) -> list[str]:
    values = []
    while _has_value(rest):
        values.append(rest.pop())
    return values


def _skip_value(rest: list[str]) -> None:
    """After an unknown flag, the word that is probably its value."""
    if _has_value(rest):
        rest.pop()


def _nested(path: str, text: str) -> dict[str, Any]:
    """`--compilation-config.cudagraph_mode NONE` as the object that it is short for."""
    found: Any = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else text
    for key in reversed(path.rstrip("+").split(".")[:20]):
        found = {key: found}
    return dict(found)
