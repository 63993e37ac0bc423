"""What can't be shown of a circuit, GPU, node or job costs that part alone, wherever it would be shown, and is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aggregator.homeassistant import devices as homeassistant
from aggregator.homeassistant.devices import DeviceReader
from aggregator.http import circuit_metrics, exposition, metrics, nodes, ports, present_jobs, sd, use
from aggregator.mqtt.power_topics import PowerTopics
from aggregator.remote import push
from aggregator.remote.push import Gatherer, _cells
from aggregator.service import Aggregator
from aggregator.view import parts_of
from aggregator.web import circuit_list, job_list, node_list
from alerts.message import page as pages
from alerts.message.page import Links
from power.report import cluster_parts
from power.snapshot import documents
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import FakeView, give_jobs
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab
from tests.aggregator.test_pages_aside import page
from tests.aggregator.test_service import config, running
from tests.aggregator.test_supervision import firing, health
from tests.alerts.notices import incident, notice
from tests.brokers import Mosquitto
from tests.kit.waiting import until
from tests.web.test_port_pages import fabric, with_ports

Where = tuple[object, str]
ASK = {"Accept": "text/html"}


def spoil(patch: pytest.MonkeyPatch, where: Where, bad: Callable[..., bool]) -> None:
    """Have a function raise for some arguments."""
    module, name = where
    right = getattr(module, name)

    def spoiled(*given: Any, **named: Any) -> Any:
        if bad(*given, **named):
            raise ValueError("put in by the test")
        return right(*given, **named)

    patch.setattr(module, name, spoiled)


async def with_jobs() -> FakeView:
    """Circuits, and two jobs on the two nodes."""
    view = await lab()
    give_jobs(view, ("n1", "7", "ann", (0,)), ("n2", "8", "bob", (0,)))
    return view


PAGES: dict[str, tuple[Where, Callable[..., bool], str, str, str, str]] = {
    "circuits": ((documents, "_circuit"), lambda its, *_: its.id == "lab/1", "/api/v1/circuits", '"id":"lab/1"', '"id":"lab/2"', "circuit/lab/1/api"),
    "web circuits": ((circuit_list, "_row"), lambda _, its, *__: its.id == "lab/1", "/circuits", 'href="circuits/lab%2F1"', 'href="circuits/lab%2F2"', "circuit/lab/1/web"),
    "facts": ((circuit_metrics, "labels"), lambda its: its.get("circuit") == "lab/1" and "wiring" in its, "/metrics", 'kilowatch_circuit_info{cluster="lab",circuit="lab/1"', 'kilowatch_circuit_info{cluster="lab",circuit="lab/2"', "circuit/lab/1/page"),
    "metrics": ((metrics, "stream_families"), lambda *_: True, "/metrics", "kilowatch_aggregator_stream_viewers", "kilowatch_cluster_nodes", "metrics/stream/page"),
    "nodes": ((nodes, "describe"), lambda its, _: its.inventory.node == "n1", "/api/v1/nodes", '"node":"n1"', '"node":"n2"', "node/n1/api"),
    "web nodes": ((node_list, "_row"), lambda its: its.node.node == "n1", "/nodes", 'href="nodes/n1"', 'href="nodes/n2"', "node/n1/web"),
    "targets": ((sd, "target"), lambda its, *_: its.inventory.node == "n1", "/sd/prometheus", '"node":"n1"', '"node":"n2"', "node/n1/sd"),
    "jobs": ((present_jobs, "hints"), lambda row, *_: row.id == "7", "/api/v1/jobs", '"id":"7"', '"id":"8"', "job/slurm 7/list"),
    "use": ((use, "JobPart"), lambda row, *_, **__: row.id == "7", "/api/v1/use?by=job", '"job":"7"', '"job":"8"', "job/slurm 7/use"),
    "web jobs": ((job_list, "phase_badge"), lambda row: row.id == "7", "/jobs", 'href="jobs/7', 'href="jobs/8', "job/slurm 7/web"),
}  # fmt: skip
"""By name: what raises, for whom, the page, what it lacks then, what it has all the same, and the part that is told."""


@pytest.mark.parametrize("name", PAGES)
async def test_a_part_that_raises_is_left_out_of_its_page_and_comes_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, bad, path, lost, kept, part = PAGES[name]
    view = await with_jobs()
    async with door(view) as client:
        asked = {**client.bearer, **(ASK if name.startswith("web") else {}), "Cache-Control": "no-cache"}
        with monkeypatch.context() as patch:
            spoil(patch, where, bad)
            status, text, _ = await client.text(path, headers=asked)
        assert (status, lost in text, kept in text) == (200, False, True), text[:2000]
        assert part in view.pages_aside.recent()
        status, text, _ = await client.text(path, headers=asked)
        assert (status, lost in text, kept in text) == (200, True, True)
        assert not view.pages_aside.reasons()


async def test_a_report_lacks_the_node_that_raises_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await lab()
    async with door(view) as client:
        _, whole = await client.json("/api/v1/report")
        spoil(monkeypatch, (cluster_parts, "pools_of"), lambda its: its.node == "n1")
        status, body = await client.json("/api/v1/report")
    assert (status, *(sum(one["gpus"].values()) for one in (body, whole))) == (200, 2, 4)
    assert "node/n1/report" in view.pages_aside.reasons()


async def test_a_circuit_that_can_t_be_made_is_cleared_from_the_bus_and_the_others_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the broker retains of it would look like its state of now."""
    view, topics, retained = await lab(), PowerTopics("lab", ()), dict[str, bytes]()

    def turn(now: float) -> set[str]:
        topics.show(view.electrical, (), now, parts_of(view, "bus"))
        topics.send(lambda topic, body: retained.update({topic: body}) or True, 1)
        return {json.loads(body)["state"]["id"] for body in retained.values() if body}

    everything = turn(0)
    with monkeypatch.context() as patch:
        spoil(patch, (documents, "_circuit"), lambda its, *_: its.id == "lab/1")
        assert turn(11) == everything - {"lab/1"}
    assert "circuit/lab/1/bus" in view.pages_aside.reasons()
    assert turn(22) == everything
    assert not view.pages_aside.reasons()


