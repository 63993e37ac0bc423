"""Reader of saved logs of nodes, of any format; passes plain values to alerts.diagnosis.

A clean bill names what the files show, and what they do not. A file that proves nothing, or that can't
be read to its end, is a third answer: it could not be judged.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import Finding, Observation, with_rule
from alerts.diagnosis.log_time import FindingTime, LogClock, time_of_document
from alerts.diagnosis.merging import GpuIdentities, merge
from alerts.diagnosis.node_faults import parts_of_a_node
from alerts.diagnosis.snapshot import CHECKED, GpuSnapshot, denied_by, evaluate_snapshots, proved_by, unproved
from alerts.message.card import GPU_METRICS
from alerts.rules.rule import load
from alerts.xid.catalogue import XidSeverity
from collector.smi.document import UNREACHABLE, Document, SmiGpu
from collector.smi.failure import Failure, failure_of
from collector.smi.file import documents_of
from collector.smi.inventory import NAMELESS, inventory_of
from collector.smi.readings import gpu_readings
from collector.smi.values import gap_of, is_denied, is_error
from kilowatch.saved_logs import dcgm, fabric_manager, nvlink, table, topology
from kilowatch.saved_logs.archive import files_of, is_tar, is_zip, node_of_name, read_tar, read_zip
from kilowatch.saved_logs.evidence import EvidenceIndex, GpuReadings, with_evidence
from kilowatch.saved_logs.part import Part
from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu
from telemetry.errors import SourceError
from telemetry.files.expansion import MAX_SIZE, Expansion, expanded
from telemetry.gap import Gap, reason_of
from telemetry.notations.kernel_log import message_start
from telemetry.statements.node import GPU_DRIVER
from telemetry.text import counted

MAX_SMI_BYTES = 64 * 1024 * 1024
"""Characters of a file that are searched for output of tools; kernel logs may be of any length."""
LONGEST_LINE = 1024 * 1024
"""Characters after which a line without an end is cut; the driver's have a few hundred."""

_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Answer(StrEnum):
    """State of the GPUs of a file, or of all files."""

    CLEAN = "clean"
    """No fault in what it shows."""
    TICKET = "ticket"
    PAGE = "page"
    UNJUDGED = "could not judge"


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer for one file."""

    file: str
    answer: Answer
    node: str | None = None
    formats: list[str] = []
    shows: list[str] = []
    """Aspects that it proves to be well, apart from the findings."""
    lacks: list[str] = []
    """Aspects that it does not show."""
    problems: list[str] = []
    """Why it could not be judged, or only in part."""
    subsystems: dict[str, str] = {}
    """For a kernel log, by part of the node (`host memory`, `storage`): `clean`, `fault` or `can't say`."""


class DiagnosisReply(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `kilowatch diagnose --json`."""

    answer: Answer
    """The worst that is known: page, ticket, could not judge, clean."""
    findings: list[Finding]
    """Worst first."""
    files: list[FileAnswer]


