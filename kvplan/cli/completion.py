"""Candidates for the shell: names of models, GPUs, engines, formats. No YAML is read: a listing and an index suffice.

A value may be a list with commas, of which the last part is completed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TABLE_FORMATS = ("table", "json", "jsonl", "csv", "markdown")


def models(incomplete: str) -> list[str]:
    """Models of the zoo, and their other names once these are what is typed."""
    before, part = _last_part(incomplete)
    return _joined(before, _zoo("models", part))


def gpus(incomplete: str) -> list[str]:
    """GPUs of the zoo, after a count such as 8x too."""
    before, part = _last_part(incomplete)
    digits = part[: len(part) - len(part.lstrip("0123456789"))]
    count = part[: len(digits) + 1] if digits and part[len(digits) : len(digits) + 1] in ("x", "X") else ""
    return _joined(before + count, _zoo("gpus", part[len(count) :])) + _joined(before, _starting(part, ["local"]))


def engines(incomplete: str) -> list[str]:
    """Engines whose rules are modelled."""
    from kvplan.engines import ENGINE_NAMES

    return _listed(incomplete, ENGINE_NAMES)


def weights(incomplete: str) -> list[str]:
    """Weight schemes."""
    from kvplan.schemes import SCHEME_NAMES

    return _listed(incomplete, SCHEME_NAMES)


def kv_dtypes(incomplete: str) -> list[str]:
    """Cache formats, for keys and after a slash for values."""
    from kvplan.kv_formats import KV_FORMATS

    before, part = _last_part(incomplete)
    keys, slash, values = part.partition("/")
    known = list(KV_FORMATS) if slash else ["auto", *KV_FORMATS]
    return (
        _joined(before + keys + slash, _starting(values, known)) if slash else _joined(before, _starting(keys, known))
    )


def formats(incomplete: str) -> list[str]:
    """Formats of a result."""
    return _starting(incomplete, TABLE_FORMATS)


def check_formats(incomplete: str) -> list[str]:
    """Formats of a check."""
    return _starting(incomplete, (*TABLE_FORMATS, "junit", "github"))


def schema_kinds(incomplete: str) -> list[str]:
    """Kinds of files that have a schema."""
    from kvplan.specs.schema import SCHEMA_KINDS

    return _starting(incomplete, SCHEMA_KINDS)


def _zoo(kind: str, start: str) -> list[str]:
    """Names, else other names, upper or lower case as it was typed; a shell cannot complete those with spaces."""
    from kvplan.specs import zoo

    found = _starting(start.lower(), zoo.names(kind)) or _starting(start.lower(), zoo.aliases(kind))
    return [start + name[len(start) :] for name in found if " " not in name]


def _listed(incomplete: str, known: Iterable[str]) -> list[str]:
    before, part = _last_part(incomplete)
    return _joined(before, _starting(part, known))


def _last_part(incomplete: str) -> tuple[str, str]:
    """What stands before the last comma, the comma included, and what comes after."""
    before, comma, part = incomplete.rpartition(",")
    return before + comma, part


def _starting(start: str, known: Iterable[str]) -> list[str]:
    return [name for name in known if name.startswith(start)]


def _joined(before: str, names: Sequence[str]) -> list[str]:
    """Whole words for the shell, without what the list has already."""
    taken = before.split(",")
    return [before + name for name in names if name not in taken]
