"""docs/accuracy.md, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

from kvplan import __version__
from kvplan.evidence.score import Score, Unscored
from scoring.reasons import REASONS, WORST
from scoring.result import Result, Vote, four_bit_floats, known, percentile_90, release, setting, settled, votes
from scoring.unseen import Held, Refit

DATED = "Computed on "  # how the one line begins that is not compared


def page(result: Result, today: str | None = None) -> str:
    """docs/accuracy.md."""
    date = today or datetime.now(UTC).date().isoformat()
    sections = (
        _intro(result, date), _headline(result), _by_line(result), _by_version(result), _by_kind(result),
        _unseen(result), _bands(result), _worst(result), _left_out(result), _again(),
    )  # fmt: skip
    return "\n\n".join(sections) + "\n"


def _intro(result: Result, date: str) -> str:
    runs, scored = len(result.runs), len({each.id for each in result.scores})
    return f"""# Accuracy of the `vllm` engine

<!-- written by benchmarks/accuracy.py --write; do not edit -->

{DATED}{date} with kvplan {__version__}.

What vLLM servers printed when they started, beside what kvplan plans for the same model, card, version and flags:
{runs} runs ([`tests/data/vllm_logs.csv`](../tests/data/vllm_logs.csv), each with its source), {scored} of which tell
enough to compare at least one figure. Errors are absolute. **Runs of one model, weight format, tp, pp and version have
one vote**, the median of their errors, so that a model that was started ten times counts once; a vote is inside the
band when all its runs are. Logs round to two decimals: 0.005 GiB.

