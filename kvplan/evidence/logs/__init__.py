"""Start-up logs of vLLM as people paste them: `read_log(text)` gives what each engine in it said."""

from kvplan.evidence.logs.model import EngineLog, Failure, Seen
from kvplan.evidence.logs.reader import read_log

__all__ = ["EngineLog", "Failure", "Seen", "read_log"]
