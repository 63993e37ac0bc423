"""Reads the logs of nvidia-smi from a saved file; an error names what the file is instead.

A file may be compressed (gzip, bzip2, xz), begin with a byte order mark, be UTF-16 (PowerShell's `>`), hold several
logs one behind another, or be a capture or support bundle with a log somewhere inside.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from collector.smi.document import UNREACHABLE, Document, SmiGpu, unreachable
from collector.smi.failure import Failure, failure_of
from collector.smi.text_log import parse_text
from collector.smi.values import quantity
from collector.smi.xml_log import parse_xml
from telemetry.errors import SourceError
from telemetry.files.expansion import LimitError, expanded
from telemetry.gap import reason_of
from telemetry.metric import Unit

# Output of `nvidia-smi nvlink -s`, where a capture holds it beside the log.

_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: ([^)]*)\)\s*")
_LINK = re.compile(r"\s+Link (\d{1,3}): (.*)")


def add_links(text: str, document: Document) -> None:
    """Add the links that `text` lists to a document, for GPUs whose index and UUID agree.

    `nvidia-smi topo` and `-L` print GPU lines of the same form; without link lines they add none.
    """
    index = -1
    found: dict[int, dict[int, float | None]] = {}
    for line in text.split("\n"):
        if (gpu := _GPU.fullmatch(line.rstrip())) is not None:
            index = int(gpu[1])
            known = index < len(document.gpus) and gpu[2] in {
                document.gpus[index].values.get("uuid"),
                document.gpus[index].values.get("gpu_uuid"),
            }
            index = index if known else -1
        elif (link := _LINK.fullmatch(line.rstrip())) is not None and index >= 0:
            speed = quantity(link[2].strip(), Unit.BYTES_PER_SECOND)
            inactive = "inactive" in link[2].lower()
            if inactive or reason_of(speed) is None:
                found.setdefault(index, {}).setdefault(int(link[1]), None if inactive else speed)
        elif line and not line[0].isspace():
            index = -1
    document.links = {number: sorted(links.items()) for number, links in found.items()}


MAX_BYTES = 64 * 1024 * 1024
"""Bound on memory, also of what a compressed file expands to: a support bundle has a few MiB."""

_CURE = "Save one with `nvidia-smi -q -x > FILE`"
_OTHER_FORMATS = (
    (re.compile(r"^GPU \d+: .*\(UUID", re.MULTILINE), "`nvidia-smi -L` or `nvidia-smi nvlink -s`"),
    (re.compile(r"\| NVIDIA-SMI |^\+-{20}", re.MULTILINE), "the table of a bare `nvidia-smi`"),
    (re.compile(r"NVRM: "), "a kernel log"),
    (re.compile(r"\A# gpu +", re.MULTILINE), "`nvidia-smi dmon` or `pmon`"),
    (re.compile(r"^[\w.]+( \[\w+\])?(, *[\w.]+( \[\w+\])?)+\s*$", re.MULTILINE), "CSV"),
    (re.compile(r"\A\s*[{\[]"), "JSON"),
    (re.compile(r"\A\s*<(!doctype )?html", re.IGNORECASE), "a web page"),
    (re.compile(r"\A\s*<\?xml"), "XML of something else, or cut off before its first GPU"),
)


def load(path: Path) -> list[Document] | Failure:
    """Return the logs in a file, in order, at least one; or the failure that nvidia-smi printed.

    Raises `SourceError`: no such file, a directory, not readable, empty, binary, another format.
    """
    return documents_of(_decode(_read(path), path), str(path))


def documents_of(text: str, where: str) -> list[Document] | Failure:
    """Return the logs in a text, as `load` does; `where` names it in errors."""
    documents = parse_xml(text) if "<nvidia_smi_log" in text else []
    if not any(document.gpus for document in documents):
        documents = parse_text(text) or documents
    lost = unreachable(text)
    if not documents and lost:
        documents = [Document()]
    if not documents:
        failure = failure_of(text)
        if failure is not None:
            return failure
        looks = next((what for shape, what in _OTHER_FORMATS if shape.search(text)), "")
        raise SourceError(
            f"{where}: no output of `nvidia-smi -q` in it"
            + (f"; it looks like {looks}. {_CURE}" if looks else f". {_CURE}")
        )
    for document in documents:
        _add_unreachable(document, lost)
    if "Link 0:" in text:
        add_links(text, documents[0])
        for document in documents[1:]:
            document.links = documents[0].links
    return documents


def _add_unreachable(document: Document, lost: dict[str, str]) -> None:
    """Append the GPUs that nvidia-smi could not open."""
    document.unreachable = lost
    there = {gpu.bus_id.lower()[-10:] for gpu in document.gpus}
    for bus_id, message in lost.items():
        if bus_id.lower()[-10:] not in there:
            document.gpus.append(SmiGpu(bus_id, {UNREACHABLE: message or "GPU is lost"}))


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise SourceError(f"{path}: a directory. Name a file: {_CURE}")
    try:
        with path.open("rb") as file:
            data = b"".join(expanded(file, str(path), [], MAX_BYTES))
    except FileNotFoundError as error:
        raise SourceError(f"{path}: no such file. {_CURE}") from error
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror or error}") from error
    except LimitError as error:
        raise SourceError(f"{path}: larger than {MAX_BYTES >> 20} MiB, so no log of nvidia-smi. {_CURE}") from error
    if not data.strip():
        raise SourceError(f"{path}: empty. {_CURE}")
    return data


def _decode(data: bytes, path: Path) -> str:
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return data[len(mark) :].decode(name, errors="replace")
    if b"\0" in data[:65536]:
        raise SourceError(f"{path}: a binary file. {_CURE}")
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
