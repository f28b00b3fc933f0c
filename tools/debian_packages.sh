#!/usr/bin/env bash
# Unpacks packages of another Debian release, older or newer than this one, into a folder; nothing is installed.
# Usage: tools/debian_packages.sh SUITE FOLDER PACKAGE...
set -euo pipefail
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
[ $# -ge 3 ] || { echo "usage: tools/debian_packages.sh SUITE FOLDER PACKAGE..." >&2; exit 2; }
suite=$1 folder=$2
shift 2
die() { printf '%s\n' "$*" >&2; exit 2; }

command -v apt-get >/dev/null || die "this takes packages from Debian, and there is no apt-get"
[ -e "$KEYRING" ] || die "$KEYRING is missing: is this a Debian?"
# The mirror that this machine uses anyway.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | awk '/\/debian$/ && !seen++')
[ -n "$mirror" ] || die "no Debian mirror among this machine's sources"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$folder"
chmod 755 "$work" # apt reads it as another user
echo "deb [signed-by=$KEYRING] $mirror $suite main" > "$work/sources.list"
# Of what is installed here it knows nothing: it would ask for those versions.
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null \
    -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update || die "could not read the packages of Debian $suite"
(cd "$work" && apt download "$@") || die "could not fetch the packages of Debian $suite"
for archive in "$work"/*.deb; do dpkg-deb -x "$archive" "$folder"; done
