"""docs/deploy.md from its first command to its last, on real processes and without systemd.

Three collectors, mosquitto with TLS and access list, an aggregator, Prometheus and Alertmanager, from the
commands of the page: a node is added, renamed and retired, and every machine is upgraded from one wheel to another.
What needs systemd is replaced by what the table of INSTALL.md says, which `kilowatch init` writes beside the archives.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.runtime.release import release
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import wait_until
from tests.packaging.built import ENVIRONMENT, of_release, wheel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
COMMANDS: list[str] = [
    line.strip() for line in re.findall(r"^    kilowatch .*$", PAGE, re.MULTILINE)
]
INSTEAD = re.compile(r"^\| `(systemctl [^`]*)` \| `([^`]*)` \|$", re.MULTILINE)
"""Row of a table: a command, and what does the same on machines without systemd."""
BLOCKS = re.findall(r"(?m)(?:^    .+\n)+", PAGE)
"""Commands that are typed together."""
OLD, NEW_NUMBER = release(), "2099.1"
NEW = f"{NEW_NUMBER}+{OLD.partition('+')[2]}"
"""Releases of the two wheels: of the checkout, and a later one."""
SECONDS = 300.0
SIMULATED = {"dgx01": "node-00001", "dgx02": "node-00002", "dgx03": "node-00003"}

pytestmark = [
    pytest.mark.systems,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("mosquitto", "openssl", "prometheus", "prometheus-alertmanager")),
        reason="apt-get install mosquitto openssl prometheus prometheus-alertmanager",
    ),
]  # fmt: skip


def typed(beginning: str) -> str:
    """The first command of the page with this beginning."""
    return next(each for each in COMMANDS if each.startswith(beginning))


def upgrading(service: str) -> list[str]:
    """The block of the page that upgrades a machine with this service."""
    (found,) = (each for each in BLOCKS if "--upgrade" in each and f"restart {service}" in each)
    return [line.strip() for line in found.splitlines()]


def reply(url: str) -> Any:
    """Decoded JSON, or None while nobody answers."""
    with (
        contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
        urllib.request.urlopen(url, timeout=30) as answer,
    ):
        return json.load(answer)
    return None


class Hall:
    """The machines of the page, each a root folder of its own, all on this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker, self.http, self.prometheus, self.alertmanager = (free_port() for _ in range(4))
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.sources: dict[str, tuple[str, str]] = {}
        (folder / "kilowatch.toml").write_text(
            f'[aggregator]\nlisten = "127.0.0.1:{self.http}"\ndata_dir = "{folder}/aggregator/var/lib/kilowatch-data"\n'
        )

    def environment(self, machine: str) -> dict[str, str]:
        ours = {} if (self.folder / machine / "opt").exists() else {"PYTHONPATH": str(ROOT)}
        return {
            **ENVIRONMENT, **ours, "STATE_DIRECTORY": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "KILOWATCH__COLLECTOR__STATE_DIR": str(self.folder / machine / "var/lib/kilowatch"),
            "KILOWATCH__AGGREGATOR__LISTEN": f"127.0.0.1:{self.http}",
        }  # fmt: skip

    def here(self, command: str, machine: str) -> list[str]:
        """A command of the page with the files of this machine."""
        root = self.folder / machine
        words = shlex.split(re.sub(r"/(etc|var/lib|opt)/", rf"{root}/\1/", command))
        if words[0] == "kilowatch":
            installed = root / "opt/kilowatch/bin/kilowatch"
            program = (
                [str(installed)] if installed.exists() else [sys.executable, "-m", "kilowatch"]
            )
            words = [*program, *words[1:]]
        return words

    def publish(self, made: Path) -> None:
        """Put a wheel into the folder from which the machines install."""
        (self.folder / "wheels").mkdir(exist_ok=True)
        shutil.copy(made, self.folder / "wheels")

    def install(self, machine: str, shared: str | None = None) -> None:
        """Install kilowatch into the machine's `/opt/kilowatch`; what it needs comes from the tests' environment.
        `shared`: a machine that has the same files, to save time."""
        home = self.folder / machine / "opt/kilowatch"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = home / "bin/pip"
        pip.write_text(
            f'#!/bin/sh\nexec {home}/bin/python -m pip --disable-pip-version-check -q "$@"\n'
        )
        pip.chmod(0o755)
        self.type("/opt/kilowatch/bin/pip install --no-deps --ignore-installed kilowatch", machine)
        assert self.release(machine) == OLD
        if shared is not None:
            (self.folder / shared / "opt").mkdir(parents=True)
            (self.folder / shared / "opt/kilowatch").symlink_to(home)

    def release(self, machine: str) -> str:
        """The release that is installed on a machine."""
        return self.type("kilowatch --version", machine).split()[-1]

    def upgrade(self, machine: str, service: str) -> None:
        """Upgrade a machine as the page says; the new release has checked the settings before it is started."""
        for command in upgrading(service):
            if command == f"systemctl restart {service}":
                assert self.release(machine) == NEW
                assert self.running[machine].poll() is None, "what runs is not touched before"
                self.stop(machine)
                self.start(
                    machine, f"systemctl enable --now {service}", *self.sources.get(machine, ())
                )
            elif not command.startswith("kilowatch nodes list"):
                self.type(command, machine)

    def releases(self) -> dict[str, tuple[str, bool]]:
        """Release of each node by `kilowatch nodes list`, and whether it is marked as older."""
        lines = self.type(typed("kilowatch nodes list")).splitlines()
        found = (
            re.match(r"(dgx\d\d)\b.*?\b(20\d\d\.\d+\+g\w+)( \(older\))?", line) for line in lines
        )
        return {each[1]: (each[2], each[3] is not None) for each in found if each}

    def type(self, command: str, machine: str = "head") -> str:
        """Run a command of the page where the authority is, or on another machine; the broker's name is this
        machine's."""
        words = self.here(
            command.replace("broker.example", f"127.0.0.1 --port {self.broker}"), machine
        )
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment(machine), check=False, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def unpack(self, archive: str, machine: str) -> None:
        """The page's own `tar`, into the root of the machine, whose settings then name that root."""
        line = re.search(r"^    (tar -xpf dgx01\.tar .*)$", PAGE, re.MULTILINE)
        assert line is not None
        root = self.folder / machine
        root.mkdir(exist_ok=True)
        command = line[1].replace("dgx01.tar", str(self.folder / "kilowatch-cluster" / archive))
        words = shlex.split(command.replace("-C /", f"-C {root}"))
        subprocess.run([*words, "--no-same-owner"], check=True)
        for pattern in ("etc/kilowatch/*.toml", "etc/mosquitto/kilowatch/*.conf"):
            for path in root.glob(pattern):
                text = re.sub(r"(?<=[\" ])/etc/", f"{root}/etc/", path.read_text())
                user = "\nuser root\n" if path.suffix == ".conf" and os.geteuid() == 0 else ""
                path.write_text(text + user)

    def instead(self, command: str) -> str:
        """Return the command of INSTALL.md in place of one of systemd."""
        return dict(INSTEAD.findall((self.folder / "kilowatch-cluster/INSTALL.md").read_text()))[
            command
        ]

    def start(self, machine: str, service: str, *more: str) -> None:
        """Start a service by what there is for machines without systemd."""
        words = [*self.here(self.instead(service), machine), *more]
        self.running[machine] = subprocess.Popen(words, cwd=self.folder / machine, env=self.environment(machine))  # fmt: skip

    def collect(self, machine: str, simulated: str) -> None:
        self.sources[machine] = ("--source", f"simulated:fleet/{simulated}")
        self.start(machine, "systemctl enable --now kilowatch-collector", *self.sources[machine])

    def aggregate(self) -> None:
        self.start("aggregator", "systemctl enable --now kilowatch-aggregator")

    def stop(self, machine: str) -> None:
        process = self.running.pop(machine)
        process.terminate()
        process.wait(SECONDS)

    def reload_broker(self) -> None:
        """The broker's files of the authority, and what the page has for a reload."""
        self.type("kilowatch init")
        self.unpack("broker.tar", "broker")
        command = self.instead("systemctl reload mosquitto")
        subprocess.run(shlex.split(command.replace("PID", str(self.running["broker"].pid))), check=True)  # fmt: skip

    def online(self) -> set[str]:
        answer = reply(f"http://127.0.0.1:{self.http}/api/v1/nodes") or {"nodes": ()}
        return {row["node"] for row in answer["nodes"] if row["state"] == "online"}

    def scraped(self) -> set[str]:
        """Nodes whose pages Prometheus reads."""
        answer = reply(f"http://127.0.0.1:{self.prometheus}/api/v1/targets?state=active")
        targets = answer["data"]["activeTargets"] if answer else ()
        return {
            target["labels"]["instance"] for target in targets
            if target["health"] == "up" and target["labels"]["job"] == "kilowatch"
        }  # fmt: skip

    def until(self, *names: str) -> None:
        wait_until(lambda: self.online() == set(names), f"aggregator with {names}", seconds=SECONDS)
        wait_until(
            lambda: self.scraped() == set(names), f"Prometheus with {names}", seconds=SECONDS
        )

    def watch(self) -> None:
        """Prometheus and Alertmanager with the files of the page, on ports of this test."""
        folder = self.folder / "kilowatch-cluster" / "prometheus"
        path = folder / "prometheus.yml"
        text = re.sub(r"(?m)^#(?=alerting:|  alertmanagers:|  - static_configs:|    - targets:)", "", path.read_text())  # fmt: skip
        assert "\nalerting:" in text
        for old, new in (
            ("9400", self.http),
            ("9093", self.alertmanager),
            ("15s", "1s"),
            ("30s", "1s"),
        ):
            text = text.replace(str(old), str(new))
        path.write_text(text)
        self.running["alertmanager"] = subprocess.Popen([
            "prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml", f"--storage.path={self.folder}/am",
            f"--web.listen-address=127.0.0.1:{self.alertmanager}", "--cluster.listen-address=",
        ])  # fmt: skip
        self.running["prometheus"] = subprocess.Popen([
            "prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
        ])  # fmt: skip


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    made = Hall(tmp_path)
    yield made
    for process in made.running.values():
        process.kill()
        process.wait(60)


