"""Reader of saved logs of a node, of any format; passes plain values to alerts.diagnosis."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from alerts.diagnosis.diagnosis import Diagnosis
from alerts.diagnosis.finding import Finding, worst_first
from alerts.diagnosis.snapshot import GpuSnapshot, evaluate_snapshots, merge
from alerts.xid.catalogue import XidSeverity
from collector.smi.document import Document, SmiGpu
from collector.smi.failure import Failure, failure_of
from collector.smi.file import documents_of
from collector.smi.inventory import inventory_of
from collector.smi.readings import gpu_readings
from telemetry.errors import SourceError
from telemetry.expansion import expanded
from telemetry.gap import reason_of

MAX_SMI_BYTES = 64 * 1024 * 1024
"""Characters of a file that are searched for nvidia-smi's output; kernel logs may be of any length."""
LONGEST_LINE = 1024 * 1024
"""Characters after which a line without an end is cut; the driver's have a few hundred."""

_SMI = re.compile(r"<nvidia_smi_log|=NVSMI LOG=|Unable to determine the device handle for")
_LINKS = re.compile(
    r"^GPU (\d{1,4}): ([^\n]{1,200}?) \(UUID: ([^)\n]{0,100})\)[ \t]{0,99}$", re.MULTILINE
)
_LINK = re.compile(
    r"^[ \t]{1,99}Link (\d{1,2}): *([\d.]+ GB/s|<?inactive>?)\s*$", re.MULTILINE | re.IGNORECASE
)
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class SavedLogReader:
    """Reads files one after another, and returns the incidents of all."""

    def __init__(self, max_size: int | None = None) -> None:
        """`max_size`: bytes to which a file may expand (`telemetry.expansion`)."""
        self._max_size = max_size
        self._log = Diagnosis()
        self._found: list[Finding] = []
        self.notes: list[str] = []
        """Remarks about the files themselves."""
        self.faults: list[str] = []
        """Files of which only a part could be read, each with its reason and what to do."""

    def read(self, file: Path) -> None:
        """Read one file, `-` for standard input. Raises `SourceError` when it can't be read."""
        if str(file) == "-":
            self.read_stream(sys.stdin.buffer, "standard input")
            return
        try:
            with file.open("rb") as stream:
                self.read_stream(stream, str(file))
        except FileNotFoundError as error:
            raise SourceError(
                f"{file}: no such file. Name a saved log, or - to read one"
            ) from error
        except OSError as error:
            raise SourceError(f"{file}: can't be read: {error.strerror or error}") from error

    def read_stream(self, stream: BinaryIO, where: str) -> None:
        """Read a stream; `where` names it in messages."""
        self._log.next_log()
        before = self._log.lines
        kept: list[str] = []
        size = 0
        faults = len(self.faults)
        try:
            for text in _texts(expanded(stream, where, self.notes, self._max_size)):
                self._log.feed(text)
                if size < MAX_SMI_BYTES:
                    kept.append(text[: MAX_SMI_BYTES - size])
                    size += len(text)
        except SourceError as error:
            self.faults.append(str(error))  # what was read until then counts
        whole = "".join(kept)
        known = self._read_smi(whole, where)
        if self._log.full:
            self.faults.append(
                f"{where}: more faults than are kept apart ({self._log.kept:,}); later ones of other"
                " kinds or GPUs are left out. Cut the log into parts, and read each alone"
            )
        if not known and self._log.lines == before and len(self.faults) == faults:
            self.notes.append(
                f"{where}: nothing of the NVIDIA driver and no output of nvidia-smi in it"
                + ("; it is empty" if not whole.strip() else "")
            )

    def _read_smi(self, text: str, where: str) -> bool:
        """Evaluate nvidia-smi's output in a text; return whether there was any."""
        links = links_of(text) if "(UUID: " in text else []
        if _SMI.search(text) is None:
            alone = (
                len(text) < 8192 and "NVRM" not in text
            )  # no boot log in which a service gave up once
            failure = failure_of(text) if alone else None
            if failure is not None:
                self._found.append(_of_failure(failure))
            elif links:
                self._found += evaluate_snapshots(links)
            return failure is not None or bool(links)
        try:
            documents = documents_of(text, where)
        except SourceError:
            return False
        if isinstance(documents, Failure):
            self._found.append(_of_failure(documents))
            return True
        for document in documents:
            self._found += evaluate_snapshots(snapshots_of(document))
        if (lack := documents[-1].shortfall()) != "":
            self.notes.append(f"{where}: {lack}")
        return True

    def incidents(self) -> list[Finding]:
        """Return the incidents of all files, worst first."""
        log = self._log.incidents()
        return worst_first(merge([*log, *_distinct(self._found)]) if self._found else log)


def _distinct(found: list[Finding]) -> list[Finding]:
    """Return the findings without repetitions in several documents of one node."""
    return list({(one.fault, one.gpu, one.severity): one for one in found}.values())


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
        _snapshot(raw, gpu.pci, gpu.name, document.links.get(index, []))
        for index, (raw, gpu) in enumerate(zip(document.gpus, gpus, strict=True))
    ]


def _snapshot(
    raw: SmiGpu, pci: str | None, name: str, links: list[tuple[int, float | None]]
) -> GpuSnapshot:
    readings = {key: value for key, value in gpu_readings(raw).items() if reason_of(value) is None}
    lost = next((word for word in raw.values.values() if _LOST.search(word)), "")
    if not lost and not readings:
        lost = next((word for word in raw.values.values() if "Unknown Error" in word), "")
    if "gpu_recovery_action" not in readings:  # words of drivers before 570
        for path, action in _RESET_STATUS:
            if raw.values.get(path, "").lower() == "yes":
                readings["gpu_recovery_action"] = action
    return GpuSnapshot(
        pci=pci,
        name=name,
        readings=readings,
        lost=lost,
        links=[speed is not None for _, speed in links],
    )


_LOST = re.compile(r"is lost|fallen off|requires? (?:a )?reset|requires restart", re.IGNORECASE)
_RESET_STATUS = (
    ("gpu_reset_status/drain_and_reset_recommended", 4.0),
    ("gpu_reset_status/reset_required", 1.0),
)


def links_of(text: str) -> list[GpuSnapshot]:
    """Return snapshots of the GPUs in a saved `nvidia-smi nvlink -s`, if it is one."""
    heads = list(_LINKS.finditer(text))
    found: list[GpuSnapshot] = []
    for head, following in zip_longest(heads, heads[1:]):
        body = text[head.end() : len(text) if following is None else following.start()]
        states = {int(link[1]): "inactive" not in link[2].lower() for link in _LINK.finditer(body)}
        links = [states.get(number, False) for number in range(max(states, default=-1) + 1)]
        if "all links are inactive" in body.lower():
            links = [False] * 64
        found.append(GpuSnapshot(pci=None, name=head[2], readings={}, links=links))
    return found if any(gpu.links for gpu in found) else []


def _of_failure(failure: Failure) -> Finding:
    fault = {"mismatched": "driver_mismatch", "up": "gpu_missing"}.get(failure.state, "driver_down")
    return Finding(severity=XidSeverity.TICKET, fault=fault, action=failure.message,
                    line=failure.message)  # fmt: skip
