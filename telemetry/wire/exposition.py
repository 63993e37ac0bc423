"""The Prometheus text page (format 0.0.4), for one node, as its collector serves it.

    families = node_families(inventory, readings, last_frame=sampled_at / 1e9)
    body = render([*families, Family("kilowatch_collector_...", "Help.", COUNTER, [("", 3)])])
    headers = {"Content-Type": CONTENT_TYPE}

`readings` are the newest rows by block number, as the sampler makes them and `frame.build` needs
them: keep the last slow blocks beside the last fast ones. The aggregator's page of a node
(`aggregator.http.exposition`, vectorised) has the same series; a test compares them.

Absent values are left out: a gap is never 0 and never NaN, so the series of a lost GPU go stale in
Prometheus. Samples carry no timestamps for the same reason. No NumPy here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu, Link, MigInstance, Port
from telemetry.metric import Kind, Metric, Table
from telemetry.wire.frame import Readings, Row
from telemetry.wire.inventory import Inventory, role_of
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.schema import SCHEMA
from telemetry.wire.tables import KINDS

PREFIX = "kilowatch_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER, SUMMARY, HISTOGRAM = "gauge", "counter", "summary", "histogram"

_CONTROLS = {chr(code): "" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x0A}
"""Dropped: a scraper refuses a page for one NUL."""
_LABEL_ESCAPES = str.maketrans(_CONTROLS | {"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

Sample = tuple[str, float]
"""Text between a family's name and the value (a fragment made by `labels`, after `_sum`, `_count` or
`_bucket` in a summary or histogram), and the value. A NaN is left out."""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one metric; a family without samples is left out of the page."""

    name: str
    """Name with its prefix: `kilowatch_gpu_power_watts`."""
    help: str
    kind: str
    """`GAUGE`, `COUNTER`, `SUMMARY` or `HISTOGRAM`."""
    samples: Sequence[Sample]
    narrow: bool = False
    """Whether the values have the precision of a float32 only, and are written as short as that."""


def labels(pairs: Mapping[str, str | None]) -> str:
    """Return `{gpu="0",uuid="GPU-..."}`; pairs whose value is None or empty are left out."""
    inner = ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in pairs.items() if value)
    return f"{{{inner}}}" if inner else ""


def header(name: str, text: str, kind: str) -> str:
    """Return the HELP and TYPE lines of a family."""
    return f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"


def number(value: float) -> str:
    """Return a double as the shortest text that reads back as the same double."""
    return repr(value) if value % 1 else str(int(value))


def number32(value: float) -> str:
    """Return the shortest text that reads back as the same float32; whole numbers in full.

    A frame's gauges are float32: 67.03 W comes back as 67.02999877929688, and is 67.03 here.
    """
    if not value % 1:  # of an int too, which Python 3.11 knows no `is_integer` of
        return str(int(value))
    try:
        narrow = struct.pack("<f", value)
    except OverflowError:
        return repr(value)
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == narrow:
            return text
    return f"{value:.9g}"


def render(families: Iterable[Family]) -> bytes:
    """Return the page; families without samples are left out."""
    parts: list[str] = []
    for family in families:
        write = number32 if family.narrow else number
        lines = [
            f"{family.name}{fragment} {write(value) if abs(value) < _INFINITE else _infinite(value)}\n"
            for fragment, value in family.samples
            if value == value  # noqa: PLR0124 - the only test of NaN that calls nothing
        ]
        if lines:
            parts.append(header(family.name, family.help, family.kind))
            parts += lines
    return "".join(parts).encode()


_INFINITE = float("inf")


def _infinite(value: float) -> str:
    return "+Inf" if value > 0 else "-Inf"


def help_of(metric: Metric) -> str:
    """Return the help of a metric, with the words of its numbers if it is a state."""
    if not metric.states:
        return metric.help
    return f"{metric.help} ({', '.join(f'{number} {word}' for number, word in metric.states)})"


def node_pairs(inventory: Inventory, scope: bool = True) -> dict[str, str | None]:
    """Return the labels of every series of a node; none when the scrape target carries them."""
    return {"cluster": inventory.cluster, "node": inventory.node} if scope else {}


def unattributed_samples(pairs: Mapping[str, str | None], jobs: NodeJobs) -> Iterator[Sample]:
    """Yield how many devices of pods have no GPU of a node with some labels, by reason; nothing where all have one."""
    for source in jobs.sources:
        for reason, count in source.unattributed.items():
            yield labels({**pairs, "source": source.name, "reason": reason}), float(count)


def unattributed_family(samples: Iterable[Sample]) -> Family:
    """Return the family of these samples."""
    text = "Devices that pods hold and no GPU of their node was found for; absent where all were."
    return Family(f"{PREFIX}unattributed_devices", text, GAUGE, list(samples))


def device_pairs(inventory: Inventory, table: Table, device: Any, scope: bool = True) -> dict[str, str | None]:
    """Return the labels of the series of a device of a table."""
    return {**node_pairs(inventory, scope), **KINDS[table].labels(inventory, device)}


def gpu_pairs(inventory: Inventory, gpu: Gpu, scope: bool = True) -> dict[str, str | None]:
    """Return the labels of a GPU's series."""
    return device_pairs(inventory, Table.GPU, gpu, scope)


def fragments(inventory: Inventory, table: Table, scope: bool = True) -> list[str]:
    """Return the label fragment of each row of a table, in inventory order."""
    devices = KINDS[table].devices(inventory)
    return [labels(device_pairs(inventory, table, device, scope)) for device in devices]


