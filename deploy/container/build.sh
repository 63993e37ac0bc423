#!/bin/sh
# Gather what the image is built from: sh deploy/container/build.sh FOLDER, after `make setup`. Then, with any
# of these: docker build -t kilowatch FOLDER · podman build -t kilowatch FOLDER · buildah bud -t kilowatch FOLDER
#
# The wheels of constraints.txt are fetched here, so the build itself needs no network. --build-arg BASE=NAME takes
# another image; it needs a python3 of the same version as .venv's, with venv.
set -eu
unset PYTHONPATH  # pip would take a package of there for installed
cd "$(dirname "$0")/../.."
out=${1:?"name the folder for the build: sh deploy/container/build.sh build/container"}
builder=$(pwd)/.venv/bin/python
[ -x "$builder" ] || { echo "$builder is missing: make setup" >&2; exit 1; }
rm -rf "$out/wheels"
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# From the files of this commit alone: a build folder of an earlier release would be packed too.
git ls-files -z | xargs -0 tar -cf - --dereference | tar -xf - -C "$work"
git rev-parse HEAD >"$work/telemetry/runtime/commit.txt"
"$builder" -m pip --disable-pip-version-check wheel --quiet -c constraints.txt -w "$out/wheels" "$work"
cp deploy/container/Containerfile "$out"
echo "$out"
