"""`python -m kvplan`."""

from kvplan.cli.main import run

run()
