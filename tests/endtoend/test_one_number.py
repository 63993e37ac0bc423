"""A quantity is one number everywhere: API, pages, dashboard, commands and Prometheus, of one state of one aggregator."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from aggregator.electrical.service import ElectricalService
from api.decoding import decode
from api.device import GpuPageReply
from api.power import CircuitReply, CircuitState, PowerReply
from kilowatch.__main__ import main
from present.circuit.figures import load, share
from present.circuit.rows import about, headroom_row, load_row
from present.units import celsius, percent, watts
from telemetry.text import estimated_duration, timer
from tests.aggregator.http_client import Door, door
from tests.tui.cluster import Cluster
from tests.tui.test_lines import LIVE, line_text
from tests.web.test_pages import read
from tui.frame.header import header
from tui.kit.theme import Line
from tui.screens.circuit import circuit_lines
from tui.screens.circuits import COLUMNS, CircuitSource
from tui.screens.gpu import gpu_lines
from tui.screens.gpu import page_of as gpu_page
from tui.screens.overview import circuit_bars
from tui.state.circuit_columns import page_of as circuit_page
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.status import as_json, fetch, text_lines
from tui.time.screen_time import ScreenTime

SITE: dict[str, Any] = {
    "region": "US",
    "panels": {"main": {"volts": 240, "breaker": 200, "wiring": "split"}},
    "circuits": {
        name: {"panel": "main", "breaker": breaker, "poles": 2, "pf": 1.0, "nodes": [node]}
        for name, breaker, node in (
            ("fallen", 20, "dgx-00"), ("calm", 60, "dgx-01"), ("tight", 30, "dgx-02"),
            ("silent", 30, "dgx-03"), ("unheard", 30, "nobody"),
        )
    },
}  # fmt: skip
"""Circuits: one whose load has just fallen, one above its rating, one whose node fell silent, and one that nothing is
known of: the panel carries all of it."""
GPU = "GPU-dgx-00-0"


async def lab() -> Cluster:
    """A cluster in that state."""
    cluster = Cluster(4, 2)
    cluster.electrical = ElectricalService(SITE, Path("/nowhere"))
    for second in range(40):
        cluster.wrong["dgx-00"] = {"node_wall_power_watts": 5000.0 if second < 38 else 3900.0}
        cluster.wrong["dgx-02"] = {"node_wall_power_watts": 8123.0}
        if second == 20:
            cluster.muted.add("dgx-03")
        await cluster.beat()
        cluster.electrical.snapshots(cluster.fleet, cluster.now(), cluster.wall())
    return cluster


class Shown:
    """Figures of that state by place."""

    def __init__(self, client: Door) -> None:
        self.client = client

    async def look(self) -> None:
        """Read all of them."""
        ask = self.client.json
        self.circuits = [
            await self._typed(f"/api/v1/circuits/{row['id']}", CircuitReply)
            for row in (await ask("/api/v1/circuits"))[1]["circuits"]
        ]
        self.power = await self._typed("/api/v1/power", PowerReply)
        self.summary = (await ask("/api/v1/status"))[1]["summary"]
        self.gpu = await self._typed(f"/api/v1/gpus/{GPU}", GpuPageReply)
        self.state = await fetch(self.client.url, None)
        self.metrics = "".join([(await self.client.text(way))[1] for way in ("/metrics", "/metrics/nodes")])
        self.commands = {
            words: (await asyncio.to_thread(CliRunner().invoke, main, [*words.split(), self.client.url])).output
            for words in ("circuits", "circuits --json", "status", "status --json")
        }
        ways = ("/", "/circuits", f"/gpus/{GPU}", "/nodes/dgx-00", *(f"/circuits/{one.circuit.id}" for one in self.circuits))  # fmt: skip
        self.pages = {way: (await read(self.client, way)).text for way in ways}

    async def _typed(self, way: str, kind: type[Any]) -> Any:
        return decode((await self.client.text(way))[1].encode(), kind)

    def metric(self, name: str, **labels: str) -> float | None:
        """Return a sample of Prometheus; None where there is none."""
        for line in self.metrics.splitlines():
            if line.startswith(f"kilowatch_{name}{{") and all(
                f'{key}="{value}"' in line for key, value in labels.items()
            ):
                return float(line.rsplit(" ", 1)[1])
        return None

    def brief(self, name: str) -> CircuitState:
        """Return the circuit as the lists of the dashboard have it."""
        return next(one for one in self.state.circuits if one.id == name)


@pytest.fixture(scope="module")
def shown() -> Shown:
    async def looked() -> Shown:
        async with door(await lab()) as client:
            found = Shown(client)
            await found.look()
            return found

    return asyncio.run(looked())


def as_text(lines: Sequence[Line]) -> str:
    """Lines of the dashboard as text."""
    return "\n".join(line_text(line) for line in lines)


def screen(shown: Shown, reply: CircuitReply) -> str:
    """Return the circuit's page of the dashboard."""
    name = reply.circuit.id
    state = shown.state.with_doc(circuit_page(name), reply, 1.0)
    past = (np.empty(0), np.empty(0))
    return as_text(circuit_lines(state, name, past, Now(0.0), 200, 40, utc=True))


