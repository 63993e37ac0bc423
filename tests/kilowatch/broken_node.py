"""A node with real rules behind real HTTP, whose faults and clock a test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from aggregator.alerting.pipeline import AlertPipeline
from alerts.rules.rule import load
from api.alerts import Alert
from api.fleet import StoredEvent
from kilowatch.__main__ import main
from telemetry.devices import Event
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import START, FakeView, inventory
from tests.aggregator.http_client import Door

HEALTHY = {
    "gpu_temperature_celsius": 60.0,
    "gpu_power_watts": 300.0,
    "gpu_utilization_ratio": 0.9,
    "gpu_processes": 2.0,
    "gpu_recovery_action": 0.0,
    "gpu_remapped_rows_pending": 0.0,
    "gpu_remapped_rows_failure": 0.0,
    "link_state": 1.0,
    "node_driver_up": 1.0,
}


class BrokenNode(FakeView):
    """A cluster whose alerts are those of the shipped rules."""

    def __init__(self, what: Inventory | None = None) -> None:
        super().__init__()
        self.pipeline = AlertPipeline(
            load(), lambda *_: None, cluster=self.cluster, impairments=self.impairments, now=self.monotonic, wall=START
        )
        self.gpus: dict[int, dict[str, float]] = {}
        """Readings of single GPUs by index, beside those of healthy ones."""
        self.what = what or inventory("n1", gpus=4)
        self.number = 0
        self.add(self.what)
        self.step(1)

    def alerts(self) -> list[Alert]:
        """Return the alerts of the rules."""
        return self.pipeline.alerts()

    def step(self, seconds: float, *events: Event) -> None:
        """Advance the clock, read every node, and evaluate the rules."""
        self.monotonic += seconds
        self.number += 1
        for name, node in self.fleet.nodes.items():
            if node.online:
                self.put(name, self._blocks(node.inventory), self.number)
        for event in events:
            self.happened.insert(0, event)
            self.memory.kept.append(StoredEvent(event, self.wall()))
        self.pipeline.evaluate(self.fleet, self.now(), self.wall(), events, listening=True, snapshots=())

    def xid(self, number: int, gpu: int = 0) -> None:
        """Report an XID of a GPU, with a second before and after it."""
        self.monotonic += 1
        at = self.wall()
        uuid = self.what.gpus[gpu].uuid
        self.step(0, Event(id=f"7-{at}-{gpu}", node=self.what.node, at=at, kind="xid", gpu=uuid, data={"xid": number}))
        self.step(1)

    def _blocks(self, what: Inventory) -> dict[int, list[list[float]]]:
        counts = {
            Table.GPU: len(what.gpus),
            Table.LINK: len(what.links),
            Table.NODE: 1,
            Table.PORT: len(what.ports),
            Table.INSTANCE: len(what.instances),
        }
        blocks: dict[int, list[list[float]]] = {}
        for number, block in enumerate(SCHEMA.blocks):
            rows = []
            for row in range(counts[block.table]):
                own = self.gpus.get(row, {}) if block.table is Table.GPU else {}
                found = {**HEALTHY, **own}
                rows.append([found.get(name, NOT_SUPPORTED) for name in block.names])
            blocks[number] = rows
        return blocks


async def typed(
    opened: Door, *arguments: str, config: Path | None = None, env: Mapping[str, str] | None = None
) -> Result:
    """Type a command that talks to the aggregator, in a thread of its own."""
    more = ["--http", f"127.0.0.1:{opened.port}"]
    if "--token-file" not in arguments:
        more += ["--token-file", str(opened.token_file)]
    if config is not None:
        more += ["--config", str(config)]
    return await asyncio.to_thread(CliRunner().invoke, main, [*arguments, *more], None, env)


def program(path: Path, *lines: str) -> Path:
    """Write an executable of the shell."""
    path.write_text("\n".join(("#!/bin/sh", "set -eu", *lines, "")))
    path.chmod(0o755)
    return path


def settings(path: Path, hooks: Mapping[str, object], **more: object) -> Path:
    """Write a settings file with hooks."""
    text = [
        "[recover]",
        *(f"{name} = {json.dumps(value)}" for name, value in more.items() if not isinstance(value, dict)),
    ]
    text += ["[recover.hooks]", *(f"{name} = {json.dumps(value)}" for name, value in hooks.items())]
    for name, value in more.items():
        if isinstance(value, dict):
            text += [f"[recover.{name}]", *(f"{key} = {each}" for key, each in value.items())]
    path.write_text("\n".join(text) + "\n")
    return path


def events_of(view: FakeView, kind: str = "recovery") -> list[dict[str, Any]]:
    """Return the data of the stored events of a kind, oldest first."""
    return [each.event.data for each in view.memory.kept if each.event.kind == kind]
