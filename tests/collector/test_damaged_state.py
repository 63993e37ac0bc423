"""Each file that a collector reads at its start, damaged in each way: it costs what the file holds, and is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from collector.host.bmc_log import BmcLog, BmcLogEntry
from collector.host.check_results import CheckResults, KeptCheck
from collector.jobs.memory import JobsFile, JobsMemory
from collector.ring.ring import Ring
from collector.sampling.known_devices import KnownGpus, recall
from telemetry.devices import Gpu
from tests.faults.damaged_files import DAMAGES, Damage, DamagedKind, as_a_user, spoil

DAY = 86_400 * 10**9
GPUS = tuple(Gpu(uuid=f"GPU-{number}", index=number, name="H100") for number in range(8))
MEMORY = JobsMemory(boot_id="5f0c", boot=DAY)
ENTRY = BmcLogEntry("1", "noon", "fan 3 failed", critical=True)


def known(folder: Path) -> None:
    """Go on with the known GPUs."""
    (folder / "gpus.json").write_bytes(msgspec.json.encode(KnownGpus(gpus=GPUS)))
    assert recall(folder, DAY).gpus == GPUS


def jobs(folder: Path) -> None:
    """Go on with the allocations."""
    JobsFile(folder).save(MEMORY, DAY)
    assert JobsFile(folder).load() == (MEMORY, DAY)


def bmc(folder: Path) -> None:
    """Go on with the entries of the BMC's log that were seen."""
    BmcLog(folder / "bmc_log.json").receive([ENTRY])
    log = BmcLog(folder / "bmc_log.json")
    assert (log.receive([ENTRY]), log.drain_events()) == (0, [])


def check(folder: Path) -> None:
    """Go on with the results of a check."""
    (folder / "check.json").write_bytes(msgspec.json.encode(KeptCheck(at=DAY, measured={"nvlink": 4e11})))
    assert list(CheckResults(folder).facts().values()) == ["4e+11"]


def ring(folder: Path) -> None:
    """Go on with the ring, in a session of its own."""
    one = Ring(folder / "ring", 1 << 20)
    one.open()
    session = 1 + max((span.session for span in one.spans()), default=0)
    for number in range(20):
        one.append(session, number, b"frame" * 100)
    assert [number for number, _ in one.read(session, 0, 99)] == list(range(20))
    one.close()


FILES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "gpus.json": (known, lambda folder: recall(folder, DAY)),
    "jobs.json": (jobs, lambda folder: JobsFile(folder).load()),
    "bmc_log.json": (bmc, lambda folder: BmcLog(folder / "bmc_log.json")),
    "check.json": (check, lambda folder: CheckResults(folder).facts()),
    "ring/*.seg": (ring, lambda folder: Ring(folder / "ring", 1 << 20).open()),
}
"""By file: how a collector writes it and goes on with it, and how it reads it at its start."""


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_a_collector_goes_on_without_what_it_can_not_use(tmp_path: Path, file: str, damage: Damage) -> None:
    go_on, read = FILES[file]
    kind = DamagedKind(file, newer=lambda raw: b'{"version": 99, ' + raw[1:] if raw else raw)
    go_on(tmp_path)
    path = spoil(tmp_path, kind, damage)
    with as_a_user():
        read(tmp_path)
        go_on(tmp_path)
    if damage.name in {"folder", "unreadable"}:
        assert os.path.lexists(path.with_name(f"{path.name}.damaged-1"))


def test_another_thing_in_the_place_of_the_ring_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "ring").write_text("no folder")
    ring(tmp_path)
    assert (tmp_path / "ring.damaged-1").read_text() == "no folder"