def table(shown: Shown, name: str) -> list[str]:
    """Return the circuit's row in the list of the dashboard."""
    rows = [(0, one) for one in shown.state.circuits]
    source = CircuitSource(shown.state, rows, Now(0.0), frozenset())
    place = next(n for n, (_, one) in enumerate(rows) if one.id == name)
    return [column.draw(source, place, 20)[0] for column in COLUMNS]


def listed(shown: Shown, name: str) -> str:
    """Return what `kilowatch circuits` says of a circuit."""
    text = shown.commands["circuits"]
    found = re.search(rf"(?m)^[│├└─ ]*{name}  .*\n(?:[│ ]+ .*\n)*", text)
    assert found is not None, text
    return found[0]


NAMES = ("main", *SITE["circuits"])


@pytest.mark.parametrize("name", NAMES)
def test_load_and_headroom_of_a_circuit_are_the_same_everywhere(shown: Shown, name: str) -> None:
    """The load of the last ten seconds, its share of the rating, and the watts below the continuous limit."""
    reply = next(one for one in shown.circuits if one.circuit.id == name)
    one = reply.circuit
    assert (load(one) is None) == (name == "unheard")
    of_load, of_rating = about(one, watts(load(one))), about(one, percent(share(one)))
    left = headroom_row(one).value
    page, all_, command = shown.pages[f"/circuits/{name}"], shown.pages["/circuits"], listed(shown, name)
    cells = re.search(rf" {name}(?: \(panel\))?(?: \S+,? ?)*? (no reading yet|~?[\d.]+ k?W) (\S+) ", all_)
    if load(one) is None:
        assert f"{load_row(one).label} {load_row(one).value}" in page
        assert "headroom —" in page
        assert load_row(one).value in command
        assert not re.search(r"\d W|\d kW", command.splitlines()[0])
        assert table(shown, name)[2] == table(shown, name)[-1] == left == "—"
    else:
        assert f"last 10 s {of_load} breaker load {of_rating}" in page
        assert f"headroom {left} " in page
        assert cells is not None
        assert cells.groups() == (of_load, of_rating)
        assert left in all_
        assert f"last 10 s {of_load}, headroom {left}" in command
        assert of_rating in command.splitlines()[0]
        assert table(shown, name)[2] == of_load
        assert table(shown, name)[4] == of_rating
        assert table(shown, name)[-1] == left
        assert f"last 10 s  {of_load}  breaker load  {of_rating} of " in screen(shown, reply)
        assert f"headroom  {left}" in screen(shown, reply)
    amps = shown.metric("circuit_headroom_amps", circuit=name)
    assert (amps is None) == (one.headroom_amps is None)
    assert amps is None or amps == pytest.approx(one.headroom_amps, abs=1e-3)
    now = shown.metric("circuit_watts", circuit=name)
    assert now == (None if one.watts is None else pytest.approx(one.watts, abs=0.1))


