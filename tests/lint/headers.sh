#!/bin/sh
# Every public header compiles alone.
set -eu
cc=$1
flags=$(printf '%s' "$2" | sed 's/-MMD//; s/-MP//')
for h in include/reshardfs/*.h; do
	# shellcheck disable=SC2086
	eval "$cc $flags -Wall -Wextra -Werror -fsyntax-only -x c $h"
done
