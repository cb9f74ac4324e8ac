"""How long kvplan takes to start and answer, beside bare Python, a Typer hello-world and other planners.

Whole processes, interleaved (A B C A B C ...) so that a busy moment hits all of them alike: wall time, and the CPU time
(user + system) of the child, which other work on the machine disturbs less. Every command runs first without being
counted, with the environment's PYTHON* variables removed, so that all bytecode is cached before the clock starts.

    python benchmarks/startup.py                       # kvplan must be installed beside this interpreter
    python benchmarks/startup.py --rivals ~/rivals     # a venv with: pip install kvfit ridgepoint vramcalc hf-mem
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "startup.json"
WARM_UPS = 2
PACKAGES = ("kvplan", "typer", "click", "rich", "PyYAML")

# The goal for `estimate` is 35 ms over a hello-world where that takes 50 ms. Machines differ, so it is a ratio here.
MOST_OVER_HELLO = 35 / 50
BARE, HELLO, ESTIMATE = "python -c pass", "Typer hello-world", "kvplan estimate --format json"

HELLO_WORLD = '''
import typer

app = typer.Typer(add_completion=False)


@app.command()
def hello(name: str = "world") -> None:
    """Greet."""
    typer.echo(f"hello {name}")


@app.command()
def bye(name: str = "world") -> None:
    """Part."""
    typer.echo(f"bye {name}")


app()
'''

# What vramcalc reads instead of a name: the same model as a Hugging Face config.json.
CONFIG = {
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32768,
}

# console command -> its cheapest way to an answer that needs no network, and what that is.
RIVALS = {
    "kvfit": (("--list-hardware", "--json"), "its list of devices; an estimate needs the network as well"),
    "ridgepoint": (
        ("fit", "mistral-7b", "--gpu", "a100-80gb", "--json"),
        "the same question; the core is compiled Rust",
    ),
    "vramcalc": (("estimate", "{config}", "--gpu", "80", "--json"), "the same question, from a config.json"),
    "hf-mem": (("--help",), "its help; an estimate needs the network as well"),
    "accelerate-estimate-memory": (("--help",), "its help; an estimate needs the network as well"),
}


class Command(NamedTuple):
    """One process to time."""

    name: str
    argv: tuple[str, ...]
    note: str = ""


class Sample(NamedTuple):
    """One run of it."""

    wall_s: float
    cpu_s: float


def commands(folder: Path, rivals: Path | None) -> list[Command]:
    """Everything that is installed: kvplan's commands, what to compare them with, and the rivals found."""
    hello, config = folder / "hello.py", folder / "config.json"
    hello.write_text(HELLO_WORLD, encoding="utf-8")
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    kvplan = str(Path(sys.executable).parent / "kvplan")
    estimate = (kvplan, "estimate", "--model", "mistral-7b", "--gpu", "a100-80g", "--format")
    found = [
        Command(BARE, (sys.executable, "-c", "pass")),
        Command(HELLO, (sys.executable, str(hello), "hello"), "two commands, the Typer that kvplan runs on"),
        Command(ESTIMATE, (*estimate, "json")),
        Command("kvplan estimate --format table", (*estimate, "table")),
        Command("kvplan --help", (kvplan, "--help")),
        Command("kvplan models mistral-7b", (kvplan, "models", "mistral-7b")),
    ]
    for name, (arguments, note) in RIVALS.items() if rivals else ():
        program = Path(rivals or "", "bin", name)
        if program.exists():
            filled = tuple(part.format(config=config) for part in arguments)
            label = " ".join((name, *arguments)).format(config="config.json")
            found.append(Command(label, (str(program), *filled), note))
    return found


def timed(command: Command, environment: dict[str, str]) -> Sample:
    """One run, from before the process exists to after it is gone."""
    start = time.perf_counter()
    child = subprocess.Popen(command.argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"error: exit code {child.returncode} from: {' '.join(command.argv)}")
    return Sample(wall_s, usage.ru_utime + usage.ru_stime)


