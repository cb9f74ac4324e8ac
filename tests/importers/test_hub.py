"""Models of the hub, against a server on this machine that behaves as the hub does, well and badly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import CONFIG, header, llama, raw
from huggingface_hub import constants

from kvplan.errors import InputError, MissingPackageError, SpecError
from kvplan.importers import hub
from kvplan.importers.checkpoint import import_model, read_checkpoint

COMMIT = "a" * 40


def no_rule(request: Answering, file: str) -> bool:
    return False


class Hub(ThreadingHTTPServer):
    """Files by name; a rule may answer in their place."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.files: dict[str, bytes] = {}
        self.rule: Callable[[Answering, str], bool] = no_rule
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.sent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        found = re.fullmatch(r"/org/small/resolve/([\w.-]+)/(.+)", self.path)
        file = found[2] if found else ""
        if self.server.rule(self, file):
            return
        if file not in self.server.files:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound" if found else "RepoNotFound"})
            return
        self.file(self.server.files[file])

    def file(self, data: bytes, extra: int = 0) -> None:
        """As much of it as is asked for; `extra` bytes are promised and never come."""
        wanted = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("Range", ""))
        part = data[: int(wanted[1]) + 1] if wanted else data
        headers = {"X-Repo-Commit": COMMIT}
        if wanted:
            headers["Content-Range"] = f"bytes 0-{len(part) - 1}/{len(data) + extra}"
        self.server.sent += len(part)
        self.answer(206 if wanted else 200, part, headers, len(part) + extra)

    def answer(self, code: int, data: bytes, headers: dict[str, str] | None = None, length: int | None = None) -> None:
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(data) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def serve() -> Iterator[Hub]:
    made = Hub()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


another = pytest.fixture(serve, name="another")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for made in serve():
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        made.files["config.json"] = json.dumps(CONFIG).encode()
        yield made


def sharded(server: Hub, shards: int = 2) -> None:
    whole = llama()
    places: dict[str, str] = {}
    names = list(whole)
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: whole[name] for name in names[number::shards]}
        server.files[file] = raw(*header(part))
        places |= dict.fromkeys(part, file)
    server.files["model.safetensors.index.json"] = json.dumps({"weight_map": places}).encode()


def test_a_model_is_its_config(server: Hub) -> None:
    model = import_model("hf:org/small")
    assert (model.name, model.aliases) == ("small", ("org/small",))
    assert model.source == (f"config.json of org/small at {COMMIT}",)
    assert len(model.stack) == 2
    assert [path.rpartition("/")[2] for path, _ in server.seen] == ["config.json", "hf_quant_config.json"]
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer hf_secret"}


def test_the_first_answer_pins_the_commit(server: Hub) -> None:
    sharded(server)
    read_checkpoint("hf:org/small@v1.0")
    revisions = [path.split("/")[4] for path, _ in server.seen]
    assert revisions == ["v1.0", *[COMMIT] * (len(revisions) - 1)]


def test_headers_of_shards_come_by_ranges(server: Hub) -> None:
    sharded(server)
    found = read_checkpoint("hf:org/small")
    assert {each.name for each in found.tensors} == set(llama())
    ranges = [headers["range"] for path, headers in server.seen if path.endswith(".safetensors")]
    assert ranges == [f"bytes=0-{hub.FIRST_BYTES - 1}"] * 2


def test_a_single_file_of_gigabytes_costs_its_header(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "FIRST_BYTES", 64)  # so that the header takes a second request
    text, data = header(llama())
    server.files["model.safetensors"] = raw(text, data)
    found = read_checkpoint("hf:org/small")
    assert sum(each.bytes for each in found.tensors) == data
    ranges = [headers["range"] for path, headers in server.seen if path.endswith("/model.safetensors")]
    assert ranges == ["bytes=0-63", f"bytes=0-{7 + len(text)}"]


def test_a_server_without_ranges_is_read_no_further_than_the_header(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "FIRST_BYTES", 4096)
    text, data = header(llama())
    body = raw(text, data)

    def whole(request: Answering, file: str) -> bool:
        if file == "model.safetensors":
            request.answer(200, body)
        return file == "model.safetensors"

    server.rule = whole
    assert sum(each.bytes for each in read_checkpoint("hf:org/small").tensors) == data


def test_the_token_does_not_follow_a_redirect_to_another_host(server: Hub, another: Hub) -> None:
    sharded(server)

    def away(request: Answering, file: str) -> bool:
        if file.endswith(".safetensors"):
            request.answer(302, b"", {"Location": f"{another.url}/org/small/resolve/main/{file}"})
        return file.endswith(".safetensors")

    server.rule = away
    another.files = server.files
    assert len(read_checkpoint("hf:org/small").tensors) == len(llama())
    assert [headers.get("authorization") for _, headers in another.seen] == [None, None]
    assert all("range" in headers for _, headers in another.seen)


