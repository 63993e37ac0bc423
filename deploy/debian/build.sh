#!/bin/sh
# Build the Debian package: sh deploy/debian/build.sh FOLDER, after `make setup`.
#
# The package has an environment of its own in /opt/kilowatch, from the wheel and constraints.txt, for
# the python3 of the release of Debian on which it is built. Nothing is enabled and no settings are
# made: `kilowatch init` writes them, and the units bring their own users (DynamicUser=).
set -eu
unset PYTHONPATH  # pip would take a package of there for installed
cd "$(dirname "$0")/../.."
out=${1:?"name the folder for the package: sh deploy/debian/build.sh dist"}
mkdir -p "$out"
out=$(cd "$out" && pwd)
builder=$(pwd)/.venv/bin/python
base=/usr/bin/python3
[ -x "$base" ] || { echo "$base is missing: apt-get install python3" >&2; exit 1; }
[ -x "$builder" ] || { echo "$builder is missing: make setup" >&2; exit 1; }
minor=$("$base" -c 'import sys; print("3.%d" % sys.version_info[1])')
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root home=$work/root/opt/kilowatch

# From the files of this commit alone: a build folder of an earlier release would be packed too.
mkdir "$work/source"
git ls-files -z | xargs -0 tar -cf - --dereference | tar -xf - -C "$work/source"
git rev-parse HEAD >"$work/source/telemetry/runtime/commit.txt"
"$builder" -m pip --disable-pip-version-check wheel --quiet --no-deps -w "$work/wheel" "$work/source"
mkdir -p "$home"
"/usr/bin/python$minor" -m venv --without-pip "$home"
"$builder" -m pip --disable-pip-version-check --python "$home/bin/python" install --quiet \
    --no-compile --no-warn-script-location -c constraints.txt "$work"/wheel/kilowatch-*.whl
version=$("$home/bin/python" -c 'import importlib.metadata as m; print(m.version("kilowatch"))')

manuals=$root/usr/share/man/man1
mkdir -p "$manuals" "$root/usr/share/bash-completion/completions" "$root/usr/bin"
PYTHONDONTWRITEBYTECODE=1 "$home/bin/python" deploy/debian/manual.py "$manuals"
gzip -9n "$manuals"/*.1
_KILOWATCH_COMPLETE=bash_source PYTHONDONTWRITEBYTECODE=1 "$home/bin/kilowatch" \
    >"$root/usr/share/bash-completion/completions/kilowatch"

# What names the folder of the build, or is of no use to a service.
rm -f "$home"/bin/activate* "$home"/bin/Activate.ps1 "$home"/lib/python*/site-packages/*.dist-info/direct_url.json
find "$home" -name __pycache__ -prune -exec rm -rf {} +
grep -lIrF "$work" "$home" | while read -r file; do sed -i "s|$root||g" "$file"; done

units=$root/usr/lib/systemd/system examples=$root/usr/share/doc/kilowatch/examples
mkdir -p "$units" "$examples" "$root/etc/kilowatch"
ln -s /opt/kilowatch/bin/kilowatch "$root/usr/bin/kilowatch"
cp deploy/systemd/*.service "$units"
cp -RL deploy/systemd/kilowatch-collector.service.d deploy/mosquitto deploy/prometheus deploy/node deploy/slurm deploy/kubernetes \
    deploy/container deploy/helm deploy/ansible "$examples"
mkdir "$examples/grafana"
cp -RL grafana/dashboards grafana/provisioning "$examples/grafana"
cp docs/*.md "$examples/.."
cp LICENSE "$examples/../copyright"

mkdir "$root/DEBIAN"
cp deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
chmod 0755 "$root"/DEBIAN/p*
cat >"$root/DEBIAN/control" <<CONTROL
Package: kilowatch
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: kilowatch <root@localhost>
Section: admin
Priority: optional
Depends: python$minor
Recommends: openssl
Suggests: mosquitto, prometheus
Installed-Size: $(du -sk "$root" | cut -f1)
Description: telemetry and health of GPU clusters
 Reads the GPUs of each node, stores and serves their readings, evaluates rules, and watches circuits.
 The package has the collector, the aggregator and the dashboard, and starts none of them.
CONTROL
dpkg-deb --root-owner-group --build -Zxz -z1 "$root" "$out" >/dev/null
ls "$out"/kilowatch_*.deb
