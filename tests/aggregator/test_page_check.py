"""The aggregator reads its own pages as a scraper does, a few at a time, and tells what they lack."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.http import exposition, metrics, page_check
from aggregator.http.page_check import PageCheck, lacks, wanted_of
from telemetry.metric import Table
from telemetry.wire.exposition import GAUGE, Family
from telemetry.wire.inventory import Inventory
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import door, small_cluster
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_http_circuits import lab
from tests.aggregator.test_service import config, running
from tests.aggregator.test_supervision import firing, health
from tests.brokers import Mosquitto
from tests.kit.waiting import until

TURNS = 40


@pytest.mark.parametrize(
    ("page", "wanted", "words"),
    [
        (b"a 1\nb 2\n", {"a": 1, "b": 1}, ""),
        (b'a{x="1"} 1\na{x="2"} 1\n', {"a": 2}, ""),
        (b'a{x="1"} 1\n', {"a": 2, "b": 1}, "it lacks samples of a, b"),
        (b'a{x="1"} 1\na{x="1"} 2\n', {"a": 1}, "it has a series twice"),
        (b'a{x="q"uote"} 1\n', {"a": 1}, "no scraper can read it"),
        (b"a one\n", {"a": 1}, "no scraper can read it"),
        (b"\xff 1\n", {}, "no scraper can read it"),
    ],
)
def test_what_a_page_lacks_is_named(page: bytes, wanted: dict[str, int], words: str) -> None:
    assert lacks(page, wanted).startswith(words)
    assert bool(lacks(page, wanted)) is bool(words)


async def test_whole_pages_are_read_by_the_official_parser() -> None:
    """Every page of a cluster with circuits, and all that the fleet has is on the nodes' page."""
    view = await lab()
    wanted = Counter[str]()
    for node in view.fleet.nodes.values():
        wanted.update(wanted_of(view.fleet, node, view.now()))
    assert wanted["kilowatch_gpu_power_watts"] == 4
    async with door(view) as client:
        for path, must in (("/metrics", {}), ("/metrics/nodes", wanted), ("/metrics/node/n1", {})):
            status, text, _ = await client.text(path)
            assert status == 200
            assert lacks(text.encode(), must) == "", path
            assert list(text_string_to_metric_families(text))


async def test_each_node_and_part_has_its_turn_and_a_sound_page_tells_nothing() -> None:
    view = await lab()
    check = PageCheck(view)
    turns = [check._next() for _ in range(TURNS)]
    assert {name for kind, name in turns if kind == "node"} == {"n1", "n2"}
    own = metrics.own_makers(view, check._summarizer, {}, metrics.parts_of(view, "page"))
    assert {name for kind, name in turns if kind == "metrics"} == set(own)
    for _ in range(TURNS):
        assert await check.check() > 0
    assert not view.pages_aside.failures


async def test_a_fleet_without_nodes_is_no_fault() -> None:
    check = PageCheck(FakeView())
    for _ in range(TURNS):
        await check.check()
    assert not check._view.pages_aside.failures


async def test_a_reading_that_a_page_lacks_is_told_and_what_is_wanting_is_checked_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = await small_cluster()
    for number in range(3, 40):
        view.add(inventory(f"n{number}"))
    await view.tick(1)
    rows = exposition._rows

    def spoiled(matrix, nodes, kept, now):  # type: ignore[no-untyped-def]
        found = rows(matrix, nodes, kept, now)
        if matrix.block.table is Table.GPU and nodes[0].inventory.node == "n2":
            found.gauges[0] = float("nan")
        return found

    check, part = PageCheck(view), "node/n2/exposition"
    with monkeypatch.context() as patch:
        patch.setattr(exposition, "_rows", spoiled)
        while part not in view.pages_aside:
            await check.check()
    assert list(view.pages_aside.reasons()) == [part]
    assert "it lacks samples of kilowatch_gpu_" in view.pages_aside.reasons()[part]
    for _ in range(4):
        await check.check()
    assert not view.pages_aside.reasons()


async def test_a_part_of_our_own_page_that_no_scraper_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await small_cluster()
    broken = Family("kilowatch_x", "x", GAUGE, [('{a="b"c"}', 1.0)])
    monkeypatch.setattr(metrics, "load_families", lambda _: [broken])
    check = PageCheck(view)
    for _ in range(TURNS):
        await check.check()
    assert list(view.pages_aside.reasons()) == ["metrics/load/exposition"]


async def test_it_pauses_for_a_hundred_times_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of a core, whatever a page costs: the time is given. What is set aside is tried again meanwhile."""
    pauses: list[float] = []
    paused_at_check: list[float] = []
    check = PageCheck(await small_cluster())

    async def checked() -> float:
        paused_at_check.append(sum(pauses))
        if len(paused_at_check) == 4:
            raise asyncio.CancelledError
        return 0.5

    async def paused(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(check, "check", checked)
    monkeypatch.setattr(page_check.asyncio, "sleep", paused)
    with pytest.raises(asyncio.CancelledError):
        await check.run()
    assert paused_at_check == [0.0, 50.0, 100.0, 150.0]
    assert max(pauses) <= page_check.LEAST_PAUSE


async def test_a_node_is_shown_again_though_nobody_asks_for_it_and_one_that_is_gone_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nobody scrapes, the check that found a fault is who finds that it is over."""
    view, right = await small_cluster(), exposition.info_families
    name = next(iter(view.fleet.nodes))

    def broken(inventory: Inventory, scope: bool) -> list[Family]:
        if inventory.node == name:
            raise ValueError("planted")
        return right(inventory, scope)

    monkeypatch.setattr(exposition, "info_families", broken)
    check = PageCheck(view)
    for _ in range(TURNS):
        await check.check()
    assert list(view.pages_aside.reasons()) == [f"node/{name}/pages"]
    view.monotonic += 2
    await check.retry()
    assert list(view.pages_aside.reasons()) == [f"node/{name}/pages"]
    monkeypatch.setattr(exposition, "info_families", right)
    view.pages_aside.fail("node/gone/pages", "planted", view.now())
    view.monotonic += 4
    await check.retry()
    assert view.pages_aside.reasons() == {}


async def test_what_it_says_that_it_took_is_what_the_process_spent() -> None:
    """The share of a core is kept by it: what it leaves out it takes beside."""
    check = PageCheck(await lab())
    began = time.process_time()
    said = sum([await check.check() for _ in range(TURNS)])
    spent = time.process_time() - began
    assert 0.4 * spent < said <= spent


async def test_a_node_whose_page_no_scraper_reads_is_an_alert_with_its_name(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, part = exposition.info_families, "node_set_aside/node/b/exposition"

    def unescaped(inventory: Inventory, scope: bool) -> list[Family]:
        found = right(inventory, scope)
        if inventory.node != "b":
            return found
        return [Family("kilowatch_node_info", "", GAUGE, [('{driver="5"5"}', 1.0)]), *found[1:]]

    monkeypatch.setattr(page_check, "LEAST_PAUSE", 0.05)
    monkeypatch.setattr(page_check, "SHARE", 1.0)
    monkeypatch.setattr(exposition, "info_families", unescaped)
    async with (
        running(config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as a,
        ScriptedNode(mosquitto.config, "b") as b,
    ):
        await until(aggregator.serving.is_set)

        async def told() -> bool:
            await a.tick()
            await b.tick()
            return part in await health(aggregator)

        await until(told)
        await until(lambda: firing(aggregator, part))
        assert "node_set_aside/node/a/exposition" not in await health(aggregator)
