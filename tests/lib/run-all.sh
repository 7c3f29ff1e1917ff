#!/bin/sh
# The whole suite, as `make test` runs it. Each stage prints its seconds, and its output only when it
# fails (all of it stays in build/test/log/). A failed stage does not end the run. The last line is
#   N passed, N failed, N skipped
# over cmocka and pytest; a stage without such tests counts as one. Exit 1 when anything failed.
# Builds go to build/test/, so the trees of a developer are left as they are.
#
# FUZZ_SECONDS=60 for each fuzz harness (0: none); REQUIRE_FUSE=1: no /dev/fuse is a failure.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=build/test log=build/test/log jobs=$(nproc)
rm -rf "$log" && mkdir -p "$log" || exit 1
passed=0 failed=0 skipped=0
export CMOCKA_MESSAGE_OUTPUT=stdout
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
: "${FUZZ_SECONDS:=60}"

# What cmocka says, over all binaries of the log: cmocka WORD. The word is padded as it prints it.
cmocka() {
	sed -n "s/^\[  $1\] \([0-9]*\) test(s).*/\1/p" "$log/$name" | awk '{n += $1} END {print n + 0}'
}

# What the last line of pytest says, such as "1 failed, 60 passed, 2 skipped in 3.21s".
pytest() {
	grep -E '^[0-9]+ .* in [0-9.]+s' "$log/$name" | tail -n 1 | tr ',' '\n' |
		awk -v word="$1" '$2 ~ "^" word {n += $1} END {print n + 0}'
}

# Add the tests of the stage to the totals.
count() {
	p=$(($(cmocka 'PASSED  ') + $(pytest passed)))
	f=$(($(cmocka 'FAILED  ') + $(pytest failed) + $(pytest error)))
	s=$(($(cmocka 'SKIPPED ') + $(pytest skipped)))
	[ "$1" = 0 ] || [ "$f" != 0 ] || f=1     # it broke outside of any test
	[ "$((p + f + s))" != 0 ] || p=1         # it has no tests, and went well
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# stage NAME COMMAND...
stage() {
	name=$1 begin=$(date +%s)
	shift
	"$@" >"$log/$name" 2>&1
	status=$?
	count $status
	verdict=ok
	[ $status = 0 ] && [ "$f" = 0 ] || verdict=FAILED
	printf '%-6s %4d s  %-18s %s\n' $verdict "$(($(date +%s) - begin))" "$name" \
		"$p passed, $f failed, $s skipped"
	grep -h '^SKIPPED' "$log/$name" | sort -u | head -n 5
	[ $verdict = ok ] || tail -n 60 "$log/$name" | sed 's/^/    /'
}

# make for one tree: build NAME VARIABLE=VALUE... TARGET...
build() {
	tree=$out/$1
	shift
	make -s --no-print-directory -j"$jobs" OUT="$tree" "$@"
}

# ThreadSanitizer for the unit tests that start threads. setarch: it cannot live with every kernel's
# address randomisation.
thread_tests() {
	tests=$(grep -l pthread_create tests/unit/test_*.c | sed "s,tests/unit/\(.*\)\.c,$out/tsan/tests/\1,")
	# shellcheck disable=SC2086
	build tsan B=tsan $tests || return 1
	for t in $tests; do
		setarch -R "$t" || return 1
	done
}

# Integration tests with the program of one tree: integration TREE ARGUMENTS...
integration() {
	program=$PWD/$out/$1/reshardfs
	shift
	RESHARDFS=$program timeout -s INT -k 60 900 sh tests/lib/pytest.sh "$@" tests/integration
}

# The same with few random cases, for slow builds.
quick() (
	QUICK=1
	export QUICK
	integration "$@"
)

if ! { [ -c /dev/fuse ] && (: <>/dev/fuse); } 2>/dev/null; then
	echo '=================================================================================='
	echo ' /dev/fuse CANNOT BE OPENED HERE: nothing that mounts is tested, the rest goes on.'
	echo ' Run on a machine with FUSE, or a container with --device /dev/fuse --cap-add SYS_ADMIN.'
	echo '=================================================================================='
	if [ "${REQUIRE_FUSE:-}" = 1 ]; then
		echo 'FAILED: REQUIRE_FUSE=1'
		failed=$((failed + 1))
	fi
fi

stage gcc build gcc CC=gcc WERROR=1 all
stage check build gcc CC=gcc WERROR=1 check
stage clang build clang CC=clang WERROR=1 all
stage format make -s --no-print-directory format-check
stage asan-unit build asan B=asan all unit
stage tsan-unit thread_tests
stage integration integration gcc
stage integration-asan quick asan -m 'not big'
stage demo env RESHARDFS="$PWD/$out/gcc/reshardfs" sh tests/lib/demo.sh
[ "$FUZZ_SECONDS" = 0 ] || stage fuzz make -s --no-print-directory fuzz FUZZ_SECONDS="$FUZZ_SECONDS"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
