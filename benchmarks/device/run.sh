#!/usr/bin/env bash
# The checks and figures that need an NVIDIA GPU of 80 to 144 GB: about 8 minutes, no network.
# Needs Python with torch, pyyaml, rich, typer and nvidia-ml-py; kvplan is taken from this checkout.
#
#   benchmarks/device/run.sh [OUTPUT FOLDER]        default: benchmarks/results
#   benchmarks/device/run.sh --dry-run FOLDER       the same steps on the CPU with a tiny shape
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
python="${PYTHON:-python3}"

missing="$("$python" - <<'PY'
from importlib.util import find_spec
names = {"torch": "torch", "yaml": "pyyaml", "rich": "rich", "typer": "typer", "click": "click", "pynvml": "nvidia-ml-py"}
print(" ".join(package for module, package in names.items() if find_spec(module) is None))
PY
)"
if [ -n "$missing" ]; then
    # Wheels carried along (pip download -d benchmarks/device/wheels ...) make up for what an image lacks.
    if [ -d "$here/wheels" ]; then
        "$python" -m pip install --quiet --no-index --find-links "$here/wheels" $missing
    else
        echo "error: missing packages: $missing (install them, or put their wheels into $here/wheels)" >&2
        exit 3
    fi
fi

PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" "$here/device.py" "$@"
