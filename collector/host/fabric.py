"""Ports of network adapters (InfiniBand, RoCE, Ethernet) and bonds, from /sys/class/infiniband and /sys/class/net.

The adapter's firmware is asked for nearly each file, and firmware that has stopped answers after a
minute. A thread reads them, one adapter after another, while the source reads the GPUs: a tick waits
for it a moment only. An adapter that does not return is left to its thread, and another thread goes
on with the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from collector.host import bit_errors
from collector.host.ethtool import EthtoolReader, Statistics
from collector.host.hardware import total
from collector.host.open_file import KeptFiles
from collector.host.port_roles import NUMBERS, with_roles
from collector.host.topology import FarEnd, far_end, read_topology
from collector.source import Rows
from telemetry.catalogue import BY_NAME
from telemetry.catalogue.sysfs import DeviceFile, HostReader, InterfaceFile, PortFile, Statistic
from telemetry.devices import PORT_PREFIX, Gpu, Port
from telemetry.gap import DEVICE_LOST, ERROR, NO_PERMISSION, NOT_READ, NOT_SUPPORTED, SATURATED, TIMED_OUT
from telemetry.notations.pci import normal_pci
from telemetry.wire.schema import PORT_SLOW, SCHEMA

log = logging.getLogger(__name__)

WAIT = 0.2
"""Seconds that a tick waits for a round of readings after the GPUs were read."""
LATEST = 40.0
"""Seconds after which the readings of an adapter are too old: two rounds and some."""
MOST_REFUSED = 2
"""Refused counters after which no counter of an adapter is read: each refusal is a line in the
kernel's log, and a function that the fabric manager owns refuses them all."""
_MOST_OPEN = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
"""Files of all adapters that stay open: half of what this process may have."""
MOST_INTERFACES = 64
"""Ethernet interfaces that are read, the first by name."""
_POLL = 0.005
_ACTIVE = 4.0
_DOWN = 1.0
_LEAST_ALIKE = 3
_RATE = re.compile(rb"([\d.]{1,10}) Gb/sec(?: \((\d{1,3})X)?")
_NAMES = SCHEMA.blocks[PORT_SLOW].names
_COUNTERS = SCHEMA.blocks[PORT_SLOW].counters
_COLUMN = {name: number for number, name in enumerate(_NAMES)}
_REFUSALS = frozenset({errno.EINVAL, errno.EIO, errno.EOPNOTSUPP})
_NET = "net:"
"""Before the name of an Ethernet interface in the list of adapters."""
_TOPOLOGY = "topology"
"""Name of the file of links in the list of what the thread reads."""
_ETHERNET = "1"
"""Type of an interface in /sys/class/net."""
_OPERSTATES = {b"up": _ACTIVE, b"down": _DOWN, b"lowerlayerdown": _DOWN, b"notpresent": _DOWN, b"dormant": 2.0}
_GENERATIONS = {b"2.5": 1, b"5.0": 2, b"5": 2, b"8.0": 3, b"8": 3, b"16.0": 4, b"32.0": 5, b"64.0": 6}
_LANES = frozenset({1, 2, 4, 8, 12, 16, 32})
_MILLI = 1e-3
_ALIKE, _SENDING, _AGREE = 0.25, 0.02, 0.75
"""Ports of a node send alike when three quarters of them are within a quarter of their median; one that sends less
than a fiftieth of it has no work."""
_LEAST_SHARE = 0.01
"""Share of the speed below which the median is idle."""


class _Count(NamedTuple):
    """A counter that is a file."""

    column: int
    path: str
    ceiling: int
    """At which a counter of few bits stays; -1 for one that wraps."""
    scale: float
    by_adapter: bool
    """Whether the adapter's firmware is asked for it, and may refuse."""