@pytest.mark.parametrize("name", NAMES)
def test_the_heat_of_a_breaker_is_the_same_everywhere(shown: Shown, name: str) -> None:
    reply = next(one for one in shown.circuits if one.circuit.id == name)
    ratio = reply.circuit.heat_ratio
    assert (ratio is None) == (name == "unheard")
    assert shown.metric("circuit_heat_ratio", circuit=name) == (
        None if ratio is None else pytest.approx(ratio, abs=1e-3)
    )
    assert shown.brief(name).heat_ratio == (None if ratio is None else pytest.approx(ratio, abs=1e-3))
    if ratio is None:
        assert "breaker heat not known" in shown.pages[f"/circuits/{name}"]
        assert "breaker heat  not known" in screen(shown, reply)
        assert "heat" not in listed(shown, name)
        return
    assert f"breaker heat {percent(ratio)} of what trips it" in shown.pages[f"/circuits/{name}"]
    assert f" {percent(ratio)} of what trips it" in screen(shown, reply)
    if reply.circuit.trip_known:
        assert f"breaker heat {percent(ratio)}" in listed(shown, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_time_to_trip_is_the_same_everywhere(shown: Shown, name: str) -> None:
    reply = next(one for one in shown.circuits if one.circuit.id == name)
    earliest = reply.circuit.trip_seconds.earliest
    assert (earliest is not None) == (name == "tight")
    places = (shown.pages[f"/circuits/{name}"], screen(shown, reply), listed(shown, name), " ".join(table(shown, name)))
    if earliest is None:
        assert not any(re.search("(?i)may trip|TRIP \\d", place) for place in places)
        assert shown.metric("circuit_trip_earliest_seconds", circuit=name) in {None, float("inf")}
        return
    words, clock = f"may trip in {estimated_duration(earliest)}", timer(earliest)
    page, large, command, row = places
    assert words in page
    assert words in command
    assert f"MAY TRIP IN {clock}" in large
    assert f"TRIP {clock}" in row
    assert f"TRIP {clock}" in as_text([bar.right for bar in circuit_bars(shown.state, Now(0.0), 9)])
    assert words in shown.pages["/"]
    assert words in shown.pages["/circuits"]
    assert f"MAY TRIP IN {clock}" in shown.commands["status"]
    assert as_json(shown.state, 0.0)["circuits"][0]["trip_earliest_seconds"] == pytest.approx(earliest, abs=0.1)
    assert shown.metric("circuit_trip_earliest_seconds", circuit=name) == pytest.approx(earliest, abs=0.1)


def test_the_power_of_the_fleet_is_the_same_everywhere(shown: Shown) -> None:
    """At the wall, of the nodes that report; of the GPUs, of those that report: one of four nodes is silent."""
    wall, gpus = shown.power.wall_watts, shown.summary["gpu_power_watts"]
    assert shown.power.wall_nodes == 3
    assert wall == pytest.approx(3900 + 6234 + 8123)
    assert gpus == pytest.approx(3 * (650 + 610))
    assert shown.metric("cluster_wall_power_watts") == shown.summary["wall_power_watts"] == pytest.approx(wall)
    assert shown.metric("cluster_gpu_power_watts") == pytest.approx(gpus)
    top = as_text(header(shown.state, LIVE, ScreenTime(100.0), 200))
    assert f"Wall ≥{watts(wall)} (3/4 nodes" in top
    assert f"GPU power {watts(gpus)}" in top or f"GPU power {watts(gpus)[:3]}/" in top
    assert f"At the wall ≥{watts(wall)} reported by 3 of 4 nodes" in shown.pages["/"]
    assert f"GPU power ≥{watts(gpus)} reported by 6 of 8 GPUs" in shown.pages["/"]
    assert "Circuits: last 10 s. GPUs: now." in shown.pages["/"], "a feed above the wall is of another time"
    assert "tight , last 10 s: continuous limit" in shown.pages["/"]
    assert f" wall={wall:.0f}" in shown.commands["status"]
    found = json.loads(shown.commands["status --json"])
    assert (found["wall_watts"], found["gpu_power_watts"]) == (pytest.approx(wall), pytest.approx(gpus))
    assert f"Wall ≥{watts(wall)}" in as_text([[(line, "")] for line in text_lines(shown.state, 0.3)])
    assert json.loads(shown.commands["circuits --json"])["power"]["wall_watts"] == pytest.approx(wall)


def test_the_readings_of_a_gpu_are_the_same_everywhere(shown: Shown) -> None:
    power, heat = (shown.gpu.readings[name] for name in ("gpu_power_watts", "gpu_temperature_celsius"))
    state: DashboardState = shown.state.with_doc(gpu_page(GPU), shown.gpu, 1.0)
    large = as_text(gpu_lines(state, GPU, 60, 160, 40, utc=True))
    for text in (watts(power), celsius(heat)):
        assert text in large
        assert text in shown.pages[f"/gpus/{GPU}"].replace(".0 ", " ")
        assert text in shown.pages["/nodes/dgx-00"].replace(".0 ", " ")
    assert shown.metric("gpu_power_watts", uuid=GPU) == pytest.approx(power)
    assert shown.metric("gpu_temperature_celsius", uuid=GPU) == pytest.approx(heat)
