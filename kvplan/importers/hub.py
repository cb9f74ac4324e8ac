"""`hf:ORG/NAME[@REVISION]`: config and safetensors headers of a model on the hub, by range requests.

huggingface_hub says where the hub is, which token to send and what lies in its cache; a file that is there is not
fetched. The requests themselves are plain HTTP with a limit of time and of bytes, so no weights are ever downloaded.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kvplan import __version__
from kvplan.errors import InputError, MissingPackageError
from kvplan.importers.safetensors import (
    INDEX,
    MAX_HEADER,
    TensorInfo,
    check_together,
    checked_map,
    header_length,
    parse_header,
    read_file_header,
)
from kvplan.specs.scalars import shown

PREFIX = "hf:"
TIMEOUT_S = 10.0  # of one answer
TOTAL_S = 120.0  # of a model
MAX_CONFIG = 32 * 2**20
FIRST_BYTES = 2**17  # holds the whole header of most shards
_NAME = re.compile(r"hf:((?:[\w.-]{1,96}/)?[\w.-]{1,96})(?:@([\w./-]{1,100}))?", re.ASCII)
_SIZE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")


class Answer(NamedTuple):
    """Part of a file: its bytes, the size of the whole file, and the commit it is of."""

    data: bytes
    size: int
    commit: str | None


class _MissingError(Exception):
    """There is no such file."""


class Repository:
    """One revision of a model on the hub; the first answer pins the commit that later ones are of."""

    def __init__(self, text: str) -> None:
        found, self.hub = _NAME.fullmatch(text), _package()
        if not found or ".." in text or "--" in text:
            raise InputError(f"'{shown(text)}': write hf:ORG/NAME, or hf:ORG/NAME@REVISION for a commit, tag or branch")
        self.name, self.revision = found[1], found[2]
        self.commit: str | None = None
        self.in_cache = False
        self.deadline = time.monotonic() + TOTAL_S

    def config_files(self) -> dict[str, bytes]:
        """config.json, and ModelOpt's file beside it where there is one."""
        config = self._whole("config.json")
        if config is None:
            self._refuse("has no config.json: GGUF and adapter repositories have none; download the file and name it")
        # a model in the cache is whole there: what it lacks is not asked for
        beside = self._whole("hf_quant_config.json", only_cached=self.in_cache)
        return {"config.json": config, **({"hf_quant_config.json": beside} if beside else {})}

    def tensors(self) -> list[TensorInfo]:
        """Every tensor, from the headers of its files."""
        single = self._cached("model.safetensors")
        index = self._whole(f"model{INDEX}", only_cached=single is not None)
        if index is None:
            found = self._header("model.safetensors")
            if found is None:
                self._refuse("has no safetensors; only config.json can be imported")
            return found
        try:
            mapping = checked_map(json.loads(index).get("weight_map"), f"{self.name}/model{INDEX}")
        except (ValueError, AttributeError, RecursionError):
            self._refuse(f"model{INDEX} is not valid JSON")
        tensors: list[TensorInfo] = []
        for file in sorted(set(mapping.values())):
            found = self._header(file)
            if found is None:
                self._refuse(f"lacks {file}, which its index names")
            tensors += found
        check_together(tensors, mapping, self.name)
        return tensors

    def _header(self, file: str) -> list[TensorInfo] | None:
        cached = self._cached(file)
        if cached:
            return read_file_header(cached)
        source = f"{self.name}/{file}"
        try:
            first = self._fetch(file, FIRST_BYTES, ranged=True)
            length = header_length(first.data[:8], first.size, source)
            if len(first.data) < 8 + length:
                first = self._fetch(file, 8 + min(length, MAX_HEADER), ranged=True)
        except _MissingError:
            return None
        return parse_header(first.data[8 : 8 + length], first.size - 8 - length, source)

    def _whole(self, file: str, *, only_cached: bool = False) -> bytes | None:
        """A small file, or None where there is none."""
        cached = self._cached(file)
        if cached:
            self.commit, self.in_cache = self.commit or cached.parent.name, True
            return cached.read_bytes()[: MAX_CONFIG + 1]
        if only_cached:
            return None
        try:
            answer = self._fetch(file, MAX_CONFIG, ranged=False)
        except _MissingError:
            return None
        if answer.size > MAX_CONFIG:
            self._refuse(f"{file} has {answer.size:,} bytes, which no config has")
        return answer.data

    def _cached(self, file: str) -> Path | None:
        found = self.hub.cached(self.name, file, revision=self.commit or self.revision)
        return Path(found) if isinstance(found, str) else None

    def _fetch(self, file: str, most: int, *, ranged: bool) -> Answer:
        """The first bytes of a file."""
        if self.hub.constants.HF_HUB_OFFLINE:
            self._refuse("is not in the local cache, and HF_HUB_OFFLINE forbids to fetch it")
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
        url = self.hub.url(self.name, file, revision=self.commit or self.revision, endpoint=endpoint)
        headers = {"Accept-Encoding": "identity", "User-Agent": f"kvplan/{__version__}"}
        token = None if self.hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else self.hub.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if ranged:
            headers["Range"] = f"bytes=0-{most - 1}"
        try:
            with _OPENER.open(urllib.request.Request(url, headers=headers), timeout=self._time_left()) as answer:
                found = self._read(answer, most, file)
        except urllib.error.HTTPError as error:
            with error:
                self._told(error, file)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._unreachable(error)
        self.commit = self.commit or found.commit
        return found

    def _read(self, answer: Any, most: int, file: str) -> Answer:
        stated = _SIZE.fullmatch(answer.headers.get("Content-Range", ""))
        length = answer.headers.get("Content-Length", "")
        size = int(stated[3]) if stated else int(length) if length.isascii() and length.isdigit() else None
        if stated and int(stated[1]) != 0:
            self._refuse(f"{file}: the server answered with another range than was asked for")
        pieces, got = [], 0
        while got < most and (piece := answer.read1(min(2**16, most - got))):
            pieces.append(piece)
            got += len(piece)
            self._time_left()
        if size is not None and got < min(size, most):
            self._refuse(f"{file}: the answer ended after {got:,} of {min(size, most):,} bytes; try again")
        return Answer(b"".join(pieces), got if size is None else size, answer.headers.get("X-Repo-Commit"))

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            self._refuse(f"took longer than {TOTAL_S:.0f} s; try again, or download the model and name its folder")
        return min(TIMEOUT_S, left)

    def _told(self, error: urllib.error.HTTPError, file: str) -> NoReturn:
        """What an answer that is no file means."""
        code = error.code
        if code == 404:
            about = error.headers.get("X-Error-Code")
            if about == "EntryNotFound" or (about is None and file != "config.json"):
                raise _MissingError from None
            at = f" at revision '{self.revision}'" if self.revision else ""
            self._refuse(f"is not on the hub{at}; check the spelling")
        if code in (401, 403):
            self._refuse(
                "is gated, private or misspelt: accept its licence on its page, then log in with `hf auth login`"
                " or set HF_TOKEN"
            )
        if code == 429:
            wait = error.headers.get("Retry-After", "")
            after = f" in {wait} s" if wait.isdigit() else " later"
            self._refuse(f"the hub has had too many requests from here; try again{after}, or log in for a higher limit")
        self._refuse(f"the hub answered {code} for {file}; try again later")

    def _unreachable(self, error: Exception) -> NoReturn:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            self._refuse(f"the hub did not answer within {TIMEOUT_S:.0f} s; try again, or name a local folder")
        said = shown(str(reason) or type(reason).__name__)
        self._refuse(f"the hub cannot be reached ({said}); download the model elsewhere and name its folder")

    def _refuse(self, message: str) -> NoReturn:
        raise InputError(f"{PREFIX}{self.name}: {message}")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but shows the token to nobody but the hub."""

    def redirect_request(self, req: Any, *rest: Any) -> Any:
        made = super().redirect_request(req, *rest)
        if made is not None and made.type not in ("http", "https"):
            rest[0].close()
            raise ValueError(f"a redirect to {made.type}")
        if made is not None and (made.type, made.host) != (req.type, req.host):
            made.remove_header("Authorization")
        return made


_OPENER = urllib.request.build_opener(_Redirects)


class _Package(NamedTuple):
    """What huggingface_hub knows of where things are."""

    constants: Any
    url: Any
    cached: Any
    token: Any


def _package() -> _Package:
    try:  # takes a while to load: only for models of the hub
        from huggingface_hub import constants, get_token, hf_hub_url, try_to_load_from_cache
    except ImportError:
        raise MissingPackageError(
            "models of the hub need the package huggingface_hub: pip install huggingface_hub"
        ) from None
    return _Package(constants, hf_hub_url, try_to_load_from_cache, get_token)