@dataclass(slots=True)
class _PortFolder:
    """A port, with the reader of each of its metrics."""

    port: Port
    folder: str
    """Of an RDMA port; "" for plain Ethernet."""
    readers: dict[str, tuple[HostReader, ...]]
    """Of each counter; several are added."""
    interface: str
    """Folder of its network interface; "" where it has none that tells its state."""
    device: str
    """Folder of its PCI device; "" for a bond."""
    bridge: str
    """Folder of the bridge above that."""
    sensors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Files of temperatures, by metric."""
    counts: list[_Count] = field(default_factory=list)
    """Of `readers`, those that are a file of their own."""
    statistics: str = ""
    """Interface with statistics that are read; "" for none."""
    picks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Places of the statistics of each pattern."""
    picked_from: tuple[str, ...] = ()


_Described = tuple[tuple[str, ...], list[_PortFolder]]
"""Path and ports of an adapter, before it is read."""


@dataclass(slots=True)
class _Adapter:
    """An adapter that was found, and what its firmware refused."""

    ports: list[_PortFolder]
    path: tuple[str, ...]
    """Bridges above it, and itself."""
    files: KeptFiles
    near: tuple[tuple[Gpu, ...], str | None] | None = None
    """The GPUs when the nearest was last looked for, and the UUID of that."""
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
        roles: Mapping[str, str] | None = None,
        topology: Path | None = None,
        statistics: Callable[[str], Statistics] | None = None,
    ) -> None:
        """`root` is where sys and proc are; `wait` as `WAIT`; `roles` and `topology` as in the settings;
        `statistics` returns those of an interface, `ethtool -S` if not given."""
        self.ports: tuple[Port, ...] = ()
        """Ports that the machine has or had, in the order of the rows."""
        self._node = node
        self._folder = root / "sys/class/infiniband"
        self._net = root / "sys/class/net"
        self._pci = root / "sys/bus/pci/devices"
        self._route = root / "proc/net/route"
        self._monotonic = monotonic
        self._wait = wait
        self._given = dict(roles or {})
        self._topology = topology
        self._links: dict[str, FarEnd] = {}
        self._links_read: tuple[int, int] = (0, 0)
        """Time and size of the file of links when it was read."""
        self._statistics = EthtoolReader() if statistics is None else statistics
        self._adapters: dict[str, _Adapter] = {}
        self._found: dict[str, _Found] = {}
        self._listed: tuple[str, ...] = ()
        self._kinds: dict[str, bool] = {}
        """Whether an interface is a port or a bond of this machine."""
        self._gpus: tuple[Gpu, ...] = ()
        self._sent: dict[str, tuple[float, float]] = {}
        """Bytes sent by each port, and when that was read."""
        self._ratios: dict[str, float] = {}
        self._errors = bit_errors.BitErrors()
        self._stuck: dict[str, threading.Thread] = {}
        """Adapters that a thread did not return from."""
        self._thread: threading.Thread | None = None
        self._reading = ""
        """Adapter that the thread reads now."""
        self._done = threading.Event()
        self._closed = False

    def begin(self, gpus: Sequence[Gpu]) -> None:
        """Start a round of readings. Never waits."""
        self._gpus = tuple(gpus)
        self._listed = (*sorted(_listed(self._folder), key=_natural), *self._interfaces())
        self._stuck = {name: thread for name, thread in self._stuck.items() if thread.is_alive()}
        before = self._thread
        if before is not None and before.is_alive() and self._reading:
            log.warning("adapter=%s does not answer; the others are read without it", self._reading)
            self._stuck[self._reading] = before
        names = [name for name in self._listed if name not in self._stuck]
        if names and self._topology is not None and _TOPOLOGY not in self._stuck:
            names.insert(0, _TOPOLOGY)
        self._done = threading.Event()
        self._thread = None
        if names and not self._closed:
            self._thread = threading.Thread(
                target=self._round, args=(names, tuple(gpus), self._done), name="fabric", daemon=True
            )
            self._thread.start()

    def _interfaces(self) -> list[str]:
        """Return the Ethernet interfaces of adapters of this machine, and its bonds. Each name is looked at
        once: a node of containers has hundreds of others."""
        names = _listed(self._net)
        for name in self._kinds.keys() - set(names):
            del self._kinds[name]
        found = []
        for name in names:
            if name not in self._kinds:
                self._kinds[name] = _is_port(self._net / name)
            if self._kinds[name]:
                found.append(f"{_NET}{name}")
        return sorted(found, key=_natural)[:MOST_INTERFACES]

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
        if thread is None or not thread.is_alive():
            for name in list(self._adapters):
                self._forget(name)

    def _rows(self) -> Rows:
        now, listed = self._monotonic(), set(self._listed)
        ports: list[Port] = []
        rows: list[list[float]] = []
        ages: list[float] = []
        """When each row was read; -1 for one that is a gap."""
        found = sorted(self._found.items(), key=lambda item: _natural(item[0]))
        # RDMA ports first; an interface that has another name now, or is that of an RDMA port, is not lost
        found.sort(key=lambda item: item[0].startswith(_NET))
        rdma = [port for name, each in found if not name.startswith(_NET) for port in each.ports]
        claimed = {port.pci for port in rdma} | {port.interface for port in rdma} - {None}
        there = {port.pci for name, each in found if name in listed for port in each.ports}
        for name, each in found:
            lost, late = name not in listed, now - each.at > LATEST
            for port, row in zip(each.ports, each.rows, strict=True):
                plain = name.startswith(_NET)
                if plain and (port.pci in claimed or port.adapter in claimed):
                    continue
                if plain and lost and port.pci is not None and port.pci in there:
                    continue
                ports.append(msgspec.structs.replace(port, present=False) if lost else port)
                gap = DEVICE_LOST if lost else TIMED_OUT
                rows.append([gap] * len(_NAMES) if lost or late else list(row))
                ages.append(-1.0 if lost or late else each.at)
        self._compare(ports, rows)
        ports = with_roles(ports, self._gpus, self._default_routes(), self._given)
        ports = [self._with_far_end(port) for port in ports]
        for port, row, at in zip(ports, rows, ages, strict=True):
            row[_COLUMN["port_role"]] = float(NUMBERS.get(port.role, 0))
            if at >= 0:
                self._fill_errors(port, row, at)
        self._compare_rails(ports, rows, ages)
        if tuple(ports) != self.ports:
            self.ports = tuple(ports)
        return {PORT_SLOW: rows} if rows else {}

    def _with_far_end(self, port: Port) -> Port:
        far = far_end(port, self._node, self._links)
        if far is None:
            return port
        return msgspec.structs.replace(port, switch=far.switch, switch_port=far.port or None)

    def _default_routes(self) -> set[str]:
        """Return the interfaces of default routes, of which /proc/net/route has a line each."""
        lines = (line.split() for line in _word(str(self._route), 1 << 16).splitlines()[1:])
        zero = "00000000"
        return {words[0] for words in lines if len(words) > 7 and words[1] == words[7] == zero}

    def _fill_errors(self, port: Port, row: list[float], at: float) -> None:
        """Fill in the rate of bit errors, and its limit."""
        speed, lanes = row[_COLUMN["port_speed_bytes_per_second"]], row[_COLUMN["port_width"]]
        bits = row[_COLUMN["port_corrected_errors_total"]]
        row[_COLUMN["port_raw_ber"]] = self._errors.rate(port.id, bits, speed, at)
        row[_COLUMN["port_raw_ber_limit"]] = bit_errors.limit(speed, lanes)

    def _compare_rails(self, ports: Sequence[Port], rows: Sequence[list[float]], ages: Sequence[float]) -> None:
        """Fill in what each compute port has sent by the median of them, where most of them send alike."""
        sent, speed = _COLUMN["port_transmit_bytes_total"], _COLUMN["port_speed_bytes_per_second"]
        rates: dict[int, float] = {}
        again = False
        for number, (port, row, at) in enumerate(zip(ports, rows, ages, strict=True)):
            if at >= 0:
                row[_COLUMN["port_rail_ratio"]] = NOT_SUPPORTED if port.rail is None else NOT_READ
            if port.rail is None or row[sent] != row[sent]:
                self._sent.pop(port.id, None)
                continue
            before = self._sent.get(port.id)
            if before is not None and at - before[1] < bit_errors.LEAST_SECONDS:
                again = True
                continue
            self._sent[port.id] = row[sent], at
            if before is not None and row[sent] >= before[0]:
                rates[number] = (row[sent] - before[0]) / (at - before[1])
        if not again:
            self._ratios = _ratios(rates, [row[speed] for row in rows], [port.id for port in ports])
        for port, row, at in zip(ports, rows, ages, strict=True):
            if at >= 0 and port.id in self._ratios:
                row[_COLUMN["port_rail_ratio"]] = self._ratios[port.id]

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
            self._forget(name)  # it may be another one when it is back
        for name in names:
            if done is not self._done:  # this thread was given up
                return
            self._reading = name
            if name == _TOPOLOGY:
                self._read_links()
                continue
            try:
                found = self._adapter(name, gpus)
            except (OSError, ValueError):
                continue  # it is gone, or comes just now
            except Exception:
                log.exception("adapter=%s can't be read", name)
                continue
            adapter = self._adapters.get(name)
            if adapter is not None and adapter.files.is_stale:
                self._forget(name)
            if done is self._done and found.ports:
                self._found[name] = found
        if done is self._done:
            self._reading = ""
        done.set()

    def _forget(self, name: str) -> None:
        """Describe an adapter anew when it is read next. Of one that a thread is in, that thread has the files."""
        adapter = self._adapters.pop(name, None)
        me = threading.current_thread()
        if adapter is not None and self._stuck.get(name, me) is me:
            adapter.files.close()

    def _read_links(self) -> None:
        """Read the file of links where it has changed; one that can't be read leaves what is known."""
        if self._topology is None:
            return
        try:
            state = self._topology.stat()
            stamp = state.st_mtime_ns, state.st_size
            if stamp != self._links_read:
                self._links_read = stamp
                self._links = read_topology(self._topology.read_text(errors="replace"))
        except (OSError, ValueError) as error:
            log.warning("collector.topology=%s can't be read: %s", self._topology, error)

    def _adapter(self, name: str, gpus: tuple[Gpu, ...]) -> _Found:
        adapter = self._adapters.get(name)
        if adapter is None:
            plain = name.startswith(_NET)
            files = KeptFiles(_MOST_OPEN // max(1, len(self._listed)))
            path, found = self._describe_interface(name[len(_NET) :]) if plain else self._describe(name)
            self._adapters[name] = adapter = _Adapter(found, path, files)
        if adapter.near is None or adapter.near[0] != gpus:
            adapter.near = gpus, self._nearest(adapter.path, gpus)
        near = adapter.near[1]
        try:
            rows = [self._read_port(each, adapter) for each in adapter.ports]
        finally:
            if self._adapters.get(name) is not adapter:  # it was forgotten while this thread hung
                adapter.files.close()
        ports = [
            msgspec.structs.replace(each.port, gpu=near, bond=self._bond_of(each.port.interface))
            for each in adapter.ports
        ]
        return _Found(self._monotonic(), ports, rows)

    def _bond_of(self, interface: str | None) -> str | None:
        """Return the bond that an interface is a member of now."""
        if interface is None:
            return None
        master = f"{self._net}/{interface}/master"
        if not os.access(f"{master}/bonding", os.F_OK):
            return None
        return Path(os.path.realpath(master)).name

    def _describe(self, name: str) -> _Described:
        folder = self._folder / name
        device = folder / "device"
        path = Path(os.path.realpath(device)).parts
        pci = normal_pci(path[-1]) if path else None
        if (device / "physfn").exists():  # a virtual function has its share of a port that is read already
            return path, []
        numbers = sorted(int(word) for word in _names_in(folder / "ports") if word.isdigit())
        interfaces = _listed(device / "net")
        facts = " ".join(filter(None, (_text(folder / "hca_type"), _text(folder / "board_id"))))
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
                numa_node=_numa(device),
                link_layer=layer,
                model=facts or None,
                firmware=_text(folder / "fw_ver") or None,
                guid=_text(folder / "node_guid") or None,
                interface=interface,
            )
            there = {f"{part}/{file}" for part in ("counters", "hw_counters") for file in _listed(of / part)}
            own = layer != "InfiniBand" and interface is not None
            net = str(device / "net" / interface) if own and interface is not None else ""
            each = _PortFolder(port, str(of), {}, net, os.path.realpath(device), "")
            self._choose(each, there, interface or "")
            ports.append(each)
        return path, ports

    def _describe_interface(self, name: str) -> _Described:
        """Describe an interface of plain Ethernet, or a bond."""
        folder = self._net / name
        if (folder / "bonding").exists():
            port = Port(
                id=f"{PORT_PREFIX}{self._node}:{name}/0",
                adapter=name,
                number=0,
                link_layer="Ethernet",
                model="bond",
                interface=name,
            )
            each = _PortFolder(port, "", {}, str(folder), "", "")
            self._choose(each, set(), "")
            return (), [each]
        device = folder / "device"
        path = Path(os.path.realpath(device)).parts
        while path and normal_pci(path[-1]) is None:  # virtio has a device of its own below
            path = path[:-1]
        if not path:
            return (), []
        pci, place = normal_pci(path[-1]), Path(*path)
        number = _number(_text(folder / "dev_port")) or 0
        key = f"{pci}/0" if number == 0 else f"{pci}/0.{number}"
        driver = Path(os.path.realpath(device / "driver")).name if (device / "driver").exists() else ""
        facts = " ".join(filter(None, (driver, _pci_name(place))))
        port = Port(
            id=f"{PORT_PREFIX}{self._node}:{key}",
            adapter=name,
            number=0,
            pci=pci,
            numa_node=_numa(place),
            link_layer="Ethernet",
            model=facts or None,
            interface=name,
        )
        each = _PortFolder(port, "", {}, str(folder), str(place), "")
        self._choose(each, set(), name)
        return path, [each]

    def _choose(self, each: _PortFolder, there: set[str], interface: str) -> None:
        """Choose a reader for each counter: the first of the catalogue that the port has."""
        names: frozenset[str] = frozenset()
        if interface:
            try:
                names = frozenset(self._statistics(interface).names)
            except OSError:
                names = frozenset()
        bridge = Path(each.device).parent
        has_bridge = bool(each.device) and (bridge / "max_link_width").exists()
        each.bridge = str(bridge) if has_bridge else ""
        for metric in _COUNTERS:
            readers: Iterable[HostReader] = BY_NAME[metric].readers("host")
            if not each.interface:  # of InfiniBand the adapter's own counters are the better ones
                readers = sorted(readers, key=lambda reader: not isinstance(reader, PortFile))
            has = [reader for reader in readers if self._has(each, reader, there, names)]
            if has and isinstance(has[0], DeviceFile):
                each.readers[metric] = tuple(has)
            elif has:
                each.readers[metric] = (has[0],)
                match has[0]:
                    case Statistic():
                        each.statistics = interface
                    case PortFile(path=path, bits=bits, scale=scale):
                        ceiling = 2**bits - 1 if bits < 64 else -1
                        file = f"{each.folder}/{path}"
                        each.counts.append(_Count(_COLUMN[metric], file, ceiling, scale, True))
                    case InterfaceFile(file=name, scale=scale):
                        file = f"{each.interface}/{name}"
                        each.counts.append(_Count(_COLUMN[metric], file, -1, scale, False))
                    case DeviceFile():
                        pass  # several together, above
        for sensor in sorted(Path(each.device).glob("hwmon/hwmon*/temp*_input")) if each.device else ():
            label = _text(sensor.with_name(sensor.name.replace("_input", "_label")))
            word = "port_module_temperature_celsius" if label.startswith("Module") else "port_temperature_celsius"
            each.sensors[word] = (*each.sensors.get(word, ()), str(sensor))

    @staticmethod
    def _has(each: _PortFolder, reader: HostReader, there: set[str], names: frozenset[str]) -> bool:
        match reader:
            case PortFile(path=path):
                return path in there
            case InterfaceFile(file=file):
                return bool(each.interface) and Path(each.interface, file).exists()
            case DeviceFile(file=file):
                return bool(each.device) and Path(each.device, file).exists()
            case Statistic(pattern=pattern):
                return any(fnmatchcase(name, pattern) for name in names)

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

    def _read_port(self, each: _PortFolder, adapter: _Adapter) -> list[float]:
        """Return the row of a port."""
        files, refused = adapter.files, adapter.refused
        row = [NOT_SUPPORTED] * len(_NAMES)
        speed, width = (NOT_READ, NOT_READ)
        if each.folder:
            state = _leading(files, each.folder + "/state")
            down = _operstate(files, f"{each.interface}/operstate") if each.interface else None
            if state == _ACTIVE and down == _DOWN:  # some drivers say active whatever the cable does
                state = _DOWN
            row[_COLUMN["port_physical_state"]] = _leading(files, each.folder + "/phys_state")
            if state == _ACTIVE:
                speed, width = _rate(files, each.folder + "/rate")
        else:
            state = _operstate(files, f"{each.interface}/operstate")
            speed, width = (NOT_READ, NOT_SUPPORTED)
            if state == _ACTIVE:
                speed = _megabits(files, f"{each.interface}/speed")
        row[_COLUMN["port_state"]] = state
        row[_COLUMN["port_speed_bytes_per_second"]] = speed
        row[_COLUMN["port_width"]] = width
        row[_COLUMN["port_speed_usual_bytes_per_second"]] = NOT_READ
        if each.device:
            _read_pcie(files, each, row)
        for word, sensors in each.sensors.items():
            row[_COLUMN[word]] = _hottest(files, sensors)
        for count in each.counts:
            if count.by_adapter and (len(refused) >= MOST_REFUSED or count.path in refused):
                row[count.column] = ERROR
            else:
                row[count.column] = _counted(files, count, refused)
        found = self._read_statistics(each)
        for name, readers in each.readers.items():
            match readers[0]:
                case DeviceFile():
                    row[_COLUMN[name]] = _errors(files, each.device, readers)
                case Statistic(pattern=pattern, scale=scale):
                    places = each.picks.get(pattern, ())
                    row[_COLUMN[name]] = ERROR if found is None else sum(found[at] for at in places) * scale
                case PortFile() | InterfaceFile():
                    pass  # among the counts
        return row

    def _read_statistics(self, each: _PortFolder) -> tuple[int, ...] | None:
        """Return the statistics of the port's interface, and note where those that are wanted stand."""
        if not each.statistics:
            return None
        try:
            found = self._statistics(each.statistics)
        except OSError:
            return None
        if found.names is not each.picked_from:
            each.picked_from = found.names
            wanted = {one.pattern for readers in each.readers.values() for one in readers if isinstance(one, Statistic)}
            each.picks = {
                pattern: tuple(at for at, name in enumerate(found.names) if fnmatchcase(name, pattern))
                for pattern in wanted
            }
        return found.values


