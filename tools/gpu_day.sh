#!/usr/bin/env bash
# The first day on a GPU: docs/gpu-day.md. Sets up what this machine lacks, then runs `python -m bench.gpu_day`.
# Usage: tools/gpu_day.sh --list | STEP | --all [--again] | --dry-run [STEP]
#        tools/gpu_day.sh --pack PYTHON_VERSION [CUDA_VERSION]   (for a machine without an index: 3.12 13.0)
# PYTHON names another interpreter, such as that of a training image with its own torch. Nothing is set up then but what
# --pack has left in gpu-day/wheels, and only where it lacks our packages.
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=gpu-day/wheels

# What the steps need beside torch, as wheels for that Python and this processor. Ours has the native libraries.
pack() {
  local python=${1:?the version of the Python there, such as 3.12} cuda=${2:-} platforms=() version
  for version in linux manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_27 manylinux_2_28; do
    platforms+=(--platform "${version}_$(uname -m)")
  done
  rm -rf "$wheels"
  "${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
  "${PYTHON:-python3}" -m pip download --quiet --dest "$wheels" --only-binary=:all: --python-version "$python" \
    "${platforms[@]}" "$(ls "$wheels"/argus*.whl)[exporter,l3,stacks]" "perfetto>=0.12"
  if [ -n "$cuda" ]; then  # it needs libraries of CUDA, which a torch with CUDA has brought
    "${PYTHON:-python3}" -m pip download --quiet --dest "$wheels" --only-binary=:all: --python-version "$python" \
      "${platforms[@]}" --no-deps "cupti-python==$cuda.*"
  fi
  ls -sh "$wheels"
}

if [ "${1:-}" = --pack ]; then
  pack "${@:2}"
  exit
fi
if [ -n "${PYTHON:-}" ]; then
  if [ -d "$wheels" ] && ! "$PYTHON" -c 'import argus_core' 2>/dev/null; then
    # Python code is that of this checkout, so that what is mended here counts; of our wheel the native libraries do.
    "$PYTHON" -m pip install --quiet --no-index --find-links "$wheels" \
      "argus-for-prometheus[exporter,l3,stacks]" perfetto >&2 || exit 3
    "$PYTHON" -m pip install --quiet --no-index --find-links "$wheels" cupti-python 2>/dev/null ||
      echo "gpu-day: cupti-python was not installed from $wheels: the step fallback will not run" >&2
  fi
  [ ! -d "$wheels" ] || export PYTHONPATH="$PWD/exporter:$PWD/l3_worker:$PWD/simulator${PYTHONPATH:+:$PYTHONPATH}"
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
