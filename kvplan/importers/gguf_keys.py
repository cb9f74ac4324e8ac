"""The keys of a GGUF file, read with their types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from kvplan.importers.gguf_header import Skipped, Value, refuse
from kvplan.specs.scalars import shown

LARGEST = 2**31  # of any width or count


class Keys:
    """Keys under the prefix of the architecture; `general.` ones by their full name."""

    def __init__(self, values: Mapping[str, Value], prefix: str, source: str) -> None:
        self.values, self.prefix, self.source = values, prefix, source

    def get(self, name: str) -> Value | None:
        """The value as it is in the file."""
        return self.values.get(f"{self.prefix}.{name}")

    def refuse(self, name: str, message: str) -> NoReturn:
        """Stop with a sentence about a key."""
        refuse(self.source, message, f"{self.prefix}.{name}")

    def size(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number; refused where it is missing without a default, or beyond all bounds."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        return self._checked(name, value, least)

    def optional(self, name: str) -> int | None:
        """A whole number of at least 1, or None; 0 says that there is none."""
        value = self.get(name)
        return None if value is None else self._checked(name, value, 0) or None

    def number(self, name: str) -> float | None:
        """A positive, finite number, or None."""
        value = self.get(name)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
        return float(value) if usable and isinstance(value, int | float) else None

    def text(self, name: str) -> str | None:
        """A text, or None."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def per_layer(self, name: str, layers: int, default: int | None = None) -> list[int]:
        """One whole number for each layer: of an array, or the same for all."""
        value = self.get(name)
        if isinstance(value, Skipped):
            self.refuse(name, f"{value.length:,} values are not one for each of {layers} layers")
        if not isinstance(value, tuple):
            return [self.size(name, default, 0)] * layers
        if len(value) < layers:
            self.refuse(name, f"{len(value)} values for {layers} layers")
        return [self._checked(name, each, 0) for each in value[:layers]]

    def flags(self, name: str, layers: int) -> list[bool] | int | None:
        """An array of yes and no, a period, or None."""
        value = self.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if not isinstance(value, tuple) or len(value) < layers:
            self.refuse(name, f"expected a period or one value for each of {layers} layers")
        return [bool(each) for each in value[:layers]]

    def _checked(self, name: str, value: Value | None, least: int) -> int:
        if type(value) is not int or not least <= value <= LARGEST:
            found = "is missing" if value is None else f"is {shown(str(value))}"
            self.refuse(name, f"{found}; expected a whole number of at least {least}")
        return value
