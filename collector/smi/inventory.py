"""Inventory of a node from a log of nvidia-smi."""

from __future__ import annotations

from collections import Counter

from collector.smi.document import Document, SmiGpu
from collector.smi.readings import gpu_readings
from collector.smi.values import gap_of
from telemetry.devices import Gpu, Link
from telemetry.gap import Gap, reason_of
from telemetry.notations.pci import normal_pci
from telemetry.wire.inventory import Inventory

NAMELESS = "pci-"
"""Prefix of the key of a GPU without a UUID."""

_SLOTS = (
    ("slot", ("platforminfo/slot_number", "platform_info/slot_number")),
    ("tray", ("platforminfo/tray_index", "platform_info/tray_index")),
    ("host", ("platforminfo/host_id", "platform_info/host_id")),
    ("module", ("platforminfo/module_id", "platform_info/module_id", "gpu_module_id", "module_id")),
    ("chassis", ("platforminfo/chassis_serial_number", "platform_info/chassis_serial_number")),
)


def inventory_of(document: Document, source: str = "nvidia-smi") -> Inventory:
    """Return the inventory of a log; the collector fills in node, cluster, session and version.

    A GPU's key is its UUID; where the log has none it is `pci-0000:18:00.0`. Logs that were masked
    before they were published give many GPUs the same UUID: those, and only those, get their PCI
    address behind it (`GPU-0000...#0000:18:00.0`), so that none is lost.
    """
    gpus = tuple(
        _gpu(gpu, index, uuid) for index, (gpu, uuid) in enumerate(zip(document.gpus, keys(document), strict=True))
    )
    return Inventory(
        node="",
        source=source,
        driver_version=document.fact("driver_version", "kmd_version"),
        cuda_version=_plain(document.fact("cuda_version", "cuda_umd_version")),
        driver_state="up",
        driver_message=document.shortfall(),
        gpus=gpus,
        links=tuple(
            Link(gpu=gpus[index].uuid, number=number)
            for index in range(len(gpus))
            for number, _ in document.links.get(index, ())
        ),
    )


def keys(document: Document) -> list[str]:
    """Return the key of each GPU, in the order of the log, no two alike."""
    named = [
        _value(gpu, "uuid", "gpu_uuid") or f"{NAMELESS}{_pci(gpu) or gpu.bus_id or 'unknown'}" for gpu in document.gpus
    ]
    often = Counter(named)
    distinct: dict[str, None] = {}
    for gpu, name in zip(document.gpus, named, strict=True):
        key = name if often[name] == 1 else f"{name}#{_pci(gpu) or gpu.bus_id}"
        while key in distinct:
            key += "'"
        distinct[key] = None
    return list(distinct)


def _gpu(gpu: SmiGpu, index: int, uuid: str) -> Gpu:
    readings = gpu_readings(gpu)
    memory, limit = readings["gpu_memory_total_bytes"], readings["gpu_power_limit_watts"]
    minor = _value(gpu, "minor_number") or ""
    width = readings["gpu_pcie_link_width"]
    return Gpu(
        uuid=uuid,
        index=index,
        name=_value(gpu, "product_name") or "unknown",
        pci=_pci(gpu),
        serial=_value(gpu, "serial", "serial_number"),
        vbios=_value(gpu, "vbios_version"),
        part_number=_value(gpu, "board_part_number", "gpu_part_number"),
        brand=_value(gpu, "product_brand"),
        inforom=_value(gpu, "inforom_version/img_version", "inforom_version/image_version"),
        architecture=_value(gpu, "product_architecture"),
        memory_bytes=None if reason_of(memory) is not None else int(memory),
        power_limit_watts=None if reason_of(limit) is not None else limit,
        minor=int(minor) if minor.isascii() and minor.isdigit() and len(minor) < 6 else None,
        mig=readings["gpu_mig_mode"] == 1.0,
        pcie_width=None if reason_of(width) is not None else int(width),
        ecc=None if reason_of(readings["gpu_ecc_mode"]) is not None else readings["gpu_ecc_mode"] == 1.0,
        persistence={"Enabled": True, "Disabled": False}.get(_value(gpu, "persistence_mode") or ""),
        slot=_slot(gpu),
        present={reason_of(value) for value in readings.values()} != {Gap.DEVICE_LOST},
    )


def _value(gpu: SmiGpu, *paths: str) -> str | None:
    """Return the first of these values that is present and no gap, or None."""
    for path in paths:
        raw = _plain(gpu.values.get(path))
        if raw is not None:
            return raw
    return None


def _plain(raw: str | None) -> str | None:
    return None if raw is None or gap_of(raw) is not None else raw


def _pci(gpu: SmiGpu) -> str | None:
    return normal_pci(gpu.bus_id) or normal_pci(_value(gpu, "pci/pci_bus_id", "pci/bus_id") or "")


def _slot(gpu: SmiGpu) -> str | None:
    parts = [f"{word} {value}" for word, paths in _SLOTS if (value := _value(gpu, *paths))]
    return ", ".join(parts) or None
