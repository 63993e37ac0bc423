"""Faults of meters, feeds, panels, transfer switches and clocks, in the real aggregator under virtual time.

Nothing resolves that is not over, no heat is further than 5 % from that of a circuit without the fault, no
counter falls, and the energy is within 1 % of the truth or says what is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.alerts import Severity
from tests.faults.power_scene import PowerScene

pytestmark = pytest.mark.systems
PAGES = {"circuit_continuous", "circuit_overload", "circuit_thermal_hot"}


def meter(on: str, *, counter: bool = False) -> dict[str, Any]:
    """Settings of a meter of a circuit."""
    values = [{"path": "watts", "unit": "W"}]
    if counter:
        values.append({"path": "joules", "unit": "J"})
    return {"type": "json", "topic": on, "values": values, "on": on}


def scene_of(folder: Path, site: dict[str, Any], *names: str) -> PowerScene:
    """Return a scene with nodes of these names."""
    return PowerScene(folder, site=site, names=list(names))


def told(scene: PowerScene, name: str) -> set[str]:
    """Return the rules that fire on a circuit."""
    return {rule for rule, one in scene.firing() if one == name}


def near(scene: PowerScene, name: str, twin: str) -> None:
    """Check a circuit's heat against that of one without the fault."""
    assert scene.value("heat_ratio", name) == pytest.approx(scene.value("heat_ratio", twin), rel=0.05, abs=0.005)


def energy(scene: PowerScene, name: str, watts: float) -> None:
    """Check a circuit's energy within 1 % of an hour at such a load, and that its counter has never
    fallen."""
    truth = scene.joules[f"m-{name}"]
    assert scene.counted(name) == pytest.approx(truth, abs=0.01 * 3600 * watts)
    assert scene.seen[name] == sorted(scene.seen[name])


def office(*names: str) -> dict[str, Any]:
    """Return a site of circuits with a node each, all metered but the last one."""
    return {
        "region": "US",
        "circuits": {name: {"breaker": 20, "volts": 120, "pf": 1.0, "nodes": [f"n{name}"]} for name in names},
        "nodes": {f"n{name}": {"gpus": "2x RTX 5090"} for name in names},
        "meters": {f"m-{name}": meter(name) for name in names[:-1]},
    }


async def at_load(scene: PowerScene, gpu_watts: float) -> float:
    """Let all nodes draw so much in each GPU; return what each draws at the wall."""
    scene.gpu_watts.update(dict.fromkeys(scene.names, gpu_watts))
    await scene.second()
    await scene.second()
    return scene.value("watts", "c")


async def test_a_meter_that_freezes_hides_no_overload(tmp_path: Path) -> None:
    """It reads 0.6 of the rating for ever while its node goes to 1.13 of it."""
    async with scene_of(tmp_path, office("a", "b", "c"), "na", "nb", "nc").running() as scene:
        low = await at_load(scene, 560.0)
        scene.draws.update({"m-a": low, "m-b": low})
        await scene.pass_seconds(120, every=2)
        scene.says["m-a"] = low
        high = await at_load(scene, 1090.0)
        assert high > 1.1 * 20 * 120
        scene.draws.update({"m-a": high, "m-b": high})
        await scene.until(lambda: told(scene, "b") >= PAGES)
        near(scene, "a", "b")  # before anybody knows that the meter is frozen
        await scene.until(lambda: told(scene, "a") >= PAGES, most=120)
        assert "circuit_meter_wrong" in told(scene, "a")
        await scene.pass_seconds(300, every=2)
        near(scene, "a", "b")
        assert told(scene, "a") >= PAGES
        assert scene.resolved == []
        assert "without any change" in scene.facts("a")["meter"]
        assert scene.state("a") != "measured"


async def test_a_meter_that_freezes_high_holds_its_page_until_it_is_known(tmp_path: Path) -> None:
    """What it says ends with the overload's pages only when its nodes have shown for a minute that it is
    wrong; then they do end."""
    async with scene_of(tmp_path, office("a", "b", "c"), "na", "nb", "nc").running() as scene:
        high = await at_load(scene, 1090.0)
        scene.draws.update({"m-a": high, "m-b": high})
        await scene.until(lambda: told(scene, "a") >= PAGES and told(scene, "b") >= PAGES)
        scene.says["m-a"] = high
        low = await at_load(scene, 200.0)
        scene.draws.update({"m-a": low, "m-b": low})
        await scene.until(lambda: not PAGES & told(scene, "b"))
        await scene.until(lambda: not PAGES & told(scene, "a"), most=300)
        assert "circuit_meter_wrong" in told(scene, "a")


