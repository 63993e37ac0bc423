"""Of thousands of sealed files, a question about one device opens those that can answer it."""

from __future__ import annotations

import itertools
import random

import pytest

from aggregator.store.index import SECOND, Index, choose
from aggregator.store.manifest import RAW, SealedFile


def file(name: str, *, period: int = 0, kind: str = RAW, devices: tuple[str, str] = ("a", "z")) -> SealedFile:
    """Return a file of an hour that begins at `period`."""
    last = (period + 3599 if kind == RAW else period + 3600 - int(kind)) * SECOND
    return SealedFile(name, kind, "gpu_fast", period, period + 3600, 1, 10, period * SECOND, last, *devices, [])


def found(index: Index, device: str, start: int, end: int, step: float = 0.0) -> set[str]:
    """Return the names of what is found for a device, times in seconds."""
    files = index.find("gpu_fast", device, start * SECOND, end * SECOND, step)
    return {each.path for each in files}


def test_only_the_periods_of_the_time_asked_for_are_read() -> None:
    """Both ends count; the period after the end does not."""
    index = Index(file(f"h{hour}", period=3600 * hour) for hour in range(1000))
    assert found(index, "m", 3600 * 7 + 10, 3600 * 9) == {"h7", "h8"}
    assert found(index, "m", 3600 * 2000, 3600 * 2001) == set()


def test_only_the_slice_of_the_device_is_read() -> None:
    """Slices divide the devices of a period; a device in no slice is in no file."""
    index = Index([file("low", devices=("a", "f")), file("high", devices=("h", "z"))])
    assert found(index, "f", 0, 10) == {"low"}
    assert found(index, "h", 0, 10) == {"high"}
    assert found(index, "g", 0, 10) == set()


def test_a_period_that_was_sealed_twice_has_overlapping_slices() -> None:
    """Every slice that may hold the device counts, also one far to the left."""
    index = Index([file("wide", devices=("a", "z")), file("b", devices=("b", "c")), file("d", devices=("d", "e"))])
    assert found(index, "e", 0, 10) == {"wide", "d"}
    assert found(index, "k", 0, 10) == {"wide"}


def test_each_period_is_read_from_one_kind_alone() -> None:
    """The coarsest roll-up that divides the step, where the period has it."""
    index = Index([file("raw"), file("10", kind="10"), file("60", kind="60"), file("old", period=3600, kind="60")])
    assert found(index, "m", 0, 7200, step=120) == {"60", "old"}
    assert found(index, "m", 0, 7200, step=30) == {"10", "old"}
    assert found(index, "m", 0, 7200) == {"raw", "old"}
    assert choose([0, 10, 60], 90) == 10


def test_bytes_are_told_by_kind() -> None:
    """Readings apart from roll-ups."""
    index = Index([file("a"), file("b"), file("c", kind="10")])
    assert (index.raw_bytes, index.rollup_bytes) == (20, 10)
    assert (Index([]).raw_bytes, Index([]).find("gpu_fast", "m", 0, 1, 0)) == (0, [])


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_a_plain_search_finds_is_missed(seed: int) -> None:
    """The index against a look at every file."""
    draw = random.Random(seed)
    files = [
        file(
            str(number),
            period=3600 * draw.randrange(20),
            devices=tuple(sorted(draw.choices("abcdefgh", k=2))),  # type: ignore[arg-type]
        )
        for number in range(200)
    ]
    index = Index(files)
    for device, hour in itertools.product("abcdefgh", range(0, 20, 3)):
        start, end = 3600 * hour, 3600 * (hour + 2)
        plain = {
            each.path
            for each in files
            if each.low_device <= device <= each.high_device
            and each.first_ts < end * SECOND
            and each.last_ts + SECOND > start * SECOND
        }
        assert found(index, device, start, end) == plain
