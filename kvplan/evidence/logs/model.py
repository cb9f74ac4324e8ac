"""What a log said: figures with their rounding, the line they stand on and the process that printed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.records import Record


class Seen(NamedTuple):
    """One printed value; `step` is the size of its last digit (bytes for sizes), so it stands for value ± step / 2."""

    value: Any
    line: int
    rank: str = ""
    process: str = ""
    step: float = 0


class Failure(NamedTuple):
    """A start that failed: kind, the numbers in its sentence, and how far the start had come.

    Kinds: kv_too_small | no_cache | not_free | oom | profiling.
    Phases of an oom: weights | profile | sampler | graphs | start.
    """

    kind: str
    numbers: Mapping[str, float]
    line: int
    phase: str = ""
    rank: str = ""


class EngineLog(Record):
    """What one engine said while it started.

    `facts` holds every value of a fact in the order of the lines; `arguments` the flags as the log prints them (or
    as its command line has them), under vLLM's names.
    """

    engine: str = "vllm"
    source: str = ""
    first_line: int
    arguments: Mapping[str, Any]
    facts: Mapping[str, tuple[Seen, ...]]
    failures: tuple[Failure, ...] = ()
    command: str | None = None

    def all(self, fact: str) -> tuple[Seen, ...]:
        """Every value of a fact."""
        return self.facts.get(fact, ())

    def last(self, fact: str) -> Any:
        """The value that was printed last, or None."""
        found = self.all(fact)
        return found[-1].value if found else None

    def first(self, fact: str) -> Any:
        """The value that was printed first, or None."""
        found = self.all(fact)
        return found[0].value if found else None

    def by_rank(self, fact: str) -> dict[str, Seen]:
        """The finest value of each process: a figure printed twice is taken with more digits."""
        found: dict[str, Seen] = {}
        for seen in self.all(fact):
            key = seen.process or seen.rank
            if key not in found or seen.step <= found[key].step:
                found[key] = seen
        return found

    @property
    def version(self) -> str | None:
        """The engine's version, as printed."""
        found = self.last("version")
        return None if found is None else str(found)

    @property
    def model(self) -> str | None:
        """The model as it was named at the start."""
        found = self.arguments.get("model") or self.last("model")
        return None if found is None else str(found)

    @property
    def said(self) -> str:
        """All that was said, without where and when: two starts that say the same are one."""
        facts = sorted((name, [seen.value for seen in values]) for name, values in self.facts.items())
        failures = [(f.kind, f.phase, dict(f.numbers)) for f in self.failures]
        return repr((self.source, dict(self.arguments), facts, failures, self.command))

    @property
    def started(self) -> bool:
        """Whether a cache was made."""
        return bool(self.all("kv_tokens") or self.all("max_concurrency")) and not self.failures
