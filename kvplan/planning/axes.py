"""Values of one option: a single one, a list with commas, or a range such as 2k:128k:x2 and 8k:32k:+8k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvplan.errors import InputError
from kvplan.units import parse_size, parse_tokens

# Options in the order in which a grid runs through them: the last changes fastest. Structure first, numbers last.
STRUCTURE = (
    "model", "gpu", "engine", "engine_version", "weights", "kv_dtype", "attention", "extras", "tp", "pp", "dp", "ep",
    "max_model_len", "max_batched_tokens", "block_size", "eager", "lora_rank", "max_loras", "draft_model",
    "shared_prefix", "reserve", "flags",
)  # fmt: skip
BUDGET = ("memory_fraction", "kv_budget")
NUMBERS = ("max_seqs", "sessions", "context")
OPTIONS = STRUCTURE + BUDGET + NUMBERS

MAX_STEPS = 10_000_000  # values of one option
MAX_FACTOR_STEPS = 10_000

TOKENS = ("context", "max_model_len", "shared_prefix")
SIZES = ("reserve", "kv_budget")
COUNTS = ("sessions", "tp", "pp", "dp", "ep", "max_seqs", "max_batched_tokens", "block_size", "lora_rank", "max_loras")
FRACTIONS = ("memory_fraction",)
NUMERIC = TOKENS + SIZES + COUNTS + FRACTIONS

ROW_KEYS = {
    "model": "model",
    "gpu": "gpu",
    "attention": "attention",
    "context": "context_tokens",
    "weights": "weight_scheme",
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "memory_fraction": "memory_fraction",
    "max_seqs": "max_seqs",
}


def given_inputs(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, under the keys of a row: what is known of a combination that cannot be."""
    given = {key: options[option] for option, key in ROW_KEYS.items() if options.get(option) is not None}
    return {key: getattr(value, "name", value) for key, value in given.items()}


def parse_axis(name: str, text: str) -> Sequence[Any]:
    """The values of an option written as text; raises InputError for an empty, endless or repeated one."""
    option = "--" + name.replace("_", "-")
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InputError(f"{option} '{text}': there is an empty value between the commas")
    pieces = [_piece(option, name, part) for part in parts]
    values = pieces[0] if len(pieces) == 1 else [value for piece in pieces for value in piece]
    if len(pieces) > 1 and len(set(values)) < len(values):
        repeated = next(value for index, value in enumerate(values) if value in values[:index])
        raise InputError(f"{option} '{text}': '{repeated}' appears twice")
    return values


def _piece(option: str, name: str, text: str) -> Sequence[Any]:
    if name not in NUMERIC:
        return [text]  # a name may hold colons: gqa:8, h100-sxm:1g.10gb
    parse = _parser(option, name)
    if ":" not in text:
        return [parse(text)]
    parts = text.split(":")
    if len(parts) != 3 or not all(parts):
        raise InputError(f"{option} '{text}': a range is START:END:xFACTOR or START:END:+STEP, such as 2k:128k:x2")
    start, end = parse(parts[0]), parse(parts[1])
    if start > end:
        raise InputError(f"{option} '{text}': the range starts above its end; turn them around")
    if name in FRACTIONS:
        return _fractions(option, text, *parts)
    values = _factors(start, end, parts[2]) if parts[2].startswith("x") else _steps(start, end, parts[2], parse)
    if values is None:
        raise InputError(
            f"{option} '{text}': '{parts[2]}' is no step that reaches the end; write x2 (times) or +8k (plus)"
        )
    if len(values) > MAX_STEPS:
        raise InputError(f"{option} '{text}': more than {MAX_STEPS:,} values; take a larger step")
    return values


def _factors(start: int, end: int, step: str) -> Sequence[int] | None:
    digits = step[1:]
    if not (digits.isascii() and digits.isdigit() and 2 <= int(digits[:10]) < 10**9):
        return None
    values = [start]
    while values[-1] * int(digits) <= end:
        values.append(values[-1] * int(digits))
    return values


def _steps(start: int, end: int, step: str, parse: Callable[[str], Any]) -> Sequence[int] | None:
    if not step.startswith("+"):
        return None
    try:
        return range(start, end + 1, parse(step[1:]))
    except InputError:
        return None


def _fractions(option: str, text: str, start: str, end: str, step: str) -> Sequence[float]:
    from decimal import Decimal, InvalidOperation  # 0.5 + 0.1 + 0.1 must be 0.7

    try:
        if not step.startswith("+"):
            raise InvalidOperation
        first, last, width = Decimal(start), Decimal(end), Decimal(step[1:])
        if width <= 0:
            raise InvalidOperation
    except InvalidOperation:
        raise InputError(f"{option} '{text}': the step is + and a number above 0, such as 0.5:0.9:+0.1") from None
    if (last - first) / width >= MAX_FACTOR_STEPS:
        raise InputError(f"{option} '{text}': more than {MAX_FACTOR_STEPS:,} values; take a larger step")
    return [float(first + width * i) for i in range(int((last - first) / width) + 1)]


def _parser(option: str, name: str) -> Callable[[str], Any]:
    parse: Callable[[str], Any] = _count
    if name in TOKENS:
        parse = parse_tokens
    elif name in SIZES:
        parse = parse_size
    elif name in FRACTIONS:
        parse = _fraction

    def named(text: str) -> Any:
        try:
            return parse(text)
        except InputError as error:
            raise InputError(f"{option}: {error}") from None

    return named


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= 15):
        raise InputError(f"expected a whole number of at least 1, got '{text}'")
    return int(text)


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise InputError(f"expected a number above 0 and at most 1 such as 0.9, got '{text}'")
    return value