async def test_the_push_lacks_the_node_that_raises_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await lab()

    async def pushed() -> set[str]:
        gatherer = Gatherer(view)  # a used one has kept what does not change
        snapshots = await gatherer.snapshots()
        assert gatherer.requests(snapshots, 1)
        return {labels for one in snapshots for name, labels, _ in _cells(one) if name == "kilowatch_gpu_power_watts"}

    everything = await pushed()
    with monkeypatch.context() as patch:
        spoil(patch, (exposition, "info_families"), lambda its, _: its.node == "n1")
        assert await pushed() == {one for one in everything if 'node="n2"' in one} != everything
        assert "node/n1/pages" in view.pages_aside.reasons()
        view.monotonic += 2
    assert await pushed() == everything
    assert not view.pages_aside.reasons()


async def test_the_push_lacks_what_can_t_be_encoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of a node and numbers of a block that raise in the thread, which are told by their names."""
    view = await lab()
    gatherer = Gatherer(view)

    async def pushed() -> dict[bytes, bytes]:
        snapshots = await gatherer.snapshots()
        return await asyncio.to_thread(gatherer._values, snapshots)

    everything = await pushed()
    with monkeypatch.context() as patch:
        gatherer._labels.clear()
        spoil(patch, (push, "labels_key"), lambda labels, _: 'node="n1"' in labels)
        assert set(await pushed()) == {one for one in everything if b"n1" not in one} != set(everything)
        assert view.pages_aside.reasons().keys() == {"node/n1/push"}
        assert view.pages_aside.failures == 1
        assert await pushed() != everything
        assert view.pages_aside.failures == 2
    assert set(await pushed()) == set(everything)
    assert not view.pages_aside.reasons()
    with monkeypatch.context() as patch:
        wide = len(SCHEMA.blocks[GPU_FAST].gauges)
        spoil(patch, (push, "plain"), lambda gauges: gauges.shape[1] == wide)
        lacking = set(everything) - set(await pushed())
        assert any(b"kilowatch_gpu_power_watts" in one for one in lacking)
        assert not any(b"kilowatch_node_wall_power_watts" in one for one in lacking)
        assert view.pages_aside.reasons().keys() == {"metrics/gpu_fast/push"}
    assert set(await pushed()) == set(everything)
    assert not view.pages_aside.reasons()


async def test_a_list_of_ports_lacks_those_of_the_node_that_raises_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    view = await fabric()
    view.add(with_ports("n2"))
    async with door(view) as client:

        async def shown() -> set[str]:
            return {one["node"] for one in (await client.json("/api/v1/ports"))[1]["lines"]}

        assert await shown() == {"n1", "n2"}
        spoil(monkeypatch, (ports, "PortLine"), lambda **its: its["node"] == "n1")
        assert await shown() == {"n2"}
    assert "node/n1/ports" in view.pages_aside.reasons()


@pytest.mark.parametrize(
    ("where", "bad", "part"),
    [
        ("circuit_values", lambda its: its.id == "lab/1", "circuit/lab/1"),
        ("_device", lambda _, name, *__: name == "n1 GPU 0", "gpu/n1 GPU 0"),
    ],
)
async def test_home_assistant_gets_the_other_devices_and_loses_none(
    monkeypatch: pytest.MonkeyPatch, where: str, bad: Callable[..., bool], part: str
) -> None:
    view = await lab()
    reader = DeviceReader(view)
    everything = {device.id for device in reader.read()}
    assert not reader.unmade
    spoil(monkeypatch, (homeassistant, where), bad)
    found = {device.id for device in reader.read()}
    assert everything - found == reader.unmade
    assert len(reader.unmade) == 1
    assert f"{part}/home assistant" in view.pages_aside.reasons()


def test_a_page_to_people_lacks_the_part_that_raises_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[str] = []
    spoil(monkeypatch, (pages, "silence_of"), lambda *_: True)
    made = pages.page_of(notice(about=incident()), Links(), 10**18, None, lambda part, _: faults.append(part))
    assert faults == ["commands"]
    assert made.title
    assert made.facts
    assert [fact.name for fact in made.commands] == ["Acknowledge"]


async def test_a_page_that_fails_and_a_part_of_one_are_counted_and_alerts_by_their_names(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ("page_set_aside/metrics/drift/page", "page_set_aside/page//api/v1/nodes")

    async def ask(aggregator: Aggregator) -> tuple[int, int, str]:
        shown, text = await page(aggregator, "/metrics")
        return shown, (await page(aggregator, "/api/v1/nodes"))[0], text

    async with running(config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")) as aggregator:
        await until(aggregator.serving.is_set)
        with monkeypatch.context() as patch:
            spoil(patch, (metrics, "drift_families"), lambda *_: True)
            spoil(patch, (nodes, "parts_of"), lambda *_: True)

            async def told() -> bool:
                shown, failed, text = await ask(aggregator)
                assert (shown, failed) == (200, 500)
                assert "kilowatch_aggregator_page_faults_total" in text
                listed = await health(aggregator)
                return all(part in listed for part in parts)

            await until(told)
            await until(lambda: all(firing(aggregator, part) for part in parts))

        async def well() -> bool:
            assert (await ask(aggregator))[:2] == (200, 200)
            listed = await health(aggregator)
            return not any(part in listed for part in parts)

        await until(well)
