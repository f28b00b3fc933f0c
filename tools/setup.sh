#!/usr/bin/env bash
# Prepares this checkout once: .venv with the packages, and the Prometheus tools from Debian.
# Usage: tools/setup.sh [--demo|--torch|--frameworks|--traceml|--helm]
# (what `make demo` needs and no more; PyTorch for the training tests; what real programs import; what bench.overhead measures beside ARGUS; Helm)
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=.venv
say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi
}

# apt_install PACKAGE...: Debian starts a service when it installs one; policy-rc.d is its documented veto,
# and ours is only put where none is and taken away again.
apt_install() {
  local veto=/usr/sbin/policy-rc.d placed=no status=0
  command -v apt-get >/dev/null || return 1
  if [ ! -e "$veto" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$veto" >/dev/null || return 1
    as_root chmod 755 "$veto"; placed=yes
  fi
  { as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "$@"; } >.setup.log 2>&1 || status=1
  [ "$placed" = no ] || as_root rm -f "$veto"
  [ "$status" = 0 ] && rm -f .setup.log
  return "$status"
}

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  die "$PYTHON is missing or older than 3.11; install Python 3.11 or newer, or name one: make setup PYTHON=python3.11"

missing=()
need() { command -v "$1" >/dev/null || command -v "${3:-$1}" >/dev/null || missing+=("$2"); }
need prometheus prometheus
need alertmanager prometheus-alertmanager prometheus-alertmanager
extras=simulator,trace
if [ "${1:-}" != --demo ]; then
  extras=dev
  need promtool prometheus
  need amtool prometheus-alertmanager
  need jsonnetfmt jsonnet
  need node nodejs nodejs # runs Perfetto's trace processor in the tests of traces
fi
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  say "installing Debian packages: ${missing[*]}"
  apt_install "${missing[@]}" || die "could not install ${missing[*]} (log: .setup.log). Install them yourself
       (Debian/Ubuntu: sudo apt-get install ${missing[*]}; elsewhere put prometheus, promtool, alertmanager, amtool
       and jsonnetfmt on PATH), then run the command again."
fi

if [ "$extras" = dev ]; then
  # A second backend for the tests of the worker, which skip without it: not every distribution has it.
  command -v victoria-metrics >/dev/null || apt_install victoria-metrics || say "no victoria-metrics: its tests skip"

  # Draws the previews of the dashboards; their tests skip without it.
  command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    apt_install chromium || say "no chromium: the tests of dashboard previews skip"
fi

if ! command -v c++ >/dev/null; then
  say "no C++ compiler: installing without native libraries: no kernels, and numpy in their place. docs/install.md: a wheel has them"
  export ARGUS_NO_NATIVE=1
fi
[ -x "$VENV/bin/python" ] || { say "creating $VENV"; "$PYTHON" -m venv "$VENV"; }
say "installing Python packages into $VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
torch=$(sed -n 's/^# \(torch==[^ ]*\) the usual one.*/\1/p' tests/frameworks/packages.txt)
if [ "${1:-}" = --torch ] &&
  ! "$VENV/bin/python" -c "import torch; assert torch.__version__.split('+')[0] == '${torch#torch==}'" 2>/dev/null; then
  say "installing $torch"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$torch"
fi
# install_apart FOLDER LIST: into a folder of their own below .venv, which nothing of ours imports from.
install_apart() {
  say "installing $2"
  rm -rf "${VENV:?}/$1"  # with other versions nothing of the old ones stays
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$VENV/$1" -r "$2"
}
case "${1:-}" in
  --helm)
    helm=$(sed -n 's/^chart = \["\(.*\)"\]$/\1/p' pyproject.toml)
    say "installing $helm"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$helm" ;;
  --frameworks) install_apart frameworks tests/frameworks/packages.txt ;;
  --traceml) install_apart traceml bench/traceml.txt ;;
esac
[ "$extras" = simulator,trace ] || "$VENV/bin/python" -m tools.cupti_headers >/dev/null 2>&1 ||
  say "no headers of CUPTI: the test that compares our offsets with them skips"
# pip hides what the build says. Training images with an older C library get no kernels (channel reason "glibc").
for library in "$VENV"/lib/python3*/site-packages/argus_core/libargus_*.so; do
  [ ! -f "$library" ] || say "${library##*/} needs $(grep -aoE 'GLIBC_[0-9.]+' "$library" | sort -uV | tail -n 1)"
done
say "ready"
