"""From a sick GPU to whoever is called: a scripted driver, the real collector, a real broker, the real
aggregator, a real Alertmanager and a pager.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from tests.alerts.alertmanagers import Hook, RealAlertmanager
from tests.alerts.pager import Call, Pager
from tests.brokers import Mosquitto
from tests.collector.bus import NODE
from tests.endtoend.node import collecting
from tests.endtoend.watch import Watch, toml, until, watching
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import within

SITE = f"""
[power]
region = "US"
[power.circuits.A-12]
breaker = 100
volts = 208
poles = 3
wiring = "3ph-wye"
rack = "R7"
nodes = ["{NODE}"]
[power.nodes.{NODE}]
profile = "dgx-h100"
"""
LINKS = """
external_url = "https://kilowatch.example"
runbook_url = "https://docs.example/runbook"
dashboard_url = "https://grafana.example/d/gpu?var-node={node}&var-gpu={gpu}&from={from}&to={to}"
"""
TEMPERATURE = "nvmlDeviceGetTemperature/0"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """Eight H100 with two links each."""
    with FakeDriver(tmp_path, gpus=8, links=2) as driver:
        yield driver


def heat(fake: FakeDriver, gpu: int) -> None:
    """Let a GPU become too hot for our own rule, and for none that is shipped."""
    fake.call(TEMPERATURE, 82, gpu=gpu)


def cool(fake: FakeDriver, gpu: int) -> None:
    """Let it cool down."""
    fake.call(TEMPERATURE, 61, gpu=gpu)


async def test_a_lost_gpu_is_one_page_that_says_all_and_an_alertmanager_groups_and_ends_it(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    pager, hook = Pager(), Hook()
    real = await asyncio.to_thread(RealAlertmanager, tmp_path, hook.url)
    channels = {
        "oncall": pager.settings(tmp_path),
        "am": {"type": "alertmanager", "urls": [real.url], "resend_seconds": 2},
        "chat": {"type": "webhook", "url": f"{hook.url}/ours"},
    }
    ours = toml(channels, LINKS) + SITE
    try:
        real.start()
        async with pager.listening(), hook.listening():
            with watching(tmp_path / "watch", mosquitto, ours) as watch:
                async with collecting(mosquitto, tmp_path, fake) as node:
                    await until("the node", lambda: _known(watch))
                    fake.set(3, state="lost")
                    fake.xid(3, 79)
                    heat(fake, 1)
                    heat(fake, 2)
                    await until("pages", lambda: len(pager.opened) == 3)
                    lost = next(call for call in pager.calls if "bus" in str(call.body["payload"]))
                    serial = next(gpu for gpu in node.inventory.gpus if gpu.index == 3).serial
                    assert serial
                    _says_all(lost, fake, serial)
                    shown = await asyncio.to_thread(real.amtool, "alertname=toasty")
                    assert {one["labels"]["uuid"] for one in shown} == {fake.uuid(1), fake.uuid(2)}
                    (lost_there,) = await asyncio.to_thread(real.amtool, "alertname=gpu_lost")
                    assert lost_there["labels"]["rack"] == "R7"
                    assert lost_there["annotations"]["circuits"] == "A-12"
                    posters = await _retained(mosquitto, 3)
                    assert {one["key"] for one in posters} == set(pager.opened)
                    assert {one["state"] for one in posters} == {"firing"}
                    await until("a group of two", lambda: _grouped(hook) == {1, 2})
                    cool(fake, 1)
                    cool(fake, 2)
                    await until("the ends", lambda: _ended(pager) == 2)
                    await until("both ends there", lambda: _resolved(hook) == {1, 2})
                    left = await asyncio.to_thread(real.amtool)
                    assert {one["labels"]["alertname"] for one in left} == {"gpu_lost"}
                    assert set(pager.opened.values()) == {1}  # no page was sent twice
                    assert pager.state[lost.key] == "triggered"
    finally:
        real.end()


async def _retained(broker: Mosquitto, count: int) -> list[dict[str, Any]]:
    """Return what the broker keeps of incidents, for whoever asks it first now."""
    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe("kilowatch/1/default/alerts/+/state")
        found: list[dict[str, Any]] = []
        async with within():
            async for message in client.messages:
                assert message.retain
                assert isinstance(message.payload, bytes)
                found.append(json.loads(message.payload))
                if len(found) == count:
                    break
    return found


def _known(watch: Watch) -> bool:
    found = watch.get(f"/api/v1/nodes/{NODE}")
    return found is not None and "error" not in found


def _says_all(call: Call, fake: FakeDriver, serial: str) -> None:
    """What, where, since when, what to do, and how to silence it: in the bytes that were sent."""
    payload = call.body["payload"]
    assert payload["summary"].startswith("[PAGE]")
    assert f"{NODE} GPU 3" in payload["summary"]
    assert payload["severity"] == "critical"
    said = payload["custom_details"]
    assert said["Rule"] == "gpu_lost"
    assert said["Node"] == f"{NODE} · rack R7 · cluster default"
    for part in (fake.uuid(3), f"serial {serial}", f"PCI {fake.pci(3)}", "module", "H100"):
        assert part in said["GPU"], part
    assert said["Circuits"] == "A-12"
    assert "UTC" in said["Since"]
    assert "Drain" in said["What to do"]
    assert said["Silence"].startswith(f"kilowatch silence rule=gpu_lost node={NODE} ")
    assert call.key in said["Acknowledge"]
    places = {link["text"]: link["href"] for link in call.body["links"]}
    assert places["Runbook"] == "https://docs.example/runbook#gpu-lost"
    assert f"var-node={NODE}&var-gpu=3&" in places["Dashboard"]
    assert call.body["client_url"].startswith("https://kilowatch.example")


def _grouped(hook: Hook) -> set[int]:
    """GPUs of the largest group of hot GPUs that the Alertmanager has notified."""
    groups = [_gpus(body) for body in hook.bodies if _of_theirs(body, "toasty", "firing")]
    return max(groups, key=len, default=set())


def _resolved(hook: Hook) -> set[int]:
    found = [
        alert
        for body in hook.bodies
        if "alertname" in body["groupLabels"]
        for alert in body["alerts"]
        if alert["status"] == "resolved"
    ]
    return {int(alert["labels"]["gpu"]) for alert in found}


def _of_theirs(body: dict[str, Any], rule: str, status: str) -> bool:
    return bool(body["groupLabels"].get("alertname") == rule and body["status"] == status)


def _gpus(body: dict[str, Any]) -> set[int]:
    return {int(alert["labels"]["gpu"]) for alert in body["alerts"]}


def _ended(pager: Pager) -> int:
    return sum(state == "resolved" for state in pager.state.values())
