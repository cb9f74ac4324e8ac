"""Frozen, keyword-only records: a dataclass without its generated methods.

`dataclasses.dataclass` compiles source for every class, which was the largest part of kvplan's own start
(docs/decisions.md has the figures). `fields`, `replace` and type checkers treat both alike.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
class Record:
    """Base of records: subclasses declare typed fields; `__post_init__` may check relations."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _factories: ClassVar[dict[str, Any]] = {}
    _required: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        found = dataclasses.fields(cls)  # type: ignore[arg-type]  # the line above made it a dataclass
        missing = dataclasses.MISSING
        cls._defaults = {f.name: missing if f.default is missing else f.default for f in found}
        cls._factories = {f.name: f.default_factory for f in found if f.default_factory is not missing}
        cls._required = tuple(f.name for f in found if f.default is missing and f.name not in cls._factories)

    def __init__(self, **given: Any) -> None:
        unknown = given.keys() - self._defaults.keys()
        absent = [name for name in self._required if name not in given]
        if unknown or absent:
            raise TypeError(f"{type(self).__name__}: unknown fields {sorted(unknown)}, missing fields {absent}")
        made = {name: factory() for name, factory in self._factories.items() if name not in given}
        self.__dict__.update({**self._defaults, **made, **given})
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check relations between fields; subclasses raise ValueError with a sentence."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._defaults)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self._defaults)  # not what a cached_property put beside them
