"""Reader of one AMD GPU in the probe process: its description, and its readings by the rows of the catalogue."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path

import msgspec

from collector.amd.files import DeviceFiles, number_of
from collector.amd.gpu_metrics import ABSENT, GpuMetrics
from collector.amd.library import VIOLATIONS, AmdLibrary
from collector.amd.throttle import ThrottleTimes
from collector.amd.topology import KfdGpu, place_of, processes_of
from collector.probe.driver import Turn
from collector.probe.protocol import FAST, PROCESSES, SLOW, ProbeDescription, ProbeReading, ProbeStatus
from telemetry.catalogue import BY_NAME
from telemetry.catalogue.amd import (
    AmdReader,
    BadPages,
    Binary,
    File,
    KfdProcesses,
    LibraryAnswer,
    Pick,
    Ras,
    Residency,
    Sensor,
)
from telemetry.devices import Gpu, Link
from telemetry.gap import GAP, Gap, reason_of
from telemetry.metric import Lane, Metric, Table, Unit
from telemetry.wire.schema import SCHEMA

REFUSALS = 20
"""Readings in a row in which the driver refused every file, after which the GPU counts as one that needs a
reset: a reset takes a few seconds."""
MODELS = {
    0x738C: ("AMD Instinct MI100", "CDNA"),
    0x7408: ("AMD Instinct MI250X", "CDNA 2"),
    0x740C: ("AMD Instinct MI250X", "CDNA 2"),
    0x740F: ("AMD Instinct MI210", "CDNA 2"),
    0x74A0: ("AMD Instinct MI300A", "CDNA 3"),
    0x74A1: ("AMD Instinct MI300X", "CDNA 3"),
    0x74A2: ("AMD Instinct MI308X", "CDNA 3"),
    0x74A5: ("AMD Instinct MI325X", "CDNA 3"),
    0x74A9: ("AMD Instinct MI300X HF", "CDNA 3"),
    0x74B5: ("AMD Instinct MI300X VF", "CDNA 3"),
    0x75A0: ("AMD Instinct MI350X", "CDNA 4"),
    0x75A3: ("AMD Instinct MI355X", "CDNA 4"),
}
"""Name and architecture by PCI device id (https://pci-ids.ucw.cz); others go by their own name."""
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCI Express generation by GT/s."""
SPANS = {Unit.WATTS: (0.0, 3000.0), Unit.CELSIUS: (-60.0, 250.0), Unit.RATIO: (0.0, 1.0), Unit.HERTZ: (0.0, 2e10)}
"""Values beyond these are a sentinel that nobody published, or nonsense: gaps."""
DRIVER_FAULT = 0xFFFF0
"""A count of errors that rises by exactly this much at each query, ours or another program's, is a fault of the
driver, not of the memory."""
_COUNT = re.compile(r"\b(ue|ce|de)(?:_count)?:\s*(\d+)")
_LEVEL = re.compile(r":\s*(\d+)\s*Mhz\s*(\*?)", re.IGNORECASE)
_ABSENT = GAP[Gap.NOT_SUPPORTED]
_ERROR = GAP[Gap.ERROR]
_NEXT = {None, Gap.NOT_SUPPORTED, Gap.NO_PERMISSION}
"""Gaps after which the next reader of a metric is tried."""
_BITS = {FAST: Lane.FAST, SLOW: Lane.SLOW}
_GPU_FAST = SCHEMA.blocks[SCHEMA.index(Table.GPU, Lane.FAST)].names
_LATENCY = _GPU_FAST.index("gpu_driver_latency_seconds")

Read = Callable[[], float]


class AmdGpu:
    """Reader of one GPU, by its PCI address. Created without reading: a broken GPU may hang on the first file."""

    def __init__(
        self,
        root: Path,
        pci: str,
        index: int,
        topology: Mapping[str, KfdGpu],
        addresses: Mapping[str, str],
        library: AmdLibrary,
    ) -> None:
        """`topology` is by PCI address without function; `addresses` gives the whole address of each GPU."""
        self.pci = pci
        self._root = root
        self._index = index
        self._library = library
        self._kfd = topology.get(place_of(pci), KfdGpu())
        self._addresses = addresses
        self._files = DeviceFiles(root / "sys/bus/pci/devices" / pci)
        self._table = GpuMetrics(b"")
        self._times = ThrottleTimes()
        self._plans: dict[int, list[tuple[int, Metric, list[Read]]]] = {}
        self._templates: dict[int, array[float]] = {}
        self._settled: set[int] = set()
        self._ras: dict[str, dict[str, float]] | None = None
        self._faults: dict[tuple[str, str], tuple[int, int]] = {}
        """By block and severity: the newest count, and what of it is the driver's fault."""
        self._blocks: list[str] = []
        self._refusals = 0
        self._status = ProbeStatus.OK
        self._described: ProbeDescription | None = None
        self._reported: ProbeDescription | None = None

    # ---- description ----

    def describe(self) -> ProbeDescription | None:
        """Return the description, when it has changed since the last call."""
        if self._described is None:
            self._files.begin()
            if not self._files.there():
                return None
            self._open()
        self._add_texts()
        if self._described == self._reported:
            return None
        self._reported = self._described
        return self._described

    def presence(self) -> ProbeReading:
        """Return the last status, without reading."""
        return ProbeReading(self._status)

    def _open(self) -> None:
        text = self._files.text
        device = number_of(text("device"))
        model, architecture = MODELS.get(int(device) if not isnan(device) else 0, ("", ""))
        own = _word(text("product_name"))
        if not model:
            number = f" {int(device):#06x}" if not isnan(device) else ""
            model = f"AMD {own.removeprefix('AMD ')}" if own else f"AMD GPU{number}"
        unique = _word(text("unique_id")).lower()
        memory = number_of(text("mem_info_vram_total"))
        limit = number_of(self._files.sensor("power1_cap"))
        uuid = f"GPU-{unique}" if unique else f"GPU-{self.pci.replace(':', '-')}"
        self._blocks = [
            name.removesuffix("_err_count") for name in self._files.names("ras") if name.endswith("_err_count")
        ]
        links = self._links(uuid)
        gpu = Gpu(
            uuid=uuid,
            index=self._index,
            name=model,
            pci=self.pci,
            serial=_word(text("serial_number")) or None,
            vbios=_word(text("vbios_version")) or None,
            part_number=_word(text("product_number")) or None,
            architecture=architecture or None,
            memory_bytes=int(memory) if not isnan(memory) else None,
            power_limit_watts=limit * 1e-6 if not isnan(limit) else None,
            minor=self._render_node(),
        )
        for bit, lane in _BITS.items():
            self._plan(bit, lane)
        self._described = ProbeDescription(gpu, tuple(link for link, _ in links))

    def _render_node(self) -> int | None:
        """Return the number of `/dev/dri/renderDN`, by which Slurm's gres.conf names the GPU."""
        names = (name.removeprefix("renderD") for name in self._files.names("drm"))
        return next((int(name) for name in names if name.isdigit()), None)

    def _links(self, uuid: str) -> list[tuple[Link, int | None]]:
        """Return the xGMI links, each with its entry in the lists of `gpu_metrics`, which is the number that
        the GPU at its other end has in the hive."""
        found: list[tuple[Link, int | None]] = []
        for place in sorted(self._kfd.peers):
            pci = self._addresses.get(place)
            entry = None
            if pci is not None:
                path = self._root / "sys/bus/pci/devices" / pci / "xgmi_physical_id"
                try:
                    entry = int(path.read_text("ascii").strip(), 0)
                except (OSError, ValueError):
                    entry = None
            link = Link(gpu=uuid, number=len(found), peer_kind="gpu", peer_pci=pci)
            found.append((link, entry))
        self._entries = [entry for _, entry in found]
        return found

    def _add_texts(self) -> None:
        """Add what the library says, when it has answered."""
        name, serial = self._library.texts.get(self.pci, ("", ""))
        if self._described is None or not (name or serial):
            return
        gpu = self._described.gpu
        unnamed = gpu.name.startswith("AMD GPU")
        if (serial and gpu.serial is None) or (name and unnamed):
            gpu = msgspec.structs.replace(
                gpu,
                serial=gpu.serial or serial or None,
                name=f"AMD {name.removeprefix('AMD ')}" if name and unnamed else gpu.name,
            )
            self._described = ProbeDescription(gpu, self._described.links)

    # ---- readings ----

    def read(self, lanes: int, turn: Turn) -> ProbeReading:
        """Return the readings on `lanes`."""
        if self._described is None:
            return ProbeReading(ProbeStatus.LOST)
        if self._status is not ProbeStatus.OK and not lanes & SLOW:
            return ProbeReading(self._status)  # a lost GPU is read again on the slow lane only
        begin = time.perf_counter()
        values = array("d")
        self._files.begin()
        asleep = self._files.text("power/runtime_status") == "suspended"
        self._take(begin, asleep=asleep)
        for bit in (FAST, SLOW):
            if lanes & bit:
                values += self._read_lane(bit, turn, asleep=asleep)
                if bit == FAST:
                    values[_LATENCY] = time.perf_counter() - begin
        if turn.abandoned:
            return ProbeReading(ProbeStatus.HUNG)  # the result is discarded
        self._status = self._evaluate()
        if self._status is not ProbeStatus.OK:
            return ProbeReading(self._status)
        processes = processes_of(self._root, self._kfd.ids) if lanes & PROCESSES else None
        return ProbeReading(ProbeStatus.OK, values.tobytes(), processes)

    def _take(self, now: float, *, asleep: bool) -> None:
        """Read what all rows share: the binary table, and the cycles of throttlers."""
        self._ras = None
        data = b"" if asleep else self._files.read("gpu_metrics")
        self._table = GpuMetrics(b"" if isinstance(data, Gap) else data)
        cycles = self._table.read("accumulation_counter")
        if cycles is not None:
            active = {name: found[0] for name in VIOLATIONS if (found := self._table.read(name)) is not None}
            self._times.update(cycles[0], active, now)
            return
        counted = {name: self._library.answer(self.pci, f"violation_status/{name}") for name in VIOLATIONS}
        total = self._library.answer(self.pci, "violation_status/cycles")
        known = isinstance(total, float) and not isnan(total)
        self._times.update(
            int(total) if known and isinstance(total, float) else None,
            {name: int(each) for name, each in counted.items() if isinstance(each, float) and not isnan(each)},
            now,
        )

    def _read_lane(self, bit: int, turn: Turn, *, asleep: bool) -> array[float]:
        values = self._templates[bit][:]
        if asleep:  # reading would wake it
            return array("d", [GAP[Gap.NOT_READ]] * len(values))
        for position, metric, reads in self._plans[bit]:
            if turn.abandoned:
                return values
            reading = _ABSENT
            for read in reads:
                raw = read()
                found = _checked(metric, raw)
                if found == found:  # noqa: PLR0124 - NaN is a gap
                    reading = found
                    break
                if reason_of(reading) is Gap.NOT_SUPPORTED:
                    reading = found  # the first that is more than absent
                if reason_of(raw) not in _NEXT:
                    break  # refused, or late: another source would have an older number
            values[position] = reading
        if bit not in self._settled and self._files.answers.given:
            self._settled.add(bit)
            self._report_capabilities(bit, values)
        return values

    def _evaluate(self) -> ProbeStatus:
        """Return how the reading went, from how its files did."""
        answers = self._files.answers
        if not self._files.there():
            return ProbeStatus.LOST
        if answers.gone and not answers.given:
            return ProbeStatus.LOST
        refused = answers.refused and not answers.given
        self._refusals = self._refusals + 1 if refused else 0
        return ProbeStatus.RESET_REQUIRED if self._refusals >= REFUSALS else ProbeStatus.OK

    def _report_capabilities(self, bit: int, values: array[float]) -> None:
        """Add what this GPU never has, of what a GPU of AMD may have, to its description."""
        if self._described is None:
            return
        block = SCHEMA.blocks[SCHEMA.index(Table.GPU, _BITS[bit])]
        absent = {
            name: Gap.NOT_SUPPORTED.word
            for name, value in zip(block.names, values, strict=False)
            if reason_of(value) is Gap.NOT_SUPPORTED and BY_NAME[name].readers("amd")
        }
        gpu = self._described.gpu
        gpu = msgspec.structs.replace(gpu, capabilities={**gpu.capabilities, **absent})
        self._described = ProbeDescription(gpu, self._described.links)

    def _plan(self, bit: int, lane: Lane) -> None:
        """Bind the rows of a lane: those of the GPU, then those of each link."""
        plan: list[tuple[int, Metric, list[Read]]] = []
        position = 0
        for table in (Table.GPU, Table.LINK):
            for block in SCHEMA.blocks:
                if block.table != table or block.lane != lane:
                    continue
                for link in [None] if table is Table.GPU else range(len(self._entries)):
                    for name in block.names:
                        metric = BY_NAME[name]
                        reads = [self._bind(reader, metric, link) for reader in metric.readers("amd")]
                        if reads:
                            plan.append((position, metric, reads))
                        position += 1
        self._plans[bit] = plan
        self._templates[bit] = array("d", [_ABSENT] * position)

    def _bind(self, reader: AmdReader, metric: Metric, link: int | None) -> Read:
        match reader:
            case File():
                return lambda: self._file(reader, metric)
            case Sensor(name=name, scale=scale):
                return lambda: number_of(self._files.sensor(name)) * scale
            case Binary():
                return lambda: self._binary(reader, link)
            case Ras(severity=severity, block=block):
                return lambda: self._errors(block, severity)
            case Residency(throttlers=throttlers, flag=flag):
                names = frozenset(throttlers)
                return lambda: self._held(names, flag=flag)
            case BadPages(status=status, flag=flag):
                return lambda: self._bad_pages(status, flag=flag)
            case LibraryAnswer(answer=answer, scale=scale):
                return lambda: self._answer(answer, link) * scale
            case KfdProcesses():
                return self._processes

    def _file(self, reader: File, metric: Metric) -> float:
        text = self._files.text(reader.path)
        if isinstance(text, Gap):
            return GAP[text]
        match reader.pick:
            case Pick.NUMBER:
                number = number_of(text)
                if reader.minus:
                    number -= number_of(self._files.text(reader.minus))
                elif number in ABSENT or (number in {0, 255} and reader.path.endswith("link_width")):
                    return _ABSENT
                return number * reader.scale
            case Pick.WORD:
                numbers = {word: float(number) for number, word in metric.states}
                return numbers.get(text, _ABSENT)
            case Pick.STARRED | Pick.HIGHEST:
                levels = _LEVEL.findall(text)
                if reader.pick is Pick.STARRED:
                    levels = [each for each in levels if each[1]]
                return max((float(each[0]) for each in levels), default=_ABSENT) * reader.scale
            case Pick.SPEED:
                word = text.partition(" ")[0]
                speed = float(word) if re.fullmatch(r"\d+(\.\d+)?", word) else 0.0
                return float(GENERATIONS.get(speed, _ABSENT))
            case Pick.UMC:
                mask = number_of(text.rpartition(" ")[2])
                return float(int(mask) & 1) if not isnan(mask) else mask

    def _binary(self, reader: Binary, link: int | None) -> float:
        if reader.fold == "link":
            entry = self._entries[link] if link is not None else None
            one = self._table.entry(reader.field, entry) if entry is not None else None
            return one * reader.scale if one is not None else self._no_table()
        found = self._table.read(reader.field)
        if found is None:
            return self._no_table()
        folds: dict[str, Callable[[list[int]], float]] = {"min": min, "max": max, "mean": _mean}
        number = folds.get(reader.fold, _first)(found)
        if reader.times:
            other = self._table.read(reader.times)
            if other is None:
                return _ABSENT
            number *= other[0]
        return number * reader.scale

    def _no_table(self) -> float:
        """Return why a field has no value: its table could not be read, or has none such."""
        data = self._files.read("gpu_metrics")
        return GAP[data] if isinstance(data, Gap) else _ABSENT

    def _errors(self, block: str, severity: str) -> float:
        """Return a count of errors, or the sum of all blocks."""
        if self._ras is None:
            self._ras = {name: self._counts(name) for name in self._blocks}
        if block:
            return self._ras.get(block, {}).get(severity, _ABSENT)
        found = [counts[severity] for counts in self._ras.values() if severity in counts]
        known = [count for count in found if not isnan(count)]
        if known:
            return sum(known)
        return found[0] if found else _ABSENT

    def _counts(self, block: str) -> dict[str, float]:
        text = self._files.text(f"ras/{block}_err_count")
        if isinstance(text, Gap):
            return dict.fromkeys(("ue", "ce", "de"), GAP[text])
        found: dict[str, float] = {}
        for severity, digits in _COUNT.findall(text):
            count = int(digits)
            if count in ABSENT:
                continue
            before, fault = self._faults.get((block, severity), (count, 0))
            if count > before and (count - before) % DRIVER_FAULT == 0:
                fault += count - before
            elif count < before:
                fault = 0
            self._faults[block, severity] = count, fault
            found[severity] = float(count - fault)
        return found

    def _held(self, names: frozenset[str], *, flag: bool) -> float:
        if not self._times.known:
            return self._no_table()
        if not flag:
            return self._times.seconds(names)
        return float(self._times.share(names) > 0) if self._times.shares else GAP[Gap.NOT_READ]

    def _bad_pages(self, status: str, *, flag: bool) -> float:
        text = self._files.text("ras/gpu_vram_bad_pages")
        if isinstance(text, Gap):
            return GAP[text]
        count = sum(line.rpartition(":")[2].strip() == status for line in text.splitlines())
        return float(bool(count)) if flag else float(count)

    def _answer(self, name: str, link: int | None) -> float:
        found = self._library.answer(self.pci, name)
        if isinstance(found, float):
            return found
        return found[link] if link is not None and link < len(found) else _ABSENT

    def _processes(self) -> float:
        found = processes_of(self._root, self._kfd.ids)
        if found.problem:
            return GAP[Gap.NO_PERMISSION if found.problem == "no permission" else Gap.NOT_SUPPORTED]
        return float(len(found.rows))


def _checked(metric: Metric, value: float) -> float:
    """Return a reading, or the gap `error` for one that no GPU has."""
    span = SPANS.get(metric.unit)
    if span is None or value != value or span[0] <= value <= span[1]:  # noqa: PLR0124 - NaN is a gap
        return value
    return _ERROR


def _word(text: str | Gap) -> str:
    if isinstance(text, Gap) or text in {"", "N/A", "unknown"}:
        return ""
    return text.removeprefix("0x") if text.isprintable() else ""


def _first(numbers: list[int]) -> float:
    return numbers[0]


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers)
