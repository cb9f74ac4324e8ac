"""The choices of a run, checked before anything heavy is loaded."""

from __future__ import annotations

import re
from typing import Any

from kvplan.errors import InputError
from kvplan.records import Record
from kvplan.units import parse_size, parse_tokens

DTYPES = ("auto", "fp32", "bf16", "fp16")
VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600}
WEIGHTS_TOLERANCE, ACTIVATIONS_TOLERANCE = 0.01, 0.05


class Options(Record):
    """What the user asked for; the names are the command line's."""

    model: str
    device: str = "auto"
    dtype: str = "auto"
    batches: tuple[int, ...] = (1, 4)
    contexts: tuple[int, ...] = (512, 2048)
    layers: int | None = None
    memory_limit: int | None = None
    time_budget_s: float = 180.0
    fill: bool = False
    compare_naive: bool = False
    mixed_lengths: tuple[int, ...] = ()
    tolerance: float | None = None
    checkpoint: str | None = None
    prompt: str | None = None
    new_tokens: int = 64
    tp: int = 1
    threads: int | None = None
    repeats: int = 7
    seed: int = 0
    attention: str | None = None

    def judged(self, usual: float) -> float:
        """The tolerance asked for, else the usual one of a quantity."""
        return usual if self.tolerance is None else self.tolerance

    def given(self) -> dict[str, Any]:
        """The options as the run's record keeps them."""
        return {name: getattr(self, name) for name in self._defaults}


def parse(given: dict[str, Any]) -> Options:
    """The command line's texts as options; raises InputError."""
    readers = {
        "batch": ("batches", lambda text: _list("batch", text, _whole)),
        "context": ("contexts", lambda text: _list("context", text, parse_tokens)),
        "mixed_lengths": ("mixed_lengths", lambda text: _list("mixed-lengths", text, parse_tokens)),
        "layers": ("layers", lambda text: _named("layers", text, _whole)),
        "memory_limit": ("memory_limit", lambda text: _named("memory-limit", text, parse_size)),
        "time_budget": ("time_budget_s", lambda text: _named("time-budget", text, _seconds)),
        "tolerance": ("tolerance", lambda text: _named("tolerance", text, _share)),
        "new_tokens": ("new_tokens", lambda text: _named("new-tokens", text, _whole)),
        "tp": ("tp", lambda text: _named("tp", text, _whole)),
        "threads": ("threads", lambda text: _named("threads", text, _whole)),
        "repeats": ("repeats", lambda text: _named("repeats", text, _whole)),
    }
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        target, read = readers.get(name, (name, lambda same: same))
        found[target] = read(value)  # type: ignore[no-untyped-call]
    options = Options(**found)
    _check(options)
    return options


def _check(options: Options) -> None:
    if options.dtype not in DTYPES:
        raise InputError(f"--dtype {options.dtype}: expected one of {', '.join(DTYPES)}")
    if options.prompt and not options.checkpoint:
        raise InputError("--prompt needs --checkpoint: random weights have nothing to say")
    if options.tp > 1 and (options.checkpoint or options.compare_naive or options.mixed_lengths or options.fill):
        raise InputError("--tp goes with --batch, --context and --layers only; run the others on one device")
    if options.mixed_lengths and min(options.mixed_lengths) < 2:
        raise InputError("--mixed-lengths: a session has at least 2 tokens")


def _named(name: str, text: str, read: Any) -> Any:
    try:
        return read(str(text))
    except InputError as error:
        raise InputError(f"--{name}: {error}") from None


def _list(name: str, text: str, read: Any) -> tuple[int, ...]:
    values = tuple(dict.fromkeys(_named(name, part, read) for part in str(text).split(",")))
    return values if name == "mixed-lengths" else tuple(sorted(values))


def _whole(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text.strip()):
        raise InputError(f"expected a whole number of at least 1, got '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if not found or not float(found[1]):
        raise InputError(f"'{text}' is not a duration; write for example 90s or 3m")
    return float(found[1]) * _SECONDS[found[2]]


def _share(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    if not found:
        raise InputError(f"'{text}' is not a tolerance; write for example 2% or 0.02")
    return float(found[1]) / (100 if found[2] else 1)