@dataclass(slots=True)
class _File:
    """A file that was read."""

    where: str
    node: str | None = None
    parts: list[Part] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Faults of the file itself: it is cut off, or larger than is read."""
    empty: bool = False
    kernel: Part | None = None
    """The part that is its kernel log, whose parts of the node are judged with all findings."""


class SavedLogReader:
    """Reads files one after another, and returns the findings of all."""

    def __init__(self, max_size: int | None = None) -> None:
        """`max_size`: bytes to which a file may expand (`telemetry.files.expansion`)."""
        self._max_size = max_size
        self._log = Diagnosis()
        self._files: list[_File] = []

    def read(self, path: Path) -> None:
        """Read a file, an archive, all files of a folder, or `-` for standard input."""
        if str(path) == "-":
            self.read_stream(sys.stdin.buffer, "standard input")
            return
        try:
            if path.is_dir():
                self._read_folder(path)
                return
            with path.open("rb") as stream:
                self.read_stream(stream, str(path))
        except FileNotFoundError:
            self._fail(str(path), "no such file. Name a saved log, or - to read one")
        except OSError as error:
            self._fail(str(path), f"can't be read: {error.strerror or error}")

    def read_stream(self, stream: BinaryIO, where: str) -> None:
        """Read a stream; `where` names it in messages."""
        start = stream.read(4)
        if is_zip(start):
            if stream.seekable():
                self._read_archive(where, lambda read: read_zip(stream, where, self._max_size, read))
            else:
                self._fail(where, "a zip archive can't be read from a pipe. Save it to a file first")
            return
        notes: list[str] = []
        parts = expanded(_Again(start, stream), where, notes, self._max_size)  # type: ignore[arg-type]  # has what is used of BinaryIO
        first: list[bytes] = []
        try:
            while sum(map(len, first)) < 512 and (part := next(parts, b"")):
                first.append(part)
        except SourceError as error:
            self._read_text(iter(first), where, [_without(str(error), where)])
            return
        if is_tar(b"".join(first)):
            chunks = _chain(first, parts)
            self._read_archive(where, lambda read: read_tar(chunks, where, read))
            for note in notes:
                self._fail(where, _without(note, where))
            return
        self._read_text(_chain(first, parts), where, notes)

    def _read_folder(self, folder: Path) -> None:
        before = len(self._files)
        try:
            for path, name in files_of(folder):
                self._of_node(node_of_name(name), path)
        except SourceError as error:
            self._fail(str(folder), _without(str(error), str(folder)))
        if len(self._files) == before:
            self._fail(str(folder), "a folder without a file")

    def _of_node(self, node: str | None, path: Path) -> None:
        before = len(self._files)
        self.read(path)
        self._name(before, node)

    def _name(self, first: int, node: str | None) -> None:
        """Name the node of files that name none themselves."""
        for file in self._files[first:]:
            if file.node is None and node is not None:
                file.node = node
                self._log.name_node(node, file.where)

    def _read_archive(self, where: str, each: Callable[[Callable[[BinaryIO, str], None]], None]) -> None:
        """Read the files of an archive, which may together expand to as much as one file may."""
        total = Expansion(where, self._max_size or MAX_SIZE)
        before = len(self._files)

        def read(stream: BinaryIO, name: str) -> None:
            at, inner = len(self._files), f"{where}/{name}"
            notes: list[str] = []
            parts = expanded(stream, inner, notes, self._max_size)
            self._read_text(_counted(parts, total), inner, notes)
            self._name(at, node_of_name(name))

        try:
            each(read)
        except SourceError as error:
            self._fail(where, _without(str(error), where))
        if len(self._files) == before:
            self._fail(where, "an archive without a file")

    def _fail(self, where: str, problem: str) -> None:
        self._files.append(_File(where, problems=[problem]))

    def _read_text(self, parts: Iterator[bytes], where: str, notes: list[str]) -> None:
        """Read the text of one file."""
        file = _File(where)
        self._files.append(file)
        self._log.next_log(where)
        before = self._log.records
        kernel = _KernelPart()
        kept: list[str] = []
        size = 0
        try:
            for text in _texts(parts):
                self._log.feed(fabric_manager.without_lines(text))
                kernel.feed(text)
                if size < MAX_SMI_BYTES:
                    kept.append(text[: MAX_SMI_BYTES - size])
                size += len(text)
        except SourceError as error:
            file.problems.append(_without(str(error), where))  # what was read until then counts
        file.problems += [_without(note, where) for note in notes]
        whole = "".join(kept)
        file.empty = not whole.strip()
        file.parts = parts_of(whole, where)
        if size > MAX_SMI_BYTES and (file.parts or not kernel.seen):  # kernel lines are all read
            file.problems.append(f"only the first {MAX_SMI_BYTES:,} characters were searched for output of tools")
        if kernel.seen or self._log.records > before:
            file.parts.append(kernel.part(self._log.records > before))
            file.kernel = file.parts[-1]
            if not kernel.stamped:
                self._log.count_bare_lines()
        if not file.parts:
            file.parts += _unknown(whole)
        if (report := _bug_report(whole)) is not None:
            file.parts.append(report)
        if self._log.full:
            file.problems.append(
                f"more faults than are kept apart ({self._log.kept:,}); later ones of other kinds or "
                "GPUs are left out. Cut the log into parts, and read each alone"
            )
        named = _UNAME.search(whole[:_NEAR])
        if named is not None:
            file.node = named[1]
            self._log.name_node(named[1], where)

    def reply(self) -> DiagnosisReply:
        """Return the findings of all files, worst first, and what each file says."""
        found = self.incidents()
        files = [self._answer(file, found) for file in self._files]
        answers = {_ANSWERS[one.severity] for one in found} | {file.answer for file in files}
        worst = next((answer for answer in _WORST if answer in answers), Answer.UNJUDGED)
        return DiagnosisReply(answer=worst, findings=found, files=files)

    def incidents(self) -> list[Finding]:
        """Return the findings of all files, worst first."""
        names = {file.node for file in self._files if file.node} | self._log.nodes()
        only = next(iter(names)) if len(names) == 1 else None
        parts = [(file, file.node or only, part) for file in self._files for part in file.parts]
        known = GpuIdentities((node, gpu) for _, node, part in parts for gpu in part.gpus)
        shown = known.identify(
            msgspec.structs.replace(one, node=node, files=[file.where], moment=_moment_of(one, file.where))
            for file, node, part in parts
            for one in part.findings
        )
        found = known.identify(merge(known.identify(self._log.incidents(only)), shown))
        if not found:
            return []
        states = [_state(one) for one in shown]
        index = EvidenceIndex(
            [*_placed(self._log.observations(), known), *states],
            [*_placed(self._log.occurrences(), known), *states],
            (
                (node, replace(each, gpu=known.complete(each.gpu, node)))
                for _, node, part in parts
                for each in part.readings
            ),
        )
        return with_evidence(found, index, {rule.name: rule for rule in load()})

    def _answer(self, file: _File, found: list[Finding]) -> FileAnswer:
        """Return what one file says, among the findings of all."""
        own = [one for one in found if file.where in one.files]
        driver = any(
            part.of_driver
            for other in self._files
            if other is file or other.node is None or file.node in {None, other.node}
            for part in other.parts
        )
        problems, shows, lacks = list(file.problems), list[str](), list[str]()
        subsystems = self._subsystems(file, driver) if file.kernel is not None else {}
        spare: list[str] = []
        for part in file.parts:
            proves = part.shows and (driver or not part.needs_driver)
            if part is file.kernel:
                unknown = self._log.unknown_lines(file.where)
                problems += [f"{part.format}: {_of_unknown(name, *unknown[name])}" for name in unknown]
                if GPU_DRIVER in unknown:
                    continue
            shows += part.shows if proves else []
            if part is file.kernel and proves:
                well = [name for name, state in subsystems.items() if state == WELL]
                beside = [name for name in well if name != GPU_DRIVER]
                shows += [f"faults of {', '.join(beside)}"] if beside else []
            lacks += part.lacks if proves else []
            if part.broken:
                problems.append(f"{part.format}: {part.problem}")
            elif not proves:
                lack = _NO_DRIVER if part.needs_driver else _NO_PROOF
                spare.append(f"{part.format}: {part.problem or lack}")
        shows = list(dict.fromkeys(shows))
        lacks = [lack for lack in dict.fromkeys(lacks) if not any(lack in show for show in shows)]
        worst = min((one.severity for one in own), key=lambda one: one.rank, default=None)
        bad = worst is not None and worst.rank <= XidSeverity.TICKET.rank
        if not shows and not bad:
            problems += spare or ([] if problems else [_EMPTY if file.empty else _NOTHING])
        answer = Answer.CLEAN
        if bad and worst is not None:
            answer = _ANSWERS[worst]
        elif problems:
            answer = Answer.UNJUDGED
        return FileAnswer(
            file=file.where,
            answer=answer,
            node=file.node,
            shows=shows,
            lacks=lacks,
            formats=list(dict.fromkeys(part.format for part in file.parts)),
            problems=problems,
            subsystems=subsystems,
        )

    def _subsystems(self, file: _File, driver: bool) -> dict[str, str]:
        """Return what a kernel log says of each part of the node. `driver`: whether it is known that one runs."""
        faulty, unknown = self._log.faulty_parts(file.where), self._log.unknown_lines(file.where)
        return {
            name: FAULTY
            if name in faulty
            else UNKNOWN
            if name in unknown or (name == GPU_DRIVER and not driver)
            else WELL
            for name in parts_of_a_node()
        }


def _moment_of(one: Finding, where: str) -> FindingTime | None:
    """Return the moment of a finding of a document, as one of its file."""
    if one.moment is None:
        return time_of_document(one.first, where)
    return msgspec.structs.replace(one.moment, file=where)


def _placed(observed: Iterable[Observation], known: GpuIdentities) -> Iterator[Observation]:
    """Yield observations with what is known of their GPUs."""
    for one in observed:
        gpus = [known.complete(gpu, one.node) for gpu in one.gpus]
        yield msgspec.structs.replace(one, gpus=gpus) if gpus else one


def _state(one: Finding) -> Observation:
    """Return a finding of a document as what it tells of its node at its moment."""
    return Observation(
        what=one.fault,
        fault=one.fault,
        severity=one.severity,
        kind="state",
        node=one.node,
        gpus=one.gpus,
        at=one.moment,
        count=one.count,
        line=one.line,
        file=one.files[0],
    )


_ANSWERS = {
    XidSeverity.PAGE: Answer.PAGE,
    XidSeverity.TICKET: Answer.TICKET,
    XidSeverity.INFO: Answer.CLEAN,
    XidSeverity.IGNORE: Answer.CLEAN,
}
WELL, FAULTY, UNKNOWN = "clean", "fault", "can't say"
"""Answers for a part of the node."""
_WORST = (Answer.PAGE, Answer.TICKET, Answer.UNJUDGED, Answer.CLEAN)
_NO_DRIVER = (
    "nothing in it is of the NVIDIA driver, so it does not show whether a GPU is there: save `nvidia-smi -q` too"
)
_NO_PROOF = "nothing in it shows the health of a GPU"
_NOTHING = "neither a kernel log nor output of nvidia-smi, Fabric Manager or DCGM"
_EMPTY = "it is empty"


class _Again:
    """A stream whose first bytes were read."""

    def __init__(self, start: bytes, stream: BinaryIO) -> None:
        self._start = start
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes; "" at the end."""
        start, self._start = self._start, b""
        return start + self._stream.read(size - len(start)) if start else self._stream.read(size)


