"""What has to be installed, told before anything is imported."""

from __future__ import annotations

from importlib.util import find_spec

from kvplan.errors import MissingPackageError


def check_torch() -> None:
    """Raise MissingPackageError with the command when PyTorch is not installed."""
    if find_spec("torch") is None:
        raise MissingPackageError(
            "measure runs a real decoder with PyTorch; install it: pip install 'kvplan[measure]' "
            "(for a small CPU build first: pip install torch --index-url https://download.pytorch.org/whl/cpu)"
        )
