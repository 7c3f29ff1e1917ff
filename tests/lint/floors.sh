#!/bin/sh
# Hold the rooms to tests/lint/floors.txt: which public headers each may include, no private header
# of another room, and FUSE in fs/mount alone.
set -eu
bad=0
complain() { echo "floors: $*" >&2; bad=1; }
rooms=$(sed 's/#.*//' tests/lint/floors.txt | awk 'NF{print $1}')
for room in $rooms; do
	allowed=$(sed 's/#.*//' tests/lint/floors.txt | awk -v r="$room" '$1==r{$1="";print}')
	for f in include/reshardfs/$room.h core/$room/*.[ch] core/$room/*/*.[ch]; do
		[ -e "$f" ] || continue
		for h in $(sed -n 's/^# *include *["<]reshardfs\/\(.*\)\.h[">].*/\1/p' "$f"); do
			case " $allowed " in *" $h "*) ;; *) complain "$f includes $h.h, allowed:$allowed" ;; esac
		done
		for h in $(sed -n 's/^# *include *"\(core\/.*\)".*/\1/p' "$f"); do
			case $h in core/$room/*) ;; *) complain "$f includes $h of another room" ;; esac
		done
		if grep -nE '^# *include *<fuse|\bprintf *\(|\bfprintf *\(|\bexit *\(|\bstrtok *\(|\bstrerror *\(' "$f" /dev/null |
			grep -vE 'snprintf|format\(printf|^[^:]*:[0-9]*: \*'; then
			complain "$f: core has no FUSE, no stdio output, no exit, no hidden state"
		fi
	done
done
for f in core/*/; do
	f=${f#core/}; f=${f%/}
	echo "$rooms" | grep -qx "$f" || complain "core/$f is not in floors.txt"
done
for f in fs/*.[ch] fs/verbs/*.[ch]; do
	[ -e "$f" ] || continue
	grep -l 'fuse_lowlevel.h' "$f" && complain "$f: only fs/mount sees FUSE"
	grep -n '"core/' "$f" && complain "$f includes a private header of core"
done
for f in fs/mount/*.[ch]; do
	[ -e "$f" ] || continue
	grep -n '"core/\|"fs/verbs/' "$f" && complain "$f includes what is not its own"
done
exit $bad
