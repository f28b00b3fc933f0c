#!/usr/bin/env bash
# Unpacks packages of another Debian release, older or newer than this one, into a folder; nothing is installed.
# Usage: tools/debian_packages.sh [--security] [--architecture NAME] SUITE FOLDER PACKAGE...
# (--security: with the security updates of a supported release, where this machine has a mirror of them)
set -euo pipefail
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
updates=no architecture=
[ "${1:-}" != --security ] || { updates=yes; shift; }
[ "${1:-}" != --architecture ] || { architecture=$2; shift 2; }
[ $# -ge 3 ] || { sed -n 's/^# Usage/usage/p' "$0" >&2; exit 2; }
suite=$1 folder=$2
shift 2
die() { printf '%s\n' "$*" >&2; exit 2; }

command -v apt-get >/dev/null || die "this takes packages from Debian, and there is no apt-get"
[ -e "$KEYRING" ] || die "$KEYRING is missing: is this a Debian?"
# The mirror that this machine uses anyway.
site() { apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | awk -v name="/$1\$" '$0 ~ name && !seen++'; }
mirror=$(site debian)
[ -n "$mirror" ] || die "no Debian mirror among this machine's sources"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$folder"
chmod 755 "$work" # apt reads it as another user
echo "deb [signed-by=$KEYRING] $mirror $suite main" > "$work/sources.list"
security=$([ "$updates" = no ] || site debian-security)
[ -z "$security" ] || echo "deb [signed-by=$KEYRING] $security $suite-security main" >> "$work/sources.list"
# Of what is installed here it knows nothing: it would ask for those versions.
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null \
    -o APT::Sandbox::User="$(id -un)" ${architecture:+-o APT::Architecture="$architecture"} "$@"
}
apt update || die "could not read the packages of Debian $suite"
(cd "$work" && apt download "$@") || die "could not fetch the packages of Debian $suite"
mkdir -p "$folder/var/lib/dpkg/status.d" # where scanners of images look for what is in them
for archive in "$work"/*.deb; do
  dpkg-deb -x "$archive" "$folder"
  dpkg-deb -f "$archive" > "$folder/var/lib/dpkg/status.d/$(dpkg-deb -f "$archive" Package)"
done
