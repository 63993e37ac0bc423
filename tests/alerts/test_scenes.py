"""Whole clusters under all rules, their circuits and the incident manager: which notices are sent, and when.

A healthy hour has no notifications; every kind of fault is one page, or one ticket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from api.alerts import Action, Severity
from collector.simulated import FaultKind, Scenario, SimulatedSource, scenario
from collector.smi.file_source import SmiFileSource
from collector.source import Source
from kilowatch.stack.demo_site import site_of
from tests.alerts.scenes import Scene

CALM = 315
"""Seconds after the start in which nothing is said of links and counters."""
BEGINS = 320


def roomy(simulated: Scenario) -> dict[str, Any]:
    """The site of the demonstration, with breakers that are large enough: there it is a fault that
    they are not."""
    site = site_of(simulated)
    for circuit in site["circuits"].values():
        circuit["breaker"] = max(100, circuit["breaker"])
    return site


def one_circuit_a_rack(simulated: Scenario) -> dict[str, Any]:
    """A site in which each rack hangs on one breaker."""
    racks: dict[str, list[str]] = {}
    for node, rack in zip(simulated.nodes, simulated.racks, strict=True):
        racks.setdefault(f"feed-{rack}", []).append(node)
    feed = {"volts": 415, "poles": 3, "wiring": "3ph-wye", "breaker": 75}
    return {
        "region": "EU",
        "circuits": {name: {**feed, "nodes": nodes} for name, nodes in racks.items()},
        "nodes": {node: {"profile": "dgx-h100"} for node in simulated.nodes},
    }


def staged(simulated: Scenario, site: dict[str, Any], folder: Path) -> Scene:
    """The scene of a scenario on a site."""
    sources = {name: SimulatedSource(simulated, name) for name in simulated.nodes}
    return Scene(sources, site, folder)


# -- Nothing is wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nodes", "links"), [("desktop-4x5090", None, None), ("two-dgx-h100", None, True), ("fleet", 12, None)]
)
async def test_a_healthy_hour_tells_nobody_of_anything(
    tmp_path: Path, name: str, nodes: int | None, links: bool | None
) -> None:
    simulated = scenario(name, nodes=nodes, faults="", links=links)
    scene = staged(simulated, roomy(simulated), tmp_path)
    await scene.play(3600, every=30)
    assert scene.electrical.latest is not None
    assert scene.notices == []
    fired = {alert.rule: alert.summary for alert in scene.pipeline.alerts()}
    assert not set(fired) - {"gpu_idle", "power_outlier"}, fired


@pytest.mark.parametrize(
    ("name", "nodes", "gpus", "seed"),
    [
        ("desktop-4x5090", None, None, 0), ("desktop-4x5090", None, None, 7),
        ("two-dgx-h100", None, None, 3), ("fleet", 4, None, 0), ("fleet", 3, 4, 5),
    ],
)  # fmt: skip
async def test_a_demonstration_without_faults_tells_nobody_of_anything(
    tmp_path: Path, name: str, nodes: int | None, gpus: int | None, seed: int
) -> None:
    """As `kilowatch demo --faults none`, on the circuits that it has."""
    simulated = scenario(name, nodes=nodes, gpus=gpus, seed=seed, faults="none")
    scene = Scene.of(simulated, tmp_path)
    await scene.play(3600, every=30)
    assert scene.electrical.latest is not None
    assert [notice.incident.title for notice in scene.notices] == []


async def test_an_hour_of_what_healthy_gpus_have_said_tells_nobody_of_anything(tmp_path: Path, captures: Path) -> None:
    """Lifetime counters, narrow links, GPUs that are capped or split: none of it is a fault."""
    sources: dict[str, Source] = {}
    for kind in ("smi_xml", "smi_text", "smi_capture"):
        for path in sorted((captures / kind).iterdir()):
            source = SmiFileSource(path)
            await source.open()
            sources[f"node-{len(sources):02d}-{kind.replace('_', '-')}"] = source
    assert len(sources) >= 15
    nodes = {name: {"watts": 2000} for name in sources}
    hall = {"breaker": 400, "volts": 415, "poles": 3, "wiring": "3ph-wye", "nodes": list(sources)}
    scene = Scene(sources, {"region": "EU", "circuits": {"hall": hall}, "nodes": nodes}, tmp_path)
    await scene.play(3600, every=60)
    assert sum(len(node.inventory.gpus) for node in scene.fleet.nodes.values()) >= 40
    assert scene.notices == []


# -- One thing is wrong --------------------------------------------------------------------------


class Case(NamedTuple):
    """A simulated fault, and its expected notifications."""

    kind: FaultKind
    fault: str
    lasts: int
    """Seconds."""
    severity: Severity
    title: str
    within: int
    """Seconds after it began."""
    ends: int = 1200
    """Seconds after its end in which that is notified."""


CASES = [
    Case(FaultKind.XID79, "xid79@dgx-01/3", 60, Severity.PAGE,
         "dgx-01 GPU 3 has fallen off the bus", 2),
    Case(FaultKind.HUNG, "hung@dgx-01/2", 60, Severity.PAGE,
         "the driver no longer answers for dgx-01 GPU 2", 32),
    Case(FaultKind.ECC_STORM, "ecc_storm@dgx-02/2", 240, Severity.PAGE,
         "dgx-02 GPU 2 is in a storm of memory errors", 100, 5000),
    Case(FaultKind.THERMAL, "thermal@dgx-01/1", 180, Severity.PAGE,
         "dgx-01 GPU 1 is too hot", 70),
    Case(FaultKind.POWER_BRAKE, "power_brake@dgx-02", 40, Severity.PAGE,
         "the power brake has slowed 8 GPUs of dgx-02 down", 20),
    Case(FaultKind.REMAP_PENDING, "remap_pending@dgx-02/2", 120, Severity.TICKET,
         "dgx-02 GPU 2 will replace a part of its memory at its next reset", 17),
    Case(FaultKind.STRAGGLER, "straggler@dgx-01/5", 900, Severity.TICKET,
         "dgx-01 GPU 5 is slower than its peers", 640),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.kind))
async def test_a_fault_is_told_once_in_time_and_its_end_too(tmp_path: Path, case: Case) -> None:
    faults = f"{case.fault}+{BEGINS}s:{case.lasts}s"
    simulated = scenario("two-dgx-h100", faults=faults, links=case.kind is FaultKind.XID79)
    scene = staged(simulated, roomy(simulated), tmp_path)
    await scene.play(CALM, every=15)
    assert scene.notices == []
    every = 1 if case.within <= 100 else 5
    await scene.play(BEGINS - CALM + case.within + every, every)
    await scene.play(case.lasts, every=10)
    await scene.play(case.ends, every=30)
    [notice] = [one for one in scene.notices if one.action is Action.TRIGGER]
    assert notice.incident.severity is case.severity
    assert notice.incident.title.startswith(case.title)
    assert 0 < scene.delay(notice) - BEGINS <= case.within
    ends = scene.told(case.severity, Action.RESOLVE)
    assert [end.incident.key for end in ends] == [notice.incident.key]


async def test_a_node_that_falls_silent_at_work_is_one_page(tmp_path: Path) -> None:
    simulated = scenario("fleet", nodes=8, faults=f"node_loss@node-00003+{BEGINS}s:120s")
    scene = staged(simulated, one_circuit_a_rack(simulated), tmp_path)
    await scene.play(CALM, every=15)
    await scene.play(200, every=2)
    assert scene.pages() == ["node-00003 had work and has been silent for 60 s"]
    assert scene.tickets() == []


async def test_a_feed_that_is_lost_is_one_page_that_names_the_breaker(tmp_path: Path) -> None:
    """All nodes of a circuit fall silent at once: that is the breaker, and not four nodes."""
    simulated = scenario("fleet", nodes=12, faults=f"feed_loss@rack-001+{BEGINS}s:120s")
    scene = staged(simulated, one_circuit_a_rack(simulated), tmp_path)
    await scene.play(CALM, every=15)
    await scene.play(260, every=1)
    [page] = scene.told(Severity.PAGE)
    assert page.incident.title.startswith("the breaker of circuit feed-rack-001")
    assert scene.delay(page) - BEGINS <= 20
    assert scene.tickets() == []


def test_every_kind_of_simulated_fault_is_played_here() -> None:
    elsewhere = {FaultKind.NODE_LOSS, FaultKind.FEED_LOSS, FaultKind.PORT_DOWN, FaultKind.PORT_SLOW}
    assert {case.kind for case in CASES} | elsewhere == set(FaultKind)
