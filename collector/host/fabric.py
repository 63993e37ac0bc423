"""Ports of network adapters (InfiniBand, RoCE) from /sys/class/infiniband.

The adapter's firmware is asked for nearly each file, and firmware that has stopped answers after a
minute. A thread reads them, one adapter after another, while the source reads the GPUs: a tick waits
for it a moment only. An adapter that does not return is left to its thread, and another thread goes
on with the others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collector.source import Rows
from telemetry.catalogue import BY_NAME
from telemetry.devices import PORT_PREFIX, Gpu, Port
from telemetry.gap import (
    DEVICE_LOST,
    ERROR,
    NO_PERMISSION,
    NOT_READ,
    NOT_SUPPORTED,
    SATURATED,
    TIMED_OUT,
)
from telemetry.pci import normal_pci
from telemetry.schema import PORT_SLOW, SCHEMA
from telemetry.sysfs import PortFile

log = logging.getLogger(__name__)

WAIT = 0.2
"""Seconds that a tick waits for a round of readings after the GPUs were read."""
LATEST = 40.0
"""Seconds after which the readings of an adapter are too old: two rounds and some."""
MOST_REFUSED = 2
"""Refused counters after which no counter of an adapter is read: each refusal is a line in the
kernel's log, and a function that the fabric manager owns refuses them all."""
_POLL = 0.005
_ACTIVE = 4.0
_DOWN = 1.0
_LEAST_ALIKE = 3
_RATE = re.compile(r"([\d.]{1,10}) Gb/sec(?: \((\d{1,3})X)?")
_NAMES = SCHEMA.blocks[PORT_SLOW].names
_COUNTERS = SCHEMA.blocks[PORT_SLOW].counters
_COLUMN = {name: number for number, name in enumerate(_NAMES)}
_REFUSALS = frozenset({errno.EINVAL, errno.EIO, errno.EOPNOTSUPP})


@dataclass(slots=True)
class _PortFolder:
    """A port, with the file of each of its counters."""

    port: Port
    folder: str
    files: dict[str, PortFile]
    operstate: str
    """File of the state of its network interface, which is the truth where the port's own state is
    made up; "" for InfiniBand."""


@dataclass(slots=True)
class _Adapter:
    """An adapter that was found, and what its firmware refused."""

    ports: list[_PortFolder]
    path: tuple[str, ...]
    """Bridges above it, and itself."""
    refused: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Found:
    """The readings of an adapter."""

    at: float
    ports: list[Port]
    rows: list[list[float]]


