"""Faults of processes and disks: kills, outages, a stopped aggregator, torn files, no CPU."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from bench import backfill
from collector.ring.ring import Ring
from tests.brokers import Mosquitto
from tests.endtoend.cluster import NODES
from tests.faults.chaos import CLEAR, Weather
from tests.faults.plant import PARTS, Plant
from tests.faults.record import BACKLOG, KILLS, OUTAGE, SERVING, SLACK, STOP, Observe, fault
from tests.kit.waiting import wait_until


@fault("1, 2, 3", "nothing lost, nothing twice; serving again within 5 s of each kill")
def test_kill_points(plant: Plant, observe: Observe, seed: int) -> None:
    """kill -9 of aggregator, collectors and broker (restarted empty), again and again, at random."""
    dice = random.Random(seed)
    back: list[tuple[float, str]] = []
    for _ in range(KILLS):
        victim = dice.choice(["aggregator", "aggregator", "dgx-01", "dgx-02", "broker"])
        time.sleep(dice.uniform(0, 0.5))  # the point of the kill is random: nothing is waited for
        began = time.monotonic()
        if victim == "broker":
            plant.broker.kill()
            plant.broker.start()
        else:
            plant.kill(victim)
            plant.start(victim)
        if victim == "aggregator":
            wait_until(lambda: plant.stored() >= 1, "frames again")
        else:
            plant.wait_for_more(1)
        back.append((time.monotonic() - began, victim))
    account = plant.finish()
    assert account.lost == 0
    back.sort()
    longest, victim = back[-1]
    assert longest < SERVING * SLACK, back[-1]
    observe(
        f"{KILLS} kills, frames stored again after {back[len(back) // 2][0]:.1f} s (median), "
        f"{longest:.1f} s (longest, {victim}); {account}"
    )


@fault("4", "memory stays flat, live frames first, then all that was missed")
def test_broker_away(plant: Plant, observe: Observe, seed: int) -> None:
    """The broker is gone for a while; every part keeps trying."""
    before = _memory(plant)
    plant.broker.kill()
    outage = OUTAGE if seed == 1 else min(OUTAGE, 60.0)
    deadline = time.monotonic() + outage
    wait_until(lambda: time.monotonic() > deadline, "the end of the outage", seconds=outage + 10)
    grown = _memory(plant) - before
    kept = sum(1 for node in NODES for _ in (plant.state_dir(node) / "ring").glob("*.seg"))
    returned = time.time_ns()
    plant.broker.start()
    plant.wait_for_more(1)
    drained = plant.wait_for_whole(60 + outage)
    assert grown < 64 * 2**20
    assert kept > 0
    account = plant.finish()
    assert account.lost == 0
    waited = _live_first(plant, returned)
    observe(
        f"away {outage:g} s, memory of all parts {grown / 2**20:+.1f} MiB, first live frame of "
        f"the later node {waited:.1f} s after the return, whole again {drained:.1f} s after the "
        f"first frame; {account}"
    )


def _live_first(plant: Plant, returned: int) -> float:
    """Check in the store that each node's live frames came before what it had kept; return how
    long after the broker's return (ns) the last of them showed its first, seconds."""
    waits: list[float] = []
    with duckdb.connect(str(plant.data / "hot.duckdb"), read_only=True) as store:
        tables = [
            name
            for (name,) in store.execute("select table_name from duckdb_tables()").fetchall()
            if name.startswith("frames_")
        ]
        union = " union all ".join(f"select * from {table}" for table in tables)
        for node, live, kept in store.execute(
            "select r.node, min(f.received) filter (not backfilled), "
            f"min(f.received) filter (backfilled) from ({union}) f join runs r on f.run = r.id "
            "where f.received > ? group by r.node",
            [returned],
        ).fetchall():
            assert kept is not None, f"{node} had nothing to send again"
            assert live < kept, f"{node}: what it had kept came before what is"
            waits.append((live - returned) / 1e9)
    assert len(waits) == len(NODES)
    return max(waits)


