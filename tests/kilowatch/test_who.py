"""`kilowatch who`: the processes of this machine and of another node, with their owners."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.jobs.config import JobsConfig
from collector.nvml.source import NvmlSource
from kilowatch.text.who import find_gpu, is_gpu, who_lines
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, JobSourceState, NodeJobs
from tests.brokers import Mosquitto
from tests.collector.bus import collecting, config_of, reading
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import until

GIB = 1 << 30
GPUS = tuple(Gpu(uuid=f"GPU-{n}ab", index=n, name="H100", pci=f"0000:1{n}:00.0") for n in range(3))
UP = Inventory(node="n1", driver_state="up", gpus=GPUS)
SLURM = JobKey("slurm", "lab", "4711")
NOW = 1_790_000_000 * 10**9


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, gpus=2) as driver:
        driver.processes(0)
        driver.processes(1)
        yield driver


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def who(fake: FakeDriver, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command; return its code and all that it printed."""
    file = folder / "k.toml"
    file.write_text(
        f'[jobs]\nsame_pids = true\n[collector]\nnode = "n1"\nsource = "nvml"\nstate_dir = "{folder / "state"}"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "kilowatch", "who", "--config", str(file), *arguments],
        env={**os.environ, **fake.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.systems
def test_the_processes_of_this_machine_are_shown_without_a_broker(
    fake: FakeDriver, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    fake.processes(1, compute={sleeper.pid: 3 * GIB}, busy={sleeper.pid: 40})
    code, text = who(fake, tmp_path)
    head, free, used = text.splitlines()[:3]
    assert head.split() == ["GPU", "PID", "USER", "JOB", "MEMORY", "USE", "FOR", "PROGRAM"]
    assert free.startswith("0 ")
    assert free.endswith("no process")
    assert used.split()[:3] == ["1", str(sleeper.pid), getpass.getuser()]
    assert "3 GiB" in used
    assert "40" in used
    assert used.endswith("sleep")
    assert code == 0
    code, text = who(fake, tmp_path, "1")
    assert len(text.splitlines()) == 2
    code, text = who(fake, tmp_path, "--json", fake.uuid(1))
    assert json.loads(text)["processes"][0]["pid"] == sleeper.pid
    code, text = who(fake, tmp_path, "7")
    assert code == 64
    assert "'7' is no GPU of this machine. Its GPUs are 0, 1." in text


@pytest.mark.systems
def test_what_may_not_be_read_is_named_and_is_code_3(fake: FakeDriver, tmp_path: Path) -> None:
    for gpu in (0, 1):
        fake.call("nvmlDeviceGetComputeRunningProcesses_v3", error=4, gpu=gpu)
    code, text = who(fake, tmp_path)
    assert code == 3
    assert "process: no permission: The driver does not list the processes of a GPU" in text


@pytest.mark.systems
async def test_a_node_is_asked_through_the_broker(
    fake: FakeDriver, mosquitto: Mosquitto, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    fake.processes(0, compute={sleeper.pid: GIB})
    jobs = JobsConfig(interval=1.0, same_pids=True)
    source = NvmlSource(interval=0.05, environment=fake.environment, open_wait=20.0)
    config = config_of(mosquitto.config, tmp_path, jobs=jobs)
    broker = f"127.0.0.1:{mosquitto.port}"
    async with reading(mosquitto.config) as reader, collecting(config, source):
        await until(lambda: reader.jobs and reader.jobs[-1].processes)
        other = tmp_path / "elsewhere"
        other.mkdir()
        code, text = await asyncio.to_thread(who_elsewhere, fake, other, "--broker", broker, "n1")
        assert (code, str(sleeper.pid) in text) == (0, True)
        code, text = await asyncio.to_thread(who_elsewhere, fake, other, "--broker", broker, "n2")
        assert (code, "no node n2 has published anything" in text) == (3, True)


def who_elsewhere(fake: FakeDriver, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command on another machine than the node."""
    file = folder / "k.toml"
    file.write_text('[collector]\nnode = "desk"\n')
    done = subprocess.run(
        [sys.executable, "-m", "kilowatch", "who", "--config", str(file), *arguments],
        env={**os.environ, **fake.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_each_gpu_has_its_processes_its_allocation_or_nothing() -> None:
    found = NodeJobs(
        session=1,
        left_out=3,
        jobs=(Job(key=SLURM, name="train", user="ada"),),
        allocations=(
            Allocation(job=SLURM, gpu="GPU-0ab", begin=NOW - 60 * 10**9, source="slurm-hook"),
            Allocation(job=SLURM, gpu="GPU-1ab", begin=NOW - 60 * 10**9, source="slurm-hook"),
            Allocation(job=SLURM, gpu="GPU-2ab", begin=5, end=9, source="slurm-hook"),
        ),
        processes=(
            GpuProcess(
                gpu="GPU-0ab",
                pid=7,
                started=NOW - 50 * 10**9,
                user="ada",
                name="python",
                job=SLURM,
                memory_bytes=2 * GIB,
                sm_ratio=0.5,
                instance=3,
            ),
            GpuProcess(gpu="GPU-0ab", pid=8, hidden="no permission", type="graphics"),
        ),
        sources=(
            JobSourceState(name="process", state="no permission", message="hidepid"),
            JobSourceState(name="kubernetes", state="absent", message="no socket"),
        ),
    )
    lines = [line.split() for line in who_lines(UP, GPUS, found, NOW)]
    assert lines[1:] == [
        ["0", "instance", "3", "7", "ada", "slurm", "4711", "train", "2", "GiB", "50%", "50",
         "s", "python"],
        ["0", "8", *(2 * ["no", "permission"]), *(3 * ["not", "known"]), "no", "permission", "(graphics)"],
        ["1", "-", "ada", "slurm", "4711", "train", "-", "-", "60", "s", "allocated", "by",
         "slurm-hook,", "processes", "not", "known"],
        ["2", "-", "-", "-", "-", "-", "-", "processes", "not", "known"],
        ["process:", "no", "permission:", "hidepid"],
        ["3", "processes", "found", "no", "room", "in", "the", "node's", "message"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "index"), [("1", 1), ("GPU-2", 2), ("gpu-0AB", 0), ("0000:12:00.0", 2), ("11:00.0", 1)]
)
def test_a_gpu_is_found_by_index_uuid_or_address(text: str, index: int) -> None:
    assert is_gpu(text)
    assert find_gpu(GPUS, text).index == index


def test_a_text_for_more_than_one_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than one GPU"):
        find_gpu(GPUS, "GPU-")
    assert not is_gpu("dgx-01")
