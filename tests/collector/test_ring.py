"""The ring on disk: a model of it, torn tails at every byte, damage, overflow, a full disk."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from collector.ring.ring import Ring
from collector.ring.segment import HEADER_BYTES, RECORD_BYTES
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import FrameSpan


def fill(ring: Ring, session: int, first: int, last: int, size: int = 50) -> None:
    for seq in range(first, last + 1):
        ring.append(session, seq, payload(session, seq, size))


def payload(session: int, seq: int, size: int = 50) -> bytes:
    return (b"%d/%d " % (session, seq)).ljust(size, b"x")


def held(ring: Ring, session: int) -> dict[int, bytes]:
    return dict(ring.read(session, 0, 1 << 40))


def test_frames_come_back_in_order_and_by_range(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 299)
    assert [seq for seq, _ in ring.read(7, 100, 230)] == list(range(100, 231))
    assert dict(ring.read(7, 250, 250)) == {250: payload(7, 250)}
    assert ring.spans() == (FrameSpan(7, 0, 299),)
    assert held(ring, 8) == {}
    ring.close()


@pytest.mark.parametrize(("durable", "written"), [(True, 2), (False, 0)])
def test_a_ring_that_is_not_synced_has_the_disk_wait_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool, written: int
) -> None:
    """Its frames are kept all the same."""
    calls: list[int] = []
    monkeypatch.setattr("telemetry.files.record_log.os.fdatasync", calls.append)
    ring = Ring(tmp_path, 1 << 20, durable=durable)
    ring.open()
    fill(ring, 7, 0, 9)
    ring.sync()
    ring.close()
    assert len(calls) == written
    again = Ring(tmp_path, 1 << 20)
    again.open()
    assert again.spans() == (FrameSpan(7, 0, 9),)


def test_a_chunk_is_bounded_in_bytes_and_frames_but_never_empty(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 99, size=100)
    assert len(ring.chunk(7, 0, 99, 1000, 64)) == 10
    assert len(ring.chunk(7, 0, 99, 1 << 20, 64)) == 64
    assert [seq for seq, _ in ring.chunk(7, 42, 99, 1, 64)] == [42]
    assert ring.chunk(7, 100, 200, 1000, 64) == []
    ring.close()


def test_older_sessions_stay_after_a_restart(tmp_path: Path) -> None:
    for session in (900, 5, 77):  # by age, not by number
        ring = Ring(tmp_path, 1 << 20)
        ring.open()
        fill(ring, session, 0, 9)
        ring.close()
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    assert ring.spans() == (FrameSpan(900, 0, 9), FrameSpan(5, 0, 9), FrameSpan(77, 0, 9))
    assert held(ring, 5) == {seq: payload(5, seq) for seq in range(10)}


def test_overflow_drops_whole_oldest_files_and_counts_them_exactly(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 20_000, segment_bytes=2_000)
    ring.open()
    fill(ring, 7, 0, 999, size=80)
    assert ring.size <= 20_000
    assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) == ring.size
    (span,) = ring.spans()
    assert span.last == 999
    assert ring.overwritten == span.first
    assert sorted(held(ring, 7)) == list(range(span.first, 1000))
    ring.close()


def test_a_frame_that_was_not_kept_is_a_hole_in_the_spans(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 9)
    fill(ring, 7, 12, 20)
    assert ring.spans() == (FrameSpan(7, 0, 9), FrameSpan(7, 12, 20))
    ring.close()


def test_a_tail_torn_at_any_byte_costs_only_the_last_frame(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 4, size=30)
    ring.close()
    (path,) = tmp_path.glob("*.seg")
    whole = path.read_bytes()
    record = RECORD_BYTES + 30
    assert len(whole) == HEADER_BYTES + 5 * record
    for cut in range(1, record):
        path.write_bytes(whole[:-cut])
        torn = Ring(tmp_path, 1 << 20)
        torn.open()
        assert torn.spans() == (FrameSpan(7, 0, 3),)
        assert torn.torn_bytes == record - cut
        assert path.stat().st_size == HEADER_BYTES + 4 * record
        torn.append(8, 0, b"next session")
        torn.close()
        for extra in set(tmp_path.glob("*.seg")) - {path}:
            extra.unlink()


def test_a_header_torn_at_any_byte_is_an_empty_ring(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    ring.append(7, 0, b"x")
    ring.close()
    (path,) = tmp_path.glob("*.seg")
    whole = path.read_bytes()
    for size in range(HEADER_BYTES + 1):
        path.write_bytes(whole[:size])
        torn = Ring(tmp_path, 1 << 20)
        torn.open()
        assert torn.spans() == ()
        torn.append(8, 0, b"works on")
        assert held(torn, 8) == {0: b"works on"}
        torn.close()
        for extra in tmp_path.glob("*.seg"):
            extra.unlink()


def test_any_flipped_byte_costs_only_the_record_it_stands_in(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 4, size=30)
    ring.close()
    (path,) = tmp_path.glob("*.seg")
    whole = path.read_bytes()
    record = RECORD_BYTES + 30
    for place in range(HEADER_BYTES, len(whole)):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0x55
        path.write_bytes(bytes(spoilt))
        victim = (place - HEADER_BYTES) // record
        reopened = Ring(tmp_path, 1 << 20)
        reopened.open()
        expected = {seq: payload(7, seq, 30) for seq in range(5) if seq != victim}
        assert held(reopened, 7) == expected
        assert {seq for span in reopened.spans() for seq in range(span.first, span.last + 1)} == (set(expected))
        reopened.close()


def test_damage_after_opening_is_found_when_reading(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    fill(ring, 7, 0, 9, size=30)
    (path,) = tmp_path.glob("*.seg")
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + 3 * (RECORD_BYTES + 30) + RECORD_BYTES)
        file.write(b"rot")
    assert sorted(held(ring, 7)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    ring.close()


def test_strangers_in_the_folder_are_left_alone_or_removed_if_they_pose_as_ours(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("mine")
    (tmp_path / "junk.seg").write_bytes(b"\0" * 500)
    ring = Ring(tmp_path, 1 << 20)
    ring.open()
    assert ring.spans() == ()
    assert {path.name for path in tmp_path.iterdir()} == {"README"}


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from collector.ring.ring import Ring
from telemetry.wire.inventory import FrameSpan
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ring = Ring(Path(sys.argv[1]), 1 << 20)
ring.open()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the disk takes 1000 bytes of a file
kept = []
for seq in range(40):
    try:
        ring.append(7, seq, bytes(100))
    except OSError:
        break
    kept.append(seq)
assert 0 < len(kept) < 40, kept
assert ring.spans() == (FrameSpan(7, 0, kept[-1]),), ring.spans()
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))  # there is room again
lost = len(kept)
for seq in range(lost + 1, 60):
    ring.append(7, seq, bytes(100))
assert ring.spans() == (FrameSpan(7, 0, lost - 1), FrameSpan(7, lost + 1, 59)), ring.spans()
assert [seq for seq, _ in ring.read(7, 0, 99)] == [*range(lost), *range(lost + 1, 60)]
ring.close()
again = Ring(Path(sys.argv[1]), 1 << 20)
again.open()
assert again.spans() == ring.spans() and again.torn_bytes == 0, again.spans()
"""


