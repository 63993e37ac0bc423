"""Long runs with faults of all kinds at random, and what the survivors' memory and files do."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import ingest
from bench.processes import memory, slope
from tests.brokers import Mosquitto
from tests.faults.chaos import CLEAR, Weather
from tests.faults.plant import PARTS, Plant
from tests.faults.record import FLEET, FLEET_GPUS, SEEDS, SLACK, SOAK, Observe, fault
from tests.kit.waiting import wait_until

SURVIVORS = ("aggregator", "dgx-01")
"""Everything happens to them but death: that they live from beginning to end is what is looked at."""
SETTLED = 0.5
"""Share of the time after which caches are full: what is added then is added for ever."""
SEALED_EVERY = 600
"""Seconds of a period of the fleet's store: an hour of the usual ones is six of these."""
WARM = 3600
"""Seconds that a fleet needs before its memory can be judged: windows of an hour are full."""
MOST_GROWN = 32.0
"""MiB from the lowest of the second quarter to that of the last, half an hour later and more; 2 MiB a minute would be 60.
Between, memory rises with the rows of the open period of the store, and falls when it is sealed."""
STORM = Weather(latency=0.1, jitter=0.4, stall_chance=0.02, stall=1.0)


@dataclass(slots=True)
class Watched:
    """What a process holds, looked at every second."""

    pid: int
    points: list[tuple[float, float]] = field(default_factory=list)
    """Monotonic seconds, MiB resident."""
    files: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Take a look."""
        with suppress(OSError, KeyError):
            self.points.append((time.monotonic(), memory(self.pid)["rss_mib"]))
            self.files.append(len(list(Path(f"/proc/{self.pid}/fd").iterdir())))

    def grown(self) -> float:
        """Return MiB that were added in the second half."""
        late = [mib for _, mib in self.points[int(len(self.points) * SETTLED) :]]
        return late[-1] - late[0]

    def hourly(self) -> float | None:
        """Return MiB an hour in the second half; None for less than a minute of it."""
        return slope(self.points[int(len(self.points) * SETTLED) :])


class Sealing(Plant):
    """Every minute becomes Parquet, beside all that happens."""

    seal_seconds = 60.0


@pytest.fixture
def plant(tmp_path: Path, mosquitto: Mosquitto, seed: int) -> Iterator[Plant]:
    """Two nodes and an aggregator on mosquitto, each behind a proxy of its own."""
    with Sealing(tmp_path, mosquitto, seed) as plant:
        plant.start_all()
        yield plant


@fault("37", "nothing lost or twice, memory is level when it is warm", once=True)
def test_memory_of_a_fleet(observe: Observe) -> None:
    """A fleet at a frame a second, whose periods are sealed meanwhile."""
    found = ingest.measure(FLEET_GPUS, FLEET, "mosquitto", seal=SEALED_EVERY)
    assert found["frames_lost"] == 0
    assert found["frames_duplicated"] == 0
    assert found["rows_wrong"] == 0
    cost, lowest = found["processes"]["aggregator"], found["aggregator_memory_lowest_mib"]
    assert FLEET < WARM or lowest[3] - lowest[1] < MOST_GROWN, found
    observe(
        f"{FLEET_GPUS} GPUs for {FLEET} s: {found['frames_sent']} frames stored; aggregator at most {cost['peak_rss_mib']:.0f} "
        f"MiB, its lowest of each quarter {', '.join(f'{mib:.0f}' for mib in lowest)}"
    )


@fault("34", "the account is right, memory and descriptors stay as they are")
def test_soak(plant: Plant, observe: Observe, seed: int) -> None:
    """A random mix of kills, stops, resets, black holes, bad weather and slow readers."""
    dice = random.Random(seed)
    plant.wait_for_more(10)
    watched = {part: Watched(plant.processes[part].pid) for part in SURVIVORS}
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(watched, over), daemon=True)
    watcher.start()
    done: dict[str, int] = {}
    try:
        deadline = time.monotonic() + SOAK / SEEDS
        while time.monotonic() < deadline:
            name = dice.choice(list(FAULTS))
            FAULTS[name](plant, dice)
            done[name] = done.get(name, 0) + 1
            for chaos in plant.chaos.values():
                chaos.weather = CLEAR
            plant.wait_for_more(dice.randint(1, 20), 60 * SLACK)
        plant.wait_for_whole()
    finally:
        over.set()
        watcher.join()
    said = []
    for part, each in watched.items():
        assert each.files, part
        assert max(each.files[-3:]) <= each.files[0] + 8, (part, each.files)
        assert each.grown() < 64, (part, each.points)
        hourly = each.hourly()
        told = "" if hourly is None else f" ({hourly:+.1f} MiB an hour)"
        said.append(
            f"{part} {each.points[0][1]:.0f} to {each.points[-1][1]:.0f} MiB, {each.grown():+.1f} "
            f"in the second half{told}, {each.files[0]} to {each.files[-1]} descriptors"
        )
    account = plant.finish()
    assert account.lost == 0
    mix = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
    observe(f"{SOAK / SEEDS:g} s with {mix}: {'; '.join(said)}; {account}")


def _watch(watched: dict[str, Watched], over: threading.Event) -> None:
    while not over.wait(1.0):
        for each in watched.values():
            each.look()


def _kill_collector(plant: Plant, _: random.Random) -> None:
    plant.kill("dgx-02")
    plant.start("dgx-02")


def _kill_broker(plant: Plant, dice: random.Random) -> None:
    plant.broker.kill()
    time.sleep(dice.uniform(0, 2))  # how long it is away is part of the mix
    plant.broker.start()


def _stop(plant: Plant, dice: random.Random) -> None:
    process = plant.processes[dice.choice(PARTS)]
    process.send_signal(signal.SIGSTOP)
    time.sleep(dice.uniform(0.2, 2))  # as above
    process.send_signal(signal.SIGCONT)


def _reset(plant: Plant, dice: random.Random) -> None:
    plant.chaos[dice.choice(PARTS)].reset()


def _swallow(plant: Plant, dice: random.Random) -> None:
    chaos = plant.chaos[dice.choice(PARTS)]
    noticed = len(chaos.noticed)
    wait_until(chaos.swallow, "a connection to swallow")
    wait_until(lambda: len(chaos.noticed) > noticed, "that it is noticed")


def _storm(plant: Plant, _: random.Random) -> None:
    for chaos in plant.chaos.values():
        chaos.weather = STORM
    plant.wait_for_more(10)


def _slices(plant: Plant, dice: random.Random) -> None:
    plant.chaos[dice.choice(PARTS)].weather = Weather(sliced=True)
    plant.wait_for_more(10)


def _questions(plant: Plant, dice: random.Random) -> None:
    for _ in range(dice.randint(5, 20)):
        for path in ("/metrics", "/api/v1/nodes", "/api/v1/events?limit=100"):
            plant.get(path)


FAULTS: dict[str, Callable[[Plant, random.Random], None]] = {
    "kills of a collector": _kill_collector,
    "kills of the broker": _kill_broker,
    "stops": _stop,
    "resets": _reset,
    "black holes": _swallow,
    "storms": _storm,
    "wires in slices": _slices,
    "bursts of questions": _questions,
}
