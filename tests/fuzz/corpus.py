"""Valid inputs of every kind, made by the real encoders, of nodes of several shapes."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from aggregator.http.operations import OPERATIONS
from collector.simulated import scenario
from collector.simulated.expect import expected_rows
from collector.simulated.inventory import uuid_of
from telemetry.devices import Event, Gpu, Link, MemoryPool, MigInstance
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import (
    CollectorStatus,
    Command,
    CommandKind,
    CommandReply,
    FrameSpan,
    Inventory,
    NodeState,
)
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, JobSourceState, NodeJobs
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA

HOSTILE = tuple(f"mallory-{number}" for number in range(24))
"""Nodes whose messages are changed."""
_WIDTHS = [len(block.names) for block in SCHEMA.blocks]
_TABLES = [block.table.value for block in SCHEMA.blocks]


@dataclass(frozen=True)
class Shape:
    """A node's hardware."""

    gpus: int
    links: int
    """Of each GPU."""


SHAPES = (Shape(0, 0), Shape(1, 0), Shape(2, 2), Shape(4, 0), Shape(8, 18))


def shape_of(node: str) -> Shape:
    """Return the hardware of a node: the same at any time."""
    return SHAPES[sum(node.encode()) % len(SHAPES)]


def tree(message: Any) -> Any:
    """Return a message as plain values."""
    return msgspec.to_builtins(message)


@cache
def inventory(node: str, session: int = 1, version: int = 0) -> Inventory:
    """Return the inventory of a node."""
    shape = shape_of(node)
    gpus = tuple(
        Gpu(
            uuid=uuid_of(1, node, index),
            index=index,
            name="NVIDIA H100 80GB HBM3",
            pci=f"0000:{index + 1:02x}:00.0",
            serial=f"16{index}",
            vbios="96.00",
            minor=index,
            part_number="900-1",
            architecture="hopper",
            memory_bytes=85_520_809_984,
            power_limit_watts=700.0,
            mig=index == 1,
            slot=f"slot {index}",
            capabilities={"gpu_fan_speed_ratio": "not_supported"},
        )
        for index in range(shape.gpus)
    )
    links = tuple(
        Link(
            gpu=gpu.uuid,
            number=number,
            peer_kind="gpu",
            peer=gpus[(gpu.index + 1) % len(gpus)].uuid,
            peer_pci="0000:07:00.0",
        )
        for gpu in gpus
        for number in range(shape.links)
    )
    pools = (MemoryPool(gpus=tuple(gpu.uuid for gpu in gpus), bytes=10**11, over="nvlink"),)
    return Inventory(
        node=node,
        session=session,
        version=version,
        taken_at=0,
        kilowatch="2026.1",
        source="nvml",
        host={"kernel": "6.8", "product": "DGX"},
        driver_version="595.10",
        cuda_version="13.1",
        driver_state="up",
        gpus=gpus,
        links=links,
        pools=pools if gpus else (),
        instances=tuple(
            MigInstance(
                uuid=f"MIG-{gpu.uuid[4:]}",
                gpu=gpu.uuid,
                gpu_instance=7,
                profile="1g.10gb",
                memory_bytes=10**10,
                multiprocessors=16,
            )
            for gpu in gpus
            if gpu.mig
        ),
    )


@cache
def _reading(block: int, rows: int, step: int) -> tuple[tuple[float, ...], ...]:
    """Return rows as a DGX of the simulation has them."""
    if block == GPU_FAST and rows:
        made = expected_rows(scenario("two-dgx-h100", seed=3), "dgx-01", GPU_FAST, step)
        return tuple(tuple(made[row % 8]) for row in range(rows))
    return tuple(tuple(float((row + column + step) % 90) for column in range(_WIDTHS[block])) for row in range(rows))


def frame(node: str, session: int, seq: int, at: int, *, slow: bool = False) -> frames.Frame:
    """Return a frame of a node."""
    shape = shape_of(node)
    counts = {
        "gpu": shape.gpus, "link": shape.gpus * shape.links, "node": 1, "port": 0,
        "instance": len(inventory(node).instances),
    }  # fmt: skip
    numbers = range(len(SCHEMA.blocks)) if slow else (GPU_FAST, NODE_FAST)
    readings = {number: _reading(number, counts[_TABLES[number]], seq % 50) for number in numbers}
    inside = [messages.encode(event(node, session, seq, at))] if seq % 7 == 0 else []
    return frames.build(session, seq, at, readings, inside)


