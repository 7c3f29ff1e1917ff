#!/bin/sh
# Run pytest with the system's Python, where Debian's numpy and pytest are; a python3 that stands
# earlier in PATH may have neither. Arguments go to pytest.
set -eu
python=/usr/bin/python3
"$python" -c 'import numpy, pytest' 2>/dev/null || {
	echo "pytest.sh: $python lacks numpy or pytest; install python3-numpy python3-pytest (make deps)" >&2
	exit 1
}
export PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -p no:cacheprovider -q -rs "$@"
