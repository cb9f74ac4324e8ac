"""A running server's page: read from a file or over loopback, with limits, and nothing secret shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvplan.cli.main import main
from kvplan.errors import InputError
from kvplan.evidence import fetch
from kvplan.evidence.metrics import engines_of, in_use, read_metrics, samples

NAME = "meta-llama/Llama-3.1-8B-Instruct"
# figures of V024: 29,751 blocks of 16 tokens
PAGE = f"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{NAME}"}} 12.0
vllm:num_requests_waiting{{engine="0",model_name="{NAME}"}} 3.0
vllm:kv_cache_usage_perc{{engine="0",model_name="{NAME}"}} 0.25
vllm:prompt_tokens_total{{engine="0",model_name="{NAME}"}} 1.5e+06
vllm:cache_config_info{{block_size="16",cache_dtype="auto",calculate_kv_scales="False",enable_prefix_caching="False",\
engine="0",gpu_memory_utilization="0.95",kv_cache_memory_bytes="None",kv_cache_size_tokens="476016",\
num_gpu_blocks="29751",num_gpu_blocks_override="None",sliding_window="None",swap_space="4"}} 1.0
python_info{{version="3.12"}} 1.0
"""
OLD = f"""vllm_num_requests_running{{model_name="{NAME}"}} 1
vllm_gpu_cache_usage_perc{{model_name="{NAME}"}} 0.5
vllm_cache_config_info{{block_size="16",cache_dtype="fp8",gpu_memory_utilization="0.9",num_gpu_blocks="59502"}} 1
"""


def test_a_page() -> None:
    (log,) = engines_of(PAGE)
    facts = {
        name: log.last(name) for name in ("num_blocks", "block_tokens", "kv_tokens", "memory_fraction", "kv_usage")
    }
    assert facts == {
        "num_blocks": 29_751,
        "block_tokens": 16,
        "kv_tokens": 476_016,
        "memory_fraction": 0.95,
        "kv_usage": 0.25,
    }
    assert (log.model, log.arguments["enable_prefix_caching"]) == (NAME, "False")
    assert in_use(log) == (
        "now: 12 requests running, 3 requests waiting, the cache is 25.0% full (119,004 of 476,016 tokens)"
    )


def test_older_names() -> None:
    found = engines_of(OLD)
    assert {log.model for log in found} == {NAME}
    merged = {name: seen for log in found for name, seen in log.facts.items()}
    assert merged["kv_usage"][0].value == 0.5
    assert merged["num_blocks"][0].value == 59_502
    assert any(log.arguments.get("kv_cache_dtype") == "fp8" for log in found)


def test_engines_of_a_data_parallel_server() -> None:
    page = PAGE + PAGE.replace('engine="0"', 'engine="1"')
    assert [log.last("num_blocks") for log in engines_of(page)] == [29_751, 29_751]


@pytest.mark.parametrize(
    "line",
    [
        'vllm:cache_config_info{num_gpu_blocks="None"} 1',
        'vllm:cache_config_info{num_gpu_blocks="1e400"} 1',
        'vllm:cache_config_info{num_gpu_blocks="' + "9" * 5000 + '"} 1',
        'vllm:cache_config_info{num_gpu_blocks="5',
        'vllm:kv_cache_usage_perc{engine="0"} NaN',
        "vllm:num_requests_running -inf",
        "vllm:kv_cache_usage_perc",
        'vllm:cache_config_info{a="' + "\\" * 3000 + '"} 1',
        "vllm:x{" * 2000,
    ],
)
def test_hostile_lines(line: str) -> None:
    assert all(not log.facts for log in engines_of(line))


def test_reading_is_linear() -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        list(samples(text))
        return time.process_time() - start

    page = PAGE * 100
    seconds(page)
    once = min(seconds(page) for _ in range(3))
    assert min(seconds(page * 8) for _ in range(2)) < 8 * once * 3 + 0.05


class _Handler(BaseHTTPRequestHandler):
    authorization: str | None = None

    def do_GET(self) -> None:
        type(self).authorization = self.headers.get("Authorization")
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "http://example.com/metrics")
            self.end_headers()
        elif self.path.startswith("/metrics"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())
        elif self.path.startswith("/slow"):
            self.send_response(200)
            self.end_headers()
            for _ in range(40):
                self.wfile.write(b"# nothing yet\n")
                self.wfile.flush()
                time.sleep(0.05)
        elif self.path.startswith("/huge"):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (fetch.SIZE_LIMIT + 2**20))
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing."""


@contextmanager
def _serving() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with _serving() as address:
        yield address


@pytest.mark.parametrize("path", ["", "/", "/metrics", "/metrics?token=hidden"])
def test_a_server(host: str, path: str) -> None:
    (log,) = read_metrics(f"http://{host}{path}")
    assert log.last("num_blocks") == 29_751
    assert log.source == f"http://{host}/metrics"


def test_credentials_are_sent_and_never_shown(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["verify", "--gpu", "h100-sxm", "--engine-version", "0.19", "--metrics"]
    for path in ("/metrics?token=hidden", "/gone?token=hidden", "/moved?token=hidden"):
        for form in ("table", "json"):
            main([*argv, f"http://someone:s3cret@{host}{path}", "-f", form])
            out, err = capsys.readouterr()
            for secret in ("someone", "s3cret", "hidden"):
                assert secret not in out + err
    assert (_Handler.authorization or "").startswith("Basic ")


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/gone", "answers 404"), ("/moved", "answers 302 (it has moved"), ("/huge", "are no metrics page")],
)
def test_pages_that_are_refused(host: str, path: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        read_metrics(f"http://{host}{path}")
    assert reason in str(raised.value)


def test_a_server_that_is_slow(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match="no whole answer within"):
        read_metrics(f"http://{host}/slow", time_limit_s=0.3)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("http://127.0.0.1:1/metrics", "is the server up"),
        ("ftp://host/x", "'ftp://' is not read"),
        ("file:///etc/hosts", "'file://' is not read"),
        ("http://", "no host"),
        ("http://h:notaport/", "is no address"),
        ("localhost:8000", "begins with http://"),
        ("no-such-file.prom", "No such file"),
        ("http://127.0.0.1:1/a b\r\nX: y", "--metrics"),
    ],
)
def test_places_that_cannot_be_read(place: str, reason: str) -> None:
    with pytest.raises(InputError) as raised:
        read_metrics(place)
    assert reason in str(raised.value)


def test_the_plan_beside_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.prom"
    page.write_text(PAGE, encoding="utf-8")
    launch = f"docker run vllm/vllm-openai:v0.19.0 {NAME} --max-model-len 8192"
    assert main(["verify", "--metrics", str(page), "--gpu", "h100-sxm", "--launch", launch]) == 0
    out = capsys.readouterr().out
    assert "29,751" in out
    assert "now: 12 requests running, 3 requests waiting" in out
    assert main(["verify", "--metrics", str(page), "--gpu", "a100-40g", "--launch", launch]) == 1
    page.write_text("# nothing\n", encoding="utf-8")
    assert main(["verify", "--metrics", str(page), "--gpu", "h100-sxm"]) == 2