def test_a_redirect_on_the_same_host_keeps_the_token(server: Hub) -> None:
    def moved(request: Answering, file: str) -> bool:
        if "/resolve/main/" in request.path and file == "config.json":
            request.answer(307, b"", {"Location": f"/org/small/resolve/{COMMIT}/config.json"})
            return True
        return False

    server.rule = moved
    assert import_model("hf:org/small").name == "small"
    assert {headers.get("authorization") for _, headers in server.seen} == {"Bearer hf_secret"}


def status(code: int, of: str = "config.json", **headers: str) -> Callable[[Answering, str], bool]:
    def rule(request: Answering, file: str) -> bool:
        if file != of:
            return False
        request.answer(code, b"", {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return rule


def cut_short(request: Answering, file: str) -> bool:
    if file != "model.safetensors":
        return False
    request.file(raw(*header(llama()))[:2000], extra=10**6)
    return True


def endless_redirects(request: Answering, file: str) -> bool:
    request.answer(302, b"", {"Location": request.path})
    return True


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (status(401), "gated, private or misspelt: .* `hf auth login` or set HF_TOKEN"),
        (status(403), "gated, private or misspelt"),
        (status(404), "is not on the hub; check the spelling"),
        (status(404, X_Error_Code="RepoNotFound"), "is not on the hub"),
        (status(404, X_Error_Code="EntryNotFound"), "has no config.json"),
        (status(429, Retry_After="30"), "too many requests from here; try again in 30 s"),
        (status(429), "try again later"),
        (status(500), "answered 500 for config.json"),
        (status(302, Location="ftp://127.0.0.1/x"), "cannot be reached"),
        (status(302, Location="file:///etc/passwd"), "answered 302|cannot be reached"),
        (endless_redirects, "answered 302"),
        (status(404, of="model.safetensors"), "has no safetensors; only config.json"),
        (status(401, of="model.safetensors"), "gated"),
        (cut_short, "the answer ended after 2,000 of"),
    ],
)
def test_bad_answers_are_told(rule: Callable[[Answering, str], bool], said: str, server: Hub) -> None:
    server.files["model.safetensors"] = raw(*header(llama()))
    server.rule = rule
    with pytest.raises(InputError, match=said) as caught:
        read_checkpoint("hf:org/small")
    assert str(caught.value).startswith("hf:org/small: ")
    assert "secret" not in str(caught.value)


def test_a_damaged_header_is_told(server: Hub) -> None:
    server.files["model.safetensors"] = b"\xff" * 64
    with pytest.raises(SpecError, match=r"org/small/model.safetensors: the header would take"):
        read_checkpoint("hf:org/small")


def test_a_shard_that_is_missing_is_told(server: Hub) -> None:
    sharded(server)
    del server.files["model-00002-of-00002.safetensors"]
    with pytest.raises(InputError, match=r"lacks model-00002-of-00002.safetensors"):
        read_checkpoint("hf:org/small")
    server.files["model.safetensors.index.json"] = b"{"
    with pytest.raises(InputError, match="not valid JSON"):
        read_checkpoint("hf:org/small")


def test_a_slow_server_is_not_waited_for(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.1)

    def slow(request: Answering, file: str) -> bool:
        return done.wait(5) and False

    server.rule = slow
    with pytest.raises(InputError, match="did not answer within"):
        import_model("hf:org/small")
    done.set()
    monkeypatch.setattr(hub, "TOTAL_S", 0.0)
    with pytest.raises(InputError, match="took longer than 0 s"):
        import_model("hf:org/small")


def test_without_a_network_a_sentence(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"cannot be reached .*; download the model elsewhere and name its folder"):
        import_model("hf:org/small")


def in_cache(folder: Path, files: dict[str, bytes]) -> None:
    """As huggingface_hub lays it out."""
    model = folder / "models--org--small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    for name, data in files.items():
        (model / "snapshots" / COMMIT / name).write_bytes(data)


def test_the_cache_comes_first(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cache(tmp_path / "cache", {**server.files, "model.safetensors": raw(*header(llama()))})
    found = read_checkpoint("hf:org/small")
    assert found.model is not None
    assert found.model.source == (f"config.json of org/small at {COMMIT}",)
    assert len(found.tensors) == len(llama())
    assert server.seen == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert import_model("hf:org/small").name == "small"
    with pytest.raises(InputError, match="not in the local cache, and HF_HUB_OFFLINE forbids"):
        import_model("hf:org/other")


@pytest.mark.parametrize(
    "name", ["hf:", "hf:a/b/c", "hf:a b", "hf:org/small@", "hf:../x", "hf:org/a--b", "hf:org/a@../../x"]
)
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InputError, match="write hf:ORG/NAME"):
        import_model(name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match="pip install huggingface_hub") as caught:
        import_model("hf:org/small")
    assert caught.value.exit_code == 3


def test_other_models_load_neither_the_package_nor_the_readers() -> None:
    code = "import sys; from kvplan.loading import load_model; load_model('phi-4'); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert not {"huggingface_hub", "kvplan.importers.checkpoint", "urllib.request"} & set(done.stdout.split())