@fault("4b", "nothing lost or twice, live lag below 2 s meanwhile, drained within 60 s")
def test_backlog_of_a_fleet(seed: int, observe: Observe) -> None:
    """Every node of a fleet comes back with all that it has kept, and goes on at 1 Hz."""
    frames = BACKLOG if seed == 1 else min(BACKLOG, 100)
    nodes = max(50, 2 * frames + frames // 12)
    found = backfill.measure(nodes, frames, 12 + frames // 6, "mosquitto", "")
    assert found["frames_lost"] == 0
    assert found["frames_duplicated"] == 0
    assert found["drain_seconds"] < 60
    assert found["live_lag"]["max"] < 2 * SLACK
    memory = found["processes"]["aggregator"]["peak_rss_mib"]
    observe(
        f"{nodes} nodes with {frames} frames each: drained in {found['drain_seconds']:.1f} s, "
        f"live lag {found['live_lag']['p99']:.2f} s p99, {found['live_lag']['max']:.2f} s max, "
        f"aggregator {memory:.0f} MiB at most"
    )


@fault("5", "sent = stored + announced as lost, to the frame")
def test_ring_overflow(tmp_path: Path, mosquitto: Mosquitto, seed: int, observe: Observe) -> None:
    """A node is cut off for longer than its ring of 128 KiB holds."""
    with Plant(tmp_path, mosquitto, seed, collector="ring_bytes = 131072") as plant:
        plant.start_all()
        plant.wait_for_whole()
        before = plant.lost()
        cut = plant.chaos["dgx-01"]
        cut.weather = Weather(refuse=True)
        cut.reset()
        ring = plant.state_dir("dgx-01") / "ring"
        first = _names(ring)
        seen = set(first)

        def overflowed() -> bool:
            """Whether a file that was begun during the outage has been dropped during it."""
            now = _names(ring)
            seen.update(now)
            return bool(seen - first - now)

        wait_until(overflowed, "an overflow")
        cut.weather = CLEAR
        wait_until(lambda: plant.lost() > before, "the announcement")
        account = plant.finish()
        assert account.lost > 0
        observe(str(account))


def _names(ring: Path) -> set[str]:
    return {path.name for path in ring.glob("*.seg")}


@fault("18", "what the disk lost comes from the other side; only frames that nobody has are lost")
def test_torn_tails(plant: Plant, observe: Observe, seed: int) -> None:
    """After kill -9 the log of the store, then the ring of a collector, lose a random tail."""
    dice = random.Random(seed)
    plant.kill("aggregator")
    wal = plant.data / "hot.duckdb.wal"
    torn = [_tear(wal, dice)]
    plant.start("aggregator")
    wait_until(lambda: plant.stored() >= 1, "frames again")
    plant.wait_for_whole()
    plant.kill("dgx-01")
    newest = max((plant.state_dir("dgx-01") / "ring").glob("*.seg"))
    torn.append(_tear(newest, dice))
    plant.start("dgx-01")
    plant.wait_for_more(10)
    account = plant.finish()
    assert account.lost == 0  # the live frames of the torn ring had been stored already
    observe(f"{torn[0]} bytes off the log, {torn[1]} bytes off the ring; {account}")


def _tear(path: Path, dice: random.Random) -> int:
    """Cut a file at a random place in its second half; return how many bytes went."""
    size = path.stat().st_size
    kept = dice.randint(size // 2, size - 1)
    os.truncate(path, kept)
    return size - kept


@fault("33", "lag grows and passes; no node is called silent; nothing is lost")
def test_no_cpu(plant: Plant, observe: Observe) -> None:
    """Every core is taken by two others, and the aggregator dies as the OOM killer kills it."""
    with _burning(2 * (os.cpu_count() or 1)):
        plant.wait_for_more(20)
        plant.kill("aggregator")
        plant.start("aggregator")
        wait_until(lambda: plant.stored() >= 1, "frames again")
        plant.wait_for_more(20)
        alerts = plant.get("/api/v1/alerts")
        assert alerts is not None
        assert not [each for each in alerts["alerts"] if each["rule"] == "node_silent"]
        worst = plant.sample("kilowatch_aggregator_shown_lag_highest_seconds")
    wait_until(lambda: _newest_age(plant) < 2.0, "that the lag has passed")
    account = plant.finish()
    assert account.lost == 0
    observe(f"no node_silent, longest lag {worst:.1f} s, over when the cores are free; {account}")


def _newest_age(plant: Plant) -> float:
    """Seconds since the least lucky node was heard."""
    pages = [plant.get(f"/api/v1/nodes/{node}") for node in NODES]
    ages: list[float | None] = [page["node"]["age_seconds"] if page else None for page in pages]
    return max(math.inf if age is None else age for age in ages)


@contextmanager
def _burning(processes: int) -> Iterator[None]:
    """Keep cores busy meanwhile."""
    context = multiprocessing.get_context("spawn")
    fires = [context.Process(target=_burn, daemon=True) for _ in range(processes)]
    for fire in fires:
        fire.start()
    try:
        yield
    finally:
        for fire in fires:
            fire.kill()
            fire.join()


def _burn() -> None:
    while True:
        pass


@fault("6b", "a part that stands still loses nothing; its node is refilled")
@pytest.mark.parametrize("victim", [*PARTS[:2], "broker"])
def test_stopped_part(plant: Plant, observe: Observe, victim: str) -> None:
    """SIGSTOP of a part, then SIGCONT."""
    of_broker = plant.broker.signal if isinstance(plant.broker, Mosquitto) else None
    send = of_broker if victim == "broker" else plant.processes[victim].send_signal
    assert send is not None
    send(signal.SIGSTOP)
    deadline = time.monotonic() + STOP
    wait_until(lambda: time.monotonic() > deadline, "the end of the stop", seconds=STOP + 10)
    send(signal.SIGCONT)
    plant.wait_for_more(10)
    account = plant.finish()
    assert account.lost == 0
    observe(f"{victim}, {STOP:g} s: {account}")


RING_BYTES = 2 * 1024 * 1024
"""Files of 32 KiB each, of which none is dropped meanwhile."""


def _flip(path: Path, dice: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(3):
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    path.write_bytes(raw)


def _empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def _remove(path: Path, _: random.Random) -> None:
    path.unlink()


SPOILS: tuple[Callable[[Path, random.Random], object], ...] = (_flip, _tear, _empty, _remove)


@fault("18b", "only frames that nobody else has, in the damaged places, are lost, and counted")
def test_damaged_segments(tmp_path: Path, mosquitto: Mosquitto, observe: Observe, seed: int) -> None:
    """A node is cut off, killed, and finished files of its ring are flipped, cut, emptied and removed."""
    dice = random.Random(seed)
    with Plant(tmp_path, mosquitto, seed, collector=f"ring_bytes = {RING_BYTES}") as plant:
        plant.start_all()
        plant.wait_for_whole()
        cut = plant.chaos["dgx-01"]
        cut.weather = Weather(refuse=True)
        cut.reset()
        folder = plant.state_dir("dgx-01") / "ring"
        before = _names(folder)
        wait_until(lambda: len(_names(folder) - before) > len(SPOILS), "finished files of the outage")
        plant.kill("dgx-01")
        finished = sorted(_names(folder) - before)[: len(SPOILS)]
        kept = _frames(folder)
        for name, spoil in zip(finished, SPOILS, strict=True):
            spoil(folder / name, dice)
        gone = kept - _frames(folder)
        assert gone
        cut.weather = CLEAR
        plant.start("dgx-01")
        wait_until(lambda: plant.lost() >= len(gone), "the announcement")
        account = plant.finish()
        assert account.lost == len(gone)
        observe(f"{len(SPOILS)} files damaged, {len(gone)} of {len(kept)} frames gone; {account}")


def _frames(folder: Path) -> set[tuple[int, int]]:
    """Return session and number of every frame that a ring has, read from a copy: opening one repairs it."""
    with tempfile.TemporaryDirectory() as place:
        ring = Ring(Path(shutil.copytree(folder, Path(place) / "ring")), 1 << 30)
        ring.open()
        return {(span.session, number) for span in ring.spans() for number in range(span.first, span.last + 1)}


def _memory(plant: Plant) -> int:
    """Resident bytes of all parts."""
    pages = 0
    for part in PARTS:
        statm = Path(f"/proc/{plant.processes[part].pid}/statm")
        pages += int(statm.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