def _ratios(rates: Mapping[int, float], speeds: Sequence[float], ids: Sequence[str]) -> dict[str, float]:
    """Return the rate of each compute port by their median, by identity; nothing where they don't send alike."""
    if len(rates) < _LEAST_ALIKE + 1:
        return {}
    middle = median(rates.values())
    known = [speeds[number] for number in rates if speeds[number] > 0]
    if not known or middle < _LEAST_SHARE * median(known):
        return {}
    alike = sum(abs(rate / middle - 1) <= _ALIKE for rate in rates.values())
    if alike < _AGREE * len(rates):
        return {}
    return {ids[at]: rate / middle for at, rate in rates.items() if rate >= _SENDING * middle}


def _is_port(folder: Path) -> bool:
    """Return whether an interface is Ethernet of a PCI adapter, or a bond."""
    if (folder / "bonding").exists():
        return True
    path = os.path.realpath(folder / "device")
    return (
        (folder / "device").exists()
        and not (folder / "device/physfn").exists()
        and _text(folder / "type") == _ETHERNET
        and "/pci" in path
        and "/usb" not in path
    )


def _numa(device: Path) -> int | None:
    node = _number(_text(device / "numa_node"))
    return node if node is not None and node >= 0 else None


def _pci_name(device: Path) -> str:
    """Return vendor and device of a PCI device as `lspci -n` has them: `15b3:1021`."""
    words = [_text(device / name).removeprefix("0x") for name in ("vendor", "device")]
    return ":".join(words) if all(words) else ""


