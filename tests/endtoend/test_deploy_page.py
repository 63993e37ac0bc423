"""docs/deploy.md from its first command to its last, on machines of their own and without systemd.

Three collectors, mosquitto with TLS and access list, an aggregator, Prometheus and Alertmanager, from the
commands of the page: a node is added, renamed and retired, and every machine is upgraded from one wheel to another;
once a port is taken, and once the broker's cable is out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.runtime.release import release
from tests.endtoend.pages import ROOTS_HOME, Machine, Network, by_night, commands, leave, needed, page
from tests.endtoend.tmux import Terminal
from tests.kit.waiting import wait_until
from tests.packaging.built import of_release, wheel

PAGE = page("docs/deploy.md")
COMMANDS = commands(PAGE, "kilowatch ")
BLOCKS = re.findall(r"(?m)(?:^    .+\n)+", PAGE)
"""Commands that are typed together."""
OLD, NEW_NUMBER = release(), "2099.1"
NEW = f"{NEW_NUMBER}+{OLD.partition('+')[2]}"
"""Releases of the two wheels: of the checkout, and a later one."""
SECONDS = 300.0
FOLDER = "kilowatch-cluster"
PIP = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/wheels", "PIP_COMPILE": "0"}
"""As the page has it for machines that reach no registry."""

pytestmark = [
    needed,
    pytest.mark.nightly,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in ("mosquitto", "openssl", "prometheus", "prometheus-alertmanager"))
        and not os.environ.get("CI"),
        reason="apt-get install mosquitto openssl prometheus prometheus-alertmanager",
    ),
]


def typed(beginning: str) -> str:
    """The first command of the page with this beginning."""
    return next(each for each in COMMANDS if each.startswith(beginning))


def upgrading(service: str) -> list[str]:
    """The block of the page that upgrades a machine with this service."""
    (found,) = (each for each in BLOCKS if "--upgrade" in each and f"restart {service}" in each)
    return [line.strip() for line in found.splitlines()]


class Hall:
    """The broker, three nodes, and the head: authority, aggregator, Prometheus and Alertmanager."""

    def __init__(self, network: Network) -> None:
        self.head = network.machine("head", **PIP)
        self.broker = network.machine("broker")
        self.nodes = [
            network.machine(f"dgx0{number}", **PIP, KILOWATCH__COLLECTOR__SOURCE=f"simulated:fleet/node-0000{number}")
            for number in (1, 2, 3)
        ]
        network.call("broker.example", self.broker)

    def publish(self, made: Path) -> None:
        """Put a wheel into the folder from which the machines install."""
        for machine in (self.head, *self.nodes):
            machine.path("/srv/wheels").mkdir(exist_ok=True)
            shutil.copy(made, machine.path("/srv/wheels"))

    def install(self, machine: Machine) -> None:
        """Install kilowatch into `/opt/kilowatch`, in place of the checkout; what it needs comes from the tests'
        environment."""
        machine.type(
            f"rm -r /opt/kilowatch /usr/local/bin/kilowatch; {sys.executable} -m venv --without-pip /opt/kilowatch"
        )
        home = machine.path("/opt/kilowatch")
        (packages,) = home.glob("lib/python*/site-packages")
        (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = home / "bin/pip"
        pip.write_text('#!/bin/sh\nexec /opt/kilowatch/bin/python -m pip --disable-pip-version-check "$@"\n')
        pip.chmod(0o755)
        machine.type("/opt/kilowatch/bin/pip install --no-deps --ignore-installed kilowatch")
        machine.type("ln -s /opt/kilowatch/bin/kilowatch /usr/local/bin/kilowatch")
        assert self.release(machine) == OLD

    def release(self, machine: Machine) -> str:
        """The release that is installed on a machine."""
        return machine.type("kilowatch --version").split()[-1]

    def upgrade(self, machine: Machine, service: str) -> None:
        """Upgrade a machine as the page says; the new release has checked the settings before it is restarted."""
        said = ""
        for command in upgrading(service):
            if command == f"systemctl restart {service}":
                assert self.release(machine) == NEW, said
                machine.type(f"kill -0 $(cat /run/{service}.pid)")  # what runs is not touched before
            if not command.startswith("kilowatch nodes list"):
                said += machine.type(command)

    def releases(self) -> dict[str, tuple[str, bool]]:
        """Release of each node by `kilowatch nodes list`, and whether it is marked as older."""
        lines = self.head.type(typed("kilowatch nodes list")).splitlines()
        found = (re.match(r"(dgx\d\d)\b.*?\b(20\d\d\.\d+\+g\w+)( \(older\))?", line) for line in lines)
        return {each[1]: (each[2], each[3] is not None) for each in found if each}

    def unpack(self, machine: Machine, archive: str) -> None:
        """The page's own `tar`, of what the head has made."""
        line = re.search(r"^    (tar -xpf dgx01\.tar .*)$", PAGE, re.MULTILINE)
        assert line is not None
        if machine is not self.head:
            machine.receive(self.head, f"{FOLDER}/INSTALL.md", f"{FOLDER}/{archive}")
        else:
            machine.type(f"cp {FOLDER}/INSTALL.md {FOLDER}/{archive} .")
        machine.type(line[1].replace("dgx01.tar", Path(archive).name))

    def collect(self, machine: Machine, name: str) -> None:
        """Unpack a node's archive and start its collector, as the page says."""
        self.unpack(machine, f"nodes/{name}.tar")
        machine.type("systemctl enable --now kilowatch-collector")

    def reload_broker(self) -> None:
        """The broker's files of the authority, and what the page has for a reload."""
        self.head.type("kilowatch init")
        self.unpack(self.broker, "broker.tar")
        self.broker.type("systemctl reload mosquitto")

    def reply(self, url: str) -> Any:
        """Decoded JSON of the head's own, or None while nobody answers."""
        return json.loads(self.head.type(f"curl -sf 'http://127.0.0.1:{url}' || echo null"))

    def online(self) -> set[str]:
        answer = self.reply("9400/api/v1/nodes") or {"nodes": ()}
        return {row["node"] for row in answer["nodes"] if row["state"] == "online"}

    def scraped(self) -> set[str]:
        """Nodes whose pages Prometheus reads."""
        answer = self.reply("9090/api/v1/targets?state=active")
        targets = answer["data"]["activeTargets"] if answer else ()
        return {
            target["labels"]["instance"]
            for target in targets
            if target["health"] == "up" and target["labels"]["job"] == "kilowatch"
        }

    def until(self, *names: str) -> None:
        wanted = set(names)
        wait_until(lambda: self.online() == wanted, f"aggregator with {names}", SECONDS, every=0.3)
        wait_until(lambda: self.scraped() == wanted, f"Prometheus with {names}", SECONDS, every=0.3)

    def watch(self) -> None:
        """Prometheus and Alertmanager with the files of the page; they look every second."""
        path = self.head.path(f"{ROOTS_HOME}/{FOLDER}/prometheus/prometheus.yml")
        text = re.sub(r"(?m)^#(?=alerting:|  alertmanagers:|  - static_configs:|    - targets:)", "", path.read_text())
        assert "\nalerting:" in text
        path.write_text(text.replace("15s", "1s").replace("30s", "1s"))
        for command in (
            "prometheus-alertmanager --config.file=alertmanager.yml --storage.path=/tmp/am --cluster.listen-address=",
            "prometheus --config.file=prometheus.yml --storage.tsdb.path=/tmp/tsdb",
        ):
            self.head.type(f"setsid {command} </dev/null >>/var/log/watch.log 2>&1 &", f"~/{FOLDER}/prometheus")


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    with Network(tmp_path) as network, by_night():
        yield Hall(network)


