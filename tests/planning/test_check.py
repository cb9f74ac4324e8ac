"""A plan checked: files beside it, every scenario once, conditions against figures, and what cannot be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import InputError, SpecError
from kvplan.planning import check
from kvplan.planning import plan as planning
from kvplan.planning.baseline import Baseline
from kvplan.planning.check import Computed, baseline_rows, compute, expectation_rows, select
from kvplan.planning.expect import derivation, holds
from kvplan.planning.grid import Grid
from kvplan.planning.plan import in_plan_words, load_plan, look_up
from kvplan.specs.expectations import Condition

MODEL = """\
name: tiny
hidden_size: 1024
vocab_size: 32000
max_context: 8192
layers: 24
layer:
  attention: {heads: 16, kv_heads: 4}
  mlp: {intermediate_size: 4096}
"""


def write(folder: Path, text: str, name: str = "plan.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def scenarios(path: Path) -> list[Computed]:
    plan = look_up(path)
    return compute(plan, plan.deployments).computed


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as error:
        scenarios(path)
    assert all(problem.line for problem in error.value.problems)
    return [f"{p.line} {p.path}: {p.message}" for p in error.value.problems]


def rows(path: Path) -> list[dict[str, Any]]:
    return expectation_rows(scenarios(path))


def test_conditions_against_figures(tmp_path: Path) -> None:
    # mistral-7b keeps 2 x 32 layers x 8 heads x 128 x 2 B = 131,072 B a token, 512 MiB of 4096; 57.73 GiB hold 115
    path = write(
        tmp_path,
        "deployments:\n  chat:\n    model: mistral-7b\n    gpu: a100-80g\n    expect:\n"
        "      max_sessions: ['>= 115', '> 115', '<= 115', '< 115', '== 115', '!= 115']\n"
        "      kv_bytes_per_token: 131072\n      kv_bytes_per_session: '<= 512MiB'\n"
        "      fits: true\n      gpu: '!= t4'\n      limited_by: kv\n",
    )
    found = rows(path)
    sessions = [row["ok"] for row in found if row["column"] == "max_sessions"]
    assert sessions == [True, False, True, False, True, False]
    assert all(row["ok"] for row in found if row["column"] != "max_sessions")
    assert {row["line"] for row in found} == {6, 7, 8, 9, 10, 11}


@pytest.mark.parametrize("operator", [">=", ">", "<=", "<", "==", "!="])
def test_no_limit_is_above_every_number_and_unknown_passes_only_a_difference(operator: str) -> None:
    unlimited = holds(Condition(1, "max_context_tokens", operator, 2**32, ""), None)
    assert unlimited is (operator in (">=", ">", "!="))
    assert holds(Condition(1, "gpu_memory_bytes", operator, 5, ""), None) is (operator == "!=")


def test_a_failure_says_where_its_figure_comes_from(tmp_path: Path) -> None:
    columns = ("weights_bytes", "overhead_bytes", "unrequested_bytes", "kv_budget_bytes", "kv_bytes_per_token")
    columns += ("kv_bytes_per_session", "max_sessions")
    path = write(
        tmp_path,
        "deployments:\n  chat:\n    model: mistral-7b\n    gpu: 2xa100-80g\n    dp: 2\n    reserve: 1GiB\n    expect:\n"
        + "".join(f"      {column}: 1\n" for column in columns),
    )
    found = rows(path)
    assert [row["column"] for row in found if not row["ok"]] == list(columns)
    for row in found:
        names = {"floor": math.floor, "ceil": math.ceil, "max": max, "min": min, **row["terms"]}
        assert eval(row["formula"], {"__builtins__": {}}, names) == row["found"], row["column"]


def test_a_pool_that_is_given_has_no_derivation(tmp_path: Path) -> None:
    (one,) = scenarios(write(tmp_path, "deployments: {a: {model: mistral-7b, kv_budget: 8GiB}}"))
    assert derivation(one.estimate, "kv_budget_bytes") is None
    sessions = derivation(one.estimate, "max_sessions")
    assert sessions is not None
    assert sessions.terms["kv_budget_bytes"] == 8 * 2**30


def test_lists_and_ranges_make_scenarios(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "deployments:\n  a: {model: 'mistral-7b,phi-4', gpu: a100-80g, context: 2k:8k:x2}\n"
        "  b: {model: mistral-7b, gpu: a100-80g, context: [1k, 16k:32k:+8k], memory_fraction: [0.8, 0.9], tp: 1}\n",
    )
    labels = [each.key for each in scenarios(path)]
    assert labels[:6] == [("a", f"model={m}, context={c}") for m in ("mistral-7b", "phi-4") for c in (2048, 4096, 8192)]
    assert labels[6:10] == [("b", f"memory_fraction=0.8, context={c}") for c in (1024, 16384, 24576, 32768)]
    assert len(labels) == 14


def test_a_plan_feeds_a_grid(tmp_path: Path) -> None:
    """Every option of a deployment is one of a grid, with the same rows."""
    path = write(
        tmp_path,
        "deployments: {a: {model: mistral-7b, gpu: 2xa100-80g, context: 2k:8k:x2, kv_dtype: [bf16, fp8], tp: 2}}\n",
    )
    (deployment,) = load_plan(path).deployments
    grid = list(Grid(deployment.axes).rows())
    single = [each.row for each in scenarios(path)]
    assert [row["max_sessions"] for row in grid] == [row["max_sessions"] for row in single]
    assert len(grid) == len(deployment) == 6


def test_files_lie_beside_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plans"
    folder.mkdir()
    write(folder, MODEL, "tiny.yaml")
    write(folder, "name: card\nnominal_memory_gb: 24\n", "card.yaml")
    path = write(folder, "deployments: {a: {model: tiny.yaml, gpu: [card.yaml, 2xcard.yaml]}}")
    monkeypatch.chdir(tmp_path)
    found = scenarios(path.relative_to(tmp_path))
    assert [each.row["model"] for each in found] == ["tiny", "tiny"]
    assert [each.row["gpus"] for each in found] == [1, 2]
    assert [each.label for each in found] == ["gpu=card.yaml", "gpu=2xcard.yaml"]  # the same from every folder
    (problem,) = problems(write(folder, "deployments: {a: {model: none/config.json, gpu: t4}}"))
    assert str(folder / "none" / "config.json") in problem


def test_every_scenario_is_computed_once_and_every_file_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(
        f"  d{n}: {{model: mistral-7b, gpu: a100-80g, context: [{n + 1}k, 40k], expect: {{fits: true, tp: 1}}}}"
        for n in range(20)
    ).replace("tp: 1", "tensor_parallel: 1")
    path = write(tmp_path, f"deployments:\n{text}\n")
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    counted(planning, "load_model")
    counted(planning, "parse_gpu")
    counted(check, "estimate_scenario")
    plan = look_up(path)
    found = compute(plan, plan.deployments)
    expectation_rows(found.computed)
    assert found.figures
    assert (calls.count("load_model"), calls.count("parse_gpu"), calls.count("estimate_scenario")) == (1, 1, 40)


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "name: m\nhidden_size: x\nlayers: 2\n", "bad.yaml")
    path = write(
        tmp_path,
        "deployments:\n"
        "  a:\n    model: mistral-7bb\n    gpu: [a100-80g, b2000]\n    contxt: 4\n    reserve: 2\n"
        "  b:\n    model: bad.yaml\n    gpu: t4\n"
        "  c:\n    model: mistral-7b\n    gpu: a100-80g\n    tp:\n      - 1\n      - 3\n    expect: {fits: true}\n"
        "  d:\n    model: phi-4\n    gpu: a100-80g\n    context: 8k\n    max_model_len: 4k\n"
        "  e:\n    model: phi-4\n    gpu: a100-80g\n    context: '1:2000:+1'\n"
        "  f:\n    model: [phi-4, phi-4]\n    gpu: a100-80g\n    weights: fp9\n    engine: textbok\n    kv_dtype: x\n",
    )
    expected = [
        "3 deployments.a.model: unknown model 'mistral-7bb'; did you mean 'mistral-7b'",
        "4 deployments.a.gpu: unknown GPU 'b2000'",
        "5 deployments.a: unknown key 'contxt'; did you mean 'context'?",
        "6 deployments.a.reserve: '2' has no unit",
        "8 deployments.b.model: ",
        "8 deployments.b.model: ",
        "8 deployments.b.model: ",
        "14 deployments.c: tp 3 is not possible for mistral-7b",
        "21 deployments.d: max_model_len 4096 is below context 8192",
        "22 deployments.e: 2,000 combinations are more than 1,000",
        "27 deployments.f.model: 'phi-4' appears twice in the list",
        "29 deployments.f.weights: unknown weight scheme 'fp9'",
        "30 deployments.f.engine: unknown engine 'textbok'; did you mean 'textbook'?",
        "31 deployments.f.kv_dtype: unknown KV format 'x'",
    ]
    found = problems(path)
    assert [a for a, b in zip(found, expected, strict=True) if not a.startswith(b)] == []
    assert any(f"{tmp_path / 'bad.yaml'}:2: hidden_size: expected a whole number" in each for each in found[4:7])


def test_a_sweep_in_a_plan_may_hold_what_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path, "deployments:\n  explore: {model: mistral-7b, gpu: a100-80g, tp: [1, 3]}\n")
    plan = load_plan(path)
    found = compute(plan, plan.deployments)
    assert [each.label for each in found.computed] == ["tp=1"]
    (note,) = found.notes
    assert note.startswith("explore: left out: tp 3 is not possible for mistral-7b: it does not divide 32 query heads;")
    assert note.endswith(" (tp=3)")


def test_notes_name_their_deployment(tmp_path: Path) -> None:
    path = write(
        tmp_path, "deployments: {long: {model: mistral-7b, gpu: a100-80g, context: [64k, 128k], block_size: 16}}"
    )
    plan = load_plan(path)
    first, *_ = compute(plan, plan.deployments).notes
    assert first.startswith("long: context 65536 is above mistral-7b's maximum")
    assert first.endswith(" (and 1 more such)")


def test_only_some_deployments(tmp_path: Path) -> None:
    path = write(tmp_path, "deployments: {chat: {model: phi-4, gpu: t4}, code: {model: phi-4, gpu: l4}}")
    plan = load_plan(path)
    assert [each.name for each in select(plan, ["code"])] == ["code"]
    assert [each.name for each in select(plan, [])] == ["chat", "code"]
    with pytest.raises(InputError, match="has no deployment 'chta'; did you mean 'chat'\\? it has chat, code"):
        select(plan, ["chta"])


def test_scenarios_that_are_new_or_gone(tmp_path: Path) -> None:
    before = look_up(write(tmp_path, "deployments: {a: {model: phi-4, gpu: t4, context: [1k, 2k]}}", "before.yaml"))
    now = look_up(write(tmp_path, "deployments:\n  a: {model: phi-4, gpu: t4, context: [2k, 4k]}\n"))
    kept = Baseline("0.1.0", "", compute(before, before.deployments).figures)
    found = baseline_rows(now, compute(now, now.deployments), kept, [])
    told = {row["scenario"]: (row["verdict"], row["ok"], row["line"]) for row in found}
    assert told == {
        "context=2048": ("same", True, 2),
        "context=4096": ("new", True, 2),
        "context=1024": ("gone", False, None),
    }
    assert baseline_rows(now, compute(now, ()), kept, ["b"]) == []  # --only b: nothing is said about a


def test_options_are_called_as_a_plan_calls_them() -> None:
    assert in_plan_words("--max-model-len 1 is below --context 2; --nothing is not") == (
        "max_model_len 1 is below context 2; --nothing is not"
    )
