"""Smart plugs of five makes, on a network of their own, publish to the broker of `run --meters-port`: to the page."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.topics import Topic, topic
from tests.aggregator.node import inventory
from tests.alerts.alertmanagers import Hook
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import wait_until

WATTS, VOLTS, AMPS = 2960.0, 230.0, 12.9
"""On a breaker of 10 A."""
METERS = {
    "tasmota": "tasmota:plug-t",
    "shelly": "shelly:plug-s",
    "zigbee": "zigbee2mqtt:plug-z",
    "hass": {"type": "home-assistant", "topic": "homeassistant/sensor/plug_power/state"},
    "esphome": {"type": "json", "topic": "plug-e/sensor/power/state"},
}
"""By circuit, as docs/meters.md has them."""
MESSAGES = [
    ("tele/plug-t/SENSOR", {"Time": "2026-11-27T08:00:00", "ENERGY": {"TotalStartTime": "2026-01-01T00:00:00", "Total": 41.2, "Power": WATTS, "ApparentPower": 2967, "Factor": 0.99, "Voltage": VOLTS, "Current": AMPS}}),
    ("plug-s/events/rpc", {"src": "plug-s", "dst": "plug-s/events", "method": "NotifyStatus", "params": {"ts": 0, "switch:0": {"id": 0, "apower": WATTS, "voltage": VOLTS, "current": AMPS}}}),
    ("zigbee2mqtt/plug-z", {"state": "ON", "power": WATTS, "voltage": VOLTS, "current": AMPS, "energy": 10.5}),
    ("homeassistant/sensor/plug_power/state", WATTS),
    ("plug-e/sensor/power/state", WATTS),
]  # fmt: skip
INTRUDER = "intruder"
FORGED = [
    (
        topic("default", INTRUDER, Topic.STATUS),
        messages.encode(CollectorStatus(state=NodeState.ONLINE, session=1)).decode(),
    ),
    (topic("default", INTRUDER, Topic.INVENTORY), messages.encode(inventory(INTRUDER, 1)).decode()),
]
"""Messages of a collector that there is none of."""
HERE, THERE = "10.213.77.1", "10.213.77.2"


def ip(*words: str) -> None:
    """Set up the network as root."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A network namespace with one cable to this one; its name."""
    name, cable = f"kw{os.getpid()}", f"kwv{os.getpid()}"[:15]
    try:
        ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace can be made here (root and iproute2 can): {error}")
    try:
        ip("link", "add", cable, "type", "veth", "peer", "name", "plug0", "netns", name)
        ip("addr", "add", f"{HERE}/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-n", name, "addr", "add", f"{THERE}/30", "dev", "plug0")
        ip("-n", name, "link", "set", "plug0", "up")
        yield name
    finally:
        ip("netns", "del", name)  # its end of the cable goes with it, and ours with that


@dataclass(frozen=True)
class Home:
    """A running `kilowatch run`."""

    port: int
    meters: int
    folder: Path

    @property
    def password(self) -> Path:
        """The file with the password of the plugs."""
        return self.folder / "data" / "meters.password"

    def get(self, path: str) -> Any:
        """Return what the API answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
            return json.load(answer)

    def watts(self, circuit: str) -> float:
        """Return what a circuit carries; 0 where that is not known."""
        circuits = {one["id"]: one for one in self.get("/api/v1/circuits")["circuits"]}
        return circuits[circuit]["watts"] or 0.0


def settings(hook: Hook) -> str:
    """Return the settings: a circuit of 10 A for each plug, and a channel."""
    lines = ["[power]", 'region = "DE"']
    for name, meter in METERS.items():
        lines += [f"[power.circuits.{name}]", "breaker = 10"]
        if isinstance(meter, str):
            lines += [f'meter = "{meter}"']
        else:
            lines += [
                f"[power.meters.m-{name}]",
                *(f'{key} = "{value}"' for key, value in meter.items()),
                f'on = "{name}"',
            ]
    lines += ["[alerts.channels.hook]", 'type = "webhook"', f'url = "{hook.url}"']
    return "\n".join(lines) + "\n"


@contextmanager
def at_home(folder: Path, hook: Hook) -> Iterator[Home]:
    """Run a simulated machine whose pages are sent."""
    (folder / "kilowatch.toml").write_text(settings(hook))
    home = Home(free_port(), free_port(), folder)
    command = [sys.executable, "-m", "kilowatch", "run", "--no-ui", "--config", str(folder / "kilowatch.toml"),
               "--source", "simulated:desktop-4x5090", "--data", str(folder / "data"), "--http", f"127.0.0.1:{home.port}",
               "--broker-port", str(free_port()), "--meters-port", str(home.meters)]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for_port(home.port, 60)
        yield home
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def plugged_in(namespace: str, home: Home) -> Iterator[subprocess.Popen[bytes]]:
    """Publish from another network."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "tests.endtoend.plug",
               HERE, str(home.meters), "meters", str(home.password)]  # fmt: skip
    plug = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert plug.stdin is not None
    texts = [
        (name, payload if isinstance(payload, str) else json.dumps(payload)) for name, payload in [*FORGED, *MESSAGES]
    ]
    plug.stdin.write(json.dumps(texts).encode())
    plug.stdin.close()
    try:
        yield plug
    finally:
        plug.kill()
        plug.wait()


def paged(hook: Hook) -> set[str]:
    """Return the circuits of which somebody was told that they are overloaded."""
    alerts = [alert for body in hook.bodies for alert in body["alerts"]]
    return {alert["labels"]["circuit"] for alert in alerts if alert["labels"].get("rule_id") in {"E02", "E03", "E04"}}


async def test_plugs_of_five_makes_are_measured_and_paged(tmp_path: Path, elsewhere: str) -> None:
    """Each circuit carries what its plug says, and somebody is paged for each; what else is published there is not
    heard; the password outlives a restart."""
    async with Hook().listening() as hook:
        first, again = await asyncio.to_thread(_passwords, tmp_path, elsewhere, hook)
    assert paged(hook) == set(METERS)
    assert first == again


def _passwords(folder: Path, elsewhere: str, hook: Hook) -> tuple[str, str]:
    """Play it; return the password of the plugs before and after a restart."""
    with at_home(folder, hook) as home:
        with plugged_in(elsewhere, home):
            wait_until(
                lambda: all(home.watts(name) == pytest.approx(WATTS, rel=0.01) for name in METERS),
                lambda: str({name: home.watts(name) for name in METERS}),
            )
            wait_until(lambda: paged(hook) == set(METERS), lambda: str(paged(hook)))
            nodes = [one["node"] for one in home.get("/api/v1/nodes")["nodes"]]
            assert len(nodes) == 1
            assert nodes != [INTRUDER]
        first = home.password.read_text()
        assert home.password.stat().st_mode & 0o077 == 0
    with at_home(folder, hook) as home:
        wait_for_port(home.meters, 60)
        return first, home.password.read_text()
