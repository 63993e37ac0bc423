"""`kilowatch doctor` says whether the processes of the GPUs, and whose they are, can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kilowatch.doctor.checks import gpu_processes
from kilowatch.settings import load
from tests.fake_nvml import FakeDriver
from tests.kubernetes.kubelet import listening, pod

pytestmark = pytest.mark.systems


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, gpus=1) as driver:
        for name, value in driver.environment.items():
            monkeypatch.setenv(name, value)
        driver.processes(0, compute={0: 1 << 30})
        yield driver


async def test_processes_of_another_namespace_are_a_warning_with_its_cure(fake: FakeDriver, tmp_path: Path) -> None:
    del fake
    path = tmp_path / "k.toml"
    path.write_text("[jobs]\nsame_pids = true\n")
    found = await gpu_processes(load(path, {}))
    assert found.level == "warning", "a PID of 0 is a process of another namespace"
    assert "other processes" in found.cure


async def test_a_list_that_is_refused_is_a_warning_with_its_cure(fake: FakeDriver, tmp_path: Path) -> None:
    path = tmp_path / "k.toml"
    path.write_text("[jobs]\nsame_pids = true\n")
    fake.processes(0)
    assert (await gpu_processes(load(path, {}))).text.startswith("processes on the GPUs: 0")
    fake.call("nvmlDeviceGetComputeRunningProcesses_v3", error=4, gpu=0)
    found = await gpu_processes(load(path, {}))
    assert (found.level, found.text) == ("warning", "process: no permission")
    assert "only root may see them" in found.cure
    path.write_text("[jobs]\nenabled = false\n")
    assert (await gpu_processes(load(path, {}))).text == "switched off: jobs.enabled = false"


async def test_devices_of_pods_that_no_gpu_was_found_for_are_a_warning(fake: FakeDriver, tmp_path: Path) -> None:
    fake.processes(0)
    path, socket = tmp_path / "k.toml", tmp_path / "kubelet.sock"
    path.write_text(f'[jobs]\nsame_pids = true\n[jobs.kubernetes]\nsocket = "{socket}"\n')
    with listening(socket) as kubelet:
        kubelet.pods = [pod("p", {"main": [("nvidia.com/gpu", [fake.uuid(0), "nvidia7"])]})]
        found = await gpu_processes(load(path, {}))
    assert (found.level, found.text) == ("warning", "pod-resources: 1 device of pods without a GPU here")
    assert "no GPU of this node's inventory): nvidia7" in found.cure
