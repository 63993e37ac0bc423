"""An hour of a fleet as the messages of its bus, from the figures of `noise.toml`, with planted faults.

All readings of a tick are computed at once for the whole fleet; the messages are those of real collectors,
encoded by the collector's own code, and what the kernel logs goes through its parser and its merging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collector.host.kernel_log import event_of
from collector.recording.file import RecordedMessage
from collector.sampling.xid_events import XidEvents
from collector.source import DeviceEvent
from telemetry.devices import Event, Gpu, Link
from telemetry.gap import DEVICE_LOST, NOT_SUPPORTED, TIMED_OUT
from telemetry.metric import Table
from telemetry.notations.kernel_log import parse_line
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, Inventory, NodeState
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, NODE_FAST, NODE_SLOW, SCHEMA, SCHEMA_ID
from telemetry.wire.topics import Topic, phase_of
from tests.alerts.planted.cases import DURATION, FaultCase, PlantedFault, noise, plant

Floats = npt.NDArray[np.float64]

BEGAN = 1_790_000_000 * 1_000_000_000
"""ns since 1970 of the first second."""
A_RACK = 4
IDLE, MIXED, TRAINING = range(3)
_GAPS = {"device_lost": DEVICE_LOST, "timed_out": TIMED_OUT}
_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
_GIB = 1024.0**3


def name_of(node: int) -> str:
    """Return the name of a node."""
    return f"gpu-{node + 1:03d}"


def pci_of(gpu: int) -> str:
    """Return the address of a GPU without its function."""
    return f"0000:{_BUSES[gpu]:02x}:00"


def uuid_of(node: int, gpu: int) -> str:
    """Return the UUID of a GPU."""
    return f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"


def circuits() -> dict[str, Any]:
    """Return the `[power]` section: racks of four nodes, each on a three-phase circuit of 80 A."""
    count = noise()["fleet"]["nodes"]
    return {
        "region": "US",
        "circuits": {
            f"rack-{rack + 1:02d}": {
                "breaker": 80,
                "volts": 208,
                "poles": 3,
                "wiring": "3ph-wye",
                "nodes": [name_of(rack * A_RACK + one) for one in range(A_RACK)],
            }
            for rack in range(count // A_RACK)
        },
        "nodes": {
            name_of(node): {"gpus": "8x A100 SXM", "host_watts": noise()["load"]["host_watts"]} for node in range(count)
        },
    }


@dataclass(slots=True)
class _Block:
    """Readings of one block for the whole fleet: a row a device, as in the frame."""

    number: int
    rows: int
    """Of one node."""
    gauges: npt.NDArray[np.float32]
    counters: Floats

    @classmethod
    def of(cls, number: int, rows: int, nodes: int) -> _Block:
        """Return a block that supports nothing yet."""
        block = SCHEMA.blocks[number]
        return cls(
            number,
            rows,
            np.full((nodes * rows, len(block.gauges)), NOT_SUPPORTED).astype(np.float32),
            np.full((nodes * rows, len(block.counters)), NOT_SUPPORTED),
        )

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return the column of a metric, as a view."""
        block = SCHEMA.blocks[self.number]
        if name in block.gauges:
            return self.gauges[:, block.gauges.index(name)]
        return self.counters[:, block.counters.index(name)]

    def packed(self, node: int) -> frames.PackedBlock:
        """Return the rows of a node as they cross the bus."""
        rows = slice(node * self.rows, (node + 1) * self.rows)
        return frames.PackedBlock(self.number, self.rows, self.gauges[rows].tobytes(), self.counters[rows].tobytes())


_PLACES = {name: number for number, block in enumerate(SCHEMA.blocks) for name in block.names}


@dataclass(slots=True)
class _Node:
    """State that the collector of a node keeps."""

    session: int
    seq: int = 0
    events: int = 0
    stopped: bool = False
    merged: XidEvents = field(default_factory=XidEvents)
    due: list[tuple[int, str]] = field(default_factory=list)
    """Lines that the kernel logs: when (ns since 1970), and what."""


