"""Nodes of a scenario, created on first use, and their rows."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from collector.simulated.columns import HEAD, layout
from collector.simulated.course import EffectSpan
from collector.simulated.faults import SILENT
from collector.simulated.gpu import SimulatedGpu
from collector.simulated.gpu_slow import LEAST, least_link, slow
from collector.simulated.host import SimulatedHost
from collector.simulated.jobs import SimulatedJob, many_jobs, one_job
from collector.simulated.ports import rows as port_rows
from collector.simulated.programme import HOUR, programme
from collector.simulated.random import draw, noise
from collector.simulated.scenario import Scenario
from telemetry.errors import ConfigError, did_you_mean
from telemetry.gap import DEVICE_LOST, TIMED_OUT
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, NODE_FAST, NODE_SLOW, PORT_SLOW, SCHEMA

# NVLink rows of simulated GPUs: every link carries about an equal share of its GPU's traffic.

SPEED = 26.562e9
"""Bytes a second of one fourth-generation link in one direction, as the driver reports it."""

_PICK_FAST = layout(LINK_FAST, ("link_state",))
_PICK_SLOW = layout(
    LINK_SLOW,
    (
        "link_speed_bytes_per_second",
        "link_transmit_bytes_per_second",
        "link_receive_bytes_per_second",
        "link_transmit_bytes_total",
        "link_receive_bytes_total",
    ),
    zeros=frozenset(
        {
            "link_replays_total",
            "link_recoveries_total",
            "link_recoveries_successful_total",
            "link_recoveries_failed_total",
            "link_crc_errors_total",
        }
    ),
)


def link_fast(gpu: SimulatedGpu) -> list[list[float]]:
    """Return one row for each link of a GPU: all are up."""
    return [list(_PICK_FAST((*HEAD, 1.0))) for _ in range(gpu.board.links)]


def link_slow(gpu: SimulatedGpu, second: int, span: EffectSpan) -> list[list[float]]:
    """Return one row for each link of a GPU at a second, which lies in `span`."""
    levels, shift = gpu.job.programme.levels_until, gpu.shift
    load = levels(second + shift) - levels(span.boot - 1 + shift)
    level = gpu.job.programme.level[(second + shift) % HOUR]
    least = least_link(gpu)
    found = []
    for number in range(gpu.board.links):
        sent, received = (LEAST, LEAST) if number == least else (1.0 + number * 1e-4, 1.0)
        out, back = (gpu.board.nvlink_rate / gpu.board.links * part for part in (sent, received))
        found.append(list(_PICK_SLOW((*HEAD, SPEED, level * out, level * back, int(load * out), int(load * back)))))
    return found


_DAY = 86_400
_WARMER = {"desktop-4x5090": (0.0, 3.0, 4.0, 1.5)}
"""Degrees by slot, where cards take in each other's warm air."""


def _gaps(reason: float) -> dict[int, tuple[float, ...]]:
    """Return a row of gaps for every block."""
    return {number: (reason,) * len(block.names) for number, block in enumerate(SCHEMA.blocks)}


_LOST = _gaps(DEVICE_LOST)
_HUNG = _gaps(TIMED_OUT)


Rows = dict[int, list[list[float]]]
"""Rows of readings by block number, in inventory order."""


