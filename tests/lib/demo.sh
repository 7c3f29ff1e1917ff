#!/bin/sh
# The demo: a small checkpoint of 8 ranks (tensor parallel 4, 2 pipeline stages) is mounted for 16 ranks
# (tensor parallel 4, 4 stages), read, copied, and compared with files that were computed without
# reshardfs. Where /dev/fuse cannot be used, the verbs `ls` and `cat` show the same without a mount.
# RESHARDFS names the program.
set -eu
cd "$(dirname "$0")/../.."
program=${RESHARDFS:-$PWD/build/release/reshardfs}
python=/usr/bin/python3
ckpt="$python -B tests/lib/ckpt.py"
tmp=$(mktemp -d) mnt=
cleanup() {
	[ -z "$mnt" ] || "$program" umount "$mnt" || :
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }
# Show a command as a person would type it, run it, show what it says; its status is kept.
run() {
	echo "  \$ $*" | sed "s,$program,reshardfs,; s,$python -B tests/lib/,,; s,$tmp/,,g"
	status=0
	"$@" >"$tmp/said" 2>&1 || status=$?
	sed "s,^,    ,; s,$tmp/,,g" "$tmp/said"
	return $status
}
size() { du -sh --apparent-size "$1" | cut -f 1; }

# shellcheck disable=SC2086
{
	$ckpt tree "$tmp/ckpt" --mp 4 --pp 2 --layers 8 --hidden 128
	$ckpt strategy "$tmp/tp4.pp4.ckpt" --mp 4 --pp 4 --layers 8 --hidden 128
}
say "1. A checkpoint of 8 ranks (tp 4, pp 2), $(size "$tmp/ckpt"), and the strategy of 16 ranks (tp 4, pp 4)"
run "$program" inspect "$tmp/ckpt" | head -n 6

if ! { [ -c /dev/fuse ] && (: <>/dev/fuse); } 2>/dev/null; then
	say '2. /dev/fuse CANNOT BE OPENED HERE, so nothing is mounted; the same without a mount'
	run "$program" ls "$tmp/ckpt" --target "$tmp/tp4.pp4.ckpt" | tail -n 4
	echo '  $ reshardfs cat ckpt --target tp4.pp4.ckpt rank_R/checkpoint_R.ckpt > copy/...   # R = 0 to 15'
	for r in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
		mkdir -p "$tmp/copy/rank_$r"
		"$program" cat "$tmp/ckpt" --target "$tmp/tp4.pp4.ckpt" "rank_$r/checkpoint_$r.ckpt" \
			>"$tmp/copy/rank_$r/checkpoint_$r.ckpt"
	done
else
	mkdir "$tmp/mnt"
	say '2. Mount it for the 16 ranks; nothing is copied'
	run "$program" "$tmp/ckpt" "$tmp/mnt" -o "target=$tmp/tp4.pp4.ckpt"
	mnt=$tmp/mnt
	run ls -x "$mnt"
	run ls -lh "$mnt/rank_13"

	say '3. Load rank 13 through the mount'
	run $python -B tests/lib/ckpt.py show "$mnt/rank_13/checkpoint_13.ckpt" | head -n 5

	say '4. Copy all ranks out'
	run cp -r "$mnt" "$tmp/copy"
fi

say '5. Compare with files computed without reshardfs, by joining and cutting every tensor'
run $ckpt expect "$tmp/ckpt" "$tmp/ckpt/merged.ckpt" "$tmp/tp4.pp4.ckpt" "$tmp/want"
run $ckpt compare "$tmp/copy" "$tmp/want"
if [ -n "$mnt" ]; then
	run "$program" umount "$mnt"
	mnt=
fi
files=$(find "$tmp/copy" -type f | wc -l)
diff -r "$tmp/copy" "$tmp/want"
say "OK: $files files, $(size "$tmp/copy"), equal byte for byte"