def upgraded_one_after_the_other(hall: Hall, newer: Path) -> None:
    """The aggregator first; the list shows which nodes are older meanwhile."""
    assert hall.releases() == {"dgx01": (OLD, False), "dgx13": (OLD, False)}
    hall.publish(newer)
    hall.upgrade(hall.head, "kilowatch-aggregator")
    hall.until("dgx01", "dgx13")
    assert hall.releases() == {"dgx01": (OLD, True), "dgx13": (OLD, True)}
    hall.upgrade(hall.nodes[0], "kilowatch-collector")
    wait_until(
        lambda: hall.releases() == {"dgx01": (NEW, False), "dgx13": (OLD, True)}, "a drift of releases", seconds=SECONDS
    )
    hall.upgrade(hall.nodes[2], "kilowatch-collector")
    wait_until(
        lambda: hall.releases() == {"dgx01": (NEW, False), "dgx13": (NEW, False)}, "one release", seconds=SECONDS
    )
    hall.until("dgx01", "dgx13")


def set_up(hall: Hall) -> None:
    """A broker, an aggregator that first finds its port taken, two nodes, and who watches."""
    head, (first, second, third) = hall.head, hall.nodes
    for each in (head, first, third):  # the second leaves before it would be upgraded
        hall.install(each)
    head.type(typed("kilowatch init --cluster"))
    hall.unpack(hall.broker, "broker.tar")
    hall.broker.type("systemctl restart mosquitto")
    hall.unpack(head, "aggregator.tar")
    log = head.path("/var/log/kilowatch-aggregator.log")
    with head.taken(9400):
        head.type("systemctl enable --now kilowatch-aggregator")
        taken = re.compile(r"(?m)^Error: .*127\.0\.0\.1:9400")
        wait_until(lambda: log.exists() and taken.search(log.read_text()), "it says that the port is taken", SECONDS)
    head.type("systemctl restart kilowatch-aggregator")
    hall.collect(first, "dgx01")
    hall.collect(second, "dgx02")
    hall.watch()
    hall.until("dgx01", "dgx02")
    head.type(typed("kilowatch nodes expect dgx01 dgx02"))


