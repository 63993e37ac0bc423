"""Ports of a simulated node's network adapters: one InfiniBand port for each GPU, as a DGX H100 has.

A port's counters are closed forms of the second, as the GPUs' are; the host counts the same bytes.
"""

from __future__ import annotations

from collector.simulated.chassis import NodeChassis
from collector.simulated.columns import HEAD, layout
from collector.simulated.faults import FaultKind, SimulatedFault
from collector.simulated.jobs import SimulatedJob
from telemetry.devices import PORT_PREFIX, Gpu, Port
from telemetry.gap import NOT_READ
from telemetry.wire.schema import PORT_SLOW, SCHEMA

_SPEED = 50e9
"""Bytes a second of a port of 400 Gb/s (NDR)."""
_PACKET = 4096
_COMPUTED = (
    "port_state",
    "port_physical_state",
    "port_speed_bytes_per_second",
    "port_width",
    "port_speed_usual_bytes_per_second",
    "port_role",
    "port_receive_bytes_total",
    "port_transmit_bytes_total",
    "port_receive_packets_total",
    "port_transmit_packets_total",
    "port_link_downs_total",
)
_PICK = layout(PORT_SLOW, _COMPUTED, zeros=frozenset(SCHEMA.blocks[PORT_SLOW].counters) - frozenset(_COMPUTED))
"""Counters that no fault moves are 0; whatever else a simulated port does not have is a gap."""


def ports_of(node: str, gpus: tuple[Gpu, ...]) -> tuple[Port, ...]:
    """Return the ports of a node, each near one of its GPUs."""
    return tuple(
        Port(
            id=f"{PORT_PREFIX}{node}:{_pci(number)}/1",
            adapter=f"mlx5_{number}",
            number=1,
            pci=_pci(number),
            numa_node=number // 4,
            link_layer="InfiniBand",
            model="MT4129 simulated",
            firmware="28.39.1002",
            gpu=gpu.uuid,
            role="compute",
            rail=number,
        )
        for number, gpu in enumerate(gpus)
    )


def _pci(number: int) -> str:
    return f"0000:{0x19 + 0x20 * (number % 4) + 0x80 * (number // 4):02x}:00.1"


def rows(
    chassis: NodeChassis, job: SimulatedJob, faults: tuple[SimulatedFault, ...], count: int, second: int, boot: int
) -> list[list[float]]:
    """Return the row of each port at a second of a node that started at second `boot`."""
    programme = job.programme
    load = programme.levels_until(second + job.shift) - programme.levels_until(boot - 1 + job.shift)
    moved = int(chassis.network_rate * load / count) + 500 * (second - boot + 1)
    found = []
    for number in range(count):
        own = [fault for fault in faults if fault.gpu == number]
        downs = [fault for fault in own if fault.kind is FaultKind.PORT_DOWN]
        down = any(fault.start <= second < fault.end for fault in downs)
        slow = any(fault.kind is FaultKind.PORT_SLOW and fault.start <= second < fault.end for fault in own)
        speed = NOT_READ if down else _SPEED / 2 if slow else _SPEED
        falls = sum(boot <= fault.start <= second for fault in downs)
        packets = moved // _PACKET
        found.append(
            list(
                _PICK(
                    (
                        *HEAD,
                        1 if down else 4,
                        2 if down else 5,
                        speed,
                        NOT_READ if down else 2 if slow else 4,
                        NOT_READ if down else _SPEED,
                        1,
                        moved,
                        moved,
                        packets,
                        packets,
                        falls,
                    )
                )
            )
        )
    return found
