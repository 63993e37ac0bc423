"""The spool: in order, bounded, exact about what it drops, and whole after a kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregator.influx.segments import Loss, SpoolRecord
from aggregator.influx.sender import SpoolSender
from aggregator.influx.spool import Spool
from aggregator.settings.influx import InfluxConfig
from telemetry.errors import StoreError
from tests.killing import end_thread

SMALL = 64 * 1024


def record(number: int, size: int = 100, policy: str = "raw") -> SpoolRecord:
    return SpoolRecord(policy, 1 + number % 5, number, number, number.to_bytes(4, "big") * (size // 4))


def drained(spool: Spool) -> list[SpoolRecord]:
    """All that waits, delivered."""
    found = []
    while (head := spool.head()) is not None:
        found.append(head[1])
        assert spool.settle(head[0])
    return found


def test_what_goes_in_comes_out_in_order_also_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    records = [record(n) for n in range(10)]
    spool.append(records[:4])
    head = spool.head()
    assert head is not None
    assert head[1] == records[0]
    assert spool.settle(head[0])
    spool.append(records[4:])
    spool.close()
    again = Spool(tmp_path, 1 << 20)
    assert again.points == sum(each.points for each in records[1:])
    assert again.oldest() == 1
    assert drained(again) == records[1:]
    assert (again.points, again.head(), again.drain_losses()) == (0, None, [])
    again.close()
    assert Spool(tmp_path, 1 << 20).head() is None


def test_the_oldest_goes_and_is_counted_to_the_point(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL)
    records = [record(n, 8000) for n in range(200)]
    for each in records:
        spool.append([each])
        assert spool.bytes <= 8 * SMALL
    losses = spool.drain_losses()
    left = drained(spool)
    assert left == records[-len(left) :]
    gone = records[: -len(left)]
    assert sum(loss.points for loss in losses) == sum(each.points for each in gone)
    assert losses[0] == Loss("spool_full", losses[0].points, 0, losses[0].last)
    assert losses[-1].last == gone[-1].last
    spool.close()


def test_what_is_being_sent_is_not_dropped_under_the_sender(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL)
    first = record(0, 8000)
    spool.append([first])
    head = spool.head()
    assert head is not None
    for number in range(1, 200):
        spool.append([record(number, 8000)])
    assert spool.settle(head[0])
    lost = sum(loss.points for loss in spool.drain_losses())
    assert lost + spool.points + first.points == sum(record(n).points for n in range(200))
    spool.close()


def test_a_request_dropped_between_two_tries_is_not_settled_twice(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL)
    spool.append([record(0, 8000)])
    head = spool.head()
    assert head is not None
    spool.free()
    for number in range(1, 200):
        spool.append([record(number, 8000)])
    assert not spool.settle(head[0])
    lost = sum(loss.points for loss in spool.drain_losses())
    assert lost + spool.points == sum(record(n).points for n in range(200))
    spool.close()


def test_announcements_outlive_the_readings_around_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL, {"events"})
    spool.append([record(7, 40, policy="events")])
    for number in range(300):
        spool.append([record(number, 8000)])
    assert [each.policy for each in drained(spool)].count("events") == 1
    spool.close()


def test_what_is_older_than_the_server_keeps_it_goes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL)
    for number in range(40):
        spool.append([record(number, 8000)])
    spool.age(20)
    (old, *_) = losses = spool.drain_losses()
    assert {loss.reason for loss in losses} == {"spool_old"}
    assert old.first == 0
    assert all(loss.last < 20 for loss in losses)
    head = spool.head()
    assert head is not None
    assert head[1].last <= 20
    spool.close()


@pytest.mark.parametrize("part", [0.2, 0.6, 0.99])
def test_a_torn_file_costs_only_what_follows_the_tear(tmp_path: Path, part: float) -> None:
    spool = Spool(tmp_path, 1 << 20)
    records = [record(n, 400) for n in range(20)]
    spool.append(records)
    spool.close()
    (path,) = tmp_path.glob("*.spool")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    again = Spool(tmp_path, 1 << 20)
    left = drained(again)
    assert left == records[: len(left)]
    assert len(left) == int(20 * part)
    again.append([record(99)])
    assert drained(again) == [record(99)]
    again.close()


def test_a_record_that_the_disk_has_spoilt_is_counted_and_the_others_come(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    records = [record(n, 400) for n in range(20)]
    spool.append(records)
    spool.close()
    (path,) = tmp_path.glob("*.spool")
    whole = bytearray(path.read_bytes())
    size = len(whole) // 20
    whole[7 * size + size - 5] ^= 0xFF
    path.write_bytes(whole)
    again = Spool(tmp_path, 1 << 20)
    assert again.drain_losses() == [Loss("spool_damaged", records[7].points, 7, 7)]
    assert drained(again) == records[:7] + records[8:]
    again.close()


def test_what_the_disk_spoils_while_it_waits_is_counted_and_passed_over(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    records = [record(n) for n in range(10)]
    spool.append(records)
    (file,) = tmp_path.glob("*.spool")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    content[content.index(records[3].body)] ^= 1
    file.write_bytes(content)
    assert drained(spool) == records[:3] + records[4:9]
    assert spool.drain_losses() == [Loss("spool_damaged", records[n].points, n, n) for n in (3, 9)]
    assert spool.points == 0
    spool.close()


def test_a_file_that_somebody_removed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 16 * SMALL, {"events"})
    records = [record(n, 20_000, "events" if n % 5 == 0 else "raw") for n in range(30)]
    for each in records:
        spool.append([each])
    files = sorted(tmp_path.glob("*.spool"))
    files[0].unlink()
    files[-1].unlink()
    found = drained(spool)
    assert found
    lost = spool.drain_losses()
    assert {each.reason for each in lost} == {"spool_damaged"}
    total = sum(each.points for each in records)
    assert sum(each.points for each in [*found, *lost]) == total
    spool.append([record(31)])  # into a file that is there
    assert drained(spool) == [record(31)]
    assert spool.drain_losses() == []
    spool.close()


def test_a_removed_file_is_dropped_when_there_is_no_more_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * SMALL, {"events"})
    points = 0
    for number in range(100):
        new = record(number, 8000, "events" if number % 20 == 0 else "raw")
        spool.append([new])
        points += new.points
        assert spool.bytes <= 8 * SMALL
        if number == 10:
            next(tmp_path.glob("*.spool")).unlink()
    found = drained(spool)
    assert sum(each.points for each in [*found, *spool.drain_losses()]) == points
    spool.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from aggregator.settings.influx import InfluxConfig
from aggregator.influx.sender import SpoolSender
from aggregator.influx.spool import Spool
from tests.aggregator.test_influx_spool import record
spool = Spool(Path(sys.argv[1]), 1 << 20)
for number in range(50):
    spool.append([record(number)])
    if number == 20:
        for _ in range(10):
            spool.settle(spool.head()[0])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_loses_nothing_and_sends_nothing_delivered_again(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ},
    )
    assert ended.returncode == -signal.SIGKILL
    spool = Spool(tmp_path, 1 << 20)
    assert drained(spool) == [record(n) for n in range(10, 50)]
    spool.close()


def test_a_full_disk_is_an_error_with_a_cure_and_passes(tiny: Path) -> None:
    spool = Spool(tiny / "spool", 1 << 30)
    spool.append([record(0)])
    ballast = tiny / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(16 << 20))
    with pytest.raises(StoreError, match=r"spool can't be written.*Free disk space"):
        spool.append([record(1, 1 << 20)])
    ballast.unlink()
    spool.append([record(2)])
    assert drained(spool) == [record(0), record(2)]
    spool.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("in"), st.integers(4, 12_000)),
            st.tuples(st.just("out"), st.just(0)),
            st.tuples(st.just("again"), st.just(0)),
        ),
        max_size=60,
    )
)
@example([("in", 4), ("out", 0), ("again", 0), ("again", 0), ("in", 4), ("again", 0)])
def test_every_point_is_delivered_or_waits_or_is_counted_lost(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder, 8 * SMALL)
    made = out = lost = 0
    for number, (move, size) in enumerate(moves):
        if move == "in":
            spool.append([record(number, size)])
            made += record(number).points
        elif move == "again":
            spool.close()
            spool = Spool(folder, 8 * SMALL)
        elif (head := spool.head()) is not None:
            assert spool.settle(head[0])
            out += head[1].points
        lost += sum(loss.points for loss in spool.drain_losses())
        assert out + spool.points + lost == made
    spool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sender_whose_thread_has_died_is_started_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1 << 20, set())
    sender = SpoolSender(InfluxConfig(url="http://127.0.0.1:9"), spool, wall=time.time)
    sender.start()
    first = sender._thread
    assert first is not None
    sender.revive()
    assert sender._thread is first  # it lives
    assert end_thread("influx")
    first.join(30)
    assert not first.is_alive()
    sender.revive()
    assert sender._thread is not None
    assert sender._thread.is_alive()
    sender.stop()
    last = sender._thread
    last.join(30)
    sender.revive()
    assert sender._thread is last  # it ended on purpose
