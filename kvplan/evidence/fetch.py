"""A page of a running server, or a saved one: with limits of time and size, and without showing what is secret."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from kvplan.errors import InputError

TIME_LIMIT_S = 10.0
SIZE_LIMIT = 16 * 2**20
_CHUNK = 65_536


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A page that has moved is not followed: its new place would get the credentials."""

    def redirect_request(self, *_: Any) -> None:
        """No request."""


def fetch(place: str, time_limit_s: float = TIME_LIMIT_S) -> tuple[str, str]:
    """The text of an http(s) address or a file, and the place as it may be shown; raises InputError."""
    scheme, separator, _ = place.partition("://")
    if separator and scheme.lower() in ("http", "https"):
        return _page(place, time_limit_s)
    if separator:
        raise InputError(f"--metrics: '{scheme[:20]}://' is not read; give an http or https address, or a file")
    return _file(place), place


def _file(place: str) -> str:
    path = Path(place)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise InputError(f"--metrics {place}: more than {SIZE_LIMIT // 2**20} MiB are no metrics page")
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        hint = "; an address begins with http://" if ":" in place else ""
        reason = getattr(error, "strerror", None) or "no such file"
        raise InputError(f"--metrics {place[:200]}: {reason}{hint}") from None


def _page(address: str, time_limit_s: float) -> tuple[str, str]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError("--metrics: this is no address; write for example http://localhost:8000/metrics") from None
    if not host:
        raise InputError("--metrics: the address has no host; write for example http://localhost:8000/metrics")
    netloc = f"[{host}]" if ":" in host else host
    netloc += f":{port}" if port else ""
    path = parts.path if parts.path not in ("", "/") else "/metrics"
    shown = urlunsplit((parts.scheme, netloc, path, "", ""))
    headers = {"Accept": "text/plain", "User-Agent": "kvplan"}
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = "Basic " + b64encode(secret).decode("ascii")
    request_address = urlunsplit((parts.scheme, netloc, path, parts.query, ""))
    return _read(request_address, headers, shown, time_limit_s), shown


def _read(address: str, headers: dict[str, str], shown: str, time_limit_s: float) -> str:
    end = time.monotonic() + time_limit_s
    try:
        opener = urllib.request.build_opener(_NoRedirect)
        request = urllib.request.Request(address, headers=headers)
        with opener.open(request, timeout=time_limit_s) as response:
            return _text(response, end, shown, time_limit_s)
    except urllib.error.HTTPError as error:
        error.close()
        moved = " (it has moved: give its new address)" if 300 <= error.code < 400 else ""
        raise InputError(f"--metrics {shown}: the server answers {error.code}{moved}") from None
    except TimeoutError:
        raise _late(shown, time_limit_s) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _late(shown, time_limit_s) from None
        reason = getattr(error.reason, "strerror", None) or "no answer"
        raise InputError(f"--metrics {shown}: {reason}; is the server up, and is this its address?") from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the answer is no web page"
        raise InputError(f"--metrics {shown}: {reason}; is this a vLLM server's address?") from None


def _text(response: Any, end: float, shown: str, time_limit_s: float) -> str:
    """The body, as long as neither limit is met."""
    parts, size = [], 0
    while chunk := response.read1(_CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if size > SIZE_LIMIT:
            raise InputError(f"--metrics {shown}: more than {SIZE_LIMIT // 2**20} MiB are no metrics page")
        if time.monotonic() > end:
            raise _late(shown, time_limit_s)
    return b"".join(parts).decode("utf-8", errors="replace")


def _late(shown: str, time_limit_s: float) -> InputError:
    return InputError(f"--metrics {shown}: no whole answer within {time_limit_s:g} s; is the server up?")