def _operstate(files: KeptFiles, path: str) -> float:
    try:
        return _OPERSTATES.get(files.read(path), NOT_SUPPORTED)
    except OSError as error:
        return _gap(error)


def _megabits(files: KeptFiles, path: str) -> float:
    """Return bytes a second; a driver that does not know says -1, or refuses."""
    try:
        speed = int(files.read(path))
    except (OSError, ValueError):
        return NOT_SUPPORTED
    return speed * 1e6 / 8 if speed > 0 else NOT_SUPPORTED


def _read_pcie(files: KeptFiles, each: _PortFolder, row: list[float]) -> None:
    """Read how wide and fast the PCI Express link is, and could be in this slot."""
    for word, file, parse in (("width", "link_width", _lanes), ("generation", "link_speed", _generation)):
        try:
            now = parse(files.read(f"{each.device}/current_{file}"))
            own = parse(files.read(f"{each.device}/max_{file}"))
        except OSError:
            continue
        slot = None
        if each.bridge:
            with contextlib.suppress(OSError):
                slot = parse(files.read(f"{each.bridge}/max_{file}"))
        if now is None or own is None:
            continue
        row[_COLUMN[f"port_pcie_link_{word}"]] = float(now)
        row[_COLUMN[f"port_pcie_link_{word}_possible"]] = float(min(own, slot or own))


