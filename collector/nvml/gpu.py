"""Reader of one GPU in the probe process: its handle, description, capabilities and read plans."""

from __future__ import annotations

import re
import time
from array import array
from typing import Any
from uuid import UUID

import msgspec

from collector.nvml.binding import LOST, Code, Handle, device, once, platform
from collector.nvml.capability import absent_for_good, blocks_of, cells, exclude_remaps
from collector.nvml.gpm import GpmReader, gpm_ids
from collector.nvml.link_parts import LinkParts
from collector.nvml.mig import MigReader
from collector.nvml.processes import ProcessReader
from collector.nvml.queries import bind
from collector.nvml.readings import FieldBatch, KeptPlan, decode
from collector.probe.driver import Turn
from collector.probe.protocol import FAST, PROCESSES, SLOW, ProbeDescription, ProbeReading, ProbeStatus
from telemetry.catalogue.nvml import Bus, Call
from telemetry.devices import Gpu, Link
from telemetry.errors import DriverError
from telemetry.metric import Lane, Table
from telemetry.wire.schema import SCHEMA

# Description of a GPU: name, address, limits, links. Read once, when the GPU is opened.

MAX_LINKS = 36
MAX_C2C_LINKS = 14
"""As many as GPM has ids for."""
_C2C_LINK_COUNT = 170
"""Field id."""
_JOINED = 3
"""State of a registration with the fabric that is completed."""
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
BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA vApps",
    8: "NVIDIA vPC",
    9: "NVIDIA vCS",
    10: "NVIDIA vWS",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
}
"""nvmlBrandType_t."""
PEERS = {0: "gpu", 1: "cpu", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t; 1 is the link of an IBM or Grace processor."""
_ADDRESS = re.compile(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)\.?([0-9a-fA-F])?$")


def describe(handle: Handle, index: int) -> Gpu:
    """Return the description of a GPU. Raises `DriverError` when it or the driver is gone."""
    memory = _number(handle, Call("nvmlDeviceGetMemoryInfo_v2", pick="total"))
    limit = _number(handle, Call("nvmlDeviceGetEnforcedPowerLimit", 1e-3))
    cluster, clique = domain(handle)
    minor = _number(handle, Call("nvmlDeviceGetMinorNumber"))
    architecture = _number(handle, Call("nvmlDeviceGetArchitecture"))
    width = _number(handle, Call("nvmlDeviceGetCurrPcieLinkWidth"))
    return Gpu(
        uuid=_text(once("nvmlDeviceGetUUID", handle)) or f"GPU-without-uuid-{index}",
        index=index,
        name=_text(once("nvmlDeviceGetName", handle)) or "Graphics Device",
        pci=pci_of(once("nvmlDeviceGetPciInfo", handle)),
        serial=_text(once("nvmlDeviceGetSerial", handle)),
        vbios=_text(once("nvmlDeviceGetVbiosVersion", handle)),
        part_number=_text(once("nvmlDeviceGetBoardPartNumber", handle)),
        brand=BRANDS.get(once("nvmlDeviceGetBrand", handle) or 0),
        inforom=_text(once("nvmlDeviceGetInforomImageVersion", handle)),
        architecture=ARCHITECTURES.get(int(architecture)) if architecture is not None else None,
        memory_bytes=int(memory) if memory is not None else None,
        power_limit_watts=limit,
        minor=int(minor) if minor is not None else None,
        mig=_number(handle, Call("nvmlDeviceGetMigMode", pick=0)) == 1,
        pcie_width=int(width) if width is not None else None,
        ecc=_switch(handle, Call("nvmlDeviceGetEccMode", pick=0)),
        persistence=_switch(handle, Call("nvmlDeviceGetPersistenceMode")),
        numa_node=_numa(handle),
        slot=_slot(handle),
        fabric_cluster=cluster,
        fabric_clique=clique,
    )


def _switch(handle: Handle, call: Call) -> bool | None:
    """Return whether a mode is on; None where it is not told."""
    value = _number(handle, call)
    return None if value is None else value == 1


_WORDS = 4
"""Of 64 NUMA nodes each."""
_OF_NODE = 0
"""nvmlAffinityScope_t: the node that is nearest, not all of its socket."""


def _numa(handle: Handle) -> int | None:
    """Return the NUMA node that is nearest to a GPU; None where the driver names none."""
    words = once("nvmlDeviceGetMemoryAffinity", handle, _WORDS, _OF_NODE) or ()
    nodes = sum(word << 64 * place for place, word in enumerate(words))
    return (nodes & -nodes).bit_length() - 1 if nodes else None


def domain(handle: Handle) -> tuple[str | None, int | None]:
    """Return the NVLink domain that a GPU has joined, and its clique there; nothing before, and on a machine whose
    fabric ends at its own switches."""
    query, pick = bind(handle, Call("nvmlDeviceGetGpuFabricInfoV", pick="state"))
    found = query.answer(pick) if query.insist(query.ask()) == Code.SUCCESS else None
    if found is None:
        return None, None
    _, info = found
    content = bytes(info.clusterUuid)
    if info.state != _JOINED or not any(content):
        return None, None
    return str(UUID(bytes=content)), int(info.cliqueId)


def links(handle: Handle, uuid: str) -> tuple[Link, ...]:
    """Return the links of a GPU, numbered from 0 without holes, so that a row is a number."""
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
                peer_pci=pci_of(once("nvmlDeviceGetNvLinkRemotePciInfo", handle, number)),
            )
        )
    return tuple(found)


def c2c_links(handle: Handle) -> int:
    """Return the number of links to the CPU of the same module; 0 on all but Grace's GPUs."""
    batch = FieldBatch(handle, [(_C2C_LINK_COUNT, 0)])
    if batch.ask() != Code.SUCCESS:
        return 0
    ((kind, failed, raw),) = batch.values()
    number = None if failed else decode(kind, raw)
    return min(int(number or 0), MAX_C2C_LINKS)


def can_remap_rows(handle: Handle, name: str) -> bool:
    """Return whether rows can be remapped, inferred from ECC and the product: boards without the
    feature report zeros, not an error."""
    return "GeForce" not in name and _number(handle, Call("nvmlDeviceGetEccMode", pick=0)) is not None


def pci_address(text: str) -> str | None:
    """Return an address in normal form: `0000:18:00.0`, lower case, domain of four digits or more.

    NVML writes `00000000:18:00.0`, and all zeros for an unknown peer.
    """
    match = _ADDRESS.match(text)
    if match is None:
        return None
    domain, bus, slot, function = (int(part or "0", 16) for part in match.groups())
    if not (domain or bus or slot):
        return None
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def pci_of(info: Any) -> str | None:
    """Return the address of a struct of NVML, in normal form."""
    if info is None:
        return None
    return pci_address(_text(info.busId) or "")


def _slot(handle: Handle) -> str | None:
    """Return the place of a GPU in its rack as nvidia-smi's log gives it; else its module's number."""
    info = platform(handle)
    if info is not None and (place := _place(info)):
        return place
    module = _number(handle, Call("nvmlDeviceGetModuleId"))
    return f"module {int(module)}" if module is not None else None


def _place(info: Any) -> str:
    """Return the place from `nvmlPlatformInfo_t`, whose fields pynvml declares as characters: the
    bytes themselves are read here."""
    content = bytes(info)
    numbers = {word: content[getattr(type(info), field).offset] for word, field in _PLACES.items()}
    serial = type(info).chassisSerialNumber
    chassis = _text(content[serial.offset : serial.offset + serial.size])
    if not chassis and not any(numbers.values()):
        return ""  # a driver that fills in nothing
    parts = [f"{word} {number}" for word, number in numbers.items() if number != _UNKNOWN]
    return ", ".join([*parts, f"chassis {chassis}"] if chassis else parts)


_PLACES = {"slot": "slotNumber", "tray": "trayIndex", "host": "hostId", "module": "moduleId"}
_UNKNOWN = 0xFF


def _number(handle: Handle, call: Call) -> float | None:
    """Return a number, or None when the GPU does not report it."""
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
    """Return a text of pynvml, which is str or bytes depending on the call; None for one that is
    empty or no text: a board whose memory was never written, or not read, gives any bytes."""
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value.split(b"\0")[0].decode(errors="replace")
    text = str(value).partition("\0")[0].strip()
    return text if text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text and text else None


PROBE_AGAIN = 600.0
"""Seconds after which unsupported metrics are tried again."""
OPEN_AGAIN = 5.0
"""Seconds between attempts to open a GPU that was lost before the start."""
_LANES = {FAST: Lane.FAST, SLOW: Lane.SLOW}
_BLOCKS = {bit: blocks_of(lane) for bit, lane in _LANES.items()}
_GPU_FAST = SCHEMA.blocks[SCHEMA.index(Table.GPU, Lane.FAST)].names
_GPU_SLOW = SCHEMA.blocks[SCHEMA.index(Table.GPU, Lane.SLOW)].names
_LATENCY = _GPU_FAST.index("gpu_driver_latency_seconds")
_MIG = _GPU_SLOW.index("gpu_mig_mode")
_FABRIC = _GPU_SLOW.index("gpu_fabric_state")


class GpuReader:
    """Reader of one GPU. Created without a driver call: a broken GPU may hang on the first."""

    def __init__(self, index: int) -> None:
        self.handle: Handle | None = None
        self.gpm: dict[int, GpmReader] = {}
        """By the bit of the lane."""
        self._processes: ProcessReader | None = None
        self._mig: MigReader | None = None
        self.asked_at: float | None = None
        """Monotonic start of the reading under way."""
        self._index = index
        self._gpu: Gpu | None = None
        self._status = ProbeStatus.OK
        self._open_at = 0.0
        self._described: ProbeDescription | None = None
        self._fabric = float(_JOINED)
        """State of the registration with the fabric at the newest reading."""
        self._reported: ProbeDescription | None = None

    def describe(self, turn: Turn) -> ProbeDescription | None:
        """Return the description, when it has changed since the last call."""
        if self._gpu is None and time.monotonic() >= self._open_at:
            self._open_at = time.monotonic() + OPEN_AGAIN
            try:
                self._open(turn)
            except DriverError as error:
                self._status = status_of(error)
                self._described = ProbeDescription(Gpu(uuid="", index=self._index, name="", present=False))
            if turn.abandoned:
                self._open_at = 0.0
                return None
        if self._described is self._reported or self._described == self._reported:
            return None
        self._reported = self._described
        return self._described

    def presence(self) -> ProbeReading:
        """Return the last status, without a driver call."""
        return ProbeReading(self._status)

    def read(self, lanes: int, turn: Turn) -> ProbeReading:
        """Return the readings on `lanes`. Raises `DriverError` when the driver is gone."""
        if self._gpu is None or (self._status is not ProbeStatus.OK and not lanes & SLOW):
            return ProbeReading(self._status)  # a lost GPU is read again on the slow lane only
        self.asked_at = time.monotonic()
        try:
            return self._read(lanes, turn)
        finally:
            self.asked_at = None

    def _read(self, lanes: int, turn: Turn) -> ProbeReading:
        values = array("d")
        status = ProbeStatus.OK
        slow = 0
        for bit in (FAST, SLOW):
            if lanes & bit and status is ProbeStatus.OK:
                slow = len(values)
                status, part = self._read_lane(bit, turn)
                values += part
        if lanes & SLOW and status is ProbeStatus.OK and self._mig is not None:
            status, part = self._mig.read(turn)
            values += part
        if turn.abandoned:
            return ProbeReading(ProbeStatus.HUNG)  # the result is discarded
        self._status = status
        if status is not ProbeStatus.OK:
            return ProbeReading(status)
        if lanes & SLOW:
            self._notice_mig(values[slow + _MIG], turn)
            self._notice_domain(values[slow + _FABRIC])
        processes = None
        if lanes & PROCESSES and self._processes is not None:
            processes = self._processes.read(turn)
        return ProbeReading(status, values.tobytes(), processes)

    def _open(self, turn: Turn) -> None:
        handle = device(self._index)
        gpu = describe(handle, self._index)
        if turn.abandoned:
            return
        found = links(handle, gpu.uuid)
        self._cells = {bit: cells(blocks, len(found)) for bit, blocks in _BLOCKS.items()}
        if not can_remap_rows(handle, gpu.name):
            for parts in self._cells.values():
                exclude_remaps(parts)
        counts = {Bus.NVLINK: len(found), Bus.C2C: c2c_links(handle)}
        self._widths = {bit: len(parts) for bit, parts in self._cells.items()}
        links_of = {bit: LinkParts(parts, counts).folded for bit, parts in self._cells.items()}
        # Each lane has samples of its own: a metric is the mean since that lane's reading before.
        self.gpm = {bit: GpmReader(handle, gpm_ids(parts)) for bit, parts in self._cells.items()}
        self._processes = ProcessReader(handle)
        self._plans = {bit: KeptPlan(handle, parts, self.gpm[bit], links_of[bit]) for bit, parts in self._cells.items()}
        self._settled: set[int] = set()
        self._probe_at = time.monotonic() + PROBE_AGAIN
        self._mig = MigReader(handle, gpu.uuid)
        if gpu.mig:
            self._mig.update(turn)
        self.handle, self._gpu = handle, gpu
        self._described = ProbeDescription(gpu, found, self._mig.instances)
        self._status = ProbeStatus.OK

    def _read_lane(self, bit: int, turn: Turn) -> tuple[ProbeStatus, array[float]]:
        """Read one lane of the GPU and its links."""
        if bit == SLOW and time.monotonic() >= self._probe_at:
            self._forget()
        begin = time.perf_counter()
        status, values = self._plans[bit].read(turn, begin)
        del values[self._widths[bit] :]  # the parts of what is made of links
        if bit == FAST:
            values[_LATENCY] = time.perf_counter() - begin
        if status is ProbeStatus.OK and bit not in self._settled:
            self._settled.add(bit)
            self._report_capabilities()
        return status, values

    def _report_capabilities(self) -> None:
        """Add unsupported metrics to the description, once both lanes are known."""
        if self._described is None or self._settled != {FAST, SLOW}:
            return
        absent: dict[str, str] = {}
        for parts in self._cells.values():
            absent |= absent_for_good(parts)
        gpu = msgspec.structs.replace(self._described.gpu, capabilities=absent)
        self._described = msgspec.structs.replace(self._described, gpu=gpu)

    def _notice_mig(self, mode: float, turn: Turn) -> None:
        """Note whether MIG is on, and its instances: they have their rows from the next reading on."""
        if self._described is None or self._mig is None or mode not in {0.0, 1.0}:
            return
        mig = mode == 1.0
        if mig:
            self._mig.update(turn)
        else:
            self._mig.clear()
        gpu, instances = self._described.gpu, self._mig.instances
        if mig != gpu.mig:
            gpu = msgspec.structs.replace(gpu, mig=mig)
            self._forget()  # capabilities depend on MIG
        if (gpu, instances) != (self._described.gpu, self._described.instances):
            self._described = ProbeDescription(gpu, self._described.links, instances)

    def _notice_domain(self, state: float) -> None:
        """Read the NVLink domain again when the registration with the fabric was completed, or undone."""
        before, self._fabric = self._fabric, state
        if state == before or self._described is None or self.handle is None:
            return
        cluster, clique = domain(self.handle)
        gpu = self._described.gpu
        if (cluster, clique) != (gpu.fabric_cluster, gpu.fabric_clique):
            gpu = msgspec.structs.replace(gpu, fabric_cluster=cluster, fabric_clique=clique)
            self._described = msgspec.structs.replace(self._described, gpu=gpu)

    def _forget(self) -> None:
        """Probe the capabilities again."""
        for parts in self._cells.values():
            for cell in parts:
                cell.forget()
        for plan in self._plans.values():
            plan.forget()
        if self._mig is not None:
            self._mig.forget()
        self._settled.clear()
        self._probe_at = time.monotonic() + PROBE_AGAIN


def status_of(error: DriverError) -> ProbeStatus:
    """Return the status that an error means. Raises it when the driver as a whole is gone."""
    if error.code in LOST:
        return ProbeStatus.LOST
    if error.code == Code.RESET_REQUIRED:
        return ProbeStatus.RESET_REQUIRED
    raise error