def upgraded_one_after_the_other(hall: Hall, newer: Path) -> None:
    """The aggregator first; the list shows which nodes are older meanwhile."""
    assert hall.releases() == {"dgx01": (OLD, False), "dgx13": (OLD, False)}
    hall.publish(newer)
    hall.upgrade("aggregator", "kilowatch-aggregator")
    hall.until("dgx01", "dgx13")
    assert hall.releases() == {"dgx01": (OLD, True), "dgx13": (OLD, True)}
    hall.upgrade("dgx01", "kilowatch-collector")
    wait_until(lambda: hall.releases() == {"dgx01": (NEW, False), "dgx13": (OLD, True)}, "a drift of releases", seconds=SECONDS)  # fmt: skip
    hall.upgrade("dgx03", "kilowatch-collector")
    wait_until(lambda: hall.releases() == {"dgx01": (NEW, False), "dgx13": (NEW, False)}, "one release", seconds=SECONDS)  # fmt: skip
    hall.until("dgx01", "dgx13")


def test_a_cluster_is_set_up_and_lives_as_the_page_says(
    hall: Hall, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = wheel(tmp_path_factory)
    hall.publish(made)
    hall.install("aggregator", "head")
    hall.install("dgx01")
    hall.install("dgx03", "dgx02")
    hall.type(typed("kilowatch init --cluster"))
    hall.unpack("broker.tar", "broker")
    hall.start("broker", "systemctl restart mosquitto")
    wait_for_port(hall.broker, SECONDS)
    hall.unpack("aggregator.tar", "aggregator")
    hall.aggregate()
    for name in ("dgx01", "dgx02"):
        hall.unpack(f"nodes/{name}.tar", name)
        hall.collect(name, SIMULATED[name])
    hall.watch()
    hall.until("dgx01", "dgx02")
    hall.type(typed("kilowatch nodes expect dgx01 dgx02"))

    with_new = re.search(r"`(kilowatch init --node dgx03)`", PAGE)
    assert with_new is not None
    hall.type(with_new[1])
    hall.reload_broker()
    hall.unpack("nodes/dgx03.tar", "dgx03")
    hall.collect("dgx03", SIMULATED["dgx03"])
    hall.until("dgx01", "dgx02", "dgx03")
    hall.type(typed("kilowatch nodes expect dgx03"))

    hall.type(typed("kilowatch nodes rename dgx03 dgx13"))
    hall.type(typed("kilowatch pki node dgx13") + " --folder kilowatch-cluster/pki")
    hall.reload_broker()
    hall.stop("dgx03")
    hall.unpack("nodes/dgx13.tar", "dgx03")
    hall.collect("dgx03", SIMULATED["dgx03"])
    hall.until("dgx01", "dgx02", "dgx13")
    hall.type(typed("kilowatch pki revoke dgx03") + " --folder kilowatch-cluster/pki")

    hall.stop("dgx02")
    wait_until(lambda: "dgx02" not in hall.online(), "dgx02 offline", seconds=SECONDS)
    hall.type(typed("kilowatch nodes retire dgx02"))
    hall.type(typed("kilowatch pki revoke dgx02") + " --folder kilowatch-cluster/pki")
    hall.reload_broker()
    hall.until("dgx01", "dgx13")

    upgraded_one_after_the_other(hall, of_release(made, hall.folder, NEW_NUMBER))
    address = f"http://127.0.0.1:{hall.prometheus}/api/v1/alertmanagers"
    wait_until(
        lambda: len((reply(address) or {"data": {"activeAlertmanagers": ()}})["data"]["activeAlertmanagers"]) == 1,
        "Alertmanager of Prometheus",
        seconds=SECONDS,
    )  # fmt: skip
    assert all(process.poll() is None for process in hall.running.values())
    data = hall.folder / "aggregator/var/lib/kilowatch-data"
    assert data.stat().st_mode & 0o777 == 0o700, "as INSTALL.md says"
