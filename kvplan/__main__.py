"""`python -m kvplan` and the console script."""

from __future__ import annotations

import gc


def run() -> None:
    """Start: imports make no garbage, and looking for it takes a tenth of a start, so it is looked for seldom."""
    gc.set_threshold(100_000, 50, 100)
    from kvplan.cli.main import run as start

    start()


if __name__ == "__main__":
    run()