def pair(meters: bool = True) -> dict[str, Any]:
    """Return two panels with two racks, a node of one cord below A, and circuits of the same loads."""
    circuits: dict[str, Any] = {
        f"{side}{rack}": {
            "panel": f"P{side.upper()}", "breaker": 16, "phase": f"L{rack}", "pf": 1.0,
            "redundancy": {"group": f"rack{rack}", "role": side.upper()},
        }
        for side in "ab" for rack in (1, 2)
    }  # fmt: skip
    circuits["single"] = {"panel": "PA", "breaker": 16, "phase": "L3", "pf": 1.0}
    for twin in ("gone", "kept"):
        circuits[twin] = {"breaker": 16, "volts": 230, "pf": 1.0}
    nodes: dict[str, Any] = {
        f"n{rack}": {"gpus": "4x RTX 5090", "cords": [{"circuit": f"a{rack}"}, {"circuit": f"b{rack}"}]}
        for rack in (1, 2)
    }
    nodes["n3"] = {"gpus": "2x RTX 5090", "cords": [{"circuit": "single"}]}
    metered = [name for name in circuits if name != "single"] if meters else []
    return {
        "region": "EU",
        "panels": {f"P{side}": {"breaker": 63, "volts": 400, "wiring": "3ph-wye"} for side in "AB"},
        "circuits": circuits,
        "nodes": nodes,
        "meters": {f"m-{name}": meter(name) for name in metered},
    }


def both_feeds(scene: PowerScene, watts: float) -> None:
    """Let every feed carry so much."""
    for name in scene.site["meters"]:
        scene.draws[name] = watts


def lose_feed(scene: PowerScene, *racks: int) -> None:
    """Let B carry what both did; the circuits without the fault do the same."""
    half = scene.draws["m-kept"]
    for rack in racks:
        scene.draws.update({f"m-a{rack}": 0.0, f"m-b{rack}": 2 * half})
    scene.draws.update({"m-gone": 0.0, "m-kept": 2 * half})


@pytest.mark.parametrize("silent", [False, True], ids=["reads 0 W", "silent"])
async def test_a_lost_feed_is_told_whether_its_meter_speaks_or_not(tmp_path: Path, silent: bool) -> None:
    """The unit's meter dies with the feed, or says 0 W; the other feed is above its rating for as long."""
    async with scene_of(tmp_path, pair(), "n1", "n2", "n3").running() as scene:
        scene.gpu_watts.update(dict.fromkeys(scene.names, 700.0))
        both_feeds(scene, 2100.0)
        await scene.pass_seconds(500, every=5)
        await scene.pass_seconds(5)
        lose_feed(scene, 1)
        if silent:
            scene.silent.add("m-a1")
        await scene.until(lambda: "circuit_feed_lost" in told(scene, "a1"), most=60)
        await scene.until(lambda: {"circuit_continuous", "circuit_overload"} <= told(scene, "b1"))
        assert not scene.resolved
        await scene.pass_seconds(200, every=5)
        near(scene, "b1", "kept")
        near(scene, "a1", "gone")
        assert scene.value("watts", "a1") == 0
        assert "circuit_feed_lost" not in told(scene, "a2")
        # The other feed's meter falls silent, too: that is no return.
        scene.silent.add("m-b1")
        await scene.pass_seconds(60, every=5)
        scene.silent.remove("m-b1")
        await scene.pass_seconds(10)
        assert not {one for one in scene.resolved if one[0] in PAGES | {"circuit_feed_lost"}}
        scene.silent.clear()
        both_feeds(scene, 2100.0)
        await scene.until(lambda: "circuit_feed_lost" not in told(scene, "a1"))
        await scene.pass_seconds(400, every=5)
        near(scene, "a1", "gone")
        energy(scene, "a1", 2100.0)
        # Its own meter was silent for a while: what was not measured is said, and not invented.
        missing = scene.value("energy_missing_seconds", "b1")
        assert 0 < missing < 90
        assert scene.counted("b1") <= scene.joules["m-b1"] + 0.01 * 3600 * 2100
        assert scene.counted("b1") >= scene.joules["m-b1"] - 4200 * missing - 0.01 * 3600 * 2100


async def test_the_load_of_a_silent_meter_is_not_lost_where_the_machines_draw_more(tmp_path: Path) -> None:
    """Both feeds carry twice as much, and the meter of one of them falls silent in the same second."""
    async with scene_of(tmp_path, pair(), "n1", "n2", "n3").running() as scene:
        scene.gpu_watts.update(dict.fromkeys(scene.names, 300.0))
        await scene.pass_seconds(3)
        inside = 300.0 * 2
        both_feeds(scene, 700.0)
        await scene.pass_seconds(100, every=2)
        scene.gpu_watts.update(dict.fromkeys(scene.names, 900.0))
        assert inside < 900.0 * 2
        both_feeds(scene, 2000.0)
        scene.silent.add("m-a1")
        await scene.pass_seconds(100, every=2)
        assert scene.value("feed_lost", "a1") == 0
        assert scene.state("a1") == "last known"
        assert scene.value("watts", "a1") > 1000


