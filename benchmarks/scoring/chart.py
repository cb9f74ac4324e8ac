"""The chart of docs/accuracy.md: one bar for each band, one dot for each log, as plain SVG."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from kvplan.evidence.score import Score
from scoring.result import Result, minor, release, setting

LABELS, PLOT, RIGHT, TOP, STEP = 470, 400, 20, 46, 15  # pixels
REACH = 6.0  # percent each way; what lies beyond is cut at the edge
STYLE = """
  text { font: 11px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 13px; font-weight: 600 }
  .grid { stroke: #d0d7de } .zero { stroke: #57606a }
  .band { fill: #9ec5f4 } .in { fill: #0a4fa3 } .out { fill: #c62828 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .grid { stroke: #30363d } .zero { stroke: #8b949e }
    .band { fill: #1f4b7f } .in { fill: #8cc2ff } .out { fill: #ff7b72 }
  }
"""


class Dot(NamedTuple):
    """A run's logged KV memory and its band, in percent of the requested memory, less what was planned."""

    label: str
    low: float
    high: float
    logged: float


def chart(title: str, dots: Iterable[Dot]) -> str:
    """The whole SVG file."""
    rows = list(dots)
    height = TOP + STEP * len(rows) + 12
    width = LABELS + PLOT + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="16">{escape(title)}</text>',
        *_axis(height),
        *(text for number, dot in enumerate(rows) for text in _row(dot, TOP + STEP * number)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(percent: float) -> float:
    return LABELS + PLOT * (max(-REACH, min(REACH, percent)) + REACH) / (2 * REACH)


def _axis(height: int) -> list[str]:
    found = []
    for percent in range(-int(REACH), int(REACH) + 1, 2):
        line = "zero" if percent == 0 else "grid"
        found += [
            f'<line class="{line}" x1="{_x(percent):.1f}" x2="{_x(percent):.1f}" y1="{TOP - 8}" y2="{height - 8}"/>',
            f'<text x="{_x(percent):.1f}" y="{TOP - 12}" text-anchor="middle">{percent:+d} %</text>',
        ]
    return found


def _row(dot: Dot, top: int) -> list[str]:
    left, right = _x(dot.low), _x(dot.high)
    side = "in" if dot.low <= dot.logged <= dot.high else "out"
    return [
        f'<text x="{LABELS - 8}" y="{top + 9}" text-anchor="end">{escape(dot.label)}</text>',
        f'<rect class="band" x="{left:.1f}" y="{top + 2}" width="{right - left:.1f}" height="7"/>',
        f'<circle class="{side}" cx="{_x(dot.logged):.1f}" cy="{top + 5.5}" r="3.2"/>',
    ]


def picture(result: Result) -> str:
    """docs/accuracy.svg."""
    found = sorted(
        result.votes("kv"), key=lambda vote: (minor(vote.first), vote.first.model, vote.first.tp, vote.first.pp)
    )
    title = "Logged KV memory less planned, and kvplan's band, in % of the requested memory"
    return chart(title, [_dot(vote.first) for vote in found])


def _dot(each: Score) -> Dot:
    requested = each.requested or 1
    assert each.low is not None  # memory end to end has a band
    assert each.high is not None
    low, high, logged = ((value - each.predicted) / requested * 100 for value in (each.low, each.high, each.logged))
    return Dot(f"{setting(each)} | {each.gpu} | {release(each)}", low, high, logged)
