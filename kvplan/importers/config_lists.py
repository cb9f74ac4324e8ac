"""Lists that name modules of a checkpoint: whole names, names within a layer, wildcards, regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from typing import NamedTuple

_LAYER = re.compile(r"(?:^|(?<=\.))(?:layers|h|blocks|block)\.(\d{1,4})(?=$|[.*?])")
_EXPERT = re.compile(r"(?<=experts\.)\d+(?=\.|$)")
_OTHER_PARTS = re.compile(r"mtp|nextn|vis|audio|encoder|image|tower|talker")  # not the language model's layers
_USUAL = ("model.layers.", "model.language_model.layers.", "language_model.model.layers.", "backbone.layers.",
          "transformer.h.", "model.decoder.layers.", "thinker.model.layers.")  # fmt: skip
_NUMBERED = re.compile(r"[0-9\[?]|\\[dw]")
_LONGEST_PATTERN, _MOST_REPEATS = 500, 3

Pattern = re.Pattern[str]


class Names(NamedTuple):
    """A list of modules: by layer where an entry has a number, anywhere where it has none."""

    exact: dict[int, frozenset[str]]  # what follows the number; "" is the whole layer
    wild: dict[int, Pattern]
    bare: frozenset[str]  # entries that belong to no layer, or to every one
    anywhere: Pattern | None
    numbered: bool  # a pattern that may tell one layer from another
    prefixes: tuple[str, ...]  # what stands before the number of a layer in this checkpoint
    experts: frozenset[int]  # how many experts of a layer are named one by one

    @property
    def by_layer(self) -> bool:
        """Whether layers can differ."""
        return bool(self.exact or self.wild or self.numbered)

    def match(self, name: str) -> bool:
        """Whether a module outside the layers is on the list."""
        return bool(self.bare & _around(name)) or bool(self.anywhere and self.anywhere.match(name))

    def in_layer(self, index: int, name: str) -> bool:
        """Whether a module is on the list, by its name within layer `index` or by something it belongs to."""
        around = _around(name)
        if self.bare & around:
            return True
        here = self.exact.get(index)
        if here and ("" in here or here & around):
            return True
        wild = self.wild.get(index)
        if wild and wild.match(f".{name}"):
            return True
        return self.anywhere is not None and any(self.anywhere.match(f"{p}{index}.{name}") for p in self.prefixes)


@cache
def _around(name: str) -> frozenset[str]:
    """A name, the modules around it, and the ends by which lists call it."""
    parts = name.split(".")
    outer = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    inner = (".".join(parts[start:]) for start in range(1, len(parts)))
    return frozenset((*outer, *inner))


def names_of(entries: Iterable[str]) -> Names:
    """The list as it is matched: `re:` starts a regular expression (ValueError if it is none), `*` is a wildcard."""
    exact: dict[int, set[str]] = {}
    wild: dict[int, list[str]] = {}
    bare: set[str] = set()
    anywhere: list[str] = []
    raw: list[str] = []
    prefixes: dict[str, None] = {}
    experts: dict[str, int] = {}
    for entry in entries:
        found = None if entry.startswith("re:") else _LAYER.search(entry)
        if (
            found
            and not _OTHER_PARTS.search(entry[: found.start()])
            and entry[found.end() : found.end() + 1] in ("", ".")
        ):
            index, rest = int(found[1]), entry[found.end() :]
            prefixes[entry[: found.start(1)]] = None
            if "*" in rest or "?" in rest:
                wild.setdefault(index, []).append(rest)
            else:
                first = _EXPERT.sub("0", entry)
                if _EXPERT.search(entry):
                    experts[first] = experts.get(first, 0) + 1
                exact.setdefault(index, set()).add(_EXPERT.sub("0", rest.removeprefix(".")))
        elif entry.startswith("re:"):
            raw.append(entry)
            anywhere.append(_checked(entry.removeprefix("re:")))
        elif "*" in entry or "?" in entry:
            raw.append(entry)
            anywhere += [translate(entry), translate(f"{entry}.*")]
        else:
            bare.add(entry)
    return Names(
        {index: frozenset(rests) for index, rests in exact.items()},
        {index: _any(translate(rest) for rest in rests) for index, rests in wild.items()},
        frozenset(bare),
        _any(anywhere) if anywhere else None,
        any(_NUMBERED.search(pattern) for pattern in raw),
        tuple(prefixes) or _USUAL,
        frozenset(experts.values()),
    )


def _any(patterns: Iterable[str]) -> Pattern:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _checked(text: str) -> str:
    """A regular expression that is safe to run: a repeat inside a repeat can take for ever."""
    repeats = len(re.findall(r"[*+]|\{\d", text))
    nested = re.search(r"[*+}][*+{]|\)[*+{]|\(\?[^:=!]|\\[1-9]", text)
    if len(text) > _LONGEST_PATTERN or repeats > _MOST_REPEATS or nested:
        raise ValueError(f"the pattern '{text[:60]}' is not one that an import runs")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        raise ValueError(f"'{text[:60]}' is no regular expression") from None
    return text
