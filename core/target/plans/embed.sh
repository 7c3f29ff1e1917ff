#!/bin/sh
# Print the plans given as arguments as a C file: a table of names and texts, by name.
# The text is written byte by byte, so that no byte of it needs escaping.
set -eu
echo '/* Made from core/target/plans/. */'
echo '#include "core/target/short/presets.h"'
n=0
for f in "$@"; do
	echo "static const char text_$n[] = {"
	od -An -v -tx1 "$f" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
	echo '};'
	n=$((n + 1))
done
echo 'const struct rs__preset rs__presets[] = {'
n=0
for f in "$@"; do
	name=$(basename "$f" .json)
	echo "	{\"$name\", text_$n, sizeof(text_$n)},"
	n=$((n + 1))
done
echo '};'
echo "const uint32_t rs__n_presets = $n;"
