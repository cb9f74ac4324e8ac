"""`python -m kvplan` and the console script."""

from __future__ import annotations

import gc


def run() -> None:
    """Start: imports make no garbage, and looking for it takes a tenth of a start."""
    gc.disable()
    from kvplan.cli.main import run as start

    gc.enable()
    start()


if __name__ == "__main__":
    run()
