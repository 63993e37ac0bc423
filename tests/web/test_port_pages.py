"""Pages of ports, of the fleet's fitness and of drift: content, links, and what is not known."""

from __future__ import annotations

import math
from urllib.parse import quote

import msgspec
import pytest

from aggregator.web.device_tables import readings_table
from aggregator.web.fleet_pages import drift_body, fitness_body, fitness_chart
from aggregator.web.incident_page import subject_link
from aggregator.web.port_pages import places_line, ports_body
from api.alerts import Alert, AlertState, Severity, Subject
from api.drift import Deviation, DriftReply, MixedFact, NodeGroup
from api.fitness import FitnessReply, FitnessSample, FleetFitness
from api.ports import PortGroup, PortLine, PortsReply, faults
from telemetry.catalogue import CATALOGUE
from telemetry.devices import PORT_PREFIX, Port
from telemetry.gap import TIMED_OUT
from telemetry.text import rfc3339
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import PORT_SLOW, SCHEMA
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import door
from tests.web.test_pages import Page, points, read

EVIL = "<img src=x>"
DOWN, SLOW, UNREAD, WELL = (
    {"port_state": 1.0},
    {"port_state": 4.0, "port_speed_bytes_per_second": 25e9, "port_speed_usual_bytes_per_second": 50e9},
    {"port_state": TIMED_OUT},
    {"port_state": 4.0, "port_speed_bytes_per_second": 50e9, "port_symbol_errors_total": 3.0,
     "port_receive_errors_total": 4.0, "port_corrected_errors_total": 9e9},
)  # fmt: skip


def with_ports(node: str) -> Inventory:
    ports = tuple(
        Port(
            id=f"{PORT_PREFIX}{node}:0000:{number:02x}:00.0/1",
            adapter=f"mlx5_{number}",
            number=1,
            rail=number,
            role="compute",
            gpu=f"GPU-{node}-{number % 2}",
            switch="leaf-1" if number < 3 else None,
            switch_port=f"{number}/1",
            model="MT4129",
        )
        for number in range(4)
    )
    return msgspec.structs.replace(inventory(node), ports=ports)


def rows_of(*wanted: dict[str, float]) -> dict[int, list[list[float]]]:
    """Readings of the ports; what is not named is not read."""
    names = SCHEMA.blocks[PORT_SLOW].names
    return {PORT_SLOW: [[each.get(name, TIMED_OUT) for name in names] for each in wanted]}


async def fabric() -> FakeView:
    """A node with four ports: down with a page, slow, not read, and well with errors."""
    view = FakeView("lab")
    view.add(with_ports("n1"))
    view.put("n1", rows_of(DOWN, SLOW, UNREAD, WELL), 1)
    await view.flush()
    first = view.fleet.nodes["n1"].inventory.ports[0]
    view.raised = [
        Alert(
            key=f"port_down/n1/{first.id}",
            rule="port_down",
            state=AlertState.FIRING,
            severity=Severity.PAGE,
            node="n1",
            subject=Subject.PORT,
            summary="port mlx5_0/1 is down",
            labels={"port": "mlx5_0/1"},
        )
    ]
    return view


async def test_ports_are_listed_worst_first_by_switch_and_rail() -> None:
    async with door(await fabric()) as client:
        _, found = await client.json("/api/v1/ports")
        assert [line["name"] for line in found["lines"]] == [f"mlx5_{number}/1" for number in range(4)]
        worst, slow, unread, well = found["lines"]
        assert (worst["state"], worst["up"], worst["pages"], worst["gpu"]) == ("down", False, 1, 0)
        assert (slow["slow"], unread["state"], unread["up"]) == (True, "timed out", None)
        assert well["errors"] == 7  # corrected ones are no fault
        switch = found["groups"][0]
        assert (switch["name"], switch["ports"], switch["up"], switch["down"], switch["unknown"]) == ("leaf-1", 3, 1, 1, 1)  # fmt: skip
        _, short = await client.json("/api/v1/ports?limit=1")
        assert [len(short["lines"]), short["ports"]] == [1, 4]
        page = await read(client, "/ports")
        assert not page.faults
        assert page.text.index("mlx5_0/1") < page.text.index("mlx5_3/1")
        assert "200 Gb/s" in page.text
        assert "mlx5_3/1" not in (await read(client, "/ports?q=leaf-1")).text


def test_the_first_page_has_one_line_of_ports_whatever_is_wrong() -> None:
    """A table of places would push what is below it off the screen when a node falls silent."""
    well = PortGroup(kind="rail", name="0", nodes=2, ports=2, up=2)
    rails = [well, PortGroup(kind="rail", name="1", nodes=2, ports=3, up=3)]
    assert "All of 5 ports of 2 rails are up" in places_line(rails, "rail", 4)
    assert places_line(rails, "switch", 4) == "", "none is known"
    for fault, words in (
        ({"up": 2, "unknown": 1}, "4 of 5 ports of 2 rails are up; 1 not known: rail 1."),
        ({"up": 2, "down": 1}, "4 of 5 ports of 2 rails are up; 1 down: rail 1."),
        ({"slow": 1}, "5 of 5 ports of 2 rails are up; 1 slow: rail 1."),
        ({"firing": 1}, "5 of 5 ports of 2 rails are up; 1 with alerts: rail 1."),
    ):
        ill = msgspec.structs.replace(rails[1], **fault)
        assert words in places_line([well, ill], "rail", 4)
    leaves = [PortGroup(kind="switch", name=f"leaf-{n}", nodes=1, ports=2, up=1, down=1) for n in range(9)]
    page = Page(places_line(leaves, "switch", 2))
    assert "9 of 18 ports of 9 switches are up; 9 down: switches leaf-0 , leaf-1 and 7 more." in page.text
    assert page.links == ["ports?q=leaf-0", "ports?q=leaf-1"]
    assert "<img" not in places_line([msgspec.structs.replace(leaves[0], name=EVIL)], "switch", 2)