class SimulatedNode:
    """Node of a scenario: its GPUs and its host. Immutable after creation."""

    def __init__(self, scenario: Scenario, name: str, jobs: dict[str, SimulatedJob]) -> None:
        self.scenario = scenario
        self.name = name
        self.job = jobs[name]
        kind, seed = scenario.kind, scenario.seed
        self.boot = -(3 * _DAY + draw(seed, name, "boot") % (27 * _DAY))
        """Second of the last boot before the scenario's start."""
        faults = [
            (fault, self.job.synchronous and jobs[fault.node] is self.job)
            for fault in scenario.faults
            if fault.node == name or jobs[fault.node] is self.job
        ]
        self.faults = tuple(fault for fault, _ in faults if fault.node == name)
        warmer = _WARMER.get(scenario.name, (0.0, 0.5, 2.0, 2.5))
        inlet = 23.0 + draw(seed, name, "inlet") % 3
        self.gpus = tuple(
            SimulatedGpu.of(
                kind.board, self.job, seed, name, index, self.boot, inlet + warmer[index % len(warmer)], faults
            )
            for index in range(scenario.gpus)
        )
        training = scenario.name != "fleet"
        reference = self.job.programme if training else programme(seed, "training", 0)
        base = kind.chassis.base(kind.board, reference)
        self.host = SimulatedHost(kind.chassis, self.job, seed, name, base, noise(seed))
        self.has_links = scenario.links and kind.board.links > 0
        self.calm = all(len(gpu.course.spans) == 1 for gpu in self.gpus)
        self.first = tuple(gpu.course.spans[0] for gpu in self.gpus)

    def spans(self, second: int) -> tuple[EffectSpan, ...]:
        """Return the span that each GPU is in."""
        if self.calm:
            return self.first
        return tuple(gpu.course.at(second) for gpu in self.gpus)

    def silent(self, second: int) -> bool:
        """Return whether the node sends nothing in this second."""
        return any(fault.kind in SILENT and fault.start <= second < fault.end for fault in self.faults)

    def fast(self, second: int) -> Rows:
        """Return the rows of all fast blocks."""
        spans = self.spans(second)
        total, rows, hung = 0.0, [], 0
        for gpu, span in zip(self.gpus, spans, strict=True):
            if span.effect.lost or span.effect.hung:
                total += gpu.watts(second, span)
                hung += span.effect.hung
                rows.append(_dead(span, GPU_FAST))
            else:
                watts, row = gpu.fast(second, span)
                total += watts
                rows.append(row)
        out = {GPU_FAST: rows, NODE_FAST: [self.host.fast(second, spans[0].boot, total, 2 * hung)]}
        if self.has_links:
            out[LINK_FAST] = [
                row
                for gpu, span in zip(self.gpus, spans, strict=True)
                for row in _dead_links(gpu, span, LINK_FAST) or link_fast(gpu)
            ]
        return out

    def slow(self, second: int) -> Rows:
        """Return the rows of all slow blocks."""
        spans = self.spans(second)
        out = {
            GPU_SLOW: [
                _dead(span, GPU_SLOW) if span.effect.lost or span.effect.hung else slow(gpu, second, span)
                for gpu, span in zip(self.gpus, spans, strict=True)
            ],
            NODE_SLOW: [self.host.slow(second, spans[0].boot, 2 * sum(span.effect.hung for span in spans))],
        }
        if self.scenario.kind.ports:
            out[PORT_SLOW] = port_rows(
                self.scenario.kind.chassis, self.job, self.faults, len(self.gpus), second, spans[0].boot
            )
        if self.has_links:
            out[LINK_SLOW] = [
                row
                for gpu, span in zip(self.gpus, spans, strict=True)
                for row in _dead_links(gpu, span, LINK_SLOW) or link_slow(gpu, second, span)
            ]
        return out

    def lost(self, second: int) -> tuple[int, ...]:
        """Return the indexes of the GPUs that have left the bus."""
        if self.calm:
            return ()
        return tuple(gpu.index for gpu, span in zip(self.gpus, self.spans(second), strict=True) if span.effect.lost)


def _dead(span: EffectSpan, block: int) -> list[float]:
    return list((_LOST if span.effect.lost else _HUNG)[block])


def _dead_links(gpu: SimulatedGpu, span: EffectSpan, block: int) -> list[list[float]]:
    """Return rows of gaps for the links of a GPU that doesn't answer, else none."""
    if not (span.effect.lost or span.effect.hung):
        return []
    return [_dead(span, block) for _ in range(gpu.board.links)]


class SimulatedCluster:
    """Nodes of a scenario, each created on first use."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        seed, nodes = scenario.seed, scenario.nodes
        self._jobs = many_jobs(seed, nodes) if scenario.name == "fleet" else one_job(scenario.name, seed, nodes)
        self.nodes_of_jobs = dict(Counter(job.number for job in self._jobs.values()))
        """Number of nodes of each job, by its number."""
        self._racks = dict(zip(nodes, scenario.racks, strict=True))
        self._nodes: dict[str, SimulatedNode] = {}

    def rack(self, node: str) -> str | None:
        """Return the rack of a node."""
        return self._racks[node]

    def node(self, name: str) -> SimulatedNode:
        """Return a node. Raises `ConfigError` when the scenario has none of that name."""
        if name not in self._nodes:
            if name not in self._jobs:
                hint = did_you_mean(name, self._jobs) or f"The first is {self.scenario.nodes[0]}."
                raise ConfigError("scenario", f"{self.scenario.name} has no node {name!r}", hint)
            self._nodes[name] = SimulatedNode(self.scenario, name, self._jobs)
        return self._nodes[name]


@lru_cache(maxsize=4)
def cluster(scenario: Scenario) -> SimulatedCluster:
    """Return the cluster of a scenario, cached because its nodes share one table of jobs."""
    return SimulatedCluster(scenario)
