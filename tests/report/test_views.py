"""What people read: ledger, comparison, explanation, lists. The looks are golden files; the rest is what must hold."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from typing import Any

import pytest

from kvplan.report.comparison import comparison_table
from kvplan.report.console import show
from kvplan.report.explain import explain_text, fill
from kvplan.report.ledger import ledger_table, ledger_view
from kvplan.report.listing import facts, listing_table
from report.conftest import Golden, sample

NOTES = ["context 65536 is above mistral-7b's maximum of 32768: it needs rope scaling by a factor of 2 from 32768"]
ADVICE = ["16.26 GiB are missing on each GPU for 1 conversation of 4096 tokens", "--weights fp8 fits (54 sessions)"]
REFUSED = {
    "model": "mistral-7b",
    "gpu": "t4",
    "attention": "gqa:5",
    "tensor_parallel": 3,
    "fits": False,
    "error": "--attention gqa:5: 32 heads are not a multiple of 5 key-value heads; use 1, 2, 4, 8, 16 or 32",
}


class Terminal(StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("name", ["fits", "nofit", "kvbudget", "windowed"])
def test_ledger(golden: Golden, name: str) -> None:
    golden(f"ledger_{name}.txt", ledger_table(sample(name)[0]))


def test_ledger_with_notes_and_advice(golden: Golden) -> None:
    golden("ledger_advice.txt", ledger_table(sample("nofit")[0], notes=NOTES, advice=ADVICE, width=80))


def test_ledger_with_ranges(golden: Golden) -> None:
    row = sample("fits")[0]
    graphs = {
        "name": "overhead/graphs",
        "bytes": 2**30,
        "formula": "graphs",
        "terms": {"graphs": 2**30},
        "source": "fit",
    }
    row["ledger"].insert(5, {**graphs, "low": 2**29, "high": 3 * 2**29})
    golden("ledger_ranges.txt", ledger_table({**row, "max_sessions_low": 112, "max_sessions_high": 118}))


@pytest.mark.parametrize("name", ["fits", "nofit", "kvbudget", "windowed"])
@pytest.mark.parametrize("width", [80, 120])
def test_a_ledger_keeps_to_the_width_and_every_line(name: str, width: int) -> None:
    row = sample(name)[0]
    text = ledger_table(row, notes=NOTES, advice=ADVICE, width=width)
    assert widest(text) <= width
    shown = row["ledger"] if row["gpu_memory_bytes"] else [x for x in row["ledger"] if x["name"].startswith("session/")]
    for line in shown:
        assert f"{line['bytes']:,}" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"max_sessions": 1}, "1 conversation of 4,096 tokens fits\n", id="one"),
        pytest.param({"data_parallel": 2, "max_sessions": 230}, "fit, 115 on each of 2 replicas", id="replicas"),
        pytest.param({"fits": False}, "Does not fit: more is asked for than the 115 conversations", id="more-asked"),
        pytest.param(
            {"max_context_tokens": None}, "no limit from memory; the model's own maximum is 32,768", id="null"
        ),
        pytest.param({"max_context_tokens": 100}, "100 tokens, below the model's own maximum of 32,768", id="short"),
        pytest.param({"model_max_context": None}, "one conversation of 472,961 tokens\n", id="no-maximum"),
        pytest.param({"max_sessions_low": 110, "max_sessions_high": 120}, "fit (between 110 and 120)", id="band"),
        pytest.param({"limited_by": "max_seqs"}, "max_seqs, the engine's own limit", id="max-seqs"),
        pytest.param({"engine": "vllm", "engine_version": "0.11.0"}, "engine vllm 0.11.0, context", id="version"),
        pytest.param({"max_model_len": 32768}, "context 4,096 tokens (configured for 32,768)", id="max-model-len"),
        pytest.param({"active_parameters": 10**9}, "7.25 B parameters, 1.00 B active, bf16", id="active"),
        pytest.param({"tensor_parallel": 2, "gpus": 2}, "What fills each card", id="each"),
        pytest.param({"pipeline_parallel": 2, "gpus": 2}, "What fills the fullest card", id="fullest"),
        pytest.param({"kv_bytes_per_session_logical": 268435456}, "of that live", id="live"),
    ],
)
def test_the_words_of_an_answer(changes: dict[str, Any], said: str) -> None:
    assert said in ledger_table({**sample("fits")[0], **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({}, "the weights alone take 14,921,781,347 bytes (13.90 GiB) more than the memory", id="weights"),
        pytest.param({"overhead_bytes": 1}, "weights and overhead take 14,921,781,347 bytes", id="overhead"),
        pytest.param({"kv_budget_bytes": 0}, "the weights alone take all of the memory", id="nothing-left"),
        pytest.param(
            {"limited_by": "context", "kv_budget_bytes": 2**28, "max_context_tokens": 2048},
            "one conversation of 4,096 tokens takes 512.00 MiB, the KV budget is 256.00 MiB",
            id="context",
        ),
        pytest.param({"limited_by": "ttft"}, "Does not fit: limited by the time to the first token", id="ttft"),
    ],
)
def test_why_it_does_not_fit(changes: dict[str, Any], said: str) -> None:
    assert said in ledger_table({**sample("nofit")[0], **changes})


@pytest.mark.parametrize("width", [80, 100])
def test_comparison(golden: Golden, width: int) -> None:
    text = comparison_table(sample("whatif"), width=width)
    assert widest(text) <= width
    golden(f"comparison_{width}.txt", text)


def test_comparison_with_a_misfit_and_a_refusal(golden: Golden) -> None:
    golden("comparison_refused.txt", comparison_table([sample("whatif")[4], *sample("nofit"), REFUSED], width=80))


def test_factors_stand_against_the_first_row() -> None:
    rows = sample("whatif")
    assert "x0.50" in comparison_table(rows[:2])
    assert " -\n" in comparison_table([*sample("nofit"), rows[4]])
    assert "factor" not in comparison_table(rows[:1])


def test_attention_labels_take_the_place_of_kv_heads() -> None:
    rows = [
        {**row, "attention": label} for row, label in zip(sample("whatif")[::4], ("mha", "gqa:8", "mqa"), strict=True)
    ]
    text = comparison_table(rows)
    assert "attention" in text
    assert "KV heads" not in text


def test_memory_without_limit_is_said() -> None:
    assert "no limit" in comparison_table([{**row, "max_context_tokens": None} for row in sample("whatif")[:2]])


@pytest.mark.parametrize("rows", [[], [REFUSED], [REFUSED, REFUSED]], ids=["none", "one", "two"])
def test_a_comparison_of_nothing_is_no_crash(rows: list[dict[str, Any]]) -> None:
    assert comparison_table(rows).count("not a multiple") == len(rows)


@pytest.mark.parametrize("width", [80, 100])
def test_explanation(golden: Golden, width: int) -> None:
    row = sample("explained")[0]
    parts = {name: row[name] for name in ("tensors", "counts", "work")}
    text = explain_text(row, **parts, width=width)
    assert widest(text) <= width + 10  # a formula is never cut
    golden(f"explain_{width}.txt", text)


def test_every_line_and_tensor_is_explained() -> None:
    row = sample("explained")[0]
    text = explain_text(row, tensors=row["tensors"], counts=row["counts"], work=row["work"])
    for line in (*row["ledger"], *row["counts"], *row["work"]):
        assert f"  {line['name']} = " in text
    assert sum(text.count(f"    {name} ") for name in {t["name"] for t in row["tensors"]}) == len(row["tensors"])


def test_filled_formulas_still_give_the_bytes() -> None:
    for line in sample("explained")[0]["ledger"]:
        filled = fill(line["formula"], line["terms"])
        assert eval(filled, {"floor": lambda x: int(x // 1)}) == line["bytes"]


@pytest.mark.parametrize(
    ("formula", "terms", "filled"),
    [
        pytest.param("kv + kv_heads * xkv", {"kv": 1, "kv_heads": 2}, "1 + 2 * xkv", id="whole-names"),
        pytest.param("a - b", {"a": 5, "b": -3}, "5 - (-3)", id="negative"),
        pytest.param("min(a, 65536) * 0.9", {"a": 131072}, "min(131_072, 65_536) * 0.9", id="groups"),
        pytest.param("a * b", {"a": 2, "b": 0.123456}, "2 * 0.123456", id="decimals-stay"),
        pytest.param("a + b", {"a": 1, "b": 2, "a + b": 3}, "3", id="odd-names"),
        pytest.param("0", {}, "0", id="no-terms"),
    ],
)
def test_values_take_the_place_of_whole_names(formula: str, terms: dict[str, int | float], filled: str) -> None:
    assert fill(formula, terms) == filled


def test_listing(golden: Golden) -> None:
    rows = [
        {"name": "mistral-7b", "parameters": 7_248_023_552, "max_context": 32768, "verified": True},
        {"name": "mamba2-2.7b", "parameters": 2_702_599_680, "max_context": None, "verified": False},
    ]
    golden("listing.txt", listing_table(rows, {"name": "model", "parameters": "parameters", "max_context": "context"}))
    assert listing_table(rows).splitlines()[0].split() == ["name", "parameters", "max", "context", "verified"]


def test_facts(golden: Golden) -> None:
    spec = {
        "name": "h100-sxm",
        "nominal_memory_gb": 80,
        "dense_tflops": {"bf16": 989.4, "fp8": 1978.9, "fp4": None},
        "aliases": ["h100", "h100-80g"],
        "unified_memory": False,
        "tdp_w": None,
        "mig": [{"name": "1g.10gb", "max_instances": 7}, {"name": "2g.20gb", "max_instances": 3}],
    }
    golden("facts.txt", facts(spec))


def test_hostile_names_cannot_steer_the_terminal() -> None:
    name = "[red]x[/red]\x1b[2J\r\n\u202eevil"
    row = {**sample("fits")[0], "model": name, "gpu": name, "engine": name}
    for text in (
        ledger_table(row, notes=[name], width=200),
        comparison_table([row, {**row, "gpu": "b"}], width=200),
        listing_table([{"name": name}]),
        facts({name: name}),
    ):
        assert "[red]x[/red]\\x1b[2J\\r\\n\\u202eevil" in text
        assert not set("\x1b\r\u202e") & set(text)


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    view, row = ledger_view(sample("fits")[0]), sample("fits")[0]
    piped, terminal = StringIO(), Terminal()
    show(view, piped)
    show(view, terminal, 100)
    assert piped.getvalue() == ledger_table(row)
    assert "\x1b[1;32m115 conversations" in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    terminal = Terminal()
    show(ledger_view(sample("fits")[0]), terminal, 100)
    assert terminal.getvalue() == ledger_table(sample("fits")[0])


def test_exports_load_neither_rich_nor_csv() -> None:
    code = (
        "import sys; from kvplan.report.render import render;"
        "from kvplan.report import comparison, explain, ledger, listing, output;"
        "[render([{'a': 1}], f, human=True) for f in ('json', 'jsonl', 'csv', 'markdown')];"
        "print([m for m in ('rich', 'csv') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
