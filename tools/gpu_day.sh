#!/usr/bin/env bash
# The first day on a GPU: docs/gpu-day.md. Sets up what this machine lacks, then runs `python -m bench.gpu_day`.
# Usage: tools/gpu_day.sh --list | STEP | --all [--again] | --dry-run [STEP]
# PYTHON names another interpreter, such as that of a training image with its own torch; nothing is set up then.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${PYTHON:-}" ]; then
  exec "$PYTHON" -m bench.gpu_day "$@"
fi
if ! .venv/bin/python -c 'import argus_exporter, torch' 2>/dev/null; then
  # The default build of torch on PyPI has CUDA; what setup.sh says goes to stderr, as --list is read by programs.
  tools/setup.sh --torch >&2 || exit 3
fi
export PATH="$PWD/.venv/bin:$PATH"
# What some steps measure where it is: the fallback's package, of the CUDA that torch has, and two frameworks. Without an
# index the day goes on without them, and the steps say so.
cuda=$(python -c 'import torch; print(torch.version.cuda or "")')
if [ -n "$cuda" ]; then
  python -c 'import cupti' 2>/dev/null || python -m pip install --quiet "cupti-python==$cuda.*" >&2 ||
    echo "gpu-day: no cupti-python for CUDA $cuda: the step fallback will not run" >&2
  [ -d .venv/frameworks ] || tools/setup.sh --frameworks >&2 || echo "gpu-day: no transformers, no lightning" >&2
  export PYTHONPATH="$PWD/.venv/frameworks${PYTHONPATH:+:$PYTHONPATH}"
fi
exec .venv/bin/python -m bench.gpu_day "$@"
