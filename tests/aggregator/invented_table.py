"""Output of each face about a node with drives, a table that no release has: run by `test_invented_table` over a copy of
`telemetry` that has it. Prints JSON by face."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from aggregator.config import StoreConfig
from aggregator.influx.names import device_tags
from aggregator.remote.otlp.gather import OtlpGatherer
from aggregator.remote.otlp.names import exported
from aggregator.service import Aggregator
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import StoredDevice
from telemetry import devices
from telemetry.metric import Lane, Table
from telemetry.wire import exposition
from telemetry.wire import frame as frames
from telemetry.wire.border import decode_frame
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.node import ScriptedNode, gpu_rows, inventory, sampled_at
from tests.aggregator.test_service import config, running
from tests.kit.waiting import until
from tests.tui.cluster import until as screen_until
from tui.app import Top

DRIVE = Table("drive")
FAST, SLOW = SCHEMA.index(DRIVE, Lane.FAST), SCHEMA.index(DRIVE, Lane.SLOW)
HEAT, WRITTEN = "drive_temperature_celsius", "drive_written_bytes_total"
READINGS: dict[int, list[list[float]]] = {FAST: [[41.5], [63.25]], SLOW: [[1e12], [2e12 + 1]]}
KEY = "drive:a:1"
RULE = """
[[rule]]
name = "drive_hot"
table = "drive"
when = { type = "above", metric = "drive_temperature_celsius", level = 60 }
severity = "ticket"
remediation = "facility"
group = "rule"
summary = "{where} is hot"
act = "Look at its fan."
description = "It is too hot."
causes = "A fan."
steps = ["Look."]
replace = "No."
runbook = "drive-hot"
"""


def its_inventory() -> Inventory:
    """A node with a GPU and two drives."""
    drive = devices.Drive  # type: ignore[attr-defined]  # of the copy alone
    found = tuple(drive(id=f"drive:a:{number}", name=f"nvme{number}") for number in range(2))
    return msgspec.structs.replace(inventory("a", 1), drives=found)


class DriveNode(ScriptedNode):
    """A node that reports its drives too."""

    def sample(self) -> tuple[int, bytes]:
        """Make the next frame and put it into the ring."""
        seq = self.made.get(self.session, 0)
        self.made[self.session] = seq + 1
        readings = {GPU_FAST: gpu_rows("a", 1, seq), **READINGS}
        at = self.begin + seq * self.step
        encoded = frames.encode(frames.build(self.session, seq, at, readings))
        self.ring.setdefault(self.session, {})[seq] = encoded
        return seq, encoded


def in_frame(node: ScriptedNode) -> dict[str, Any]:
    """Return what a decoded frame has."""
    frame = decode_frame(node.sample()[1])
    blocks = {packed.block: frames.unpack(packed) for packed in frame.blocks}
    return {SCHEMA.blocks[number].name: blocks[number] for number in READINGS}


async def faces(aggregator: Aggregator, node: ScriptedNode) -> dict[str, Any]:
    """Return what a running aggregator shows."""
    assert aggregator.http_address is not None
    url = "http://{}:{}".format(*aggregator.http_address)
    first, last = (sampled_at(seq, node.begin) // 10**9 for seq in (0, 60))
    paths = {
        "fleet": "api/v1/fleet?table=drive",
        "past": f"api/v1/fleet?table=drive&at={first}",
        "node": "api/v1/nodes/a",
        "node then": f"api/v1/nodes/a?at={first}",
        "history": f"api/v1/history?drive={KEY}&metric={HEAT}&from={first}&to={last}&step=0",
        "metrics": "metrics/nodes",
        "page": "nodes/a",
        "alerts": "api/v1/alerts",
    }
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession() as http:
        for face, path in paths.items():
            async with http.get(f"{url}/{path}") as answer:
                assert answer.status == 200, (path, await answer.text())
                is_json = path.startswith("api")
                found[face] = await (answer.json() if is_json else answer.text())
    app = Top(url, every=0.2)
    async with app.run_test(size=(100, 40)) as pilot:
        await screen_until(pilot, lambda text: "● LIVE default" in text)
        app.open("node", "a")
        found["dashboard"] = await screen_until(pilot, lambda text: "nvme1" in text)
    gatherer = OtlpGatherer(aggregator, exported(("drive_*",)))
    sent = gatherer.metrics(await gatherer.readings())
    found["otlp"] = b"".join(body for body, _ in sent).decode(errors="replace")
    return found


async def main(folder: Path, broker: BrokerConfig) -> dict[str, Any]:
    """Run an aggregator on a broker, and return what each face shows."""
    found: dict[str, Any] = {}
    rules = folder.with_name("rules.toml")
    rules.write_text(RULE)
    settings = msgspec.structs.replace(config(broker, folder, "127.0.0.1:0"), rules=(rules,))
    async with running(settings) as aggregator, DriveNode(broker, "a", made_of=its_inventory()) as node:
        found["frame"] = in_frame(node)
        await until(lambda: bool(aggregator.http_address) and "a" in aggregator.fleet.nodes)
        ticking = asyncio.create_task(tick(node))
        try:
            await until(lambda: aggregator.stats.frames_stored > 3)
            await until(lambda: any(one.rule == "drive_hot" for one in aggregator.alerts()))
            found |= await faces(aggregator, node)
        finally:
            ticking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
    with contextlib.closing(EmbeddedStore(StoreConfig(), folder)) as store:
        found["store"] = [store.history(KEY, name, 0, 1 << 62, 0).mean[0] for name in (HEAT, WRITTEN)]
    families = exposition.node_families(its_inventory(), READINGS)
    found["collector's metrics"] = exposition.render(families).decode()
    found["influx"] = device_tags("lab", DRIVE, StoredDevice(1, "a", KEY, None, "nvme1"), None)
    return found


async def tick(node: ScriptedNode) -> None:
    """Report for as long as somebody looks."""
    while True:
        await node.tick()
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    its = msgspec.json.decode(sys.argv[2], type=BrokerConfig, dec_hook=lambda kind, text: kind(text))
    print(json.dumps(asyncio.run(main(Path(sys.argv[1]), its))))