async def test_a_lost_panel_is_told_at_each_of_its_feeds(tmp_path: Path) -> None:
    """All meters below it are silent, and so is the node that hangs on it alone."""
    async with scene_of(tmp_path, pair(), "n1", "n2", "n3").running() as scene:
        scene.gpu_watts.update(dict.fromkeys(scene.names, 700.0))
        both_feeds(scene, 2100.0)
        await scene.pass_seconds(500, every=5)
        await scene.pass_seconds(5)
        single = scene.value("watts", "single")
        drawn = single * (scene.clock.seconds - 1000.0)
        heat = scene.value("heat_ratio", "single")
        lose_feed(scene, 1, 2)
        scene.silent |= {"m-a1", "m-a2"}
        scene.names.remove("n3")
        for rack in (1, 2):
            await scene.until(lambda: "circuit_feed_lost" in told(scene, f"a{rack}"), most=60)  # noqa: B023 - called at once
        await scene.pass_seconds(400, every=5)
        for rack in (1, 2):
            near(scene, f"b{rack}", "kept")
            near(scene, f"a{rack}", "gone")
            assert told(scene, f"b{rack}") >= {"circuit_continuous", "circuit_overload"}
            energy(scene, f"a{rack}", 2100.0)
            energy(scene, f"b{rack}", 2100.0)
        assert not scene.resolved
        # Nobody measures the node that is off: it is assumed, cools no breaker, and is no energy.
        assert scene.state("single") in {"assumed", "last known"}
        assert scene.value("heat_ratio", "single") >= heat
        assert scene.counted("single") == pytest.approx(drawn, rel=0.01)
        assert scene.value("energy_missing_seconds", "single") > 350
        both_feeds(scene, 2100.0)
        scene.silent.clear()
        scene.names.append("n3")
        await scene.until(lambda: not {one for one in scene.firing() if one[0] == "circuit_feed_lost"})


def switched(*metered: str) -> dict[str, Any]:
    """Return a transfer switch between two panels, with two nodes behind it."""
    panel = {"breaker": 32, "volts": 400, "wiring": "3ph-wye"}
    return {
        "region": "EU",
        "panels": {"PA": panel, "PB": panel, "left": panel, "taken": panel},
        "transfers": {"ats": {"preferred": "PA", "alternate": "PB"}},
        "circuits": {
            f"c{n}": {"parent": "ats", "breaker": 20, "phase": f"L{n}", "nodes": [f"n{n}"]} for n in (1, 2, 3)
        },
        "nodes": {f"n{n}": {"gpus": "4x RTX 5090"} for n in (1, 2, 3)},
        "meters": {f"m-{name}": meter(name) for name in metered},
    }


async def test_a_transfer_switch_that_moves_takes_its_load_with_it(tmp_path: Path) -> None:
    """The meter of the input that it left is right to read nothing; and back again."""
    site = switched("PA", "PB", "left", "taken")
    async with scene_of(tmp_path, site, "n1", "n2", "n3").running() as scene:
        scene.gpu_watts.update(dict.fromkeys(scene.names, 1100.0))
        load = 8000.0
        before = {"m-PA": load, "m-left": load, "m-PB": 300.0, "m-taken": 300.0}
        after = {"m-PA": 0.0, "m-left": 0.0, "m-PB": load + 300, "m-taken": load + 300}
        scene.draws.update(before)
        await scene.pass_seconds(500, every=5)
        scene.draws.update(after)
        await scene.pass_seconds(60, every=5)
        assert scene.value("watts", "PA") == 0
        assert scene.value("watts", "PB") == pytest.approx(load + 300)
        assert scene.facts("ats")["input"].startswith("PB")
        await scene.pass_seconds(700, every=5)
        near(scene, "PA", "left")
        near(scene, "PB", "taken")
        for name in ("PA", "PB"):
            assert not told(scene, name) & {"circuit_meter_wrong", "circuit_mismatch"}
            assert scene.value("meter_fault", name) == 0
        scene.draws.update(before)
        await scene.pass_seconds(500, every=5)
        assert "input" not in scene.facts("ats")
        near(scene, "PA", "left")
        near(scene, "PB", "taken")
        for name in ("PA", "PB"):
            energy(scene, name, load)
        assert not {one for one in scene.resolved if one[1] in {"PA", "PB", "ats"}}


