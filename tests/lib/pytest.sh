#!/bin/sh
# Run pytest with the system's Python, where Debian's numpy and pytest are; a python3 that stands
# earlier in PATH may have neither. Arguments go to pytest. Temporary files are in a directory of this
# run, because other runs clean up what pytest shares; it stays when something failed.
set -eu
python=/usr/bin/python3
"$python" -c 'import numpy, pytest' 2>/dev/null || {
	echo "pytest.sh: $python lacks numpy or pytest; install python3-numpy python3-pytest (make deps)" >&2
	exit 1
}
export PYTHONDONTWRITEBYTECODE=1
tmp=$(mktemp -d "${TMPDIR:-/tmp}/reshardfs-test.XXXXXX")
status=0
"$python" -m pytest -p no:cacheprovider -q -rs --basetemp="$tmp/t" "$@" || status=$?
if [ $status = 0 ]; then
	rm -rf "$tmp"
else
	echo "pytest.sh: what the tests made is in $tmp" >&2
fi
exit $status
