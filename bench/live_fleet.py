"""A large fleet with faults in one process: the aggregator's real matrix, rules, circuits and HTTP,
fed with invented readings in place of 1,250 collectors. The dashboard's pictures and benchmarks use it.

python -m bench.live_fleet --nodes 1250 --http 127.0.0.1:9400
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.alerting.service import SlicedCpu
from aggregator.assembly.http_server import listening
from aggregator.electrical.service import ElectricalService
from aggregator.http.config import HttpConfig
from aggregator.load.round_robin import RoundRobin
from alerts.rules.rule import load
from api.alerts import Alert
from telemetry.devices import Event, Gpu, MemoryPool
from telemetry.gap import GAP, Gap
from telemetry.metric import Table
from telemetry.runtime.release import release
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import FakeView

Floats = npt.NDArray[np.float64]
A_RACK, GPUS = 4, 8
HOT, WARM, LOST, SILENT = (262, 113, 700), (41, 310, 555, 808, 1040, 1201), (97, 431, 648), (355,)
"""Numbers of the nodes with faults, modulo the size of the fleet."""
TIGHT = 17
"""Number of the rack whose feed A is too small."""
RELEASE = "2026.1"
"""Release of the nodes of a still fleet, whose pictures are compared; others run that of the aggregator."""


class LiveFleet(FakeView):
    """Nodes of eight H100 in racks of four, with two feeds each."""

    def __init__(self, nodes: int, seed: int = 7, *, still: bool = False) -> None:
        """`still`: a clock that only `beat` moves, for tests."""
        super().__init__("site-a")
        self._still = still
        self._round_robin = RoundRobin()
        self.started_at = self.wall()
        self._chance = np.random.default_rng(seed)
        names = [f"node-{number:04d}" for number in range(nodes)]
        for number, name in enumerate(names):
            self.add(_inventory(name, number, RELEASE if still else release()))
        self.electrical = ElectricalService(_site(names), Path("/nowhere"))
        self.pipeline = AlertPipeline(
            load(), lambda *_: None, cluster="site-a", impairments=self.impairments, now=self.now(), wall=self.wall()
        )
        self._busy = self._chance.choice([0.15, 0.6, 0.95], -(-nodes // 16), p=[0.15, 0.25, 0.6])
        self._wander, self._joules = np.zeros(nodes * GPUS), np.zeros(nodes * GPUS)
        self.second = 0

    def now(self) -> float:
        """Return the monotonic clock, or that of the test."""
        return self.monotonic if self._still else time.monotonic()

    def wall(self) -> int:
        """Return the wall clock, or that of the test."""
        return super().wall() if self._still else time.time_ns()

    def alerts(self) -> Sequence[Alert]:
        """Return the alerts of the shipped rules."""
        return self.pipeline.alerts()

    async def beat(self) -> None:
        """Advance by a second: readings of all nodes, circuits, rules, viewers; in slices, as the aggregator's
        rules are evaluated, unless the clock is still."""
        spent = SlicedCpu(self._round_robin)
        self.monotonic += 1.0
        now, wall = self.now(), self.wall()
        gpus = self._gpu()
        for number, block in enumerate(SCHEMA.blocks):
            count = self.fleet.size(block.table)
            if count and block.table is not Table.LINK:
                columns = gpus if block.table is Table.GPU else self._node()
                gauges = np.stack([columns.get(n, _gap(count)) for n in block.gauges], 1)
                tall = (
                    np.stack([columns.get(n, _gap(count)) for n in block.counters], 1)
                    if block.counters
                    else np.empty((count, 0))
                )
                rows = self._speaking(block.table, count)
                self.fleet.store(number, rows, _narrow(gauges[rows]), tall[rows], now)
                await self._pause(spent)
        quiet = set(_picked(SILENT, len(self.fleet.nodes))) if self.second > 2 else set()
        for number, node in enumerate(self.fleet.nodes.values()):
            if number not in quiet:
                node.seen, node.sampled_at, node.seq = now, wall, self.second
        snapshots = self.electrical.snapshots(self.fleet, now, wall)
        await self._pause(spent)
        events = (
            [_xid(self, number, wall) for number in _picked(LOST, len(self.fleet.nodes))] if self.second == 3 else []
        )
        self.happened = [*events, *self.happened]
        for _ in self.pipeline.steps(
            self.fleet, now, wall, events, listening=True, snapshots=() if snapshots is None else snapshots.all()
        ):
            await self._pause(spent)
        self.second += 1
        await self.flush()

    async def _pause(self, spent: SlicedCpu) -> None:
        if not self._still:
            await spent.pause()

    def _speaking(self, table: Table, count: int) -> npt.NDArray[np.intp]:
        each = GPUS if table is Table.GPU else 1
        rows = np.arange(count)
        if self.second <= 2:
            return rows
        return rows[~np.isin(rows // each, _picked(SILENT, count // each))]

    def _gpu(self) -> Mapping[str, Floats]:
        nodes = len(self.fleet.nodes)
        self._wander = 0.9 * self._wander + 0.02 * self._chance.standard_normal(nodes * GPUS)
        load_ = np.clip(np.repeat(self._busy, 16)[:nodes].repeat(GPUS) + self._wander, 0, 1)
        power = 90 + 610 * load_
        self._joules += power
        heat = 32 + 34 * load_ + np.tile(np.arange(GPUS) * 0.7, nodes)
        memory_heat = heat + 14
        for node in _picked(HOT, nodes):
            memory_heat[node * GPUS + 2], heat[node * GPUS + 2] = 99, 92
        flags = np.zeros(nodes * GPUS)
        flags[[node * GPUS + 5 for node in _picked(WARM, nodes)]] = 1
        columns = {
            "gpu_power_watts": power, "gpu_power_limit_watts": np.full(len(power), 700.0),
            "gpu_temperature_celsius": heat, "gpu_memory_temperature_celsius": memory_heat,
            "gpu_utilization_ratio": load_, "gpu_memory_used_bytes": (8 + 66 * load_) * 2.0**30,
            "gpu_memory_total_bytes": np.full(len(power), 80 * 2.0**30),
            "gpu_sm_clock_hertz": 1.98e9 - 3e8 * load_, "gpu_temperature_slowdown_celsius": np.full(len(power), 90.0),
            "gpu_memory_temperature_max_operating_celsius": np.full(len(power), 95.0),
            "gpu_clocks_event_sw_power_cap": (load_ > 0.97).astype(float),
            "gpu_clocks_event_hw_thermal_slowdown": np.zeros(len(power)),
            "gpu_remapped_rows_pending": flags, "gpu_ecc_volatile_uncorrected_total": np.zeros(len(power)),
            "gpu_energy_joules_total": self._joules.copy(),
        }  # fmt: skip
        if self.second > 2:
            gone = [node * GPUS for node in _picked(LOST, nodes)]
            for values in columns.values():
                values[gone] = GAP[Gap.DEVICE_LOST]
        return columns

    def _node(self) -> Mapping[str, Floats]:
        power = self.fleet.column("gpu_power_watts", self.now())
        sums = np.nansum(power.reshape(-1, GPUS), axis=1) if power.size else np.zeros(len(self.fleet.nodes))
        count = len(sums)
        return {
            "node_wall_power_watts": (sums + 1900.0) * 1.06, "node_driver_up": np.ones(count),
            "node_gpus_expected": np.full(count, 8.0), "node_gpus_answering": np.full(count, 8.0),
            "node_cpu_utilization_ratio": np.full(count, 0.2), "node_uptime_seconds": np.full(count, 3e6),
            "node_memory_total_bytes": np.full(count, 2.0**41), "node_memory_available_bytes": np.full(count, 2.0**40),
        }  # fmt: skip


def _picked(numbers: Sequence[int], nodes: int) -> list[int]:
    return sorted({number % nodes for number in numbers})


def _gap(count: int) -> Floats:
    return np.full(count, GAP[Gap.NOT_SUPPORTED])


def _narrow(wide: Floats) -> npt.NDArray[np.float32]:
    """Return the values as float32, whose NaN have the reasons too."""
    return wide.astype(np.float32)


def _inventory(name: str, number: int, of: str) -> Inventory:
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{number:08x}-{index}",
            index=index,
            name="NVIDIA H100 80GB HBM3",
            pci=f"0000:{16 * index + 27:02x}:00.0",
            serial=f"165{number:06d}{index}",
            power_limit_watts=700.0,
        )
        for index in range(GPUS)
    )
    pool = MemoryPool(gpus=tuple(gpu.uuid for gpu in gpus), bytes=640 * 2**30, over="nvswitch")
    return Inventory(
        node=name,
        cluster="site-a",
        session=7,
        kilowatch=of,
        source="simulated:stage",
        driver_version="580.105.08",
        driver_state="up",
        gpus=gpus,
        pools=(pool,),
        host={"rack": f"R{number // A_RACK + 1:03d}", "job": f"job-{8800 + number // 16}", "product": "DGX H100"},
    )


def _site(names: Sequence[str]) -> dict[str, Any]:
    racks = [names[first : first + A_RACK] for first in range(0, len(names), A_RACK)]
    panels: dict[str, Any] = {}
    circuits: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for number, rack in enumerate(racks):
        for role in "AB":
            panel = f"RPP-{number // 8 + 1:02d}{role}"
            panels[panel] = {"volts": 415, "wiring": "3ph-wye", "breaker": 800, "source": f"utility-{role}"}
            tight = number == min(TIGHT, len(racks) - 1) and role == "A"
            circuits[f"PDU-{number + 1:03d}{role}"] = {
                "panel": panel,
                "breaker": 15 if tight else 80,
                "poles": 3,
                "redundancy": {"group": f"R{number + 1:03d}", "role": role, "scheme": "2N"},
            }
        for node in rack:
            cords = [
                {"psu": "1-3", "circuit": f"PDU-{number + 1:03d}A"},
                {"psu": "4-6", "circuit": f"PDU-{number + 1:03d}B"},
            ]
            nodes[node] = {"profile": "dgx-h100", "cords": cords}
    return {
        "region": "US",
        "site": {"tariff": 0.09, "pue": 1.3},
        "panels": panels,
        "circuits": circuits,
        "nodes": nodes,
    }


def _xid(live: LiveFleet, number: int, wall: int) -> Event:
    name = list(live.fleet.nodes)[number]
    gpu = live.fleet.nodes[name].inventory.gpus[0]
    return Event(
        id=f"7-{number}",
        node=name,
        at=wall,
        kind="xid",
        gpu=gpu.uuid,
        pci=gpu.pci,
        message="XID 79: GPU has fallen off the bus",
        data={"xid": 79},
    )


async def run(nodes: int, listen: str, seconds: float) -> None:
    """Serve the fleet."""
    fleet = LiveFleet(nodes)
    await fleet.beat()
    async with listening(fleet, HttpConfig(listen=listen)) as (host, port):
        sys.stdout.write(f"http://{host}:{port}\n")
        sys.stdout.flush()
        due = time.monotonic()
        end = due + seconds
        while due < end:
            due += 1.0
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await fleet.beat()


def main(arguments: Sequence[str]) -> int:
    """Serve for some seconds."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--http", default="127.0.0.1:0")
    parser.add_argument("--seconds", type=float, default=86_400.0)
    options = parser.parse_args(arguments)
    asyncio.run(run(options.nodes, options.http, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
