#!/bin/sh
# Create the virtual environment: deploy/venv.sh PYTHON FOLDER
set -eu
python=$1 folder=$2
"$python" - <<'EOF' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"kilowatch needs Python 3.11 or newer; this is {sys.version.split()[0]}. "
             "Name another with: make PYTHON=python3.12 ...")
EOF
[ -x "$folder/bin/python" ] && "$folder/bin/python" -m pip --version >/dev/null 2>&1 && exit 0
rm -rf "$folder"
if ! "$python" -m venv "$folder" 2>/dev/null; then
    # Debian keeps venv in a package of its own.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    echo "python3-venv is missing: installing it" >&2
    $as_root apt-get update -qq && $as_root apt-get install -y -qq "python$version-venv" >/dev/null ||
        { echo "Install it by hand: apt-get install python$version-venv" >&2; exit 1; }
    rm -rf "$folder"
    "$python" -m venv "$folder"
fi
