"""A real HTTP API over a fleet whose readings a test sets: what the dashboard talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from api.alerts import Alert, AlertState, Severity
from telemetry.devices import Gpu
from telemetry.gap import GAP, Gap
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import START, FakeView
from tests.kit.waiting import FACTOR
from tui.app import Top


class Cluster(FakeView):
    """Nodes with GPUs that are busy in a way that is a pure function of their place."""

    def __init__(self, nodes: int = 2, gpus: int = 8) -> None:
        super().__init__("lab")
        self.wrong: dict[str, dict[str, float]] = {}
        """Readings by UUID or node name in place of the usual ones."""
        self.muted: set[str] = set()
        for number in range(nodes):
            self.place(f"dgx-{number:02d}", gpus)

    def place(self, name: str, gpus: int, model: str = "NVIDIA H100 80GB HBM3") -> None:
        """Add a node, online."""
        devices = tuple(Gpu(uuid=f"GPU-{name}-{index}", index=index, name=model) for index in range(gpus))
        self.add(
            Inventory(
                node=name,
                cluster="lab",
                session=7,
                source="simulated:test",
                driver_version="595.10",
                driver_state="up",
                gpus=devices,
            )
        )

    async def beat(self, seconds: float = 1.0) -> None:
        """Let time pass, send a frame of every node that is not muted, wake the viewers."""
        self.monotonic += seconds
        for name, node in self.fleet.nodes.items():
            if name in self.muted:
                continue
            devices = {
                Table.GPU: [gpu.uuid for gpu in node.inventory.gpus],
                Table.NODE: [name],
                Table.LINK: [],
                Table.PORT: [],
                Table.INSTANCE: [],
            }
            blocks = {
                number: [
                    [self._reading(device, row, metric) for metric in block.names]
                    for row, device in enumerate(devices[block.table])
                ]
                for number, block in enumerate(SCHEMA.blocks)
            }
            self.put(name, blocks, node.seq + 1)
        await self.flush()

    def _reading(self, device: str, row: int, metric: str) -> float:
        usual = {
            "gpu_power_watts": 650.0 - 40 * row,
            "gpu_power_limit_watts": 700.0,
            "gpu_temperature_celsius": 60.0 + row,
            "gpu_utilization_ratio": 0.98 - row / 10,
            "gpu_memory_used_bytes": (76 - 4 * row) * 2.0**30,
            "gpu_memory_total_bytes": 80 * 2.0**30,
            "gpu_sm_clock_hertz": 1.755e9,
            "gpu_clocks_event_sw_power_cap": float(row == 0),
            "gpu_clocks_event_hw_thermal_slowdown": 0.0,
            "node_wall_power_watts": 6234.0,
        }
        known = usual | self.wrong.get(device, {})
        return known.get(metric, GAP[Gap.NOT_SUPPORTED])

    def lose(self, uuid: str) -> None:
        """Let a GPU fall off the bus, with its alert."""
        self.silence(uuid, Gap.DEVICE_LOST)
        self.raise_alert("gpu_lost", uuid, f"{uuid} has fallen off the bus")

    def silence(self, uuid: str, reason: Gap) -> None:
        """Let all readings of a GPU be gaps."""
        self.wrong[uuid] = {metric: GAP[reason] for block in SCHEMA.blocks for metric in block.names}

    def raise_alert(
        self,
        rule: str,
        uuid: str | None,
        summary: str,
        severity: Severity = Severity.PAGE,
        state: AlertState = AlertState.FIRING,
        node: str = "dgx-00",
    ) -> None:
        """Add an alert that began with the clock."""
        self.raised.append(
            Alert(
                key=f"{rule}/{node}/{uuid}",
                rule=rule,
                state=state,
                severity=severity,
                node=node,
                gpu=uuid,
                since=START,
                changed=START,
                summary=summary,
            )
        )


@asynccontextmanager
async def served(cluster: Cluster, token: Path | None = None) -> AsyncIterator[str]:
    """The aggregator's real HTTP server over a cluster; yields its URL."""
    config = HttpConfig(listen="127.0.0.1:0", token_file=token)
    async with listening(cluster, config) as (host, port):
        yield f"http://{host}:{port}"


def text_of(app: Top) -> str:
    """The screen as text, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def until(pilot: Pilot[None], holds: Callable[[str], bool], patience: int = 1200) -> str:
    """Wait until the screen's text fulfils a condition; returns it. The screen is given a turn before each look,
    also before the first."""
    screen = ""
    for _ in range(round(patience * FACTOR)):
        await pilot.pause(0.05)
        screen = text_of(pilot.app)  # type: ignore[arg-type]
        if holds(screen):
            return screen
    raise AssertionError(f"it never came to that:\n{screen}")
