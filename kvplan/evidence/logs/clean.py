"""A raw line without what shells, containers and collectors put around it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

MAX_LINE = 65_536  # characters looked at as one piece; longer lines are cut into pieces
_ESCAPES = re.compile(r"(?:\x1b|\\u001b|\\x1b|\\033|\\e|#033|\^\[|␛)\[[0-9;?]{0,24}[A-Za-z]")
_BARE_COLOUR = re.compile(r"\[(?:0;|1;)?(?:[0-9]{1,2};?){0,4}m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_RANK = re.compile(
    r"\(((?:Engine_?Core|Worker|VllmWorker|RayWorker|APIServer|ApiServer|Api_?Server)\w{0,40}(?: rank=\d{1,6})?)"
    r"(?:\s+pid=(\d{1,10}))?(?:,\s*ip=([\w.:]{1,50}))?\)"
)
_COMPOSE = re.compile(r"([\w.-]{1,64})\s{1,40}\|\s")
_POD = re.compile(r"\[(pod/[^\]\s]{1,200})\]")
_SYSLOG = re.compile(
    r"(?:\w{3}\s{1,2}\d{1,2} [\d:.]{5,20}|\d{4}-\d\d-\d\dT[\d:.+Z-]{5,30}) (\S{1,64} [\w./-]{1,64}\[\d{1,10}\]):"
)
_MESSAGE_KEYS = ("log", "message", "msg", "MESSAGE", "text", "textPayload", "line", "event", "body")
_SOURCE_KEYS = ("container_name", "container", "pod", "pod_name", "_SYSTEMD_UNIT", "CONTAINER_NAME", "container_id")


class Line(NamedTuple):
    """What the program wrote, who collected it from where, and which of its processes wrote it."""

    text: str
    source: str  # container, pod or unit; "" where nothing says so
    rank: str  # Worker_TP1, EngineCore_DP0, ...; "" where nothing says so
    process: str  # pid, with its machine where there are several


def clean(raw: str) -> Line:
    """The line without colours and wrappers; its source and rank kept apart."""
    source = ""
    text = raw
    if text.lstrip()[:1] == "{" and text.rstrip()[-1:] == "}":
        text, source = _unwrapped(text)
    if "[" in text:
        text = _BARE_COLOUR.sub("", _ESCAPES.sub("", text)) if "m" in text else text
    if not text.isprintable():
        text = _CONTROL.sub(" ", text)
    head = text[:400]
    rank = _RANK.search(head) if "(" in head else None
    return Line(
        text=text,
        source=source or _source(head),
        rank=rank[1] if rank else "",
        process=":".join(part for part in (rank[2], rank[3]) if part) if rank else "",
    )


def _source(head: str) -> str:
    for pattern in (_COMPOSE, _POD, _SYSLOG):
        found = pattern.match(head)
        if found:
            return found[1]
    return ""


def _unwrapped(text: str) -> tuple[str, str]:
    """The message of a JSON object that a collector made of a line, and where it came from."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text, ""
    if not isinstance(found, dict):
        return text, ""
    message = next((found[key] for key in _MESSAGE_KEYS if isinstance(found.get(key), str)), None)
    if message is None:
        return text, ""
    places = [found, found.get("kubernetes"), found.get("resource")]
    named = (place[key] for place in places if isinstance(place, dict) for key in _SOURCE_KEYS if key in place)
    return message, next((str(name)[:200] for name in named if isinstance(name, str)), "")