async def test_a_node_lists_its_ports_and_each_has_a_page() -> None:
    async with door(await fabric()) as client:
        node = await read(client, "/nodes/n1")
        first = "port:n1:0000:00:00.0/1"
        way = f"ports/{quote(first, safe='')}"
        assert any(link.endswith(way) for link in node.links)
        page = await read(client, f"/{way}")
        assert not page.faults
        for words in ("port mlx5_0/1 is down", "leaf-1", "MT4129", "compute"):
            assert words in page.text
        assert any(link.endswith("gpus/GPU-n1-0") for link in page.links)
        status, _, _ = await client.text("/ports/port%3An1%3Anone")
        assert status == 404


async def test_the_traffic_of_a_port_is_drawn_as_a_rate_with_the_speed_as_its_limit() -> None:
    """A counter that begins anew and a reading that is missing are holes, never a rate; what was never read has no chart."""
    view = await fabric()
    last = view.fleet.nodes["n1"].inventory.ports[3].id
    start = view.wall() // 10**9 * 10**9 - 10 * 15 * 10**9
    counts = [0.0, 75e9, 150e9, math.nan, 300e9, 375e9, 5e9, 80e9, 155e9, 230e9]  # 5 GB/s
    view.memory.values[last, "port_receive_bytes_total"] = [
        (start + number * 15 * 10**9, count) for number, count in enumerate(counts)
    ]
    span = f"?from={rfc3339(start)}&to={rfc3339(view.wall())}"
    async with door(view) as client:
        status, body, _ = await client.text(f"/ports/{quote(last, safe='')}{span}")
    assert status == 200
    shown = points(body, "receive")
    assert shown == pytest.approx(
        {15.0: 40.0, 30.0: 40.0, 60.0: 40.0, 75.0: 40.0, 105.0: 40.0, 120.0: 40.0, 135.0: 40.0}
    )
    assert "400" in body  # Gb/s, its speed
    assert "transmit" not in body.partition("Readings")[0]


async def test_an_alert_about_a_port_leads_to_its_page() -> None:
    (alert,) = (await fabric()).raised
    assert f'href="ports/{quote("port:n1:0000:00:00.0/1", safe="")}"' in subject_link(alert)


def test_the_errors_of_a_port_are_rows_of_the_catalogue() -> None:
    assert set(faults()) == {metric.name for metric in CATALOGUE if metric.is_fault}
    assert all(name.startswith("port_") for name in faults())
    assert "port_corrected_errors_total" not in faults()
    assert "port_symbol_errors_total" in faults()


def test_names_from_nodes_are_escaped_on_the_page_of_ports() -> None:
    line = PortLine(id=EVIL, node=EVIL, name=EVIL, role=EVIL, switch=EVIL, state=EVIL)
    group = PortGroup(kind="switch", name=EVIL, ports=1)
    body = ports_body(PortsReply(at=1, ports=1, groups=[group], lines=[line]), EVIL, 1)
    assert EVIL not in body
    assert "&lt;img" in body


def test_many_ports_have_pages() -> None:
    lines = [PortLine(id=str(n), node="n", name=f"p{n}") for n in range(250)]
    body = ports_body(PortsReply(at=1, ports=250, lines=lines), "", 2)
    assert "250 ports, page 2 of 3" in body
    assert "ports?page=3" in body
    assert "p100<" in body
    assert "p99<" not in body


def test_the_score_is_drawn_over_time_and_a_gap_stays_a_gap() -> None:
    at = [n * 300 * 10**9 for n in range(5)]
    scores = (100, 90, None, 95, 100)
    history = [FitnessSample(time, score, 1, 0, 0, 0) for time, score in zip(at, scores, strict=True)]
    drawn = fitness_chart(history)
    assert drawn.count('class="line"') == 2
    assert "up to 100.0" in drawn
    assert "no two yet" in fitness_chart(history[:1])
    body = fitness_body(FitnessReply(at=1, fleet=FleetFitness(), history=history))
    assert "<svg" in body


def test_deviations_are_shown_by_kind_with_what_should_be() -> None:
    one = Deviation(node="n7", fact="driver", has="570", most_have=EVIL, nodes=9, of=10)
    declared = Deviation(node="n8", fact="gpus", has="7", most_have="8", nodes=0, of=0, declared=True)
    group = NodeGroup(
        name="DGX",
        nodes=10,
        evaluated=True,
        deviations=[one, declared],
        mixed=[MixedFact(fact="bios", values={"1.2": 5, "1.3": 5})],
        unknown={"memory": 2},
    )
    body = drift_body(DriftReply(at=1, nodes=10, groups=[group]))
    assert EVIL not in body
    for words in ("9 of 10", "declared", "5 x 1.2", "memory of 2 nodes", 'href="nodes/n7"'):
        assert words in body
    assert "too few" in drift_body(DriftReply(at=1, nodes=1, groups=[NodeGroup(name="x", nodes=1, evaluated=False)]))


def test_the_speed_of_a_port_is_read_as_people_name_it() -> None:
    table = readings_table({"port_speed_bytes_per_second": 50e9}, {})
    assert "400 Gb/s" in table
