"""The architecture as tests: imports point one way, commands load only what they need, nothing grows too long."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kvplan"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each part of the package may import itself, its own level and the levels before it.
LEVELS = (
    ("errors", "units", "records", "arithmetic"),
    ("formats", "kv_formats", "scheme_keys", "schemes", "specs"),
    ("sharding",),
    ("memory", "speed"),
    ("importers", "loading"),
    ("engines",),
    ("planning",),
    ("evidence", "fleet", "measure"),
    ("cli",),
)
LEVEL = {part: number for number, level in enumerate(LEVELS) for part in level}
ALLOWED = {part: {other for other in LEVEL if LEVEL[other] <= LEVEL[part]} for part in LEVEL}
ALLOWED["report"] = {"report", "units", "errors"}  # rows in, text out: it knows nothing of what made them
ALLOWED["cli"].add("report")

HEAVY = {"torch", "pandas", "pynvml", "numpy", "pyarrow"}
ESTIMATE = ("estimate", "--model", "mistral-7b", "--gpu", "a100-80g")

RUNNER = """
import sys
from kvplan.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""

LONGEST_MODULE, LONGEST_FUNCTION = 400, 60  # lines


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and part of every import of our own, those inside functions and for type checkers included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name, which says where it points"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            part = rest.partition(".")[0]
            if package == PACKAGE.name and not part.startswith("__"):  # `from kvplan import __version__` is no part
                yield node.lineno, part


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part in ("__init__", "__main__"):  # the API and the program: both stand above all others
        return
    assert part in ALLOWED, f"say in LEVELS where kvplan/{part} belongs"
    wrong = [f"line {line}: kvplan.{other}" for line, other in imported_parts(path) if other not in ALLOWED[part]]
    assert not wrong, f"{path.name} is in '{part}', which may not import: {', '.join(wrong)}"


def test_parts_of_one_level_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        part = part_of(path)
        if part not in ("__init__", "__main__"):
            graph.setdefault(part, set()).update({other for _, other in imported_parts(path)} - {part})
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def loaded_by(*argv: str) -> set[str]:
    """The top-level modules that a process has loaded when it has run this command line."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "the command was to print something"
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize(
    ("argv", "others"),
    [
        pytest.param(("--help",), {"rich", "yaml"}, id="help"),
        pytest.param((*ESTIMATE, "--format", "json"), {"rich"}, id="estimate-json"),
        pytest.param(ESTIMATE, set(), id="estimate-table"),
        pytest.param(("models",), set(), id="models"),
        pytest.param(("gpus",), set(), id="gpus"),
    ],
)
def test_a_command_loads_what_it_needs(argv: tuple[str, ...], others: set[str]) -> None:
    loaded = loaded_by(*argv)
    assert "kvplan" in loaded
    assert not loaded & (HEAVY | others)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_grows_too_long(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_MODULE, f"{path.name} has {lines} lines; find the two modules in it"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{path.name}:{node.lineno}: {node.name} has {length} lines"
