#!/usr/bin/env bash
# Puts the Prometheus and promtool of a later Debian release into .venv/prometheus, for whoever puts that first on PATH.
# Debian 12 has 2.42, with which the rules of a large job take three times as long and half as much memory again.
# Usage: tools/newer_prometheus.sh SUITE   (trixie or later)
set -euo pipefail
cd "$(dirname "$0")/.."
SUITE=${1:?usage: tools/newer_prometheus.sh SUITE}
TARGET=.venv/prometheus
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
say() { printf 'prometheus: %s\n' "$*"; }
die() { printf 'prometheus: %s\n' "$*" >&2; exit 2; }

elsewhere="Elsewhere put a newer prometheus and promtool first on PATH"
command -v apt-get >/dev/null || die "this takes packages from Debian, and there is no apt-get. $elsewhere."
[ -e "$KEYRING" ] || die "$KEYRING is missing: is this a Debian? $elsewhere."
# The mirror that this machine uses anyway.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | awk '/\/debian$/ && !seen++')
[ -n "$mirror" ] || die "no Debian mirror among this machine's sources. $elsewhere."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/files"
chmod 755 "$work" # apt reads it as another user
echo "deb [signed-by=$KEYRING] $mirror $SUITE main" > "$work/sources.list"
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)" "$@"
}
say "reading what Debian $SUITE has"
apt update || die "could not read the packages of Debian $SUITE"
(cd "$work" && apt download prometheus promtool) || die "could not fetch the packages of Debian $SUITE"
mkdir -p "$TARGET"
for archive in "$work"/*.deb; do dpkg-deb -x "$archive" "$work/files"; done
for program in prometheus promtool; do
  "$work/files/usr/bin/$program" --version >/dev/null 2>&1 || die "the $program of Debian $SUITE does not run here"
  install -m 755 "$work/files/usr/bin/$program" "$TARGET/$program"
done
say "$("$TARGET/prometheus" --version 2>&1 | head -n 1), in $TARGET"
