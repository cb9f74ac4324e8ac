"""How far kvplan's vllm engine is from what servers printed: scores every logged run and writes docs/accuracy.md.

    python benchmarks/accuracy.py            # prints the page
    python benchmarks/accuracy.py --write    # writes docs/accuracy.md and docs/accuracy.svg

The runs are tests/data/vllm_logs.csv: figures copied out of public start-up logs, each with its source. The test
tests/evidence/test_accuracy.py fails when the page is not what this script computes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scoring.chart import picture
from scoring.page import page
from scoring.result import compute

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "tests" / "data" / "vllm_logs.csv"
PAGE, CHART = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy.svg"


def main() -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md and docs/accuracy.svg")
    result = compute(RUNS)
    if not parser.parse_args().write:
        print(page(result), end="")
        return 0
    PAGE.write_text(page(result), encoding="utf-8")
    CHART.write_text(picture(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
