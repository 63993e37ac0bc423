"""The one append-only file of records: formats on disk, torn tails, damage, failing disks."""

from __future__ import annotations

import io
import re
import resource
import signal
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.electrical import snapshot_log
from aggregator.influx import segments as spool
from collector.ring import segment as ring
from telemetry.files.record_log import Damage, RecordFile, RecordFormat
from tests.kit.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
OTHER_CHECKSUMS = {
    "collector/ring/segment.py": "the header of a file",
    "alerts/message/picture.py": "the parts of a PNG",
    "aggregator/meters/poller.py": "spreads meters over their period",
    "tui/past/frame_cache.py": "a key of a set of GPUs",
}


def format_of(damage: Damage) -> RecordFormat:
    """Return a small format with every part."""
    return RecordFormat(
        struct.Struct("<4xH4x4x"),
        length_at=6,
        checksum_at=10,
        covered_from=4,
        damage=damage,
        marker=b"\xc1REC",
        most_payload=1000,
    )


def read(form: RecordFormat, raw: bytes, start: int = 0) -> list[tuple[int, bytes, bool]]:
    """Return number, payload and state of each record in some bytes."""
    found = form.records(io.BytesIO(raw), start)
    return [(record.fields[0], record.payload, record.intact) for record in found]


def test_files_of_earlier_releases_are_read_and_written_alike() -> None:
    """The bytes are those of release 2026.1."""
    frame = bytes.fromhex("c1f54b57050000000700000000000000b9d0e8336672616d65")
    assert ring.RECORDS.pack(b"frame", 7) == frame
    request = bytes.fromhex(
        f"4b575331726177{'00' * 29}03000000fbffffffffffffff090000000000000005000000968c014f000000006c696e6573"
    )
    record = spool.SpoolRecord("raw", 3, -5, 9, b"lines")
    assert spool.pack(record) == request
    assert spool.read(io.BytesIO(request), 0) == record
    instant = bytes.fromhex("0b000000000000000600000010b4f6217061636b6564")
    assert snapshot_log.RECORDS.pack(b"packed", 11) == instant


@pytest.mark.parametrize("damage", Damage)
@given(payloads=st.lists(st.binary(max_size=60), max_size=8), cut=st.floats(0, 1))
def test_a_torn_tail_costs_only_its_own_record(damage: Damage, payloads: list[bytes], cut: float) -> None:
    """Wherever a crash cuts the file."""
    form = format_of(damage)
    packed = [form.pack(payload, number) for number, payload in enumerate(payloads)]
    raw = b"".join(packed)
    kept = raw[: round(cut * len(raw))]
    whole, stop = 0, 0
    while whole < len(packed) and stop + len(packed[whole]) <= len(kept):
        stop += len(packed[whole])
        whole += 1
    expected = [(number, payload, True) for number, payload in enumerate(payloads[:whole])]
    assert read(form, kept) == expected


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (Damage.SEARCH, [(0, b"one", True), (2, b"three", True)]),
        (Damage.REPORT, [(0, b"one", True), (1, b"tXo", False), (2, b"three", True)]),
        (Damage.STOP, [(0, b"one", True)]),
    ],
)
def test_damage_is_treated_as_the_format_says(damage: Damage, left: list[tuple[int, bytes, bool]]) -> None:
    """A byte of the second of three payloads has changed."""
    form = format_of(damage)
    raw = form.pack(b"one", 0) + form.pack(b"two", 1) + form.pack(b"three", 2)
    assert read(form, raw.replace(b"two", b"tXo")) == left


def test_a_length_that_cannot_be_is_not_believed() -> None:
    """It would read the rest of the file as one payload."""
    form = format_of(Damage.SEARCH)
    raw = form.pack(bytes(1001), 0) + form.pack(b"next", 1)
    assert read(form, raw) == [(1, b"next", True)]


def test_a_marker_across_two_blocks_is_found() -> None:
    """The search reads 64 KiB at a time."""
    form = format_of(Damage.SEARCH)
    for size in range(65_530, 65_545):
        assert read(form, bytes(size) + form.pack(b"far", 3)) == [(3, b"far", True)]


@pytest.mark.parametrize("sync", [False, True])
def test_a_disk_that_is_full_takes_nothing_and_then_everything(tmp_path: Path, sync: bool) -> None:
    """What was written in part is cut off again, and the file goes on."""
    form = format_of(Damage.STOP)
    file = RecordFile(tmp_path / "log", b"", sync=sync)
    file.append(form.pack(bytes(60), 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        with pytest.raises(OSError, match="large"):
            file.append(form.pack(bytes(60), 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "log").stat().st_size == file.size == 74
    file.append(form.pack(b"later", 2))
    file.close()
    raw = (tmp_path / "log").read_bytes()
    assert [number for number, _, _ in read(form, raw)] == [0, 2]


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    """Nor does a file whose header could not be written stay behind."""
    file = RecordFile(tmp_path / "log", b"head")
    file.close()
    file.sync()
    assert not file.open
    with pytest.raises(OSError, match="closed"):
        file.append(b"x")
    with pytest.raises(OSError, match="No such file"):
        RecordFile(tmp_path / "none" / "log")


def test_no_other_file_has_records_with_checksums() -> None:
    """A fourth log with its own length, CRC and torn tail fails here."""
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bcrc32\(", path.read_text(encoding="utf-8"))
    } - {"telemetry/files/record_log.py"}
    assert found == OTHER_CHECKSUMS.keys()
