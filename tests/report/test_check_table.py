"""A check as people read it."""

from __future__ import annotations

from kvplan.report.check_table import check_table
from kvplan.report.check_words import sentence
from report.checks import ALL, HOSTILE, better, expected, moved, passed, presence, same


def test_the_table_in_full() -> None:
    rows = [
        passed(column="kv_budget_bytes", wanted=">= 40GiB", found=61_991_951_728),
        expected(scenario="context=8192"),
        moved(),
        moved(column="kv_bytes_per_session", before=2**29, now=2**30, change_percent=100.0, tolerance="0"),
        better(column="weights_bytes", before=5_000_000_001, now=5_000_000_000, change=-1, change_percent=0.0,
               ledger_line="weights/mlp", ledger_change_bytes=-1),
        moved(column="gpu", before="t4", now=None, change=None, change_percent=None, verdict="changed", ok=True,
              tolerance="0", ledger_line=None),
        same(column="fits"),
        same(),
        presence("new"),
        presence("gone"),
    ]  # fmt: skip
    assert (
        check_table(rows, plan="plan.yaml", baseline="baseline.json (kvplan 0.1.0)")
        == """\
plan.yaml
deployment  scenario      expected                                       found
chat                      kv_budget_bytes >= 40GiB  61,991,951,728 (57.73 GiB)  ok
chat        context=8192  max_sessions >= 200                              115  FAILED

against baseline.json (kvplan 0.1.0)
                               before            now    change
chat
  max_sessions                    115             57   -50.43%  worse, beyond 2%
  kv_bytes_per_session     512.00 MiB       1.00 GiB  +100.00%  worse
  weights_bytes         5,000,000,001  5,000,000,000      -1 B  better
  gpu                              t4        unknown            changed
  most of max_sessions, kv_bytes_per_session from session/full +512.00 MiB
  most of weights_bytes from weights/mlp -1 B
chat (context=8192): new
chat (context=8192): gone
2 figures as before

plan.yaml:7: chat (context=8192): max_sessions is 115, wanted >= 200; limited by KV memory: the next
conversation would not find room
  max_sessions = dp * max(0, (kv_budget_bytes - prefix_bytes) // kv_bytes_per_session)
               = 1 * max(0, (61_991_951_728 - 0) // 536_870_912)
plan.yaml: chat (context=8192): in the baseline, but no longer in the plan; write the baseline again
with --write-baseline if that is meant

FAILED: 4 of 10 checks
"""
    )


def test_all_is_well() -> None:
    assert check_table([passed()], plan="p.yaml").splitlines()[-1] == "passed: 1 check"
    assert "against b\n1 figure as before\n" in check_table([same()], plan="p", baseline="b")


def test_a_table_fits_the_width() -> None:
    for rows in (ALL, [expected(deployment="d" * 300), moved(deployment="d" * 300)]):
        assert all(len(line) <= 80 for line in check_table(rows, plan="p" * 200, baseline="b", width=80).splitlines())


def test_no_name_moves_the_cursor() -> None:
    rows = [expected(deployment=HOSTILE, wanted=HOSTILE, found=HOSTILE), moved(deployment=HOSTILE, ledger_line=HOSTILE)]
    text = check_table([*rows, presence("gone", deployment=HOSTILE)], plan=HOSTILE, baseline=HOSTILE)
    assert all(line.isprintable() for line in text.splitlines())


def test_sentences() -> None:
    assert sentence(passed()) == "max_sessions is 115, as wanted: >= 100"
    assert sentence(same()) == "max_sessions is 115 as before"
    assert sentence(presence("new")) == "not in the baseline yet; add it with --write-baseline"
    unlimited = expected(column="max_context_tokens", wanted="<= 1M", found=None, formula=None, limited_by=None)
    assert sentence(unlimited) == "max_context_tokens has no limit, wanted <= 1M"
    unknown = expected(column="gpu", wanted="t4", found=None)
    assert sentence(unknown) == "gpu is unknown, wanted t4"
    assert sentence(moved(verdict="within", ok=True)).endswith("within 2%; most of it from session/full +512.00 MiB")