def _lanes(text: bytes) -> int | None:
    return int(text) if text.isdigit() and int(text) in _LANES else None


def _generation(text: bytes) -> int | None:
    return _GENERATIONS.get(text.partition(b" ")[0])


def _errors(files: KeptFiles, device: str, readers: Iterable[HostReader]) -> float:
    """Return the sum of the totals of files of AER."""
    found = 0
    try:
        for reader in readers:
            if isinstance(reader, DeviceFile):
                found += total(files.read(f"{device}/{reader.file}"))
    except OSError as error:
        return _gap(error)
    except (ValueError, IndexError):
        return ERROR
    return float(found)


def _hottest(files: KeptFiles, sensors: Iterable[str]) -> float:
    found = []
    for sensor in sensors:
        try:
            found.append(int(files.read(sensor)) * _MILLI)
        except (OSError, ValueError):
            continue  # a module that was pulled
    return max(found, default=NOT_SUPPORTED)


def _counted(files: KeptFiles, count: _Count, refused: set[str]) -> float:
    """Return a counter, or its gap; note one that the adapter refuses."""
    try:
        text = files.read(count.path)
    except OSError as error:
        if count.by_adapter and error.errno in _REFUSALS:
            refused.add(count.path)
        return _gap(error)
    if not text.isdigit():
        return NOT_SUPPORTED if text.startswith(b"N/A") else ERROR
    value = int(text)
    return SATURATED if value == count.ceiling else value * count.scale


def _gap(error: OSError) -> float:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return NO_PERMISSION
    return NOT_SUPPORTED if error.errno == errno.ENOENT else ERROR


def _leading(files: KeptFiles, path: str) -> float:
    """Return the number before the colon: `4: ACTIVE`."""
    try:
        return float(int(files.read(path).partition(b":")[0]))
    except OSError as error:
        return _gap(error)
    except ValueError:
        return ERROR


def _rate(files: KeptFiles, path: str) -> tuple[float, float]:
    """Return bytes a second and lanes: `400 Gb/sec (4X NDR)`."""
    try:
        match = _RATE.match(files.read(path))
        if match is None:
            return ERROR, ERROR
        return float(match[1]) * 1e9 / 8, float(match[2]) if match[2] else NOT_SUPPORTED
    except OSError as error:
        return _gap(error), _gap(error)
    except ValueError:
        return ERROR, ERROR


def _read(path: str, most: int = 4096) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, most).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def _word(path: str, most: int = 4096) -> str:
    """Return the content of a file, "" when it can't be read."""
    try:
        return _read(path, most)
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
