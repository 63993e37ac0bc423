"""kill -9 of the aggregator while it is scraped: counters of energy never fall and lose no metered joule."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
import urllib.request
from pathlib import Path
from random import Random

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.aggregator.test_http_prometheus import Prometheus, prometheus
from tests.brokers import Mosquitto
from tests.endtoend.plant import Plant
from tests.endtoend.test_circuits import running
from tests.kit.waiting import end_of_patience, wait_until

pytestmark = pytest.mark.systems
SITE = """
[power]
region = "EU"
[power.site]
timezone = "Europe/Berlin"
[power.circuits.metered]
breaker = 63
meter = "pdu"
[power.circuits.blind]
breaker = 63
meter = "json:pdu/b#watts"
[power.meters.pdu]
type = "json"
topic = "pdu/a"
values = [{ path = "watts", unit = "W" }, { path = "joules", unit = "J" }]
"""
WATTS = 9000.0
LINE = re.compile(
    r'^kilowatch_circuit_energy_(joules_total|missing_seconds)\{.*circuit="(\w+)".*\} (\S+)$', re.MULTILINE
)


class Meters:
    """Two circuits of 9 kW; one meter has a counter that goes on whatever kilowatch does."""

    def __init__(self, port: int) -> None:
        self._began = time.monotonic()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def joules(self) -> float:
        """What has been drawn."""
        return WATTS * (time.monotonic() - self._began)

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._client.publish("pdu/a", json.dumps({"watts": WATTS, "joules": self.joules}))
            self._client.publish("pdu/b", json.dumps({"watts": WATTS}))

    def close(self) -> None:
        """Fall silent."""
        self._stop.set()
        self._thread.join()
        self._client.loop_stop()
        self._client.disconnect()


def scraped(plant: Plant) -> dict[tuple[str, str], float]:
    """The page of metrics: energy and missing seconds by circuit; empty while nobody serves."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{plant.http}/metrics", timeout=5) as answer:
        return {(what, name): float(value) for what, name, value in LINE.findall(answer.read().decode())}
    return {}


def test_no_kill_takes_energy_back_and_the_meters_counter_brings_what_was_missed(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """Five kills at random instants; each scrape is at least as high as all before it."""
    random, meters = Random(16), Meters(mosquitto.port)
    seen: dict[str, list[float]] = {"metered": [], "blind": []}
    with contextlib.closing(meters), running(tmp_path, mosquitto, SITE) as plant:

        def scrape() -> dict[tuple[str, str], float]:
            found = scraped(plant)
            for name, values in seen.items():
                if ("joules_total", name) in found:
                    values.append(found["joules_total", name])
            return found

        def energy(name: str) -> float:
            return scrape().get(("joules_total", name), 0.0)

        wait_until(lambda: energy("metered") > 0 and energy("blind") > 0, "a counter that is on disk")
        begin, drawn = energy("metered"), meters.joules
        started = time.monotonic()
        for _ in range(5):
            until = time.monotonic() + random.uniform(1, 14)
            wait_until(lambda: scrape() is not None and time.monotonic() > until, "the instant")  # noqa: B023 - called at once
            plant.kill("aggregator")
            plant.aggregate()
            wait_until(lambda: ("joules_total", "metered") in scrape(), "an answer")
        # Whatever was missed is there as soon as a later reading is on disk.
        wait_until(lambda: energy("metered") - begin >= 0.99 * (meters.joules - drawn) - 11 * WATTS, "the rest")
        assert energy("metered") - begin <= 1.01 * (meters.joules - drawn) + 11 * WATTS
        assert scrape()["missing_seconds", "metered"] < 2
        # Without a counter it is not invented, and said.
        passed = time.monotonic() - started
        found = scrape()
        missing = found["missing_seconds", "blind"]
        assert missing > 0
        blind = found["joules_total", "blind"] - seen["blind"][0]
        assert blind <= WATTS * (passed - missing) * 1.01 + 22 * WATTS
        assert blind >= WATTS * (passed - missing) * 0.99 - 22 * WATTS
    for values in seen.values():
        assert values == sorted(values)


SCRAPING = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
- job_name: kilowatch
  static_configs: [{{targets: ['{}']}}]
"""


async def test_prometheus_sees_no_energy_that_a_kill_invents(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """`increase()` over two kills of the aggregator is what was drawn; no counter was reset."""
    meters = Meters(mosquitto.port)
    with contextlib.closing(meters), running(tmp_path, mosquitto, SITE) as plant:
        async with prometheus(tmp_path, SCRAPING.format(plant.http)) as scraper:
            await rises(scraper, "metered", 0.0)
            begin, drawn = await energy_of(scraper, "metered"), meters.joules
            for _ in range(2):
                await rises(scraper, "blind", await energy_of(scraper, "blind"))
                plant.kill("aggregator")
                plant.aggregate()
            whole = 0.9 * (meters.joules - drawn)
            await rises(scraper, "metered", begin + whole)
            # Prometheus extrapolates to the edges of its window by a scrape; what is exported is a checkpoint old.
            for name in ("metered", "blind"):
                ((_, found),) = await scraper.query(f'increase({ENERGY}{{circuit="{name}"}}[1h])')
                assert found <= 1.01 * (meters.joules - drawn) + 30 * WATTS
                ((_, resets),) = await scraper.query(f'resets({ENERGY}{{circuit="{name}"}}[1h])')
                assert resets == 0
                assert found >= (whole if name == "metered" else 1.0)


ENERGY = "kilowatch_circuit_energy_joules_total"


async def energy_of(scraper: Prometheus, name: str) -> float:
    """Return the newest energy of a circuit that Prometheus has; 0 before it has one."""
    found = await scraper.query(f'last_over_time({ENERGY}{{circuit="{name}"}}[1h])')
    return found[0][1] if found else 0.0


async def rises(scraper: Prometheus, name: str, above: float) -> None:
    """Wait until Prometheus has seen a higher energy."""
    deadline = end_of_patience(120)
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if await energy_of(scraper, name) > above:
                return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{name}: no more than {above:.0f} J")