class Fabric:
    """Reader of the ports of this machine. Costs nothing where there is none."""

    def __init__(
        self,
        node: str,
        root: Path = Path("/"),
        monotonic: Callable[[], float] = time.monotonic,
        wait: float = WAIT,
    ) -> None:
        """`root` is where sys is; `wait` as `WAIT`."""
        self.ports: tuple[Port, ...] = ()
        """Ports that the machine has or had, in the order of the rows."""
        self._node = node
        self._folder = root / "sys/class/infiniband"
        self._pci = root / "sys/bus/pci/devices"
        self._monotonic = monotonic
        self._wait = wait
        self._adapters: dict[str, _Adapter] = {}
        self._found: dict[str, _Found] = {}
        self._listed: tuple[str, ...] = ()
        self._stuck: dict[str, threading.Thread] = {}
        """Adapters that a thread did not return from."""
        self._thread: threading.Thread | None = None
        self._reading = ""
        """Adapter that the thread reads now."""
        self._done = threading.Event()
        self._closed = False

    def begin(self, gpus: Sequence[Gpu]) -> None:
        """Start a round of readings. Never waits."""
        try:
            self._listed = tuple(sorted(_names_in(self._folder), key=_natural))
        except OSError:
            self._listed = ()
        self._stuck = {name: thread for name, thread in self._stuck.items() if thread.is_alive()}
        before = self._thread
        if before is not None and before.is_alive() and self._reading:
            log.warning("adapter=%s does not answer; the others are read without it", self._reading)
            self._stuck[self._reading] = before
        names = [name for name in self._listed if name not in self._stuck]
        self._done = threading.Event()
        self._thread = None
        if names and not self._closed:
            self._thread = threading.Thread(
                target=self._round,
                args=(names, tuple(gpus), self._done),
                name="fabric",
                daemon=True,
            )
            self._thread.start()

    async def finish(self) -> Rows:
        """Return the rows of the ports, after a short wait for the round; none without ports. A port that
        was not read in time is a gap, and so is one that is gone."""
        deadline = self._monotonic() + self._wait
        while self._thread is not None and not self._done.is_set():
            if self._monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL)
        return self._rows()

    def close(self) -> None:
        """Start no more readings; do not wait for a file that hangs."""
        self._closed = True
        thread = self._thread
        if thread is not None:
            thread.join(timeout=0.2)

    def _rows(self) -> Rows:
        now, listed = self._monotonic(), set(self._listed)
        ports: list[Port] = []
        rows: list[list[float]] = []
        for name, found in sorted(self._found.items(), key=lambda item: _natural(item[0])):
            lost, late = name not in listed, now - found.at > LATEST
            for port, row in zip(found.ports, found.rows, strict=True):
                ports.append(msgspec.structs.replace(port, present=False) if lost else port)
                gap = DEVICE_LOST if lost else TIMED_OUT
                rows.append([gap] * len(_NAMES) if lost or late else list(row))
        self._compare(ports, rows)
        if tuple(ports) != self.ports:
            self.ports = tuple(ports)
        return {PORT_SLOW: rows} if rows else {}

    @staticmethod
    def _compare(ports: Sequence[Port], rows: Sequence[list[float]]) -> None:
        """Fill in the speed that most ports of a kind have."""
        speed = _COLUMN["port_speed_bytes_per_second"]
        usual = _COLUMN["port_speed_usual_bytes_per_second"]
        alike: dict[tuple[str | None, str], list[list[float]]] = {}
        for port, row in zip(ports, rows, strict=True):
            if row[speed] == row[speed]:
                alike.setdefault((port.model, port.link_layer), []).append(row)
        for group in alike.values():
            value, count = Counter(row[speed] for row in group).most_common(1)[0]
            for row in group:
                enough = count >= _LEAST_ALIKE and 2 * count > len(group)
                row[usual] = value if enough else NOT_SUPPORTED

    # -- In the thread ---------------------------------------------------------------------------

    def _round(self, names: Sequence[str], gpus: tuple[Gpu, ...], done: threading.Event) -> None:
        """Read adapters, one after another, until another round has begun."""
        for name in self._adapters.keys() - set(self._listed):
            self._adapters.pop(name, None)  # it may be another one when it is back
        for name in names:
            if done is not self._done:  # this thread was given up
                return
            self._reading = name
            try:
                found = self._adapter(name, gpus)
            except (OSError, ValueError):
                continue  # it is gone, or comes just now
            except Exception:
                log.exception("adapter=%s can't be read", name)
                continue
            if done is self._done and found.ports:
                self._found[name] = found
        if done is self._done:
            self._reading = ""
        done.set()

    def _adapter(self, name: str, gpus: tuple[Gpu, ...]) -> _Found:
        adapter = self._adapters.get(name)
        if adapter is None:
            adapter = self._adapters[name] = self._describe(name)
        near = self._nearest(adapter.path, gpus)
        rows = [_read_port(each, adapter.refused) for each in adapter.ports]
        ports = [msgspec.structs.replace(each.port, gpu=near) for each in adapter.ports]
        return _Found(self._monotonic(), ports, rows)

    def _describe(self, name: str) -> _Adapter:
        folder = self._folder / name
        device = folder / "device"
        path = Path(os.path.realpath(device)).parts
        pci = normal_pci(path[-1]) if path else None
        if (
            device / "physfn"
        ).exists():  # a virtual function has its share of a port that is read already
            return _Adapter([], path)
        numbers = sorted(int(word) for word in _names_in(folder / "ports") if word.isdigit())
        interfaces = _listed(device / "net")
        facts = " ".join(filter(None, (_text(folder / "hca_type"), _text(folder / "board_id"))))
        node = _number(_text(device / "numa_node"))
        ports = []
        for place, number in enumerate(numbers):
            of = folder / "ports" / str(number)
            layer = _text(of / "link_layer")
            interface = interfaces[place] if place < len(interfaces) else None
            port = Port(
                id=f"{PORT_PREFIX}{self._node}:{pci or name}/{number}",
                adapter=name,
                number=number,
                pci=pci,
                numa_node=node if node is not None and node >= 0 else None,
                link_layer=layer,
                model=facts or None,
                firmware=_text(folder / "fw_ver") or None,
                guid=_text(folder / "node_guid") or None,
                interface=interface,
            )
            there = {
                f"{part}/{file}"
                for part in ("counters", "hw_counters")
                for file in _listed(of / part)
            }
            files = {
                metric: file
                for metric in _COUNTERS
                for file in reversed(
                    BY_NAME[metric].readers("host")
                )  # so that the preferred one stays
                if file.path in there
            }
            state = device / "net" / interface / "operstate" if interface else None
            own = "" if layer == "InfiniBand" or state is None else str(state)
            ports.append(_PortFolder(port, str(of), files, own))
        return _Adapter(ports, path)

    def _nearest(self, path: tuple[str, ...], gpus: tuple[Gpu, ...]) -> str | None:
        """Return the UUID of the GPU that shares the most bridges with an adapter; None where several do,
        or where they share no more than the root of the bus."""
        shared: dict[str, int] = {}
        root = next((place for place, part in enumerate(path) if part.startswith("pci")), len(path))
        for gpu in gpus:
            if gpu.pci is not None and gpu.present:
                its = Path(os.path.realpath(self._pci / gpu.pci)).parts
                same = [one == other for one, other in zip(path[:-1], its[:-1], strict=False)]
                shared[gpu.uuid] = same.index(False) if False in same else len(same)
        most = max(shared.values(), default=0)
        nearest = [uuid for uuid, count in shared.items() if count == most]
        return nearest[0] if len(nearest) == 1 and most > root + 1 else None


