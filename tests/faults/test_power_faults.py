"""Faults of meters, feeds and the aggregator, live: nothing resolves that is not over, heat is kept.

A distribution unit's meters over a real broker, the real aggregator, its API. The truth is a breaker's heat
that no fault touched: the same load on a second circuit.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.brokers import Mosquitto
from tests.endtoend.plant import Plant, stays
from tests.endtoend.test_circuits import running
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.systems

WATTS = 120 * 20 * 1.13
POWER = """
[power]
region = "US"
[power.circuits.a]
breaker = 20
volts = 120
pf = 1.0
meter = "json:pdu/a#watts"
[power.circuits.b]
breaker = 20
volts = 120
pf = 1.0
meter = "json:pdu/b#watts"
[power.circuits.rig]
breaker = 30
volts = 120
nodes = ["rig"]
meter = "json:pdu/rig#watts"
[power.nodes.rig]
gpus = "4x RTX 5090"
"""
PAGES = {"E03", "E04"}


class Unit:
    """Meters that say what a test wants, twice a second; None is silence."""

    def __init__(self, port: int) -> None:
        self.watts: dict[str, float | None] = {"a": WATTS, "b": WATTS}
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            for name, watts in self.watts.items():
                if watts is not None:
                    self._client.publish(f"pdu/{name}", json.dumps({"watts": watts}))

    def close(self) -> None:
        """Say no more."""
        self._stop.set()
        self._thread.join()
        self._client.loop_stop()
        self._client.disconnect()


@pytest.fixture
def unit(mosquitto: Mosquitto) -> Iterator[Unit]:
    """The meters of a test."""
    found = Unit(mosquitto.port)
    yield found
    found.close()


def circuit(plant: Plant, name: str) -> dict[str, Any]:
    """One circuit now; empty while the aggregator does not serve."""
    found: dict[str, Any] = plant.circuits().get(name, {})
    return found


def pages(plant: Plant, name: str) -> bool:
    """Whether an overload is told, by the worst of its pages."""
    return bool(PAGES & set(circuit(plant, name).get("alerts", ())))


def both_page(plant: Plant) -> None:
    """Wait until the overload of both circuits is told."""
    wait_until(lambda: pages(plant, "a") and pages(plant, "b"), "pages", seconds=120)


def test_a_meter_that_is_killed_resolves_nothing(mosquitto: Mosquitto, tmp_path: Path, unit: Unit) -> None:
    with running(tmp_path, mosquitto, POWER) as plant:
        both_page(plant)
        unit.watts["a"] = None
        wait_until(lambda: circuit(plant, "a").get("load_state") == "last known", "last known")
        assert stays(lambda: pages(plant, "a"), 15)
        one, other = circuit(plant, "a"), circuit(plant, "b")
        assert one["watts"] == pytest.approx(WATTS)
        assert one["heat_ratio"] == pytest.approx(other["heat_ratio"], rel=0.05)
        wait_until(lambda: "E19" in circuit(plant, "a")["alerts"], "the page of blindness")
        assert other["load_state"] == "measured"


def test_an_aggregator_that_is_killed_keeps_heat_and_pages(mosquitto: Mosquitto, tmp_path: Path, unit: Unit) -> None:
    """SIGKILL at 1.13 of the rating; meter a is silent for a while after the start."""
    with running(tmp_path, mosquitto, POWER) as plant:
        both_page(plant)
        wait_until((tmp_path / "data" / "electrical.json").exists, "a checkpoint")
        before = circuit(plant, "a")["heat_ratio"]
        plant.kill("aggregator")
        unit.watts["a"] = None
        plant.aggregate()
        wait_until(lambda: circuit(plant, "b").get("load_state") == "measured", "circuits")
        one = circuit(plant, "a")
        assert one["load_state"] == "last known"
        assert one["watts"] == pytest.approx(WATTS)
        assert one["heat_ratio"] >= 0.95 * before
        assert stays(lambda: pages(plant, "a") and pages(plant, "b"), 5)
        unit.watts["a"] = WATTS
        wait_until(lambda: circuit(plant, "a")["load_state"] == "measured", "its meter")
        one, other = circuit(plant, "a"), circuit(plant, "b")
        assert one["heat_ratio"] == pytest.approx(other["heat_ratio"], rel=0.05)
        assert one["heat_ratio"] >= 0.95 * before


def test_a_meter_in_the_wrong_unit_is_named_and_not_used(mosquitto: Mosquitto, tmp_path: Path, unit: Unit) -> None:
    """2.8 W over a rig whose four GPUs measure more than two kilowatts."""
    unit.watts["rig"] = 2.8
    with running(tmp_path, mosquitto, POWER) as plant:
        plant.collect("rig", "simulated:desktop-4x5090/desktop")
        wait_until(lambda: circuit(plant, "rig").get("more", {}).get("meter_fault") == 2, "the fault")
        found = circuit(plant, "rig")
        assert found["watts"] > 1000
        assert "kW taken for W" in found["facts"]["meter"]
        wait_until(lambda: "E19" in circuit(plant, "rig")["alerts"], "its alert")
