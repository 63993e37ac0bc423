"""Where the recorded logs are, and short ways to read a log in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.smi.document import Document
from collector.smi.failure import Failure
from collector.smi.file import documents_of, load
from collector.smi.readings import gpu_readings
from telemetry.gap import reason_of

CAPTURES = Path(__file__).parents[2] / "../shared/data/captures"
needs_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason="no ../shared/data/captures")
FILES = sorted(path for kind in ("smi_xml", "smi_text", "smi_capture") for path in (CAPTURES / kind).glob("*"))


def capture(name: str) -> list[Document]:
    """Return the logs of the one capture whose file name contains `name`."""
    (path,) = [path for path in FILES if name in path.name]
    return logs(load(path))


def logs(found: list[Document] | Failure) -> list[Document]:
    """Return the logs, which the test says are there."""
    assert not isinstance(found, Failure), found
    return found


def read(text: str, gpu: int = 0) -> dict[str, float | str]:
    """Return the readings of one GPU of a text: numbers, and words where there is a gap."""
    return words(logs(documents_of(text, "test"))[0], gpu)


def words(document: Document, gpu: int = 0) -> dict[str, float | str]:
    """Return the readings of one GPU: numbers, and words where there is a gap."""
    readings: dict[str, float | str] = {}
    for name, value in gpu_readings(document.gpus[gpu]).items():
        reason = reason_of(value)
        readings[name] = value if reason is None else reason.word
    return readings