def look(hall: Hall, *words: str) -> Terminal:
    """The dashboard on the head, once it has both nodes, and these words."""
    top = hall.head.open("kilowatch top")
    top.wait("LIVE hall-1", "2/2 nodes reporting", "GPUs 16/16 reporting", *words)
    return top


def test_a_cluster_is_set_up_and_lives_as_the_page_says(hall: Hall, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = wheel(tmp_path_factory)
    hall.publish(made)
    set_up(hall)
    head, (_, second, third) = hall.head, hall.nodes
    top = look(hall)
    hall.broker.unplug()
    top.wait("0/2 nodes reporting")
    hall.broker.plug_in()
    top.wait("LIVE hall-1", "2/2 nodes reporting", "GPUs 16/16 reporting")
    leave(top)

    with_new = re.search(r"`(kilowatch init --node dgx03)`", PAGE)
    assert with_new is not None
    head.type(with_new[1])
    hall.reload_broker()
    hall.collect(third, "dgx03")
    hall.until("dgx01", "dgx02", "dgx03")
    head.type(typed("kilowatch nodes expect dgx03"))

    head.type(typed("kilowatch nodes rename dgx03 dgx13"))
    head.type(typed("kilowatch pki node dgx13"))
    hall.reload_broker()
    hall.unpack(third, "nodes/dgx13.tar")
    third.type("systemctl restart kilowatch-collector")
    hall.until("dgx01", "dgx02", "dgx13")
    head.type(typed("kilowatch pki revoke dgx03"))

    second.type("systemctl stop kilowatch-collector")
    wait_until(lambda: "dgx02" not in hall.online(), "dgx02 offline", SECONDS, every=0.3)
    head.type(typed("kilowatch nodes retire dgx02"))
    head.type(typed("kilowatch pki revoke dgx02"))
    hall.reload_broker()
    hall.until("dgx01", "dgx13")

    upgraded_one_after_the_other(hall, of_release(made, tmp_path_factory.mktemp("newer"), NEW_NUMBER))
    leave(look(hall, "dgx13"))
    head.browse_until("http://127.0.0.1:9400/", "reported by 16 of 16 GPUs")
    wait_until(
        lambda: (
            len(
                (hall.reply("9090/api/v1/alertmanagers") or {"data": {"activeAlertmanagers": ()}})["data"][
                    "activeAlertmanagers"
                ]
            )
            == 1
        ),
        "Alertmanager of Prometheus",
        SECONDS,
        every=0.3,
    )
    data = head.path("/var/lib/kilowatch-data")
    assert data.stat().st_mode & 0o777 == 0o700, "as INSTALL.md says"
