#!/bin/sh
# Install what the tests start: a broker, Prometheus with promtool, Alertmanager with amtool, InfluxDB,
# VictoriaMetrics, jsonnet for the mixin, upsd with its dummy driver, a C compiler for the fake
# driver, tmux for the dashboard on a real terminal, a browser for hostile pages, systemd to rate its
# units (it is not started), Slurm with its accounting and MariaDB for jobs, fuser for the hooks of `kilowatch recover`,
# ip for plugs on a network of their own, buildah and debootstrap for the image on a bare Debian, podman with crun and
# busybox for a rootless container, rpm to look into the RPM, the font of the pictures, and valgrind to count instructions.
set -eu
missing=""
command -v mosquitto >/dev/null 2>&1 || [ -x /usr/sbin/mosquitto ] || missing="$missing mosquitto"
command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v amtool >/dev/null 2>&1 || missing="$missing prometheus-alertmanager"
command -v influxd >/dev/null 2>&1 || missing="$missing influxdb"
command -v victoria-metrics >/dev/null 2>&1 || missing="$missing victoria-metrics"
command -v jsonnet >/dev/null 2>&1 || missing="$missing jsonnet"
[ -x /lib/nut/upsd ] || [ -x /usr/libexec/nut/upsd ] || missing="$missing nut-server"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v tmux >/dev/null 2>&1 || missing="$missing tmux"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v systemd-analyze >/dev/null 2>&1 || missing="$missing systemd"
command -v slurmctld >/dev/null 2>&1 || [ -x /usr/sbin/slurmctld ] || missing="$missing slurm-wlm slurm-wlm-basic-plugins munge"
command -v slurmdbd >/dev/null 2>&1 || [ -x /usr/sbin/slurmdbd ] || missing="$missing slurmdbd"
command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v buildah >/dev/null 2>&1 || missing="$missing buildah"
command -v podman >/dev/null 2>&1 || missing="$missing podman"
command -v crun >/dev/null 2>&1 || missing="$missing crun"
command -v busybox >/dev/null 2>&1 || missing="$missing busybox-static"
command -v debootstrap >/dev/null 2>&1 || [ -x /usr/sbin/debootstrap ] || missing="$missing debootstrap"
command -v rpm >/dev/null 2>&1 || missing="$missing rpm"
command -v fuser >/dev/null 2>&1 || missing="$missing psmisc"
command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || missing="$missing iproute2"
command -v valgrind >/dev/null 2>&1 || missing="$missing valgrind"
[ -d /usr/share/fonts/truetype/dejavu ] || missing="$missing fonts-dejavu-core"
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Not here and not a Debian machine:$missing. Tests that need them say so." >&2
    exit 0
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "Tests that need$missing will be skipped. Install with: sudo apt-get install$missing" >&2
        exit 0
    fi
    as_root="sudo -n"
fi
echo "installing$missing" >&2
# policy-rc.d prevents the packages from starting their services; the tests start their own.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
