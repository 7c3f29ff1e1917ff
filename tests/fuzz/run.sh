#!/bin/sh
# Fuzz every harness for SECONDS, two at a time; needs clang. New inputs and crashes stay under
# build/fuzz; tests/fuzz/corpus is read only. Exit 1 when a harness found something.
# Every crash becomes a named file in tests/fuzz/corpus/NAME, with the fix.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:?usage: tests/fuzz/run.sh SECONDS}
out=build/fuzz/fuzzing
case $seconds in '' | *[!0-9]*) echo "run.sh: SECONDS is a number, not '$seconds'" >&2; exit 2 ;; esac

names=
bins=
for f in tests/fuzz/fuzz_*.c; do
	[ -e "$f" ] || { echo "run.sh: no harness in tests/fuzz" >&2; exit 2; }
	name=${f#tests/fuzz/fuzz_}
	name=${name%.c}
	names="$names $name"
	bins="$bins build/fuzz/tests/fuzz_$name"
done
make -s --no-print-directory CC=clang B=fuzz $bins

# One harness from start to verdict; its one line goes to NAME.result.
fuzz() {
	mkdir -p "$out/$1/corpus" "$out/$1/crash"
	seeds=tests/fuzz/corpus/$1
	[ -d "$seeds" ] || seeds=
	dict=tests/fuzz/$1.dict
	[ -e "$dict" ] && dict=-dict=$dict || dict=
	verdict=ok
	"build/fuzz/tests/fuzz_$1" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$out/$1/crash/" $dict \
		"$out/$1/corpus" $seeds >"$out/$1/log" 2>&1 || verdict=FOUND
	awk -v name="$1" -v verdict="$verdict" '
		/stat::number_of_executed_units/ { runs = $2 }
		/stat::average_exec_per_sec/ { rate = $2 }
		/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
		END { printf "%-24s %-6s %10d runs %8d /s  %6d edges\n", name, verdict, runs, rate, cov }
	' "$out/$1/log" >"$out/$1/result"
	[ $verdict = ok ] || {
		echo "  log: $out/$1/log, inputs: $out/$1/crash/" >>"$out/$1/result"
		grep -m 3 -E 'ERROR|SUMMARY|runtime error' "$out/$1/log" | sed 's/^/  /' >>"$out/$1/result" || :
	}
	cat "$out/$1/result"
	[ $verdict = ok ]
}

bad=0
set -- $names
total=$#
while [ $# -gt 0 ]; do
	fuzz "$1" & first=$!
	second=
	if [ $# -gt 1 ]; then
		fuzz "$2" & second=$!
		shift
	fi
	shift
	wait "$first" || bad=$((bad + 1))
	[ -z "$second" ] || wait "$second" || bad=$((bad + 1))
done
echo "fuzz: $total harnesses, $seconds s each, $bad found something"
[ "$bad" -eq 0 ]
