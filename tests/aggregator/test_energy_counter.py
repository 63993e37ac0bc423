"""Counted energy without circuits and meters: days, the month's idle GPUs, and nodes on no circuit."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.electrical.energy_counter import EnergyCounter, UnmappedNodes
from aggregator.electrical.site_loader import load_site
from power.report.month_ledger import UNMAPPED, MonthLedger
from tests.aggregator.test_electrical import SITE, Room


def counted(room: Room, seconds: int, unmapped: tuple[str, ...] | None) -> EnergyCounter:
    """Count a room for some seconds, of which the first has nothing before it."""
    site = load_site("power", SITE)
    counter = EnergyCounter(MonthLedger(site.zone), site)
    for _ in range(seconds):
        room.now += 1
        for node in room.fleet.nodes:
            room.say(node, gpu_power_watts=100.0, gpu_utilization_ratio=0.0)
        sample = counter.sample(room.fleet, room.now, ("rig",), None)
        counter.count(sample, room.now, room.wall, unmapped)
    return counter


def test_what_nodes_draw_adds_up_by_day_with_its_price() -> None:
    counter = counted(Room("rig", "stray"), 101, ("stray",))
    (day,) = counter.ledger.days.values()
    assert counter.reporting_nodes == 2
    watts = sum(counter.node_watts().values())
    assert day.joules == pytest.approx(watts * 100, rel=0.02)
    assert counter.price(Room("rig").wall) == 0.2


@pytest.mark.parametrize(("unmapped", "rows"), [(("stray",), (UNMAPPED,)), ((), ()), (None, (UNMAPPED,))])
def test_nodes_on_no_circuit_have_a_row_of_the_month(unmapped: Any, rows: tuple[str, ...]) -> None:
    """None: there are no circuits at all."""
    counter = counted(Room("rig", "stray"), 11, unmapped)
    profile = counter._months.profile
    assert profile is not None
    assert profile.names == rows
    assert counter._months.idle.totals()["stray"][:2] == pytest.approx((40.0, 40.0))


def test_a_new_configuration_keeps_what_nodes_on_no_circuit_drew_last() -> None:
    counter = counted(Room("rig", "stray"), 3, ("stray",))
    before = counter.unmapped()
    assert before.keys() == {"stray"}
    counter.follow(load_site("power", {**SITE, "site": {"tariff": 0.3, "timezone": "UTC"}}))
    assert counter.unmapped() == before
    assert counter.price(Room("rig").wall) == 0.3
    counter.forget("stray")
    assert counter.unmapped() == {}


def test_a_node_on_no_circuit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    layout, room, nodes = load_site("power", SITE).layout, Room("rig", "stray"), UnmappedNodes()
    assert nodes.version != room.fleet.version
    for _ in range(2):
        nodes.update(room.fleet, layout)
    assert (nodes.names, nodes.version) == (("stray",), room.fleet.version)
    assert caplog.text.count("stray hang on no circuit") == 1
    nodes.renew()
    assert nodes.version != room.fleet.version
    nodes.forget("stray")
    nodes.update(room.fleet, layout)
    assert caplog.text.count("stray hang on no circuit") == 2
    nodes.update(room.fleet, None)
    assert nodes.names == ()
