"""Broken logs: cut, shuffled, binary, megabytes of noise. Never a traceback, never a hang, time in proportion."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.cli.main import main
from kvplan.errors import InputError
from kvplan.evidence.launch import parse_launch
from kvplan.evidence.logs import read_log
from kvplan.evidence.logs.failures import SENTENCES
from kvplan.evidence.logs.files import lines
from kvplan.evidence.logs.patterns import PATTERNS
from kvplan.evidence.logs.printed import printed_pairs
from kvplan.evidence.metrics import engines_of
from kvplan.evidence.verify import verify_log

LOGS = sorted((Path(__file__).resolve().parent.parent / "data" / "logs").glob("*.log"))
TEXTS = [path.read_text(encoding="utf-8") for path in LOGS]
EASY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HOSTILE = (
    "1e400",
    "NaN",
    "-inf",
    "9" * 40,
    "0",
    "-1",
    "1.5.2",
    "",
    "1e-400",
    "0x10",
    "\u0663\u0664",
    "999999999999999",
)


def mutated(text: str, seed: int) -> str:
    """The text with pieces cut, repeated, moved or replaced by noise and hostile numbers."""
    chance = random.Random(seed)
    rows = text.splitlines()
    for _ in range(chance.randint(1, 6)):
        kind = chance.randrange(6)
        place = chance.randrange(len(rows) or 1)
        if not rows:
            break
        if kind == 0:
            rows = rows[place:] if chance.random() < 0.5 else rows[:place]
        elif kind == 1:
            chance.shuffle(rows)
        elif kind == 2:
            rows[place] = rows[place][: chance.randrange(len(rows[place]) + 1)]
        elif kind == 3:
            rows.insert(place, "".join(chr(chance.randrange(1, 0x3000)) for _ in range(200)))
        elif kind == 4:
            words = rows[place].split(" ")
            for index, word in enumerate(words):
                if any(c.isdigit() for c in word) and chance.random() < 0.5:
                    words[index] = chance.choice(HOSTILE)
            rows[place] = " ".join(words)
        else:
            rows = rows + rows
    return "\n".join(rows)


def verified(text: str) -> None:
    """Read and verify; only a sentence for the user may come of it."""
    for log in read_log(text):
        with suppress(InputError):
            verdict = verify_log(log, {"gpu": "h100-sxm"})
            assert all(row["predicted"] is not None for row in verdict.rows)


@pytest.mark.parametrize("seed", range(48))
def test_mutations_of_real_logs(seed: int) -> None:
    verified(mutated(TEXTS[seed % len(TEXTS)], seed))


@EASY
@given(st.integers(0, len(TEXTS) - 1), st.integers(0, 4000), st.integers(0, 4000))
def test_any_cut(which: int, start: int, length: int) -> None:
    read_log(TEXTS[which][start : start + length])


@EASY
@given(st.text())
def test_any_text(text: str) -> None:
    read_log(text)
    engines_of(text)
    printed_pairs(text)
    with suppress(InputError):
        parse_launch(text)


@EASY
@given(st.binary(max_size=4000), st.sampled_from([b"", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"]))
def test_any_bytes(data: bytes, mark: bytes) -> None:
    read_log(lines(io.BytesIO(mark + data)))


FLAG_WORDS = [
    "-tp",
    "--max-model-len",
    "=",
    "2",
    "-1",
    "--",
    "-",
    "'",
    '"',
    "{}",
    '{"a": 1}',
    "--no-port",
    "-O3",
    "\\",
    "|",
]


@EASY
@given(st.lists(st.sampled_from(FLAG_WORDS), max_size=12))
def test_any_command_line(words: list[str]) -> None:
    with suppress(InputError):
        launch = parse_launch("vllm serve a/b " + " ".join(words))
        assert all(launch.refused)


@pytest.mark.parametrize(
    "text",
    [
        "{'a':" * 5000,
        "non-default args: " + "{'a': [" * 3000,
        "non-default args: {" + "'\\" * 5000,
        "non-default args: {'a': " + "(" * 10_000,
        "args: Namespace(" + "a=b(" * 2000,
        "[" * 100_000,
        '{"log": ' * 20_000,
        '{"log": ' + "9" * 10_000 + "}",
        "LLM engine (v0.19.0) with config: " + "model='" * 5000,
        "Free memory on device " * 5000,
        "To serve at least one request " + "(" * 20_000,
        "max seq len (5), " + "(" + "1 " * 20_000,
        "\x1b[" * 50_000,
        "[" + "0;" * 50_000 + "m",
        "a" * 3_000_000,
        "(Worker" * 30_000,
        "vllm serve " + "\\\n" * 2000,
        "GPU 0: NVIDIA " + "A " * 50_000,
        "device_name=" + "A" * 100_000,
        "| 0 NVIDIA " + " " * 60_000,
    ],
    ids=range(20),
)
def test_hostile_texts_take_no_time(text: str) -> None:
    start = time.process_time()
    read_log(text)
    read_log(text * 3)
    assert time.process_time() - start < 4


@pytest.mark.parametrize("filler", ["(", " ", "1", "a", "1,", "' ", "GiB ", "x\\", "[0;"])
def test_patterns_are_linear(filler: str) -> None:
    """Twice the filler behind every trigger may take a little more than twice the time, not four times."""

    def seconds(size: int) -> float:
        texts = [p.trigger + filler * (size // len(filler)) for p in PATTERNS]
        sentences = [s.trigger + filler * (size // len(filler)) for s in SENTENCES]
        start = time.process_time()
        for pattern, text in zip(PATTERNS, texts, strict=True):
            list(pattern.regex.finditer(text))
        for sentence, text in zip(SENTENCES, sentences, strict=True):
            list(sentence.regex.finditer(text))
        return time.process_time() - start

    seconds(2000)
    once = min(seconds(16_000) for _ in range(3))
    assert min(seconds(64_000) for _ in range(2)) < 4 * once * 2.5 + 0.05


NOISE: list[tuple[str, Callable[[int], str]]] = [
    (
        "requests",
        lambda i: f'(APIServer pid=1) INFO: 10.0.0.{i % 255}:{i} - "POST /v1/completions HTTP/1.1" 200 OK',
    ),
    (
        "throughput",
        lambda i: f"INFO 03-30 07:33:{i % 60} [loggers.py:248] Engine 000: Avg throughput: {i}.5 tokens/s",
    ),
    ("traceback", lambda i: f'  File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line {i}, in run'),
    ("sizes", lambda i: f"Available KV cache memory: {i % 80}.{i % 97:02d} GiB"),
    ("arguments", lambda i: f"non-default args: {{'model': 'a/b', 'max_model_len': {i}"),
    ("commands", lambda i: f"$ vllm serve a/b --max-model-len {i} \\"),
    ("broken sentences", lambda i: f"Free memory on device (78.68/79.19 GiB) on startup. {i}"),
    ("json", lambda i: f'{{"log": "GET /health {i}", "stream": "stderr"}}'),
]


@pytest.mark.parametrize(("name", "line"), NOISE, ids=[name for name, _ in NOISE])
def test_eight_times_the_lines_take_eight_times_as_long(name: str, line: Callable[[int], str]) -> None:
    def seconds(rows: list[str]) -> float:
        start = time.process_time()
        read_log(rows)
        return time.process_time() - start

    rows = [line(i) for i in range(1200)]
    seconds(rows[:300])
    once = min(seconds(rows) for _ in range(2))
    assert seconds(rows * 8) < 8 * once * 3 + 0.1


def test_megabytes_of_noise_around_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    noise = "\n".join(NOISE[i % 3][1](i) for i in range(40_000))
    path = tmp_path / "big.log"
    text = (LOGS[0].parent / "v0.19-llama-3.1-8b.log").read_text(encoding="utf-8")
    path.write_text(f"{noise}\n{text}{noise}\n", encoding="utf-8")
    start = time.process_time()
    assert main(["verify", str(path)]) == 0
    assert time.process_time() - start < 20
    assert "476,016" in capsys.readouterr().out
