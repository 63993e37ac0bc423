"""The processes of each GPU, as the driver lists them: the real nvidia-ml-py on a scripted library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.nvml.source import NvmlSource
from collector.source import ListedProcess, ListedProcesses, ListsProcesses
from tests.collector.nvml_ticks import Ticks
from tests.fake_nvml import NO_MEMORY, FakeDriver

pytestmark = pytest.mark.systems
GIB = 1 << 30
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, gpus=2) as driver:
        yield driver


def ticks_of(fake: FakeDriver, *, seconds: float = 1.0) -> Ticks:
    """Return a source that reads processes at each tick."""
    source = NvmlSource(environment=fake.environment, open_wait=20.0, retry=(0.05, 0.2), scout=(0.05, 0.2))
    assert isinstance(source, ListsProcesses)
    source.list_processes(seconds)
    return Ticks(fake, source)


def listed(ticks: Ticks, gpu: int = 0) -> ListedProcesses:
    """Return the newest list of a GPU."""
    return ticks.source.listed_processes()[ticks.fake.uuid(gpu)]


async def first(ticks: Ticks) -> ListedProcesses:
    """Tick until there is a list of the first GPU, and return it."""
    await ticks.until(lambda: ticks.fake.uuid(0) in ticks.source.listed_processes())
    return listed(ticks)


async def test_each_process_has_its_type_memory_and_use(fake: FakeDriver) -> None:
    fake.processes(
        0, compute={4711: 3 * GIB, 4712: GIB}, mps={5000: GIB}, graphics={4711: GIB, 9: 5}, busy={4711: 80, 5000: 7}
    )
    fake.processes(1)
    async with ticks_of(fake) as ticks:
        assert (await first(ticks)).processes == (
            ListedProcess(4711, "compute", 3 * GIB, None, 0.8),
            ListedProcess(4712, "compute", GIB, None, 0.0),
            ListedProcess(5000, "mps", GIB, None, 0.07),
            ListedProcess(9, "graphics", 5, None, 0.0),
        )
        assert listed(ticks, 1).processes == ()
        assert ticks.value("gpu_processes") == 2


async def test_memory_and_use_that_the_driver_does_not_know_are_absent(fake: FakeDriver) -> None:
    fake.processes(0, compute={4711: NO_MEMORY})
    async with ticks_of(fake) as ticks:
        assert (await first(ticks)).processes == (ListedProcess(4711, "compute", None, None, None),)


async def test_a_process_on_a_mig_instance_has_its_number_and_no_use(fake: FakeDriver) -> None:
    fake.processes(0, compute={4711: (GIB, 3), 4712: (GIB, 5)}, busy={4711: 50})
    async with ticks_of(fake) as ticks:
        found = (await first(ticks)).processes
        assert [(each.pid, each.instance, each.sm_ratio) for each in found] == [(4711, 3, None), (4712, 5, None)]


async def test_more_processes_than_there_was_room_for_are_all_there(fake: FakeDriver) -> None:
    fake.processes(0, compute=dict.fromkeys(range(100, 300), GIB))
    async with ticks_of(fake) as ticks:
        assert [each.pid for each in (await first(ticks)).processes] == list(range(100, 300))


@pytest.mark.parametrize(("code", "problem"), [(4, "no permission"), (3, "not supported"), (999, "NVML error 999")])
async def test_a_list_that_is_refused_is_a_problem_and_no_empty_list(fake: FakeDriver, code: int, problem: str) -> None:
    fake.processes(0, compute={})
    fake.call(COMPUTE, error=code, gpu=0)
    async with ticks_of(fake) as ticks:
        assert (await first(ticks))[1:] == ((), problem)
        fake.processes(0, compute={4711: GIB})
        await ticks.until(lambda: not listed(ticks).problem)
        assert [each.pid for each in listed(ticks).processes] == [4711]


async def test_an_older_driver_lists_them_in_its_older_form(fake: FakeDriver) -> None:
    fake.call(COMPUTE, error=13)
    fake.processes(0, compute={4711: GIB}, form="_v2")
    async with ticks_of(fake) as ticks:
        assert [each.pid for each in (await first(ticks)).processes] == [4711]


async def test_a_gpu_that_hangs_keeps_its_old_list_and_the_others_go_on(fake: FakeDriver) -> None:
    for gpu in (0, 1):
        fake.processes(gpu, compute={4711: GIB})
    async with ticks_of(fake) as ticks:
        await first(ticks)
        before = listed(ticks)
        fake.set(0, state="hang")
        fake.processes(1, compute={4712: GIB})
        await ticks.until(lambda: [each.pid for each in listed(ticks, 1).processes] == [4712])
        assert listed(ticks) == before
        fake.set(0, state="ok")
        await ticks.until(lambda: listed(ticks).read_at > before.read_at)


async def test_all_gpus_are_read_at_one_tick_and_none_at_those_between(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=8) as fake:
        for gpu in range(8):
            fake.processes(gpu)
        async with ticks_of(fake, seconds=4.0) as ticks:
            await ticks.until(lambda: len(ticks.source.listed_processes()) == 8)
            times, seen = [], []
            for _ in range(8):
                await ticks.tick()
                lists = ticks.source.listed_processes().values()
                newest = max(each.read_at for each in lists)
                seen.append(newest)
                times.append(sum(each.read_at == newest for each in lists))
            assert [each for each in times if each == 8] == times, "no tick reads a part of them"
            assert len({*seen}) in {2, 3}


async def test_without_the_wish_no_list_is_read(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: ticks.value("gpu_processes") == 2)
        assert ticks.source.listed_processes() == {}
        assert "nvmlDeviceGetGraphicsRunningProcesses_v3" not in fake.calls()