def _read_port(each: _PortFolder, refused: set[str]) -> list[float]:
    """Return the row of a port."""
    row = [NOT_SUPPORTED] * len(_NAMES)
    state = _leading(each.folder + "/state")
    if each.operstate and state == _ACTIVE and _word(each.operstate) in {"down", "lowerlayerdown"}:
        state = _DOWN
    row[_COLUMN["port_state"]] = state
    row[_COLUMN["port_physical_state"]] = _leading(each.folder + "/phys_state")
    speed, width = (NOT_READ, NOT_READ)
    if state == _ACTIVE:
        speed, width = _rate(each.folder + "/rate")
    row[_COLUMN["port_speed_bytes_per_second"]] = speed
    row[_COLUMN["port_width"]] = width
    row[_COLUMN["port_speed_usual_bytes_per_second"]] = NOT_READ
    for name, file in each.files.items():
        path = f"{each.folder}/{file.path}"
        row[_COLUMN[name]] = (
            ERROR
            if path in refused or len(refused) >= MOST_REFUSED
            else _count(path, file, refused)
        )
    return row


def _count(path: str, file: PortFile, refused: set[str]) -> float:
    """Return a counter, or its gap; note one that the adapter refuses."""
    try:
        text = _read(path)
    except OSError as error:
        if error.errno in _REFUSALS:
            refused.add(path)
        return _gap(error)
    if not text.isdigit():
        return NOT_SUPPORTED if text.startswith("N/A") else ERROR
    value = int(text)
    if file.bits < 64 and value == 2**file.bits - 1:
        return SATURATED
    return value * file.scale


def _gap(error: OSError) -> float:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return NO_PERMISSION
    return NOT_SUPPORTED if error.errno == errno.ENOENT else ERROR


def _leading(path: str) -> float:
    """Return the number before the colon: `4: ACTIVE`."""
    try:
        return float(int(_read(path).partition(":")[0]))
    except OSError as error:
        return _gap(error)
    except ValueError:
        return ERROR


def _rate(path: str) -> tuple[float, float]:
    """Return bytes a second and lanes: `400 Gb/sec (4X NDR)`."""
    try:
        match = _RATE.match(_read(path))
        if match is None:
            return ERROR, ERROR
        return float(match[1]) * 1e9 / 8, float(match[2]) if match[2] else NOT_SUPPORTED
    except OSError as error:
        return _gap(error), _gap(error)
    except ValueError:
        return ERROR, ERROR


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _word(path: str) -> str:
    """Return the content of a file, "" when it can't be read."""
    try:
        return _read(path)
    except OSError:
        return ""


def _text(path: Path) -> str:
    return _word(str(path))


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,6}", text) else None


def _names_in(folder: Path) -> list[str]:
    """Return the names in a folder. Raises `OSError`."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _listed(folder: Path) -> list[str]:
    """Return the names in a folder, in order; none where there is no folder."""
    try:
        return sorted(_names_in(folder))
    except OSError:
        return []


def _natural(name: str) -> tuple[str, int, str]:
    """Return a key by which `mlx5_10` comes after `mlx5_9`."""
    match = re.fullmatch(r"(.*?)(\d{1,9})", name)
    return (match[1], int(match[2]), name) if match else (name, -1, name)
