"""Whose line it is: a file may hold several engines, one after the other or, by their containers, mixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.evidence.logs.clean import Line
from kvplan.evidence.logs.model import EngineLog, Failure, Seen

_FIGURES = ("weights", "available", "kv_tokens", "max_concurrency", "num_blocks")
_CONFIG = {  # of an engine's config -> vLLM's argument; the rest is not looked at
    "model": "model",
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "quantization": "quantization",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "speculative_config": "speculative_config",
}
MAX_ENGINES = 256
MAX_FAILURES = 64


class Open:
    """An engine whose lines are still being read."""

    def __init__(self, source: str, first_line: int) -> None:
        self.source, self.first_line = source, first_line
        self.facts: dict[str, list[Seen]] = {}
        self.arguments: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.failures: list[Failure] = []
        self.command: str | None = None
        self.configured: set[str] = set()  # processes that printed their config
        self.servers: set[str] = set()

    def add(self, fact: str, seen: Seen, most: int) -> None:
        """One more value of a fact."""
        values = self.facts.setdefault(fact, [])
        if len(values) < most:
            values.append(seen)

    def fail(self, failure: Failure) -> None:
        """A failure; the ranks' copies of one sentence are one."""
        known = any(
            (f.kind, f.phase, f.numbers) == (failure.kind, failure.phase, failure.numbers) for f in self.failures
        )
        if not known and len(self.failures) < MAX_FAILURES:
            self.failures.append(failure)

    def set_arguments(self, kind: str, pairs: Mapping[str, Any]) -> None:
        """Flags that were printed: those of the start, or the engine's config."""
        if kind == "config":
            self.config.update({_CONFIG[key]: value for key, value in pairs.items() if key in _CONFIG})
        else:
            named = {("model" if key == "model_tag" else key): value for key, value in pairs.items()}
            self.arguments.update({key: value for key, value in named.items() if value is not None})

    @property
    def phase(self) -> str:
        """How far the start has come."""
        if "graphs" in self.facts:
            return "start"
        if {"kv_tokens", "num_blocks", "max_concurrency"} & self.facts.keys():
            return "graphs"
        return "profile" if "weights" in self.facts else "weights"

    @property
    def has_figures(self) -> bool:
        """Whether a start has come so far that a second one must be another engine's."""
        return any(fact in self.facts for fact in _FIGURES) or bool(self.failures)

    @property
    def empty(self) -> bool:
        """Whether nothing is known of it."""
        return not (self.facts or self.arguments or self.config or self.failures or self.command)

    def log(self) -> EngineLog:
        """What was read, for good."""
        known = {key: value for key, value in self.config.items() if value is not None}
        return EngineLog(
            source=self.source,
            first_line=self.first_line,
            arguments={**known, **self.arguments},
            facts={fact: tuple(values) for fact, values in self.facts.items()},
            failures=tuple(self.failures),
            command=self.command,
        )


class Engines:
    """The engines of a log; of each source (container, pod, unit) the newest takes the lines."""

    def __init__(self) -> None:
        self._all: list[Open] = []
        self._newest: dict[str, Open] = {}

    def current(self, line: Line, number: int) -> Open:
        """The engine that a line belongs to."""
        return self._newest.get(line.source) or self._begin(line, number)

    def for_fact(self, fact: str, value: Any, line: Line, number: int) -> Open:
        """The engine that a fact belongs to: one that begins a start may begin another engine."""
        engine = self.current(line, number)
        if self._begins(engine, fact, value, line) and len(self._all) < MAX_ENGINES:
            engine = self._begin(line, number)
        if fact == "config":
            engine.configured.add(line.rank)
        elif fact == "arguments":
            engine.servers.add(line.process)
        return engine

    def _begins(self, engine: Open, fact: str, value: Any, line: Line) -> bool:
        if fact in ("arguments", "command"):
            return bool(engine.has_figures or (engine.configured and fact == "arguments"))
        if fact == "version":
            return engine.has_figures and line.rank[:3].lower() == "api" and bool(engine.configured or engine.arguments)
        if fact == "config":
            return line.rank in engine.configured or (engine.has_figures and not engine.configured)
        if fact == "loaded":  # headers cut off: a process that loads twice is another start
            seen = engine.facts.get("weights", ())
            done = "kv_tokens" in engine.facts or "num_blocks" in engine.facts or bool(engine.failures)
            return done and not any(s.value == value or abs(s.value - value) < max(s.step, 2**24) for s in seen)
        return False

    def _begin(self, line: Line, number: int) -> Open:
        engine = Open(line.source, number)
        self._all.append(engine)
        self._newest[line.source] = engine
        return engine

    def logs(self) -> list[EngineLog]:
        """Those that said something."""
        return [engine.log() for engine in self._all if not engine.empty]
