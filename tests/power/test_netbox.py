"""NetBox's records become circuits, never derated twice."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from power.netbox import translate, write
from power.site.decode import decode
from power.site.layout import SiteLayout, lay_out
from telemetry.errors import ConfigError
from tests.power.netbox_records import Pages, Record, brief, feed, inlet, outlet, pages


def imported(found: Pages, **options: Any) -> tuple[str, SiteLayout]:
    """The text, and the layout that it gives: it must be ready to paste."""
    text = write(translate("nb", found, **options), "nb")
    return text, lay_out("nb", decode("nb", tomllib.loads(text)))


def test_a_feed_of_netbox_defaults_is_1440_watts_and_not_1152() -> None:
    """Golden test 10: 120 V, 15 A, 80 %. The breaker stays a breaker, so that it can trip."""
    text, layout = imported(pages([feed(1, "office")]))
    circuit = layout.circuits["office"]
    assert circuit.continuous_amps * circuit.volts == pytest.approx(1440)
    assert (circuit.rated_amps, circuit.continuous_amps) == (15, 12)
    assert circuit.curve is not None
    assert "available in NetBox: 1,440 W" in text


@pytest.mark.parametrize("available", [1440, 1440.0, None])
def test_what_netbox_calls_available_is_never_derated_again(available: float | None) -> None:
    text, layout = imported(pages([feed(1, "office", available_power=available)]))
    assert layout.circuits["office"].continuous_amps == 12
    assert "NetBox itself has" not in text
    assert "NetBox itself has 1,200 W" in imported(pages([feed(1, "office", available_power=1200)]))[0]


def test_a_three_phase_pair_of_a_rack_with_its_nodes() -> None:
    """208 V, 60 A: 17.3 kW each; two feeds of one rack stand in for each other; supplies by inlet."""
    rack, dgx = brief(9, "R12"), (7, "dgx-01")
    three: Record = {"phase": "three-phase", "voltage": 208, "amperage": 60, "rack": rack}
    panels = [{**brief(1, "RPP1-A"), "site": None}, {**brief(2, "RPP1-B"), "site": None}]
    feeds = [feed(1, "R12-A", 1, **three), feed(2, "R12-B", 2, type="redundant", **three)]
    pdus = [(20, "pdu-a"), (21, "pdu-b")]
    ports = [inlet(30, pdus[0], "in", ("dcim.powerfeed", 1)), inlet(31, pdus[1], "in", ("dcim.powerfeed", 2))]
    ports += [inlet(40 + n, dgx, f"PSU{n}", ("dcim.poweroutlet", 50 + n), allocated_draw=1700) for n in range(1, 7)]
    outlets = [outlet(50 + n, pdus[(n - 1) // 3], 30 + (n - 1) // 3, "ABC"[n % 3]) for n in range(1, 7)]
    text, layout = imported(pages(feeds, ports, outlets, panels))
    a, b = layout.circuits["R12-A"], layout.circuits["R12-B"]
    assert (a.continuous_amps, a.group, b.group, a.scheme, a.parent, b.parent) == (
        48,
        "R12",
        "R12",
        "2N",
        "RPP1-A",
        "RPP1-B",
    )
    assert a.continuous_amps * a.volts * 3 == pytest.approx(17_293, rel=0.001)
    assert [(cord.circuit, round(cord.share, 3)) for cord in layout.cords] == [("R12-A", 0.167)] * 3 + [
        ("R12-B", 0.167)
    ] * 3
    assert list(layout.machines) == ["dgx-01"]
    assert "# inlet PSU1: it is on leg B: if that is L2-L3" in text
    assert "drawn in NetBox: 10,200 W over 6 inlets" in text
    assert layout.site.circuits["R12-A"].rack == "R12"
    assert imported(pages(feeds, ports, outlets, panels), draws=True)[1].machines["dgx-01"].fixed_watts == 10_200


@pytest.mark.parametrize("old", [False, True], ids=["3.3 and newer", "before 3.3"])
def test_a_cable_straight_to_the_feed_in_both_forms(old: bool) -> None:
    ports = [inlet(5, (1, "rig1"), "PSU", ("dcim.powerfeed", 1), old=old)]
    assert [cord.circuit for cord in imported(pages([feed(1, "office")], ports))[1].cords] == ["office"]


def test_a_cable_that_only_the_feed_tells() -> None:
    end: Record = {"connected_endpoints": [brief(5, "PSU")], "connected_endpoints_type": "dcim.powerport"}
    ports = [inlet(5, (1, "rig1"), "PSU", None)]
    assert [cord.circuit for cord in imported(pages([feed(1, "office", **end)], ports))[1].cords] == ["office"]


def test_what_cannot_be_carried_over_is_a_comment_where_it_belongs() -> None:
    three: Record = {"phase": "three-phase", "voltage": 230, "amperage": 32}
    feeds = [feed(1, "big", **three), feed(2, "small"), feed(3, "telco", supply="dc", voltage=-48),
             feed(4, "full", max_utilization=100), feed(5, "lost", panel=8, status="planned")]  # fmt: skip
    ports = [inlet(1, (1, "loose"), "PSU", None), inlet(2, (2, "far"), "PSU", ("dcim.powerfeed", 77)),
             inlet(3, (3, "odd"), "PSU", ("dcim.poweroutlet", 9)), inlet(4, (4, "pdu"), "in", ("dcim.poweroutlet", 9)),
             inlet(5, (5, "front"), "PSU", ("dcim.frontport", 9))]  # fmt: skip
    text, layout = imported(pages(feeds, ports, [outlet(9, (4, "pdu"), 4)]))
    assert set(layout.circuits) == {"PP1", "big", "small", "full", "lost"}
    for told in (
        "is 230 to neutral? Then write 398",
        'write panel = "PP1" and phase = "L1"',
        "feed telco: direct current (48 V, 15 A)",
        "right only where the amperage is derated already",
        "its panel (id 8) is not among",
        "its status is planned",
        "loose: inlet PSU: it has no cable",
        "far: inlet PSU: its feed (id 77) is not among",
        "odd: inlet PSU: the units before it feed each other",
        "front: inlet PSU: it is connected to no feed",
    ):
        assert told in text
    assert all(line.startswith(("#", "[", "")) for line in text.splitlines())


@pytest.mark.parametrize(
    ("kinds", "groups", "comment"),
    [
        ("PP", {}, "2 primary and 0 redundant feeds make no group"),
        ("PPR", {"R1": "N+1"}, ""),
        ("PRPR", {"R1/1": "2N", "R1/2": "2N"}, "paired by name: f0 with f1, f2 with f3"),
        ("PRR", {}, "1 primary and 2 redundant feeds make no group"),
    ],
)
def test_feeds_of_one_rack(kinds: str, groups: dict[str, str], comment: str) -> None:
    rack = brief(1, "R1")
    feeds = [
        feed(n, f"f{n}", rack=rack, type="redundant" if kind == "R" else "primary") for n, kind in enumerate(kinds)
    ]
    text, layout = imported(pages(feeds))
    assert {circuit.group: circuit.scheme for circuit in layout.circuits.values() if circuit.group} == groups
    assert comment in text


def test_names_that_are_used_twice_or_would_write_settings() -> None:
    """Feeds are unique within a panel, panels within a site; a name can hold anything."""
    panels = [{**brief(1, "P"), "site": brief(1, "a")}, {**brief(2, "P"), "site": brief(2, "b")}]
    evil = 'x"]\nbreaker = 99\n# \x7f\t{'
    feeds = [feed(1, "1", 1), feed(2, "1", 2), feed(3, evil, 1, rack=brief(3, evil)), feed(4, "a/P", 1)]
    text, layout = imported(pages(feeds, [inlet(1, (1, evil), evil, None)], panels=panels))
    assert set(layout.circuits) == {"a/P", "b/P", "a/P/1", "b/P/1", evil, "a/P/a/P"}
    assert layout.site.circuits[evil].breaker == 15
    assert "\nbreaker = 99" not in text


@pytest.mark.parametrize(
    "broken",
    [
        {"power-feeds": [{"name": "no id"}]},
        {"power-feeds": ["text"]},
        {"power-feeds": [feed(1, "x", voltage=None)]},
        {"power-feeds": [feed(1, "x", max_utilization=0)]},
        {"power-ports": [{"id": 1, "name": "x"}]},
    ],
    ids=["no id", "no object", "no volts", "nothing used", "no device"],
)
def test_what_no_netbox_says(broken: Pages) -> None:
    with pytest.raises(ConfigError, match="nb: power-"):
        translate("nb", pages([]) | broken)
