#!/bin/sh
# Install the Debian packages of debian-packages.txt that are missing. Without arguments all groups,
# else the named ones (build, run, test). Does nothing, and needs nobody's rights, when all are there.
set -eu
here=$(dirname "$0")
groups=${*:-build run test}
wanted=$(for g in $groups; do sed -n "s/^$g *//p" "$here/debian-packages.txt"; done)
command -v dpkg-query >/dev/null 2>&1 || {
	echo "not a Debian system; needed here:" $wanted >&2
	exit 0
}
missing=
for p in $wanted; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