def up_families(inventory: Inventory, up: bool, last_frame: float | None, scope: bool = True) -> list[Family]:
    """Return the families of a node's liveness; `last_frame` in seconds since 1970."""
    node = labels(node_pairs(inventory, scope))
    seen = [] if last_frame is None else [(node, last_frame)]
    return [
        Family(f"{PREFIX}node_up", "1 while the node's frames arrive.", GAUGE, [(node, float(up))]),
        Family(
            f"{PREFIX}node_last_frame_timestamp_seconds",
            "When the node's newest frame was taken, by its own clock.",
            GAUGE,
            seen,
        ),
    ]


def info_families(inventory: Inventory, scope: bool = True) -> list[Family]:
    """Return the families of a node's facts: a constant 1 with the facts as labels, and which GPUs are present."""
    node = {
        **node_pairs(inventory, scope),
        "driver": inventory.driver_version,
        "cuda": inventory.cuda_version,
        "driver_state": inventory.driver_state,
        "role": role_of(inventory),
        "source": inventory.source,
        "release": inventory.kilowatch,
    }
    pairs = [(gpu, gpu_pairs(inventory, gpu, scope)) for gpu in inventory.gpus]
    there = {gpu.uuid for gpu in inventory.gpus if gpu.present}
    return [
        Family(f"{PREFIX}node_info", "Facts about a node.", GAUGE, [(labels(node), 1.0)]),
        Family(
            f"{PREFIX}node_gpus_excluded",
            "GPUs that its settings tell the driver to leave out (NVreg_ExcludedGpus).",
            GAUGE,
            [(labels(node_pairs(inventory, scope)), float(len(inventory.excluded)))]
            if inventory.excluded is not None
            else [],
        ),
        Family(
            f"{PREFIX}gpu_present",
            "1 while the GPU is on the bus; 0 when it was there and is gone.",
            GAUGE,
            [(labels(its), float(gpu.present)) for gpu, its in pairs],
        ),
        Family(
            f"{PREFIX}gpu_info",
            "Facts about a GPU.",
            GAUGE,
            [(labels({**its, **_facts(inventory, gpu)}), 1.0) for gpu, its in pairs if gpu.present],
        ),
        Family(
            f"{PREFIX}link_info",
            "What an NVLink leads to.",
            GAUGE,
            [
                (labels({**device_pairs(inventory, Table.LINK, link, scope), **_far_end(link)}), 1.0)
                for link in inventory.links
                if link.peer_kind
            ],
        ),
        Family(
            f"{PREFIX}port_info",
            "Facts about a port of a network adapter.",
            GAUGE,
            [
                (labels({**device_pairs(inventory, Table.PORT, port, scope), **_port_facts(port)}), 1.0)
                for port in inventory.ports
                if port.present
            ],
        ),
        Family(
            f"{PREFIX}instance_info",
            "Facts about a MIG instance of a GPU.",
            GAUGE,
            [
                (labels({**device_pairs(inventory, Table.INSTANCE, each, scope), **_sizes(each)}), 1.0)
                for each in inventory.instances
                if each.gpu in there
            ],
        ),
    ]


def _facts(inventory: Inventory, gpu: Gpu) -> dict[str, str | None]:
    return {
        "name": gpu.name,
        "pci": gpu.pci,
        "serial": gpu.serial,
        "vbios": gpu.vbios,
        "driver": inventory.driver_version,
        "slot": gpu.slot,
        "numa_node": None if gpu.numa_node is None else str(gpu.numa_node),
    }


def _far_end(link: Link) -> dict[str, str | None]:
    return {"peer_kind": link.peer_kind, "peer_pci": link.peer_pci, "peer": link.peer}


def _sizes(instance: MigInstance) -> dict[str, str | None]:
    return {
        "memory_bytes": None if instance.memory_bytes is None else str(instance.memory_bytes),
        "multiprocessors": None if instance.multiprocessors is None else str(instance.multiprocessors),
    }


def _port_facts(port: Port) -> dict[str, str | None]:
    return {
        "pci": port.pci,
        "link_layer": port.link_layer,
        "model": port.model,
        "firmware": port.firmware,
        "interface": port.interface,
        "near": port.gpu,
    }


def reading_families(inventory: Inventory, readings: Readings, scope: bool = True) -> list[Family]:
    """Return one family for each metric of the catalogue; `readings` as for `frame.build`."""
    families: list[Family] = []
    for number_, rows in sorted(readings.items()):
        block = SCHEMA.blocks[number_]
        its = fragments(inventory, block.table, scope)
        for column, name in enumerate(block.names):
            families.append(_family(BY_NAME[name], its, rows, column))
    return families


def _family(metric: Metric, its: Sequence[str], rows: Sequence[Row], column: int) -> Family:
    samples = [(fragment, row[column]) for fragment, row in zip(its, rows, strict=True)]
    narrow = metric.kind is Kind.GAUGE
    return Family(PREFIX + metric.name, help_of(metric), metric.kind.value, samples, narrow)


def node_families(
    inventory: Inventory, readings: Readings, *, up: bool = True, last_frame: float | None = None, scope: bool = True
) -> list[Family]:
    """Return the families of a node; of one that is not up only its liveness.

    `scope` False leaves out the labels `cluster` and `node`, for a scrape target that has them.
    """
    families = up_families(inventory, up, last_frame, scope)
    if up:
        families += [*info_families(inventory, scope), *reading_families(inventory, readings, scope)]
    return families
