"""What a node is for, and a collector on a node without GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from collector.config import CollectorConfig
from collector.host.configuration import MOST_MOUNTS, configuration
from collector.host.no_gpus import LOOK_SECONDS, NoGpuSource
from collector.host.role import gpus_on_the_bus, guessed_role
from collector.sampling.sampler import BOTH, role_in
from collector.sampling.self_metrics import node_metrics
from collector.sources import has_no_gpus, make_source
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.notations.kernel_args import MOST_ARGUMENTS, kept_arguments
from telemetry.wire.inventory import Inventory, NodeRole
from tests.collector import node_trees
from tests.collector.network_tree import Tree
from tests.collector.node_trees import put

SLICE = "sys/fs/cgroup/system.slice"
SECOND = 10**9


def running(root: Path, *units: str) -> None:
    """Put services with a process each."""
    put(root, {f"{SLICE}/{unit}.service/cgroup.procs": "812\n" for unit in units})


@pytest.mark.parametrize(
    ("kind", "units", "role"),
    [
        (node_trees.dgx, (), NodeRole.GPU),
        (node_trees.hgx, ("slurmctld",), NodeRole.GPU),
        (node_trees.gb200_tray, (), NodeRole.GPU),
        (node_trees.desktop, (), NodeRole.GPU),
        (node_trees.head, ("slurmctld", "munge"), NodeRole.HEAD),
        (node_trees.head, (), NodeRole.COMPUTE),
        (node_trees.storage, ("beegfs-storage",), NodeRole.STORAGE),
    ],
)
def test_the_bus_and_the_services_tell_what_a_node_is_for(
    kind: Callable[[Path], Tree], units: tuple[str, ...], role: NodeRole, tmp_path: Path
) -> None:
    """No driver is loaded on any of these: a GPU node is one by its bus alone."""
    kind(tmp_path)
    running(tmp_path, *units)
    assert guessed_role(tmp_path) is role


def test_servers_of_files_and_a_controller_in_a_container_are_recognised(tmp_path: Path) -> None:
    node_trees.head(tmp_path)
    put(tmp_path, {"etc/kubernetes/manifests/kube-apiserver.yaml": "kind: Pod\n"})
    assert guessed_role(tmp_path) is NodeRole.HEAD
    other = tmp_path / "other"
    node_trees.head(other)
    put(other, {"proc/fs/nfsd/threads": "0\n"})
    assert guessed_role(other) is NodeRole.COMPUTE  # the module is loaded and serves nobody
    put(other, {"proc/fs/nfsd/threads": "16\n"})
    assert guessed_role(other) is NodeRole.STORAGE


def test_a_machine_that_shows_no_bus_has_no_role(tmp_path: Path) -> None:
    assert guessed_role(tmp_path) is None
    assert gpus_on_the_bus(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("found", "named", "guessed", "role"),
    [
        (Inventory(node="n"), NodeRole.LOGIN, NodeRole.GPU, "login"),
        (Inventory(node="n", role="gpu"), None, NodeRole.COMPUTE, "gpu"),
        (Inventory(node="n", gpus=(Gpu(uuid="G", index=0, name="H100"),)), None, NodeRole.HEAD, "gpu"),
        (Inventory(node="n", driver_state="missing"), None, NodeRole.GPU, "gpu"),
        (Inventory(node="n"), None, None, ""),
    ],
    ids=["settings", "source", "GPUs of before", "driver gone", "nothing known"],
)
def test_settings_win_and_gpus_of_before_beat_the_guess(
    found: Inventory, named: NodeRole | None, guessed: NodeRole | None, role: str
) -> None:
    assert role_in(found, named, guessed) == role


async def test_a_node_without_gpus_says_so_and_lacks_no_driver(tmp_path: Path) -> None:
    node_trees.head(tmp_path)
    source = NoGpuSource(tmp_path)
    await source.open()
    rows = await source.read(BOTH, 0, SECOND, 1.0)
    assert all(block == [] for block in rows.values())
    assert source.inventory.driver_state == "none"
    known = node_metrics(source.inventory, rows, 0)
    assert known == {"node_gpus_expected": 0.0, "node_gpus_answering": 0.0}  # and no node_driver_up
    assert source.drain_events() == []


async def test_a_gpu_that_is_plugged_in_later_is_a_missing_driver_until_it_is_out(tmp_path: Path) -> None:
    tree = node_trees.head(tmp_path)
    source, second = NoGpuSource(tmp_path), int(LOOK_SECONDS * SECOND)
    await source.read(BOTH, 0, second, 1.0)
    folder = node_trees.device(tree, "0000:18:00.0", "pci0000:17", node_trees.GPU, has_aer=False)
    await source.read(BOTH, 1, second + SECOND, 1.0)
    assert source.inventory.driver_state == "none"  # looked at once a minute
    await source.read(BOTH, 60, 2 * second, 1.0)
    assert (source.inventory.driver_state, source.inventory.role) == ("missing", "gpu")
    assert "restart the collector" in source.inventory.driver_message
    assert [event.kind for event in source.drain_events()] == ["driver_down"]
    (folder / "class").write_text("0x020000\n")
    await source.read(BOTH, 120, 3 * second, 1.0)
    assert (source.inventory.driver_state, source.inventory.role) == ("none", "")


def test_auto_loads_no_driver_where_the_bus_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in (True, False):
        monkeypatch.setattr("collector.host.role.may_have_gpus", lambda _, gpus=gpus: gpus)
        config = CollectorConfig(state_dir=tmp_path)
        assert has_no_gpus(config, 0.0) is not gpus
        assert isinstance(make_source("auto", config, 0.0), NoGpuSource) is not gpus
    assert not has_no_gpus(CollectorConfig(state_dir=tmp_path, role=NodeRole.GPU), 0.0)
    known = {"gpus": [Gpu(uuid="GPU-1", index=0, name="H100")]}
    (tmp_path / "gpus.json").write_bytes(msgspec.json.encode(known))
    assert not has_no_gpus(config, 0.0)  # it had one last week: it has fallen off the bus
    with pytest.raises(ConfigError, match="none accepts nothing after a colon"):
        make_source("none:x", config, 0.0)


@pytest.mark.parametrize("name", ["slurmd.service", "a b", "", "../x"])
def test_a_service_that_can_not_be_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no service"):
        CollectorConfig(services=(name,))


def test_the_facts_that_nodes_of_a_kind_share(tmp_path: Path) -> None:
    node_trees.dgx(tmp_path)
    running(tmp_path, "slurmd", "weka-agent")
    blocks = {f"sys/devices/system/memory/memory{number}/online": "1\n" for number in range(64)}
    put(
        tmp_path,
        {
            "sys/devices/system/memory/block_size_bytes": "80000000\n",
            **blocks,
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=5e iommu=pt ip=10.0.0.7 luks.key=s3cret pci=realloc=off\n",
        },
    )
    found = configuration(tmp_path, ("slurmd", "weka-agent", "my-agent"))
    assert found["memory_bytes"] == str(64 * 2**31)
    assert found["memory_blocks"] == "1"
    assert found["nvme_drives"] == "10"
    assert found["kernel_args"] == "iommu=pt pci=realloc=off"
    assert (found["mount:/home"], found["mount:/scratch"]) == ("nfs4", "lustre")
    assert found["mounts"] == "3"
    states = {name: found[f"service:{name}"] for name in ("slurmd", "weka-agent", "my-agent")}
    assert states == {"slurmd": "running", "weka-agent": "running", "my-agent": "not running"}


def test_what_can_not_be_read_is_left_out_and_much_is_bounded(tmp_path: Path) -> None:
    assert configuration(tmp_path) == {}
    put(tmp_path, {"proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 1 kB\n"})
    assert configuration(tmp_path) == {"memory_bytes": str(2**30)}
    lines = "".join(f"{n} 1 0:{n} / /home/u{n:03} rw - nfs4 filer:/u{n} rw\n" for n in range(300))
    put(tmp_path, {"proc/self/mountinfo": lines + "9 1 8:1 / / rw - ext4 /dev/sda1 rw\n"})
    found = configuration(tmp_path)
    assert sum(name.startswith("mount:") for name in found) == MOST_MOUNTS
    assert found["mounts"] == "301"
    assert len(kept_arguments(" ".join(f"pci={n:04}" for n in range(500)))) <= MOST_ARGUMENTS
    assert len(msgspec.json.encode(found)) < 4096