def _chain(first: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    yield from first
    yield from rest


def _counted(parts: Iterator[bytes], total: Expansion) -> Iterator[bytes]:
    for part in parts:
        total.add(len(part))
        yield part


def _without(text: str, where: str) -> str:
    """Return a message without the name of the file in front."""
    return text.removeprefix(f"{where}: ")


# The kernel log: read as a stream, since it may be of any length.

_STAMPED = re.compile(
    r"^(?:<\d{1,3}>)?(?:kern {0,4}:\w{1,8} {0,8}: {0,4})?\[ {0,12}\d{1,9}\.(?:\d{3,9}[\] ]|\d{1,2}\] (?:NVRM: |nvidia))"
    r"|^\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    r"|^\d{1,3},\d{1,16},\d{1,20},[^;\n]{0,80};"
    r"|^(?=[^\"{\n]{0,200}\d\d:\d\d)[^\"{\n]{0,200}\bkernel(?:\[\d{1,9}\])?: "
    r"|^kernel: \[ {0,12}\d"
    r"|\"?_TRANSPORT\"? ?[=:] ?\"?kernel"
    r"|^(?:kern {0,4}:\w{1,8} {0,8}: {0,4})?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}",
    re.MULTILINE,
)
_BARE = re.compile(r"^[ \t]{0,40}(?:NVRM: |nvidia-nvswitch\d)", re.MULTILINE)
"""Lines of the driver with nothing before them: `dmesg -t`, `journalctl -o cat`."""
_SHOWN = 160
"""Characters of a line that a problem quotes."""
_OF_DRIVER = ("NVRM", "nvidia", "SXid")


class _KernelPart:
    """Facts that a kernel log proves by itself: its first and last time, and that the driver wrote."""

    def __init__(self) -> None:
        self.seen = False
        self.stamped = False
        """Whether a line has the front that the kernel or its readers give it."""
        self._driver = False
        self._first = self._last = ""

    def feed(self, text: str) -> None:
        if not self.stamped and (found := _STAMPED.search(text, 0, _NEAR)) is not None:
            self.seen = self.stamped = True
            begin = text.rfind("\n", 0, found.start() + 1) + 1
            self._first = text[begin : begin + 200].split("\n", maxsplit=1)[0]
        self.seen = self.seen or _BARE.search(text, 0, _NEAR) is not None
        if self.seen:
            self._driver = self._driver or any(mark in text for mark in _OF_DRIVER)
            line = text.rstrip()[-400:].rpartition("\n")[2]
            self._last = line if _STAMPED.match(line) or " kernel: " in line else self._last

    def part(self, driver: bool) -> Part:
        """Return the part; `driver`: whether a line was of the driver."""
        span = [_moment(line) for line in (self._first, self._last)]
        when = f", {span[0]} to {span[1]}" if span[0] and span[1] else ""
        part = Part("kernel log", needs_driver=True, of_driver=driver or self._driver)
        part.shows = [f"XIDs and other errors of the driver in the kernel log{when}"]
        part.lacks = ["uncorrected memory errors", "repairs of the memory that wait or failed",
                      "the temperature against its limit", "NVLinks"]  # fmt: skip
        return part


def _of_unknown(subsystem: str, count: int, first: str) -> str:
    """Return why a part of the node can't be judged: lines read like a fault, and what they mean is not known."""
    if subsystem == GPU_DRIVER:
        return (
            f"{counted(count, 'line')} of the driver {'speaks' if count == 1 else 'speak'} of an error that "
            f"no catalogue of kilowatch has: {first[:_SHOWN]}"
        )
    return (
        f"{subsystem}: {counted(count, 'line')} {'reads' if count == 1 else 'read'} like an error that "
        f"no catalogue of kilowatch has: {first[:_SHOWN]}"
    )


def _moment(line: str) -> str | None:
    return LogClock().read(line[: message_start(line)]).text


_SYSLOG = re.compile(r"^(?:<\d{1,3}>)?\w{3} [ \d]\d \d\d:\d\d:\d\d \S{1,120} [^\s:]{1,80}: ", re.MULTILINE)
_NEAR = 262_144
_UNAME = re.compile(r"\bLinux ([A-Za-z0-9][\w.-]{0,120}) \d{1,3}\.\d{1,4}[\w.+-]{0,80} #\d")
"""`uname -a` in a bug report."""


def _unknown(text: str) -> list[Part]:
    """Return a part that says what a text is instead of one that could be judged."""
    part = fabric_manager.unknown_part(text)
    if part is None and "\0" in text[:65536]:
        part = Part("binary file", problem="it holds no text", broken=True)
    if part is None and _SYSLOG.search(text[:_NEAR]) is not None:
        part = Part("syslog", problem="no line of the kernel is in it, only of programs", broken=True)
    if part is None and text.strip():
        part = Part("unknown format", problem=_NOTHING, broken=True)
    return [] if part is None else [part]


def _bug_report(text: str) -> Part | None:
    """Return a part for a bug report that has no end."""
    if "Start of NVIDIA bug report log file" not in text[:65536]:
        return None
    part = Part("nvidia-bug-report")
    if "End of NVIDIA bug report log file" in text:
        return None
    part.problem, part.broken = "it is cut off: its last line is missing", True
    return part


# Output of tools, anywhere in a text.

_SMI = re.compile(r"<nvidia_smi_log|=NVSMI LOG=|Unable to determine the device handle for")
_SECTION = re.compile(r"^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\s*$", re.MULTILINE)


def parts_of(text: str, where: str) -> list[Part]:
    """Return a part for each format of a text other than the kernel log."""
    parts = list(_smi(text, where))
    parts += nvlink.parts_of(text)
    for read in (topology.part_of, table.table_of, table.csv_of, fabric_manager.part_of, dcgm.part_of):
        part = read(text)
        if part is not None:
            parts.append(part)
    return parts


def _smi(text: str, where: str) -> Iterator[Part]:
    """Yield what `nvidia-smi -q` shows in a text, or the failure that it printed."""
    if _SMI.search(text) is None and _SECTION.search(text) is None:
        alone = len(text) < 8192 and "NVRM" not in text  # no boot log in which a service gave up once
        failure = failure_of(text) if alone else None
        if failure is not None:
            yield Part("nvidia-smi", [_of_failure(failure)])
        return
    try:
        documents = documents_of(text, where)
    except SourceError as error:
        if _SMI.search(text) is not None:
            yield Part("nvidia-smi -q", broken=True, problem=_without(str(error), where))
        return
    if isinstance(documents, Failure):
        yield Part("nvidia-smi", [_of_failure(documents)])
        return
    for document in documents:
        yield part_of_document(document, where, whole=document is not documents[-1])


def part_of_document(document: Document, where: str, *, whole: bool) -> Part:
    """Return what a document of `nvidia-smi -q` says; `whole`: another one follows it, so it was not cut off."""
    gpus = snapshots_of(document)
    at = document.fact("timestamp")
    moment = time_of_document(at, where)
    found = [msgspec.structs.replace(one, first=at, last=at, moment=moment) for one in evaluate_snapshots(gpus)]
    part = Part("nvidia-smi -q", found, of_driver=True)
    part.readings = [
        GpuReadings(gpu.identity, moment, {name: gpu.readings[name] for name in GPU_METRICS if name in gpu.readings})
        for gpu in gpus
    ]
    part.gpus = [gpu.identity for gpu in gpus]
    part.shows, part.lacks = proved_by(gpus)
    part.lacks += ["XIDs", "NVLinks"]
    if any(gpu.links for gpu in gpus):
        part.shows.append("NVLinks")
    lack = "" if whole else document.shortfall()
    silent = unproved(gpus)
    if lack:
        part.problem, part.broken = lack, True
    elif not gpus:
        part.problem, part.broken = "no GPU is in it", True
    elif not part.shows:
        part.problem = "no value in it shows the health of a GPU"
        if not any(gpu.lost for gpu in gpus):
            part.broken = "product_name" in document.gpus[0].values
    elif denied := denied_by(gpus):
        part.problem, part.broken = table.DENIED.format("; ".join(denied)), True
    elif silent:
        named = ", ".join(gpu.pci or gpu.name for gpu in silent[:8])
        part.problem, part.broken = f"nothing shows the health of {named}", True
    return part


def _texts(parts: Iterator[bytes]) -> Iterator[str]:
    """Yield the text of a stream in parts that end at the end of a line; a longer line is cut."""
    left: list[str] = []
    waiting = 0
    decoder: codecs.IncrementalDecoder | None = None
    for part in parts:
        if decoder is None:
            name = next((name for mark, name in _MARKS if part.startswith(mark)), "utf-8")
            decoder = codecs.getincrementaldecoder(name)("replace")
        text = decoder.decode(part)
        end = text.rfind("\n") + 1
        if not end and waiting < LONGEST_LINE:
            left.append(text)
            waiting += len(text)
            continue
        end = end or len(text)
        yield _tidied("".join([*left, text[:end]]))
        left, waiting = [text[end:]], len(text) - end
    rest = "".join([*left, "" if decoder is None else decoder.decode(b"", final=True)])
    if rest:
        yield _tidied(rest)


def _tidied(text: str) -> str:
    return text.replace("\r\n", "\n").lstrip("\ufeff")


def snapshots_of(document: Document) -> list[GpuSnapshot]:
    """Return snapshots of the GPUs in a document of nvidia-smi."""
    gpus = inventory_of(document).gpus
    return [
        _snapshot(raw, gpu, document.links.get(index, []))
        for index, (raw, gpu) in enumerate(zip(document.gpus, gpus, strict=True))
    ]


def _snapshot(raw: SmiGpu, gpu: Gpu, links: list[tuple[int, float | None]]) -> GpuSnapshot:
    known = gpu_readings(raw)
    readings = {key: value for key, value in known.items() if reason_of(value) is None}
    lost = next((word for word in raw.values.values() if table.LOST.search(word)), "")
    if not lost and not readings:
        lost = next((word for word in raw.values.values() if "Unknown Error" in word), "")
    if not lost and not is_denied(unopened := raw.values.get(UNREACHABLE, "")):
        lost = unopened
    if "gpu_recovery_action" not in readings:  # words of drivers before 570
        for path, action in _RESET_STATUS:
            if raw.values.get(path, "").lower() == "yes":
                readings["gpu_recovery_action"] = action
    named = not gpu.uuid.startswith(NAMELESS)
    return GpuSnapshot(
        pci=gpu.pci,
        name="GPU" if gpu.name == "unknown" else gpu.name,
        readings=readings,
        lost=lost,
        links=[speed is not None for _, speed in links],
        index=gpu.index,
        uuid=gpu.uuid if named else None,
        serial=gpu.serial,
        slot=gpu.slot,
        unread=[
            f"{path.replace('_', ' ').replace('/', ', ')}: {word}"
            for path, word in raw.values.items()
            if is_error(word) and path != _FABRIC_STATUS
        ],
        denied=[
            name
            for name in CHECKED
            if reason_of(known[name]) is Gap.NO_PERMISSION
            or any(is_denied(raw.values.get(path, "")) for path in BY_NAME[name].readers("smi"))
        ],
        license=next((word for path in _LICENSES if gap_of(word := raw.values.get(path, "")) is None), ""),
    )


_FABRIC_STATUS = "fabric/status"
"""An error there is the state of the fabric."""
_LICENSES = ("vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status")
_RESET_STATUS = (("gpu_reset_status/drain_and_reset_recommended", 4.0), ("gpu_reset_status/reset_required", 1.0))


def _of_failure(failure: Failure) -> Finding:
    fault = {"mismatched": "driver_mismatch", "up": "gpu_missing"}.get(failure.state, "driver_down")
    one = Finding(
        severity=XidSeverity.TICKET, fault=fault, action=failure.message, line=failure.message, lines=[failure.message]
    )
    return with_rule(one)