def measure(found: list[Command], repeats: int) -> dict[str, list[Sample]]:
    """The samples of each command, taken in turns after the warm-up."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    samples: dict[str, list[Sample]] = {command.name: [] for command in found}
    for turn in range(WARM_UPS + repeats):
        for command in found:
            sample = timed(command, environment)
            if turn >= WARM_UPS:
                samples[command.name].append(sample)
    return samples


def rows(found: list[Command], samples: dict[str, list[Sample]]) -> list[dict[str, Any]]:
    """Medians and ratios; milliseconds."""
    made = []
    for command in found:
        wall, cpu = zip(*samples[command.name], strict=True)
        made.append(
            {
                "command": command.name,
                "median_ms": median(wall) * 1000,
                "min_ms": min(wall) * 1000,
                "max_ms": max(wall) * 1000,
                "cpu_median_ms": median(cpu) * 1000,
                "cpu_min_ms": min(cpu) * 1000,
                "note": command.note,
                "samples_ms": [round(each * 1000, 2) for each in wall],
            }
        )
    by_name = {row["command"]: row for row in made}
    for row in made:
        row["ratio_to_python"] = row["median_ms"] / by_name[BARE]["median_ms"]
        row["over_hello_ms"] = row["median_ms"] - by_name[HELLO]["median_ms"]
    return made


def goals(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What we promise, with the figures that decide it: once by the clock, once by CPU time."""
    judged: list[dict[str, Any]] = []
    by_name = {row["command"].partition(" --list")[0]: row for row in made}
    hello, estimate, kvfit = by_name[HELLO], by_name[ESTIMATE], by_name.get("kvfit")
    for column, what in (("median_ms", "wall"), ("cpu_median_ms", "CPU")):
        ratio = (estimate[column] - hello[column]) / hello[column]
        text = f"estimate over hello-world / hello-world, {what}: {ratio:.2f}, at most {MOST_OVER_HELLO:.2f}"
        judged.append({"goal": text, "met": ratio <= MOST_OVER_HELLO})
        if kvfit:
            text = f"estimate below kvfit, {what}: {estimate[column]:.0f} ms, kvfit {kvfit[column]:.0f} ms"
            judged.append({"goal": text, "met": estimate[column] < kvfit[column]})
    return judged


def surroundings(rivals: Path | None) -> dict[str, Any]:
    """Where and with what it was measured."""
    found = {name: metadata.version(name) for name in PACKAGES}
    if rivals:
        asked = (
            "import json, importlib.metadata as m; print(json.dumps({x.name: x.version for x in m.distributions()}))"
        )
        answer = subprocess.run([rivals / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True)
        found |= {name: version for name, version in json.loads(answer.stdout).items() if name in RIVALS}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load_1_minute": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": found,
        "bytecode": "cached",
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def report(result: dict[str, Any]) -> str:
    """The result as Markdown, which is readable on a terminal too."""
    where = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    head = ("command", "median ms", "min", "max", "CPU ms", "CPU min", "x bare Python", "ms over hello")
    keys = ("median_ms", "min_ms", "max_ms", "cpu_median_ms", "cpu_min_ms", "ratio_to_python", "over_hello_ms")
    table = [f"| {' | '.join(head)} |", f"|---|{'--:|' * len(keys)}"]
    for row in result["rows"]:
        name = row["command"] + (f" ({row['note']})" if row["note"] else "")
        table.append(f"| {name} | {' | '.join(f'{row[key]:.1f}' for key in keys)} |")
    judged = [f"- {'met' if goal['met'] else 'NOT met'}: {goal['goal']}" for goal in result["goals"]]
    conditions = (
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, load {where['load_1_minute']} at the start, "
        f"Python {where['python']}; {versions}. Whole processes, interleaved, {result['repeats']} runs each after "
        f"{result['warm_ups']} uncounted ones; bytecode {where['bytecode']}; output thrown away. "
        "Written by `benchmarks/startup.py`."
    )
    return "\n".join(["# Start-up time", "", conditions, "", *table, "", *judged, ""])


def main() -> int:
    """Measure, print, and write the JSON with the Markdown beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", type=Path, metavar="DIR", help="a venv with other planners; those found are timed")
    parser.add_argument("--repeats", type=int, default=25, help="counted runs of each command (default 25)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="JSON file; the Markdown goes beside it")
    options = parser.parse_args()
    machine = surroundings(options.rivals)
    with options.output.open("a", encoding="utf-8"):  # a path that cannot be written fails now, not after the runs
        pass
    with tempfile.TemporaryDirectory() as folder:
        found = commands(Path(folder), options.rivals)
        made = rows(found, measure(found, options.repeats))
    result = {"machine": machine, "repeats": options.repeats, "warm_ups": WARM_UPS, "rows": made, "goals": goals(made)}
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(report(result), encoding="utf-8")
    print(report(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
