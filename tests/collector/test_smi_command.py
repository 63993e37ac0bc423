"""The live command, as a script that behaves like nvidia-smi in a good or a bad mood."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.smi.command_source import MAX_ABANDONED, SmiCommandSource
from telemetry.errors import ConfigError
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA
from tests.collector.test_smi_layouts import XML
from tests.kit.waiting import until

BOTH = frozenset(Lane)
PATIENCE = 30.0  # more than any machine needs; the tests do not wait for it
TEMPERATURE = SCHEMA.blocks[GPU_FAST].names.index("gpu_temperature_celsius")
SECOND = (
    '<gpu id="00000000:3A:00.0"><product_name>A40</product_name><uuid>GPU-2</uuid>'
    "<temperature><gpu_temp>50 C</gpu_temp></temperature></gpu>"
)
TWO = XML.replace("</nvidia_smi_log>", SECOND + "</nvidia_smi_log>")


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class Smi:
    """A fake nvidia-smi: prints `says`, after the lines of shell in `first`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvidia-smi"
        self.log = folder / "pids"
        self.text = folder / "text"

    def write(self, says: str, first: str = "", code: int = 0, trap: str = "") -> None:
        """Change its mood; the next run has it."""
        self.text.write_text(says)
        new = self.path.with_suffix(".new")
        new.write_text(f'#!/bin/sh\n{trap}\necho $$ "$@" >>{self.log}\n{first}\ncat {self.text}\nexit {code}\n')
        new.chmod(0o755)
        new.replace(self.path)

    def runs(self) -> list[str]:
        """Return process id and arguments of each run so far."""
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def smi(tmp_path: Path) -> Iterator[Smi]:
    """A folder with a fake nvidia-smi; what it left running is ended."""
    fake = Smi(tmp_path)
    yield fake
    for line in fake.runs():
        try:
            os.kill(int(line.split()[0]), signal.SIGKILL)  # a script of ours, in no driver
        except ProcessLookupError:
            continue


def source_of(smi: Smi, clock: Clock, timeout: float = PATIENCE) -> SmiCommandSource:
    """Make a source that runs the fake."""
    return SmiCommandSource(10.0, [str(smi.path)], timeout, clock)


async def started(smi: Smi, clock: Clock, limit: float = PATIENCE) -> SmiCommandSource:
    """Open a source, take its first tick, and let an interval pass."""
    smi.write(TWO)
    source = source_of(smi, clock, limit)
    await source.open()
    assert (await source.read(BOTH, 0, 0, PATIENCE))[GPU_FAST]
    assert len(smi.runs()) == 1  # the first tick follows at once, and takes what `open` found
    clock.now += 10.0
    return source


async def test_rows_come_only_when_a_run_has_ended(smi: Smi) -> None:
    """Two ticks within one interval: one run, and no reading twice."""
    clock = Clock()
    smi.write(TWO)
    source = source_of(smi, clock)
    await source.open()
    assert [gpu.uuid for gpu in source.inventory.gpus] == ["GPU-1", "GPU-2"]
    assert source.inventory.driver_state == "up"
    assert source.inventory.driver_version == "615.10"
    rows = await source.read(BOTH, 0, 1, PATIENCE)
    assert [row[TEMPERATURE] for row in rows[GPU_FAST]] == [41.0, 50.0]
    assert len(rows[GPU_SLOW]) == 2
    clock.now += 1.0
    assert await source.read(BOTH, 1, 2, PATIENCE) == {}
    clock.now += 9.0
    rows = await source.read(frozenset({Lane.FAST}), 10, 3, PATIENCE)
    assert len(rows[GPU_FAST]) == len(rows[GPU_SLOW]) == 2  # a run has both lanes
    assert [line.split()[1:] for line in smi.runs()] == [["-q", "-x"]] * 2
    assert source.drain_events() == []
    await source.close()


@pytest.mark.parametrize(
    ("says", "code", "state"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "missing"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "mismatched"),
        ("Segmentation fault", 139, "missing"),
        ("", 1, "missing"),
        ("No devices were found", 6, "up"),
    ],
    ids=["no driver", "mismatch", "crash", "silence", "no GPU"],
)
async def test_a_driver_that_goes_and_comes_back_is_two_events(smi: Smi, says: str, code: int, state: str) -> None:
    """Never an error; its GPUs keep their rows, all gaps."""
    clock = Clock()
    source = await started(smi, clock)
    smi.write(says, code=code)
    rows = await source.read(BOTH, 0, 7, PATIENCE)
    assert {reason_of(value) for row in rows[GPU_FAST] for value in row} == {Gap.ERROR}
    assert source.inventory.driver_state == state
    assert len(source.inventory.gpus) == 2
    assert source.inventory.driver_message
    assert [event.kind for event in source.drain_events()] == ([] if state == "up" else ["driver_down"])
    smi.write(TWO.replace("615.10", "616.20"))
    clock.now += 10.0
    rows = await source.read(BOTH, 1, 8, PATIENCE)
    assert [row[TEMPERATURE] for row in rows[GPU_FAST]] == [41.0, 50.0]
    assert [event.kind for event in source.drain_events()] == (
        ["driver_reloaded"] if state == "up" else ["driver_up", "driver_reloaded"]
    )
    await source.close()