class PlantedFleet:
    """A fleet for one hour. The same seed gives the same messages."""

    def __init__(self, seed: int, *, faulty: bool, interval: float | None = None) -> None:
        self.figures = figures = noise()
        self.random = random = np.random.default_rng([seed, 0])
        self.count, self.gpus = figures["fleet"]["nodes"], figures["fleet"]["gpus"]
        self.links = self.gpus * figures["fleet"]["links"]
        self.interval = interval or figures["collection"]["interval_seconds"]
        self.slow_every = max(1, round(figures["collection"]["slow_seconds"] / self.interval))
        self.total = self.count * self.gpus
        self._jobs()
        training = [node for node in range(self.count) if self.kind_of_node[node] == TRAINING]
        self.faults: list[PlantedFault] = plant(seed, training, self.count, A_RACK) if faulty else []
        self.blocks = {
            GPU_FAST: _Block.of(GPU_FAST, self.gpus, self.count),
            GPU_SLOW: _Block.of(GPU_SLOW, self.gpus, self.count),
            LINK_FAST: _Block.of(LINK_FAST, self.links, self.count),
            LINK_SLOW: _Block.of(LINK_SLOW, self.links, self.count),
            NODE_FAST: _Block.of(NODE_FAST, 1, self.count),
            NODE_SLOW: _Block.of(NODE_SLOW, 1, self.count),
        }
        self.nodes = [_Node(int(random.integers(1, 1 << 40))) for _ in range(self.count)]
        self._boards()
        self._constants()
        self._applications()
        self._operators()

    # -- What the fleet is -------------------------------------------------------------------------

    def _jobs(self) -> None:
        """Give each node a job, with the shares that were recorded."""
        shares = self.figures["shares"]
        kinds = np.array([shares["idle"], shares["mixed"], shares["training"]])
        self.job, self.kind_of_node = np.zeros(self.count, int), np.zeros(self.count, int)
        node, job = 0, 0
        while node < self.count:
            size = int(self.random.choice([1, 2, 4, 8, 16]))
            self.job[node : node + size] = job
            self.kind_of_node[node : node + size] = self.random.choice(3, p=kinds)
            node, job = node + size, job + 1
        self.kind = np.repeat(self.kind_of_node, self.gpus)
        low, high = self.figures["load"]["checkpoint_every_seconds"]
        self.period = self.random.integers(low, high, job)[self.job]
        low, high = self.figures["load"]["checkpoint_seconds"]
        self.pause = self.random.integers(low, high, job)[self.job]
        self.phase = self.random.integers(0, 900, job)[self.job]

    def _boards(self) -> None:
        """Draw what differs between boards, and where their counters stand."""
        random, figures, total = self.random, self.figures, self.total
        heat, ecc, pcie = figures["temperature"], figures["ecc"], figures["pcie"]
        self.rank = random.normal(0, figures["power"]["board_share"], total)
        self.rank_of_sample = random.normal(size=total)
        self.per_watt = _uniform(random, heat["celsius_per_watt"], total)
        self.air = np.repeat(_uniform(random, heat["air_celsius"], self.count), self.gpus)
        self.watts = np.full(total, 64.0)
        self.warm = self.watts * self.per_watt
        self.idle_clock = np.repeat(random.choice(figures["clocks"]["idle_hertz"], self.count), self.gpus)
        weak = random.random(total) < ecc["boards_with_errors"]
        low, high = np.log(ecc["lifetime"])
        life = np.where(weak, np.exp(random.uniform(low, high, total)), 0.0)
        self.ecc_an_hour = life / ecc["lifetime_hours"]
        slow = self.blocks[GPU_SLOW].column
        slow("gpu_ecc_volatile_corrected_total")[:] = np.minimum(np.floor(life), ecc["volatile_at_start"])
        slow("gpu_ecc_aggregate_corrected_total")[:] = np.floor(life)
        slow("gpu_remapped_rows_correctable")[:] = np.where(
            weak, random.integers(0, ecc["remapped_rows"][1] + 1, total), 0
        )
        slow("gpu_pcie_replays_total")[:] = _uniform(random, pcie["replays_at_start"], total).round()
        fast = self.blocks[GPU_FAST].column
        clocks = figures["clocks"]
        fast("gpu_energy_joules_total")[:] = random.uniform(1e8, 1e9, total)
        fast("gpu_clocks_event_sw_power_cap_seconds_total")[:] = _uniform(random, clocks["software_cap_seconds"], total)
        fast("gpu_clocks_event_sw_thermal_slowdown_seconds_total")[:] = _uniform(
            random, clocks["software_thermal_seconds"], total
        )
        for name in ("hw_thermal_slowdown", "hw_power_brake_slowdown"):
            fast(f"gpu_clocks_event_{name}_seconds_total")[:] = 0.0

    def _constants(self) -> None:
        """Fill the columns that do not change in a healthy hour."""
        fleet = self.figures["fleet"]
        busy = self.kind != IDLE
        fast = dict.fromkeys(
            ("gpu_performance_state", "gpu_clocks_event_applications_clocks_setting",
             "gpu_clocks_event_sync_boost", "gpu_clocks_event_sw_thermal_slowdown",
             "gpu_clocks_event_hw_slowdown", "gpu_clocks_event_hw_thermal_slowdown",
             "gpu_clocks_event_hw_power_brake_slowdown", "gpu_clocks_event_display_clocks_setting",
             "gpu_recovery_action"), 0.0,
        )  # fmt: skip
        used = np.where(busy, self.random.uniform(40, 76, self.total), 0.5) * _GIB
        memory = {"gpu_memory_used_bytes": used, "gpu_memory_free_bytes": 79.3 * _GIB - used,
                  "gpu_memory_clock_hertz": 1.593e9, "gpu_clocks_event_idle": np.where(busy, 0, 1)}  # fmt: skip
        limit = float(fleet["limit_watts"])
        slow = {
            "gpu_power_limit_watts": limit, "gpu_power_limit_requested_watts": limit,
            "gpu_power_limit_default_watts": limit, "gpu_power_limit_max_watts": limit,
            "gpu_power_limit_min_watts": 100.0,
            "gpu_temperature_shutdown_celsius": fleet["shutdown_celsius"],
            "gpu_temperature_slowdown_celsius": fleet["slowdown_celsius"],
            "gpu_temperature_max_operating_celsius": fleet["max_operating_celsius"],
            "gpu_memory_temperature_max_operating_celsius": fleet["memory_max_celsius"],
            "gpu_sm_clock_max_hertz": fleet["sm_clock_hertz"],
            "gpu_memory_clock_max_hertz": 1.593e9, "gpu_memory_total_bytes": 80 * _GIB,
            "gpu_pcie_link_generation": 4, "gpu_pcie_link_generation_max": 4,
            "gpu_pcie_link_width": 16, "gpu_pcie_link_width_max": 16,
            "gpu_processes": np.where(busy, 1, 0), "gpu_mig_mode": 0, "gpu_ecc_mode": 1,
            "gpu_remapped_rows_uncorrectable": 0, "gpu_remapped_rows_pending": 0,
            "gpu_remapped_rows_failure": 0, "gpu_pcie_replay_rollovers_total": 0,
            "gpu_ecc_volatile_uncorrected_total": 0, "gpu_ecc_aggregate_uncorrected_total": 0,
        }  # fmt: skip
        links = {"link_speed_bytes_per_second": 25e9, "link_transmit_bytes_total": 0,
                 "link_receive_bytes_total": 0, "link_replays_total": 0,
                 "link_recoveries_total": 0, "link_crc_errors_total": 0}  # fmt: skip
        node = {"node_driver_up": 1, "node_gpus_expected": self.gpus,
                "node_gpus_answering": self.gpus, "node_collector_tasks_failing": 0,
                "node_ticks_skipped_total": 0, "node_processes_blocked": 0,
                "node_memory_available_bytes": 900 * _GIB, "node_load_1m": 20.0}  # fmt: skip
        host = {"node_memory_total_bytes": 1024 * _GIB, "node_cpus": 128, "node_load_5m": 20.0,
                "node_load_15m": 20.0, "node_filesystem_free_bytes": 800e9,
                "node_collector_memory_bytes": 60e6, "node_collector_cpu_seconds_total": 100.0,
                "node_probes_abandoned_total": 0, "node_uptime_seconds": 2.6e6,
                "node_clock_offset_seconds": 0.0, "node_clock_synchronised": 1,
                "node_filesystem_free_ratio": 0.8, "node_root_free_ratio": 0.8,
                "node_edac_correctable_errors_total": 0, "node_edac_uncorrectable_errors_total": 0,
                "node_oom_kills_total": 0, "node_hung_tasks_total": 0,
                "node_pressure_memory_stalled_seconds_total": 0,
                "node_pcie_correctable_errors_total": 0, "node_pcie_nonfatal_errors_total": 0,
                "node_pcie_fatal_errors_total": 0, "node_root_read_only": 0, "node_network_mounts": 2,
                "node_network_mounts_failing": 0, "node_network_mounts_missing": 0,
                "node_nvme_drives": 8, "node_nvme_drives_live": 8,
                "node_cpu_temperature_celsius": 60, "node_cpu_headroom_celsius": 40}  # fmt: skip
        for number, values in (
            (GPU_FAST, fast | memory),
            (GPU_SLOW, slow),
            (LINK_FAST, {"link_state": 1}),
            (LINK_SLOW, links),
            (NODE_FAST, node),
            (NODE_SLOW, host),
        ):
            for name, value in values.items():
                self.blocks[number].column(name)[:] = value
        sd = self.figures["collection"]["clock_sd_seconds"]
        self.clock = (self.random.normal(0, sd, self.count) * 1e9).astype(np.int64)

    def _applications(self) -> None:
        """Schedule what programs make the kernel log."""
        random, figures = self.random, self.figures["applications"]
        for number in range(random.poisson(figures["bursts_an_hour"])):
            node, gpu = int(random.integers(self.count)), int(random.integers(self.gpus))
            at, pid = int(random.integers(5, DURATION - 5)) * 10**9, 100_000 + number
            start = f"NVRM: Xid (PCI:{pci_of(gpu)}):"
            sort = random.choice(["burst", "mmu", "stopped"])
            lines = []
            if sort == "burst":
                lines = [
                    f"{start} 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on "
                    f"(GPC {random.integers(7)}, TPC {random.integers(8)}, SM {random.integers(2)}): "
                    "Out Of Range Address"
                    for _ in range(figures["lines_in_burst"])
                ]
            if sort == "mmu":
                lines = [
                    f"{start} 31, pid={pid}, name=python3, Ch 00000007, intr 00000000. MMU Fault: "
                    "ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f21_4ac00000. Fault is of type "
                    "FAULT_PDE ACCESS_TYPE_VIRT_READ"
                ]
            lines.append(f"{start} 43, pid={pid}, name=python3, Ch 00000008")
            spread = figures["burst_milliseconds"] * 1_000_000 // len(lines)
            self._log(node, [(at + place * spread, line) for place, line in enumerate(lines)])
        for _ in range(random.poisson(figures["jobs_ended_an_hour"])):
            job, at = int(random.integers(self.job[-1] + 1)), int(random.integers(5, DURATION - 5))
            for node in map(int, np.flatnonzero(self.job == job)):
                self._log(
                    node,
                    [
                        (
                            at * 10**9 + gpu * 10**6,
                            f"NVRM: Xid (PCI:{pci_of(gpu)}): 45, pid={5000 + gpu}, name=python3, Ch {channel:08x}",
                        )
                        for gpu in range(self.gpus)
                        for channel in range(figures["lines_at_job_end"])
                    ],
                )
        for _ in range(random.poisson(figures["switch_lines_an_hour"])):
            line = f"nvidia-nvswitch2: SXid (PCI:0000:c6:00.0): 28006, Non-fatal, Link {random.integers(36)} MC TS crumbstore MCTO (First)"
            self._log(int(random.integers(self.count)), [(int(random.integers(5, DURATION - 5)) * 10**9, line)])
        for fault in self.faults:
            pcis = [pci_of(gpu) for gpu in fault.gpus] or [""]
            for node in fault.nodes:
                lines = [line.replace("{pci}", pci) for pci in pcis for line in fault.case.lines]
                self._log(node, [(fault.second * 10**9 + place * 10**6, line) for place, line in enumerate(lines)])

    def _operators(self) -> None:
        """Choose the nodes that are switched off on purpose, and whose collectors restart."""
        figures = self.figures["collection"]
        taken = {node for fault in self.faults for node in fault.nodes}
        free = [int(node) for node in self.random.permutation(self.count) if node not in taken]
        stops = figures["planned_stops"]
        seconds = self.random.integers(600, 3000, stops + figures["collector_restarts"])
        self.stops = dict(zip(free[:stops], map(int, seconds), strict=False))
        self.restarts = dict(zip(free[stops : len(seconds)], map(int, seconds[stops:]), strict=True))

    def _log(self, node: int, lines: list[tuple[int, str]]) -> None:
        self.nodes[node].due += [(BEGAN + at, line) for at, line in lines]
        self.nodes[node].due.sort()

    # -- The messages ------------------------------------------------------------------------------

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield the messages of the hour in the order of time."""
        phases = [phase_of(name_of(node)) * self.interval for node in range(self.count)]
        order = sorted(range(self.count), key=lambda node: phases[node])
        jitter = self.figures["collection"]["jitter_seconds"]
        lost = self.figures["collection"]["lost_frames"]
        for node in order:
            at = BEGAN + round(phases[node] * 1e9)
            yield from self._greeting(node, at)
        for tick in range(1, round(DURATION / self.interval)):
            second = tick * self.interval
            self._readings(second)
            slow = tick % self.slow_every == 1 or self.slow_every == 1
            late = self.random.uniform(0, jitter, self.count)
            gone = self.random.random(self.count) < lost
            batch: list[RecordedMessage] = []
            for node in order:
                sampled = BEGAN + round((second + phases[node]) * 1e9)
                at = sampled + round(late[node] * 1e9)
                batch += self._of_node(node, at, sampled, slow=slow, lost=bool(gone[node]))
            batch.sort(key=lambda message: message.at)
            yield from batch

    def _greeting(self, node: int, at: int) -> Iterator[RecordedMessage]:
        name, state = name_of(node), self.nodes[node]
        status = CollectorStatus(
            state=NodeState.ONLINE,
            session=state.session,
            interval=self.interval,
            slow_interval=self.interval * self.slow_every,
            at=at,
        )
        yield RecordedMessage(at, Topic.STATUS, name, messages.encode(status))
        gpus = tuple(
            Gpu(
                uuid=uuid_of(node, gpu),
                index=gpu,
                name=self.figures["fleet"]["model"],
                pci=f"{pci_of(gpu)}.0",
                serial=f"13220210{node:03d}{gpu:02d}",
                minor=gpu,
                architecture="Ampere",
                memory_bytes=int(80 * _GIB),
                power_limit_watts=400.0,
                slot=str(gpu + 1),
            )
            for gpu in range(self.gpus)
        )
        links = tuple(
            Link(gpu=uuid_of(node, gpu), number=number, peer_kind="switch")
            for gpu in range(self.gpus)
            for number in range(self.figures["fleet"]["links"])
        )
        inventory = Inventory(
            node=name,
            cluster="planted",
            session=state.session,
            version=1,
            taken_at=at,
            source="nvml",
            driver_version="570.148.08",
            driver_state="up",
            gpus=gpus,
            links=links,
            host={"hostname": name, "rack": f"rack-{node // A_RACK + 1:02d}", "job": f"job-{self.job[node]}"},
        )
        yield RecordedMessage(at, Topic.INVENTORY, name, messages.encode(inventory))

    def _of_node(self, node: int, at: int, sampled: int, *, slow: bool, lost: bool) -> Iterator[RecordedMessage]:
        """Yield what a node sends for one tick: its events, then its frame."""
        state, name = self.nodes[node], name_of(node)
        second = (at - BEGAN) / 1e9
        if state.stopped:
            return
        if self._silent(node, second):
            state.due.clear()
            return
        if node in self.stops and second >= self.stops[node]:
            state.stopped = True
            yield self._event(node, DeviceEvent("collector_stopped", at, message="shutdown"), at)
            status = CollectorStatus(state=NodeState.OFFLINE, session=state.session, at=at, reason="shutdown")
            yield RecordedMessage(at, Topic.STATUS, name, messages.encode(status))
            return
        if node in self.restarts and second >= self.restarts[node]:
            del self.restarts[node]
            state.session, state.seq = state.session + 1, 0
            yield from self._greeting(node, at)
            yield self._event(node, DeviceEvent("collector_started", at), at)
        for event in self._events(node, at):
            yield self._event(node, event, max(event.at, at - round(self.interval * 1e9)))
        numbers: tuple[int, ...] = (GPU_FAST, LINK_FAST, NODE_FAST)
        if slow or state.seq == 0:
            numbers = (GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, NODE_FAST, NODE_SLOW)
        packed = tuple(self.blocks[number].packed(node) for number in numbers)
        frame = frames.Frame(SCHEMA_ID, state.session, state.seq, sampled + int(self.clock[node]), packed)
        state.seq += 1
        if not lost:
            yield RecordedMessage(at, Topic.FRAME, name, frames.encode(frame))

    def _silent(self, node: int, second: float) -> bool:
        return any(fault.case.silent and node in fault.nodes and second >= fault.second for fault in self.faults)

    def _events(self, node: int, at: int) -> list[DeviceEvent]:
        """Return what the collector publishes of the lines that the kernel has logged until now."""
        state = self.nodes[node]
        ready = [entry for entry in state.due if entry[0] <= at]
        state.due = state.due[len(ready) :]
        known = {f"{pci_of(gpu)}.0": uuid_of(node, gpu) for gpu in range(self.gpus)}
        heard = [event_of(record, line, when) for when, line in ready if (record := parse_line(line)) is not None]
        return state.merged.merge(heard, at, known)

    def _event(self, node: int, event: DeviceEvent, at: int) -> RecordedMessage:
        state = self.nodes[node]
        state.events += 1
        body = Event(
            id=f"{state.session}-{state.events}",
            node=name_of(node),
            at=event.at,
            kind=event.kind,
            gpu=event.gpu,
            pci=event.pci,
            message=event.message,
            data=event.data,
        )
        return RecordedMessage(at, Topic.EVENT, name_of(node), msgspec.json.encode(body))

    # -- The readings ------------------------------------------------------------------------------

    def _readings(self, second: float) -> None:
        """Compute all readings at a second; those of faults come last."""
        self._power(second)
        self._counters()
        self._faulty(second)
        node, fast = self.blocks[NODE_FAST].column, self.blocks[GPU_FAST].column
        answers = np.isfinite(fast("gpu_temperature_celsius")).reshape(self.count, self.gpus)
        node("node_gpus_answering")[:] = answers.sum(axis=1)

    def _power(self, second: float) -> None:
        random, figures, total = self.random, self.figures, self.total
        power, heat, load = figures["power"], figures["temperature"], figures["load"]
        self.rank_of_sample = 0.5 * self.rank_of_sample + np.sqrt(0.75) * random.normal(size=total)
        place = _normal(self.rank + power["sample_share"] * self.rank_of_sample)
        training = np.interp(place, power["training_shares"], power["training_quantiles"])
        mixed = np.interp(place, np.linspace(0, 1, 5), power["mixed_quantiles"])
        idle = power["idle_mean"] + power["idle_sd"] * (self.rank + 0.6 * self.rank_of_sample)
        saves = np.repeat((second + self.phase) % self.period < self.pause, self.gpus)
        training = np.where(saves, load["checkpoint_watts"] + 2 * self.rank_of_sample, training)
        watts = np.choose(self.kind, [idle, mixed, training])
        jump = np.clip((watts - self.watts) / 130.0, -1, 1) * heat["step_celsius"]
        self.watts = watts
        share = 1.0 - np.exp(-self.interval / heat["settle_seconds"])
        self.warm += (watts * self.per_watt - self.warm) * share
        warm = self.air + self.warm + 0.5 * jump + random.normal(0, heat["steady_sd"] / 2, total)
        clocks = figures["clocks"]
        limit, top = figures["fleet"]["limit_watts"], figures["fleet"]["sm_clock_hertz"]
        capped = watts >= 0.97 * limit
        dip = np.where(capped, clocks["dip"] * random.random(total), 0.0)
        dip = np.where(random.random(total) < clocks["deep_dip_share"], clocks["deep_dip"], dip)
        clock = np.where(self.kind == IDLE, self.idle_clock, top * (1 - dip) // 15e6 * 15e6)
        used = np.where(saves, 41.0, 100.0)
        busy = np.choose(self.kind, [np.zeros(total), np.clip(20 + 75 * place, 0, 100), used])
        fast = self.blocks[GPU_FAST].column
        low, high = load["driver_latency_seconds"]
        for name, value in {
            "gpu_power_watts": watts,
            "gpu_power_average_watts": watts,
            "gpu_power_instant_watts": watts + 2 * self.rank_of_sample,
            "gpu_temperature_celsius": np.round(warm),
            "gpu_memory_temperature_celsius": np.round(warm + 6),
            "gpu_sm_clock_hertz": clock,
            "gpu_graphics_clock_hertz": clock,
            "gpu_clocks_event_sw_power_cap": capped,
            "gpu_utilization_ratio": np.round(busy) / 100,
            "gpu_memory_utilization_ratio": np.round(busy * 0.6) / 100,
            "gpu_driver_latency_seconds": random.uniform(low, high, total),
            "gpu_performance_state": 0.0,
            "gpu_recovery_action": 0.0,
            "gpu_clocks_event_hw_slowdown": 0.0,
            "gpu_clocks_event_hw_thermal_slowdown": 0.0,
            "gpu_clocks_event_sw_thermal_slowdown": 0.0,
            "gpu_clocks_event_hw_power_brake_slowdown": 0.0,
        }.items():
            fast(name)[:] = value
        node = self.blocks[NODE_FAST].column
        inside = watts.reshape(self.count, self.gpus).sum(axis=1) + load["host_watts"]
        node("node_wall_power_watts")[:] = inside / load["power_supply_efficiency"]
        node("node_cpu_utilization_ratio")[:] = random.uniform(0.1, 0.3, self.count)
        fast("gpu_clocks_event_sw_power_cap_seconds_total")[:] += capped * 0.9 * self.interval

    def _counters(self) -> None:
        random, hours = self.random, self.interval / 3600
        errors = random.poisson(self.ecc_an_hour * hours)
        slow = self.blocks[GPU_SLOW].column
        slow("gpu_ecc_volatile_corrected_total")[:] += errors
        slow("gpu_ecc_aggregate_corrected_total")[:] += errors
        replays = self.figures["pcie"]["replays_an_hour"] * hours
        slow("gpu_pcie_replays_total")[:] += random.poisson(replays, self.total)
        links = self.blocks[LINK_SLOW].column
        sent = np.repeat(np.where(self.kind == TRAINING, 8e9, 0.0), self.links // self.gpus)
        for name in ("link_transmit_bytes_total", "link_receive_bytes_total"):
            links(name)[:] += sent * self.interval
        node = self.blocks[NODE_SLOW].column
        node("node_uptime_seconds")[:] += self.interval
        node("node_collector_cpu_seconds_total")[:] += 0.01 * self.interval

    def _faulty(self, second: float) -> None:
        fast = self.blocks[GPU_FAST].column
        before = fast("gpu_power_watts").copy()
        held = {
            fault.case.name: fast("gpu_energy_joules_total")[self._rows(fault, GPU_FAST)].copy()
            for fault in self.faults
            if fault.case.frozen
        }
        for fault in self.faults:
            if second >= fault.second:
                if "gpu_power_watts" in fault.case.scale:  # far from its limit, it is not held there
                    rows = self._rows(fault, GPU_FAST)
                    total = "gpu_clocks_event_sw_power_cap_seconds_total"
                    self._column(total)[rows] -= (
                        self._column("gpu_clocks_event_sw_power_cap")[rows] * 0.9 * self.interval
                    )
                    self._column("gpu_clocks_event_sw_power_cap")[rows] = 0.0
                self._apply(fault, fault.case, first=second - self.interval < fault.second)
        after = fast("gpu_power_watts")
        lost = (before - np.where(np.isfinite(after), after, before)).astype(np.float64)
        wall = self.blocks[NODE_FAST].column("node_wall_power_watts")
        wall -= lost.reshape(self.count, self.gpus).sum(axis=1) / self.figures["load"]["power_supply_efficiency"]
        energy = fast("gpu_energy_joules_total")
        energy += np.where(np.isfinite(after), after, 0.0) * self.interval
        for fault in self.faults:
            if fault.case.frozen and second >= fault.second:
                rows = self._rows(fault, GPU_FAST)
                energy[rows] = held[fault.case.name]
                fast("gpu_power_watts")[rows] = 391.0
        for fault in self.faults:
            if fault.case.gap and second >= fault.second:
                for number in (GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW):
                    rows = self._rows(fault, number)
                    absent = np.array([_GAPS[fault.case.gap]])
                    self.blocks[number].gauges[rows] = absent.astype(np.float32)
                    self.blocks[number].counters[rows] = absent

    def _apply(self, fault: PlantedFault, case: FaultCase, *, first: bool) -> None:
        for name, value in case.sets.items():
            self._column(name)[self._rows(fault, _PLACES[name], one=True)] = value
        for name, value in case.scale.items():
            self._column(name)[self._rows(fault, _PLACES[name], one=True)] *= value
        for name, value in case.rate.items():
            self._column(name)[self._rows(fault, _PLACES[name], one=True)] += value * self.interval
        for name, value in case.step.items() if first else ():
            self._column(name)[self._rows(fault, _PLACES[name], one=True)] += value

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self.blocks[_PLACES[name]].column(name)

    def _rows(self, fault: PlantedFault, number: int, *, one: bool = False) -> list[int]:
        """Return the rows of a fault in a block; `one`: of all links of a GPU only one."""
        table = SCHEMA.blocks[number].table
        if table is Table.NODE:
            return list(fault.nodes)
        devices = [node * self.gpus + gpu for node in fault.nodes for gpu in fault.gpus]
        if table is Table.GPU:
            return devices
        its = self.links // self.gpus
        links = (5,) if one else range(its)
        return [device * its + link for device in devices for link in links]


def _uniform(random: np.random.Generator, ends: Sequence[float], count: int) -> Floats:
    """Return numbers between two ends."""
    low, high = ends
    return random.uniform(low, high, count)


def _normal(deviation: Floats) -> Floats:
    """Return the share of a normal distribution below each deviation (Page's approximation)."""
    return 0.5 * (1.0 + np.tanh(0.7978845608 * (deviation + 0.044715 * deviation**3)))
