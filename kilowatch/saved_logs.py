"""Reader of saved logs of a node, of any format; passes plain values to alerts.diagnosis."""

from __future__ import annotations

import bz2
import codecs
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

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
from telemetry.gap import reason_of

# Decompression while reading: gzip, bzip2, xz.

CHUNK = 8 * 1024 * 1024
"""Bytes that are read or decompressed at a time, at most."""
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """Adapter of zlib's object to the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_KINDS: tuple[tuple[bytes, str, Callable[[], _Unpacker]], ...] = (
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMADecompressor),
)
"""Compressions by the first bytes of a file."""


def unpacked(stream: BinaryIO, where: str, notes: list[str]) -> Iterator[bytes]:
    """Yield the decompressed content of a stream, also of several concatenated members. A truncated
    file adds a note. Raises `SourceError` for a damaged one."""
    part = stream.read(CHUNK)
    if part.startswith(_ZSTD):
        raise SourceError(
            f"{where}: it is packed with zstd. Write: zstd -dc FILE | kilowatch diagnose -"
        )
    found = next((kind for kind in _KINDS if part.startswith(kind[0])), None)
    if found is None:
        while part:
            yield part
            part = stream.read(CHUNK)
        return
    mark, name, make = found
    unpacker = make()
    while part or not unpacker.needs_input:
        try:
            text = unpacker.decompress(part, CHUNK)
        except (zlib.error, OSError, lzma.LZMAError) as error:
            raise SourceError(f"{where}: damaged {name} file: {error}") from error
        if text:
            yield text
        if unpacker.eof:
            part = unpacker.unused_data or stream.read(CHUNK)
            unpacker = make()
            if not part.startswith(mark):
                return  # padding behind the last member
        else:
            part = stream.read(CHUNK) if unpacker.needs_input else b""
    notes.append(f"{where}: the {name} file is cut off; the rest is not evaluated")


MAX_SMI_BYTES = 64 * 1024 * 1024
"""Bytes of a file that are searched for nvidia-smi's output; kernel logs may be of any length."""

_SMI = re.compile(r"<nvidia_smi_log|=NVSMI LOG=|Unable to determine the device handle for")
_LINKS = re.compile(r"^GPU (\d{1,4}): (.*?) \(UUID: ([^)]*)\)[ \t]*$", re.MULTILINE)
_LINK = re.compile(
    r"^[ \t]+Link (\d{1,2}): *([\d.]+ GB/s|<?inactive>?)\s*$", re.MULTILINE | re.IGNORECASE
)
_MARKS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class SavedLogReader:
    """Reads files one after another, and returns the incidents of all."""

    def __init__(self) -> None:
        self._log = Diagnosis()
        self._found: list[Finding] = []
        self.notes: list[str] = []
        """Remarks about the files themselves."""

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
        for text in _texts(stream, where, self.notes):
            self._log.feed(text)
            if size < MAX_SMI_BYTES:
                kept.append(text)
                size += len(text)
        whole = "".join(kept)
        known = self._read_smi(whole, where)
        if not known and self._log.lines == before:
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


def _texts(stream: BinaryIO, where: str, notes: list[str]) -> Iterator[str]:
    """Yield the decompressed text of a stream in parts that end at the end of a line."""
    left = b""
    encoding = ""
    for part in unpacked(stream, where, notes):
        if not encoding:
            encoding = next((name for mark, name in _MARKS if part.startswith(mark)), "utf-8")
        if encoding != "utf-8":
            left += part
            continue
        end = part.rfind(b"\n") + 1
        if end:
            yield (left + part[:end]).decode("utf-8", errors="replace").replace("\r\n", "\n")
            left = part[end:]
        else:
            left += part
    if left:
        yield (
            left.decode(encoding or "utf-8", errors="replace")
            .replace("\r\n", "\n")
            .lstrip("\ufeff")
        )


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
    for head, following in zip(heads, [*heads[1:], None], strict=True):
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
