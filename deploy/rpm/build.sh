#!/bin/sh
# Build the RPM from the Debian package, so that both have one list of files:
# sh deploy/rpm/build.sh kilowatch_*.deb FOLDER, after `make setup`. nfpm does the packing.
#
# Its environment needs the python3 of the same minor version, as RHEL 9's package python3.11 has it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
deb=${1:?"name the Debian package: sh deploy/rpm/build.sh kilowatch_*.deb dist"}
out=${2:?"name the folder for the package: sh deploy/rpm/build.sh $1 dist"}
nfpm=$here/../../.venv/bin/nfpm
[ -x "$nfpm" ] || { echo "$nfpm is missing: make setup" >&2; exit 1; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dpkg-deb -x "$deb" "$work/root"
KILOWATCH_ROOT=$work/root/
KILOWATCH_VERSION=$(dpkg-deb -f "$deb" Version) KILOWATCH_ARCH=$(dpkg-deb -f "$deb" Architecture)
KILOWATCH_PYTHON=/usr/bin/$(dpkg-deb -f "$deb" Depends | sed 's/[, ].*//')
export KILOWATCH_ROOT KILOWATCH_VERSION KILOWATCH_ARCH KILOWATCH_PYTHON
nfpm=$(cd "$(dirname "$nfpm")" && pwd)/nfpm
cd "$here"  # the scripts are named from here
"$nfpm" package --config nfpm.yaml --packager rpm --target "$out" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
ls "$out"/kilowatch-*.rpm