async def test_no_such_command_is_a_state_with_a_cure(tmp_path: Path) -> None:
    """Also one that may not be run."""
    source = SmiCommandSource(10.0, str(tmp_path / "nvidia-smi"))
    await source.open()
    assert source.inventory.driver_state == "missing"
    assert "not installed" in source.inventory.driver_message
    assert await source.read(BOTH, 0, 0, PATIENCE) == {0: [], 1: [], 2: [], 3: []}
    await source.close()
    (tmp_path / "folder").mkdir()
    source = SmiCommandSource(10.0, str(tmp_path / "folder"))
    await source.open()
    assert source.inventory.driver_state == "no_permission"
    await source.close()


async def test_a_gpu_that_is_lost_keeps_its_row_and_its_name(smi: Smi) -> None:
    """Lost in place, then not listed at all, then back."""
    clock = Clock()
    source = await started(smi, clock)
    lost = SECOND.replace("A40", "GPU is lost").replace("GPU-2", "GPU is lost")
    for text in (TWO.replace(SECOND, lost.replace("50 C", "GPU is lost")), XML):
        smi.write(text)
        rows = await source.read(BOTH, 0, 7, PATIENCE)
        assert rows[GPU_FAST][0][TEMPERATURE] == 41.0
        assert {reason_of(value) for value in rows[GPU_FAST][1]} == {Gap.DEVICE_LOST}
        assert [(gpu.uuid, gpu.name, gpu.present) for gpu in source.inventory.gpus] == [
            ("GPU-1", "NVIDIA R&D Board", True),
            ("GPU-2", "A40", False),
        ]
        clock.now += 10.0
    smi.write(TWO)
    rows = await source.read(BOTH, 2, 8, PATIENCE)
    assert rows[GPU_FAST][1][TEMPERATURE] == 50.0
    assert [(event.kind, event.gpu, event.at) for event in source.drain_events()] == [
        ("gpu_lost", "GPU-2", 7),
        ("gpu_back", "GPU-2", 8),
    ]
    await source.close()


async def test_a_run_that_hangs_is_abandoned_and_never_killed(smi: Smi) -> None:
    """The process ignores SIGTERM, as in a driver call; the number of abandoned ones is bounded."""
    clock = Clock()
    source = await started(smi, clock, limit=3.0)
    smi.write(TWO, trap="trap '' TERM", first="while :; do sleep 0.2; done")
    for number in range(MAX_ABANDONED):
        assert await source.read(BOTH, 0, 0, 0.0) == {}  # started, and not over yet
        await until(lambda: len(smi.runs()) == number + 2)  # noqa: B023 - awaited here
        clock.now += 3.0
        rows = await source.read(BOTH, 0, 0, 0.0)
        assert {reason_of(value) for value in rows[GPU_FAST][0]} == {Gap.TIMED_OUT}
        assert source.inventory.driver_state == "hung"
        assert await source.read(BOTH, 0, 0, 0.0) == {}  # not due again
        assert len(source._abandoned) == number + 1
        clock.now += 7.0
    await source.read(BOTH, 0, 0, 0.0)
    assert "no more are started" in source.inventory.driver_message
    assert len(source._abandoned) == MAX_ABANDONED
    assert [event.kind for event in source.drain_events()] == ["driver_down"]
    assert source.abandoned == MAX_ABANDONED
    hung = [run.pid for run in source._abandoned]
    for pid in hung:
        os.kill(pid, 0)  # raises, were it gone
    await source.close()
    for pid in hung:
        os.kill(pid, 0)


async def test_a_hung_driver_that_wakes_is_read_again(smi: Smi) -> None:
    """Runs that end at last free their places."""
    clock = Clock()
    source = await started(smi, clock, limit=3.0)
    smi.write(TWO, first="exec sleep 600")  # ends on SIGTERM
    await source.read(BOTH, 0, 0, 0.0)
    clock.now += 3.0
    await source.read(BOTH, 0, 0, 0.0)
    assert source.inventory.driver_state == "hung"
    smi.write(TWO)
    source.timeout = PATIENCE
    clock.now += 7.0
    rows = await source.read(BOTH, 0, 0, PATIENCE)
    assert rows[GPU_FAST][0][TEMPERATURE] == 41.0
    assert [event.kind for event in source.drain_events()] == ["driver_down", "driver_up"]
    await source.close()


async def test_release_starts_no_run_until_resume(smi: Smi) -> None:
    """So that the driver can be upgraded."""
    clock = Clock()
    source = await started(smi, clock)
    await source.release()
    clock.now += 100.0
    rows = await source.read(BOTH, 0, 0, PATIENCE)
    assert {reason_of(value) for value in rows[GPU_FAST][0]} == {Gap.ERROR}
    assert source.inventory.driver_state == "released"
    assert len(smi.runs()) == 1
    await source.resume()
    assert (await source.read(BOTH, 1, 0, PATIENCE))[GPU_FAST][0][TEMPERATURE] == 41.0
    assert source.inventory.driver_state == "up"
    await source.close()


def test_a_pace_that_would_hurt_is_refused() -> None:
    """With the reason, and what to write instead."""
    with pytest.raises(ConfigError, match=r"source.interval: every 1 s is too often.*5 or more"):
        SmiCommandSource(1.0)
    with pytest.raises(ConfigError, match=r"source.command: empty"):
        SmiCommandSource(10.0, " ")