@pytest.mark.parametrize("step", [3600.0, -3600.0], ids=["an hour ahead", "an hour back"])
async def test_a_step_of_the_wall_clock_changes_nothing(tmp_path: Path, step: float) -> None:
    """One circuit with a meter's counter, one without, at 1.13 of the rating; and over a restart."""
    one = {"breaker": 20, "volts": 120, "pf": 1.0}
    site = {
        "region": "US",
        "circuits": {"a": one, "b": one},
        "meters": {"m-a": meter("a", counter=True), "m-b": meter("b")},
        "budgets": {"all": {"kw": 50, "circuits": ["a", "b"]}},
        "bill": {"demand_charge": 10.0},
    }
    scene = scene_of(tmp_path, site)
    scene.counters.add("m-a")
    watts = 120 * 20 * 1.13
    scene.draws.update({"m-a": watts, "m-b": watts})
    async with scene.running():
        await scene.until(lambda: told(scene, "a") >= PAGES and told(scene, "b") >= PAGES)
        await scene.pass_seconds(200, every=5)
        heat, passed = scene.value("heat_ratio", "a"), scene.value("load_state_seconds", "a")
        scene.clock.ahead += step
        await scene.pass_seconds(120, every=5)
        for name in ("a", "b"):
            assert scene.value("heat_ratio", name) == pytest.approx(heat, rel=0.05)
            assert scene.value("load_state_seconds", name) == pytest.approx(passed + 120, abs=2)
            assert scene.state(name) == "measured"
        await scene.pass_seconds(1000, every=5)
        assert scene.resolved == []
        for name in ("a", "b"):
            energy(scene, name, watts)
            assert scene.value("energy_missing_seconds", name) == 0
        budget = scene.snapshots().budget
        assert budget.columns["budget_demand_watts"][0] == pytest.approx(2 * watts, rel=0.01)
        assert not budget.columns["budget_peak_watts"][0] > 2.02 * watts
        heat = scene.value("heat_ratio", "a")
        counted = scene.counted("b")
    scene.clock.ahead -= step  # somebody sets it right while kilowatch is down
    async with scene.running():
        await scene.until(lambda: told(scene, "a") >= PAGES and told(scene, "b") >= PAGES)
        await scene.pass_seconds(60)
        for name in ("a", "b"):
            assert scene.value("heat_ratio", name) == pytest.approx(heat, rel=0.05)
            assert scene.seen[name] == sorted(scene.seen[name])
        energy(scene, "a", watts)
        assert scene.counted("b") >= counted
        assert scene.resolved == []


def paged(scene: PowerScene, name: str) -> list[str]:
    """Return the rules of each page about a circuit, in order; also of those that are over."""
    parts = scene.aggregator.alerting._parts
    assert parts is not None
    manager = parts.pipeline.manager
    called = [one for one in (*manager.incidents(), *manager.recent()) if one.severity is Severity.PAGE]
    called.sort(key=lambda one: one.began)
    return [
        " ".join(dict.fromkeys(alert.rule for alert in one.alerts))
        for one in called
        if any(alert.name == name for alert in one.alerts)
    ]


async def test_a_load_calls_a_person_again_only_as_its_breaker_comes_nearer_to_a_trip(tmp_path: Path) -> None:
    """The load is above the rating until the breaker is about to trip, then a person lowers it. The continuous limit
    is exceeded all the while, and for a part of the minute after, of which it is the mean."""
    async with scene_of(tmp_path, office("u", "twin")).running() as scene:
        scene.draws["m-u"] = 2600.0
        await scene.until(lambda: {"circuit_continuous", "circuit_thermal_hot"} <= told(scene, "u"))
        await scene.pass_seconds(20)
        called = paged(scene, "u")
        assert called == ["circuit_overload circuit_thermal_warm", "circuit_thermal_hot"]
        scene.draws["m-u"] = 900.0
        await scene.until(lambda: not told(scene, "u") & PAGES)
        await scene.pass_seconds(60)
        assert paged(scene, "u") == called


async def test_a_load_that_stays_above_the_continuous_limit_calls_once_nothing_worse_is(tmp_path: Path) -> None:
    async with scene_of(tmp_path, office("u", "twin")).running() as scene:
        scene.draws["m-u"] = 2600.0
        await scene.until(lambda: "circuit_overload" in told(scene, "u"))
        scene.draws["m-u"] = 2100.0
        await scene.until(lambda: "circuit_overload" not in told(scene, "u"))
        assert not any("circuit_continuous" in one for one in paged(scene, "u"))
        await scene.until(lambda: "circuit_continuous" in paged(scene, "u"))