![Logged KV memory beside kvplan's band, one row a vote](accuracy.svg)

Zero is the KV memory that was planned, the bar its band, the dot what the log printed, in percent of the requested
memory (card x fraction); bars are cut at 6 %."""


HEAD = "| {} | votes | median | 90th percentile | worst | inside the band | median width |"
RULE = "| --- | --: | --: | --: | --: | --: | --: |"


def _headline(result: Result) -> str:
    rows = (
        ("weights on a GPU", result.votes("weights", lambda e: not four_bit_floats(e))),
        ("weights, MXFP4 and NVFP4", result.votes("weights", four_bit_floats)),
        ("KV memory: H100 and A100 up to 0.20, version and flags known", result.votes("kv", settled)),
        (
            "KV memory: other cards, V0, 0.21 and later, version known",
            result.votes("kv", known, lambda e: not settled(e)),
        ),
        ("KV memory: version not known", result.votes("kv", lambda e: not known(e))),
        ("tokens in the pool, KV memory given", result.votes("tokens")),
        ("concurrency, KV memory given", result.votes("concurrency")),
    )
    return _section("In short", [HEAD.format("figure"), RULE, *(_row(name, found) for name, found in rows)])


def _by_line(result: Result) -> str:
    relative = ("weights", "kv", "blocks", "tokens", "concurrency")
    names = {
        "weights": "weights", "kv": "KV memory, end to end", "blocks": "blocks, KV memory given",
        "tokens": "tokens, KV memory given", "concurrency": "concurrency, KV memory given",
        "activation": "peak of the profile run", "non_torch": "memory outside PyTorch",
        "graphs": "CUDA graphs: the reserve beside what capture took",
    }  # fmt: skip
    rows = [_row(name, result.votes(quantity), gib=quantity not in relative) for quantity, name in names.items()]
    text = """\
Lines in GiB are those that logs of 0.11 to 0.20 print. From 0.21 on vLLM takes its own estimate of the CUDA graphs off
the budget; what logs print is what capture took in the end, so that row is off by both estimates. A figure with the KV
memory given is inside when it follows from a memory that rounds to the logged one."""
    return _section("By line", [HEAD.format("line"), RULE, *rows], text)


def _by_version(result: Result) -> str:
    kv = result.votes("kv")
    releases = sorted({release(vote.first) for vote in kv}, key=lambda name: (len(name), name))
    rows = [_row(name, [vote for vote in kv if release(vote.first) == name]) for name in releases]
    return _section("KV memory by version", [HEAD.format("version"), RULE, *rows])


def _by_kind(result: Result) -> str:
    rows = []
    for quantity, what in (("weights", "weights"), ("kv", "KV memory")):
        found = result.votes(quantity)
        for kind in ("dense", "MoE", "sliding or chunked", "hybrid (state)", "MLA", "multimodal"):
            rows.append(_row(f"{kind}: {what}", [vote for vote in found if kind in vote.first.kinds]))
    text = "Dense is what is none of the others; a model of several kinds counts in each."
    return _section("By architecture", [HEAD.format("kind"), RULE, *rows], text)


def _unseen(result: Result) -> str:
    text = """\
The tensors of a rank, how the pool is cut into blocks and how a request is charged are rules of vLLM's source, with
nothing fitted. Fitted are the sampler's peak (three constants for each of its two forms) and the memory outside PyTorch
(by version and number of GPUs), on the very runs of this page: all of them are *seen*, and the file does not say which
run a constant came from. So *unseen* is made here: constants are fitted again without the model of a run (without all
checkpoints of its shape), and the run is planned with them. The work space of experts is a formula. Kept as they are,
because one to three models are too few to fit again: vision profiles, the size of mxfp4 experts, the estimate of
graphs."""
    head = ["| figure | votes | | median | 90th percentile | worst |", "| --- | --: | --- | --: | --: | --: |"]
    return _section("Seen and unseen models", [*head, *unseen_rows(result)], text)


def unseen_rows(result: Result) -> list[str]:
    """Pairs of rows: as planned, and with constants that do not know the model."""
    rows = []
    for quantity, name in (
        ("activation", "peak of the profile run"),
        ("non_torch", "memory outside PyTorch"),
        ("kv", "KV memory"),
    ):
        pairs = [
            (each, _again_planned(each, result.refits.get(each.id)))
            for each in result.scores
            if each.quantity == quantity
        ]
        both = [(each, other) for each, other in pairs if other is not None]
        for how, found in (("seen", votes(a for a, _ in both)), ("unseen", votes(b for _, b in both))):
            gib = quantity != "kv"
            cells = _spread([vote.gib if gib else vote.error for vote in found], gib)
            rows.append(f"| {name} | {len(found)} | {how} | {' | '.join(cells)} |")
    return rows


def _again_planned(each: Score, refit: Refit | None) -> Score | None:
    if refit is None:
        return None
    if each.quantity == "kv":
        return each._replace(predicted=each.predicted + refit.kv_shift)
    again = refit.peak if each.quantity == "activation" else refit.non_torch
    return None if again is None else each._replace(predicted=again)


def _bands(result: Result) -> str:
    text = """\
Half widths are constants ([docs/vllm.md](vllm.md)). Where a log does not tell the version, the band reaches over those
of all versions that run the model, each counted whole; without `max_num_seqs` it reaches to one sequence. That is tried
on the runs of which both are known, by withholding them."""
    rows = [_band_row("nothing", result.votes("kv", known))]
    rows += [_band_row(what, votes(found)) for what, found in result.blind.items()]
    rows.append(_band_row("version not in the log", result.votes("kv", lambda e: not known(e))))
    head = ["| withheld | votes | inside the band | median width | widest |", "| --- | --: | --: | --: | --: |"]
    sources = ["| source | runs | inside kvplan's band | half width the others ask for | inside that |"]
    sources += ["| --- | --: | --: | --: | --: |", *(_held_row(each) for each in result.held)]
    more = """\
One source left out: the half width that holds 9 of 10 runs of all *other* sources, and whether it would have held
for this one. Nearly all runs are of one campaign on H100s. What others need beyond it (other cards, graphs from 0.21
on) cannot be learned from it; bands are wider there by rule."""
    return "\n\n".join([_section("Bands", [*head, *rows], text), more, "\n".join(sources)])


def _band_row(what: str, found: list[Vote]) -> str:
    widths = [vote.width for vote in found if vote.width is not None]
    inside = sum(vote.within for vote in found)
    return f"| {what} | {len(found)} | {inside} of {len(found)} | {median(widths):.2%} | {max(widths):.2%} |".replace(
        "%", " %"
    )


def _held_row(each: Held) -> str:
    inside = f"{each.inside} of {each.runs} | {each.half_gib:.2f} GiB | {each.inside_half} of {each.runs}"
    return f"| {each.source} | {each.runs} | {inside} |"


def worst(result: Result) -> list[Score]:
    """The runs of weights and KV memory that are furthest off, relative to what was logged; one a vote."""
    found = [vote.first for quantity in ("weights", "kv") for vote in result.votes(quantity)]
    return sorted(found, key=lambda each: -abs(each.error))[:WORST]


def _worst(result: Result) -> str:
    head = ["| run | model | version | card | line | planned | logged | error | of the budget | inside | why |"]
    rows = [
        "| --- | --- | --- | --- | --- | --: | --: | --: | --: | --- | --- |",
        *(_worst_row(each) for each in worst(result)),
    ]
    return _section(f"The worst {WORST}", [*head, *rows], "Of weights and KV memory, relative to what was logged.")


def _worst_row(each: Score) -> str:
    share = "-" if each.share is None else f"{each.share:+.2%}"
    inside = {True: "yes", False: "no", None: "-"}[each.within]
    cells = (
        each.id, setting(each), release(each), each.gpu or "-", each.quantity.replace("kv", "KV memory"),
        f"{each.predicted:.2f} GiB", f"{each.logged:.2f} GiB", f"{each.error:+.2%}".replace("%", " %"),
        share.replace("%", " %"), inside, REASONS.get((each.id, each.quantity), "not known"),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _left_out(result: Result) -> str:
    logged = {run["id"]: run for run in result.runs}
    rows = [
        f"| {each.id} | {logged[each.id]['model']} | {logged[each.id]['engine_version'] or '-'} | {_reason(each)} |"
        for each in result.unscored
    ]
    text = (
        "*Memory end to end* is left out where weights, or tokens at the logged KV memory, are compared all the same."
    )
    return _section("Not predicted", ["| run | model | version | why |", "| --- | --- | --- | --- |", *rows], text)


def _reason(each: Unscored) -> str:
    return each.reason.split(";", maxsplit=1)[0].replace("unknown model", "not among the models:")


def _again() -> str:
    return """## How to compute it again

```sh
python benchmarks/accuracy.py --write
```

It needs a checkout with the development extra (`pip install -e '.[dev]'`) and takes seconds; no GPU, no network. Add a
run as a row of `tests/data/vllm_logs.csv`, with its source. For a log of your own: `kvplan verify`
([verify](verify.md))."""


def _section(title: str, table: Sequence[str], text: str | None = None) -> str:
    return "\n\n".join(part for part in (f"## {title}", text, "\n".join(table)) if part)


def _row(name: str, found: Sequence[Vote], *, gib: bool = False) -> str:
    if not found:
        return f"| {name} | 0 | - | - | - | - | - |"
    judged = [vote for vote in found if vote.first.within is not None]
    inside = f"{sum(vote.within for vote in judged)} of {len(judged)}" if judged else "-"
    widths = [vote.width for vote in found if vote.width is not None]
    width = f"{median(widths):.2%}".replace("%", " %") if widths else "-"
    cells = _spread([vote.gib if gib else vote.error for vote in found], gib)
    return f"| {name} | {len(found)} | {' | '.join(cells)} | {inside} | {width} |"


def _spread(errors: Sequence[float], gib: bool) -> list[str]:
    values = (median(errors), percentile_90(errors), max(errors))
    return [f"{value:.3f} GiB" if gib else f"{value:.2%}".replace("%", " %") for value in values]
