#!/usr/bin/env bash
# Puts the Prometheus and promtool of a later Debian release into .venv/prometheus, for whoever puts that first on PATH.
# Debian 12 has 2.42, with which the rules of a large job take three times as long and half as much memory again.
# Usage: tools/newer_prometheus.sh SUITE   (trixie or later)
set -euo pipefail
cd "$(dirname "$0")/.."
SUITE=${1:?usage: tools/newer_prometheus.sh SUITE}
TARGET=.venv/prometheus
say() { printf 'prometheus: %s\n' "$*"; }
die() { printf 'prometheus: %s\n' "$*" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "reading what Debian $SUITE has"
tools/debian_packages.sh "$SUITE" "$work" prometheus promtool ||
  die "Elsewhere put a newer prometheus and promtool first on PATH."
mkdir -p "$TARGET"
for program in prometheus promtool; do
  "$work/usr/bin/$program" --version >/dev/null 2>&1 || die "the $program of Debian $SUITE does not run here"
  install -m 755 "$work/usr/bin/$program" "$TARGET/$program"
done
say "$("$TARGET/prometheus" --version 2>&1 | head -n 1), in $TARGET"