def event(node: str, session: int, number: int, at: int) -> Event:
    """Return an event of a node: an XID, a lost GPU, and others."""
    shape = shape_of(node)
    index = number % max(1, shape.gpus)
    kind, data = (
        ("xid", {"xid": (79, 31, 94, 154, 48)[number % 5], "pid": 7, "process": "python", "line": "NVRM: Xid",
                 "registers": [1, 2], "action_from": 0, "action_to": 1, "reset": True, "source": "kernel"}),
        ("gpu_lost", {"state": "lost"}),
        ("sxid", {"sxid": 20034, "switch": 1, "link": 4, "fatal": True}),
        ("recovery_action", {"action_from": 0, "action_to": 2}),
        ("driver_log", {"what": "mismatch"}),
        ("xid_repeated", {"xid": 31, "count": 40, "first_at": at}),
        ("ticks_skipped", {"ticks": 3}),
        ("gpu_back", {}),
    )[number // 5 % 8]  # fmt: skip
    return Event(
        id=f"{session}-{number}",
        node=node,
        at=at,
        kind=kind,
        message="GPU has fallen off the bus",
        gpu=uuid_of(1, node, index) if shape.gpus else None,
        pci="0000:01:00.0",
        data=data,
    )


def status(session: int, seq: int, at: int) -> CollectorStatus:
    """Return a collector's status."""
    return CollectorStatus(
        state=NodeState.OFFLINE if seq % 11 == 0 else NodeState.ONLINE,
        session=session,
        at=at,
        interval=1.0,
        slow_interval=15.0,
        reason="shutdown" if seq % 11 == 0 else "",
        ring=(FrameSpan(session - 1, 0, 40), FrameSpan(session, max(0, seq - 30), seq)),
    )


def reply(session: int, seq: int) -> CommandReply:
    """Return the answer to a request for frames."""
    return CommandReply(
        about=session,
        first=max(0, seq - 9),
        last=seq,
        sent=5,
        gone=(FrameSpan(session, max(0, seq - 9), max(0, seq - 5)),),
    )


def jobs(node: str, session: int, version: int, at: int) -> NodeJobs:
    """Return who uses the GPUs of a node."""
    shape = shape_of(node)
    keys = [JobKey("slurm", "lab", f"{version}_{number}", number % 2) for number in range(shape.gpus)]
    return NodeJobs(
        session=session,
        version=version,
        at=at,
        jobs=tuple(
            Job(key=key, name="train", user="ada", account="nlp", begin=at - 9, exit_code=0, gpus=1) for key in keys
        ),
        allocations=tuple(
            Allocation(
                job=key,
                gpu=uuid_of(1, node, number),
                instance=number if number == 1 else None,
                step="0",
                begin=at - 9,
                end=at if number % 3 == 2 else 0,
                source="slurm-hook",
            )
            for number, key in enumerate(keys)
        ),
        processes=tuple(
            GpuProcess(
                gpu=uuid_of(1, node, number),
                pid=4000 + number,
                started=at - 20,
                user="ada",
                name="python",
                job=key,
                memory_bytes=10**9,
                sm_ratio=0.5,
            )
            for number, key in enumerate(keys)
        ),
        sources=(JobSourceState(name="process"), JobSourceState(name="slurm", state="absent", message="none")),
    )


def command(session: int, seq: int) -> Command:
    """Return a request to a collector."""
    return Command(kind=tuple(CommandKind)[seq % 4], about=session, first=0, last=seq)


# -- Meters --------------------------------------------------------------------------------------

METERS = """
[meters.plug]
type = "tasmota"
topic = "plug"
on = "office"
[meters.strip]
type = "shelly"
topic = "strip"
component = "switch:0"
poll = false
on = "lab"
[meters.zig]
type = "zigbee2mqtt"
topic = "zigbee2mqtt/zig"
on = "office"
[meters.old]
type = "shelly-gen1"
topic = "shellies/old"
on = "lab"
"""
METER_MESSAGES: tuple[tuple[str, Any], ...] = (
    ("tele/plug/SENSOR", {"Time": "2026-01-01T00:00:00", "ENERGY": {"Power": 845, "Voltage": 119, "Current": 7.1, "Total": 12.5}}),
    ("tele/plug/LWT", "Online"),
    ("strip/events/rpc", {"src": "strip", "method": "NotifyStatus", "params": {"ts": 1.5, "switch:0": {"id": 0, "apower": 410.2, "voltage": 230.1, "current": 1.8, "aenergy": {"total": 1234.5}}}}),
    ("strip/status/switch:0", {"id": 0, "apower": 410.2, "voltage": 230.1, "aenergy": {"total": 1234.5}}),
    ("strip/online", "true"),
    ("zigbee2mqtt/zig", {"power": 120, "voltage": 230, "current": 0.5, "energy": 3.25}),
    ("zigbee2mqtt/zig/availability", {"state": "online"}),
    ("shellies/old/relay/0/power", 100.5),
    ("shellies/old/emeter/0/power", 99),
    ("shellies/old/online", "true"),
)  # fmt: skip

# -- HTTP ----------------------------------------------------------------------------------------

STREAM = {
    "table": "gpu", "columns": ["gpu_power_watts", "gpu_temperature_celsius"],
    "rows": {"nodes": ["n1"], "gpus": [], "text": "H100"}, "every": 0.5, "changes": True,
    "alerts": True, "events": True, "packed": False,
}  # fmt: skip
BODIES: dict[str, Any] = {
    "AckRequest": {"who": "ann", "why": "on it", "duration": 3600},
    "EndRequest": {"who": "ann", "why": "over"},
    "SilenceRequest": {"matchers": ["node=n1", "rule=~gpu_.*"], "who": "ann", "why": "works", "duration": 600},
    "PlanRequest": {"circuit": "lab", "watts": 1000},
    "ReloadRequest": {},
}


def request(number: int) -> tuple[str, str, dict[str, str], Any]:
    """Return method, path, query and body of an operation of the table, with its examples."""
    operation = OPERATIONS[number % len(OPERATIONS)]
    path, query = operation.path, {}
    for parameter in operation.parameters:
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", parameter.example)
        elif number // len(OPERATIONS) % 3 or parameter.required:
            query[parameter.name] = parameter.example
    name = getattr(operation.body, "__name__", "")
    body = BODIES.get(name, {}) if operation.body is not None else None
    return operation.method.upper(), path, query, body


# -- Texts ---------------------------------------------------------------------------------------

KERNEL = (
    "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=7, name=python, GPU has fallen off the bus.\n",
    "6,1234,567890,-;NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
    "2026-01-01T00:00:00.123456+00:00 n1 kernel: NVRM: Xid (PCI:0000:18:00): 31, pid=1234, name=pt_main, Ch 00000008, intr 10000000\n",
    "Jan  1 00:00:00 n1 kernel: NVRM: GPU at PCI:0000:18:00: GPU-1234 lost, has fallen off the bus\n",
    "[1.0] nvidia-nvswitch3: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 31 LTSSM Fault Up\n",
    "[1.0] NVRM: Xid (PCI:0000:18:00 GPU-I:01): 94, pid=1, name=a, Contained: CE User Channel (0x9). RST: No, D-RST: No\n",
    "[1.0] NVRM: Xid (PCI:0000:18:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 04 (0x00000004 0x00000000 0x0 0x0)\n",
    "[1.0] INFO: task nvidia-smi:1234 blocked for more than 120 seconds.\n",
    "[1.0] NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n",
    "[1.0] NVRM: API mismatch: the client has the version 570.1, but\n",
    '{"__REALTIME_TIMESTAMP":"1737434504000000","MESSAGE":"NVRM: Xid (PCI:0000:18:00): 48, DBE","_TRANSPORT":"kernel","_HOSTNAME":"n1"}\n',
    "__REALTIME_TIMESTAMP=1737434504000000\n_TRANSPORT=kernel\nMESSAGE=NVRM: Xid (PCI:0000:18:00): 48, DBE\n\n",
)
SMI_TEXT = """
==============NVSMI LOG==============

Timestamp                                 : Sun Feb 23 16:24:18 2025
Driver Version                            : 570.86.15
CUDA Version                              : 12.8
Attached GPUs                             : 2
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Serial Number                         : 1320920000123
    GPU UUID                              : GPU-0b1c2d3e-0000-0000-0000-000000000001
    Minor Number                          : 0
    MIG Mode
        Current                           : Disabled
    FB Memory Usage
        Total                             : 40960 MiB
        Used                              : 12 MiB
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : No
    Temperature
        GPU Current Temp                  : 30 C
    GPU Power Readings
        Instantaneous Power Draw          : 61.02 W
        Current Power Limit               : 400.00 W
    Clocks
        SM                                : 1410 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 1234
            Type                          : C
            Name                          : python
            Used GPU Memory               : 12 MiB
GPU 00000000:86:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    GPU UUID                              : GPU-0b1c2d3e-0000-0000-0000-000000000002
    Processes                             : None

GPU 0: NVIDIA A100 (UUID: GPU-0b1c2d3e-0000-0000-0000-000000000001)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
"""
SMI_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Sun Feb 23 16:24:18 2025</timestamp>
  <driver_version>570.86.15</driver_version>
  <cuda_version>12.8</cuda_version>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:3B:00.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <uuid>GPU-0b1c2d3e-0000-0000-0000-000000000001</uuid>
    <minor_number>0</minor_number>
    <pci><pci_bus_id>00000000:3B:00.0</pci_bus_id></pci>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <fb_memory_usage><total>81559 MiB</total><used>4 MiB</used></fb_memory_usage>
    <temperature><gpu_temp>34 C</gpu_temp><gpu_temp_tlimit>51 C</gpu_temp_tlimit></temperature>
    <gpu_power_readings><power_draw>112.30 W</power_draw><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
    <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
    <!-- a comment -->
    <processes><process_info><pid>12</pid><type>C</type><process_name>a &amp; b</process_name><used_memory>3 MiB</used_memory></process_info></processes>
  </gpu>
  <gpu id="00000000:86:00.0"><product_name>NVIDIA H100</product_name><uuid>GPU-2</uuid></gpu>
</nvidia_smi_log>
"""
SETTINGS: dict[str, Any] = {
    "cluster": "lab",
    "broker": {"host": "127.0.0.1", "port": 1883, "keepalive": 10},
    "collector": {"node": "n1", "source": "nvml", "interval": 1.0, "slow_interval": 15.0},
    "aggregator": {
        "listen": "127.0.0.1:9400",
        "flush_seconds": 0.2,
        "store": {"write_seconds": 1.0, "max_bytes": 50 * 2**30},
        "budgets": {"nodes": 100, "events_per_second": 20.0},
        "backfill": {},
    },
    "power": {
        "region": "US",
        "circuits": {"lab": {"breaker": 60, "volts": 208, "poles": 3, "nodes": ["n1"]}, "office": {"breaker": 15}},
        "nodes": {"n1": {"profile": "dgx-h100"}},
        "meters": {"plug": {"type": "tasmota", "topic": "plug", "on": "office"}},
    },
    "alerts": {
        "channels": {"chat": {"type": "webhook", "url": "http://127.0.0.1:1/x"}},
        "external_url": "https://example",
    },
}
RULES: tuple[dict[str, Any], ...] = (
    {"name": "hot", "when": {"type": "above", "metric": "gpu_temperature_celsius", "level": 80, "clear": 75},
     "severity": "page", "summary": "{where} is at {value}", "description": "Cool {node}.", "runbook": "hot", "hold": 30,
     "example": [{"every": 60, "given": "70 90 90 _ 70", "then": "- F F F R"}]},
    {"name": "rise", "when": {"type": "increased", "metric": "gpu_energy_joules_total", "by": 1, "within": 60},
     "severity": "ticket", "summary": "{where}", "runbook": "rise"},
    {"name": "both", "when": {"type": "all", "of": [{"type": "above", "metric": "gpu_power_watts", "level": 500}, {"type": "below", "metric": "gpu_utilization_ratio", "level": 0.1}]},
     "severity": "ticket", "summary": "{where}", "runbook": "both", "inhibits": [{"rule": "hot", "within": "node", "why": "-"}]},
    {"name": "fault", "when": {"type": "event", "kind": "xid"}, "severity": "page", "summary": "{where}", "runbook": "x"},
)  # fmt: skip


def toml(content: Any) -> bytes:
    """Return TOML of plain values; what TOML can't hold is written as a text."""
    try:
        return _toml(content).encode("utf-8", "replace")
    except RecursionError:
        return b"cluster = " + b"[" * 5000 + b"]" * 5000


def _toml(content: Any, prefix: str = "") -> str:
    if not isinstance(content, dict):
        return f"{prefix or 'x'} = {_toml_value(content)}\n"
    lines, tables = [], []
    for key, value in content.items():
        name = json.dumps(str(key), ensure_ascii=True)
        if isinstance(value, dict):
            inner = f"{prefix}.{name}" if prefix else name
            tables.append(f"[{inner}]\n{_toml(value, inner)}")
        else:
            lines.append(f"{name} = {_toml_value(value)}\n")
    return "".join([*lines, *tables])


def _toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value != value:  # noqa: PLR0124 - NaN
            return "nan"
        case float():
            return {float("inf"): "inf", float("-inf"): "-inf"}.get(value, repr(value))
        case int():
            return str(value)
        case list():
            return "[" + ", ".join(_toml_value(item) for item in value) + "]"
        case dict():
            pairs = (f"{json.dumps(str(key))} = {_toml_value(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            return json.dumps(str(value))


def pick(rng: random.Random) -> tuple[str, int, int]:
    """Return a hostile node, a session and a frame number: near enough to each other that many fit."""
    return (rng.choice(getattr(rng, "nodes", HOSTILE)), rng.choice((1, 1, 1, 2, 3)), rng.randrange(60))