def test_a_disk_that_is_full_for_a_while_leaves_a_hole_and_a_whole_ring(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


class RingMachine(RuleBasedStateMachine):
    """The ring against a plain dictionary, with restarts, torn tails and overflow."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.session = 100
        self.seq = 0
        self.written: dict[tuple[int, int], bytes] = {}
        self.order: list[tuple[int, int]] = []
        self.ring = Ring(Path(self.folder.name), 4_000, segment_bytes=700)
        self.ring.open()

    def files(self) -> list[Path]:
        return sorted(Path(self.folder.name).glob("*.seg"))

    @rule(size=st.integers(0, 300), skipped=st.sampled_from([0, 0, 0, 1, 5]))
    def append(self, size: int, skipped: int) -> None:
        self.seq += skipped
        data = payload(self.session, self.seq, size)
        self.ring.append(self.session, self.seq, data)
        self.written[self.session, self.seq] = data
        self.order.append((self.session, self.seq))
        self.seq += 1

    @rule(clean=st.booleans(), same_session=st.booleans())
    def restart(self, clean: bool, same_session: bool) -> None:
        before = self.ring.spans()
        if clean:
            self.ring.close()
        else:
            self.ring._leave()  # the kernel closes what a killed process had open
        self.ring = Ring(Path(self.folder.name), 4_000, segment_bytes=700)
        self.ring.open()
        assert self.ring.spans() == before
        assert self.ring.torn_bytes == self.ring.damaged == 0
        if not same_session:
            self.session += 1
            self.seq = 0

    @precondition(lambda self: self.order)
    @rule(share=st.floats(0, 1, exclude_max=True))
    def tear(self, share: float) -> None:
        """Die in the middle of a write: the newest record is there in part."""
        self.ring._leave()
        newest = self.files()[-1]
        last = RECORD_BYTES + len(self.written[self.order[-1]])
        size = newest.stat().st_size - last + int(share * last)
        with newest.open("r+b") as file:
            file.truncate(size)
        del self.written[self.order.pop()]
        self.ring = Ring(Path(self.folder.name), 4_000, segment_bytes=700)
        self.ring.open()

    @invariant()
    def spans_are_what_can_be_read(self) -> None:
        if not hasattr(self, "ring"):
            return
        found: dict[tuple[int, int], bytes] = {}
        for session in {span.session for span in self.ring.spans()}:
            numbers = IntervalSet((span.first, span.last) for span in self.ring.spans() if span.session == session)
            frames = dict(self.ring.read(session, 0, 1 << 40))
            assert len(frames) == len(numbers)
            assert all(seq in numbers for seq in frames)
            found |= {(session, seq): data for seq, data in frames.items()}
        assert all(self.written[key] == data for key, data in found.items())
        # What is there is the newest part of what was written, without a hole of our own making.
        assert [key for key in self.order if key in found] == self.order[len(self.order) - len(found) :]
        assert self.ring.size == sum(path.stat().st_size for path in self.files()) <= 4_000

    def teardown(self) -> None:
        if hasattr(self, "ring"):
            self.ring._leave()
            self.folder.cleanup()


RingMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRingAgainstAModel = RingMachine.TestCase


def test_an_oversize_frame_alone_fits_no_bound_but_harms_nothing(tmp_path: Path) -> None:
    """A frame larger than the ring is kept until the next one comes."""
    ring = Ring(tmp_path, 1000)
    ring.open()
    ring.append(7, 0, bytes(5000))
    ring.append(7, 1, b"small")
    assert ring.spans() == (FrameSpan(7, 1, 1),)
    ring.close()


def test_opening_in_a_folder_that_can_not_be_made_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OSError, match="directory"):
        Ring(tmp_path / "file" / "ring", 1 << 20).open()
