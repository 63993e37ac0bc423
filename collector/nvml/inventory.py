"""What one GPU says of itself: name, address, limits, links. Asked once, when the GPU is met."""

from __future__ import annotations

import re
from typing import Any

from collector.nvml.binding import Code, Handle, once, platform
from collector.nvml.queries import bind
from telemetry.inventory import Gpu, Link
from telemetry.metric import Call

MAX_LINKS = 36
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
PEERS = {0: "gpu", 1: "cpu", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t; 1 is the link of an IBM or Grace processor."""
_ADDRESS = re.compile(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)\.?([0-9a-fA-F])?$")


def describe(handle: Handle, index: int) -> Gpu:
    """Return what a GPU is. Raises `DriverError` when it is lost or the driver is gone."""
    memory = _number(handle, Call("nvmlDeviceGetMemoryInfo_v2", pick="total"))
    limit = _number(handle, Call("nvmlDeviceGetEnforcedPowerLimit", 1e-3))
    minor = _number(handle, Call("nvmlDeviceGetMinorNumber"))
    architecture = _number(handle, Call("nvmlDeviceGetArchitecture"))
    return Gpu(
        uuid=_text(once("nvmlDeviceGetUUID", handle)) or f"GPU-without-uuid-{index}",
        index=index,
        name=_text(once("nvmlDeviceGetName", handle)) or "Graphics Device",
        pci=_pci(once("nvmlDeviceGetPciInfo", handle)),
        serial=_text(once("nvmlDeviceGetSerial", handle)),
        vbios=_text(once("nvmlDeviceGetVbiosVersion", handle)),
        part_number=_text(once("nvmlDeviceGetBoardPartNumber", handle)),
        architecture=ARCHITECTURES.get(int(architecture)) if architecture is not None else None,
        memory_bytes=int(memory) if memory is not None else None,
        power_limit_watts=limit,
        minor=int(minor) if minor is not None else None,
        mig=_number(handle, Call("nvmlDeviceGetMigMode", pick=0)) == 1,
        slot=_slot(handle),
    )


def links(handle: Handle, uuid: str) -> tuple[Link, ...]:
    """Return the links of a GPU, from number 0 on without holes, so that a row is a number."""
    found: list[Link] = []
    for number in range(MAX_LINKS):
        query, _ = bind(handle, Call("nvmlDeviceGetNvLinkState", args=(number,)))
        if query.ask() != Code.SUCCESS:
            break
        kind = once("nvmlDeviceGetNvLinkRemoteDeviceType", handle, number)
        found.append(
            Link(
                gpu=uuid,
                number=number,
                peer_kind=PEERS.get(kind) if kind is not None else None,
                peer_pci=_pci(once("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)),
            )
        )
    return tuple(found)


def can_remap_rows(handle: Handle, name: str) -> bool:
    """Infer it from ECC and the product: boards without the feature answer zeros, not an error."""
    return (
        "GeForce" not in name and _number(handle, Call("nvmlDeviceGetEccMode", pick=0)) is not None
    )


def pci_address(text: str) -> str | None:
    """Return an address in normal form: `0000:18:00.0`, lower case, domain of four digits or more.

    NVML writes `00000000:18:00.0`, and all zeros for a peer that it does not know.
    """
    match = _ADDRESS.match(text)
    if match is None:
        return None
    domain, bus, slot, function = (int(part or "0", 16) for part in match.groups())
    if not (domain or bus or slot):
        return None
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _pci(info: Any) -> str | None:
    if info is None:
        return None
    return pci_address(_text(info.busId) or "")


def _slot(handle: Handle) -> str | None:
    place = platform(handle)
    if place is not None:
        numbers = (place.slotNumber, place.trayIndex, place.moduleId)
        slot, tray, module = (byte[0] if byte else 0 for byte in numbers)
        return f"slot {slot} tray {tray} module {module}"
    module = _number(handle, Call("nvmlDeviceGetModuleId"))
    return f"module {int(module)}" if module is not None else None


def _number(handle: Handle, call: Call) -> float | None:
    """Return a number, or None when the GPU will not tell."""
    query, pick = bind(handle, call)
    if query.insist(query.ask()) != Code.SUCCESS:
        return None
    found = query.answer(pick)
    if found is None:
        return None
    get, result = found
    value = get(result)
    return None if value == 0xFFFF_FFFF else value * call.scale


def _text(value: Any) -> str | None:
    """pynvml answers with str or bytes, as the call has it."""
    if isinstance(value, bytes):
        value = value.split(b"\0")[0].decode(errors="replace")
    return str(value).strip() or None if value is not None else None
