"""Services, boots, panics, fans, supplies, drives and Lustre, from trees and from programs that fail or hang."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from collector.host.bmc import bmc_tasks, fans, supplies
from collector.host.bmc_log import BmcLog
from collector.host.boot import Boot, ended_in_order
from collector.host.nvme_health import drive_task, drives
from collector.host.parts import PartLog
from collector.host.programs import Programs, Task
from collector.host.services import Services
from collector.host.storage_clients import PERIOD, StorageClients
from telemetry.gap import Gap, reason_of
from tests.collector.network_tree import Tree
from tests.collector.node_trees import FANS, SMART, SUPPLIES, boots, programs, put, unit


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_service_that_ends_is_named_once_and_again_when_it_is_back(tree: Tree) -> None:
    unit(tree, "slurmd")
    services = Services(tree.root, ("slurmd", "kubelet"))
    assert services.counts(has_switches=False)[:3] == (1, 0, 0)
    unit(tree, "slurmd", runs=False)
    for _ in range(3):
        assert services.counts(has_switches=False).down == 1
    unit(tree, "slurmd")
    assert services.counts(has_switches=False).down == 0
    assert [event.message for event in services.drain_events()] == ["slurmd does not run", "slurmd runs again"]
    assert services.drain_events() == []


def test_a_restart_is_another_control_group(tree: Tree) -> None:
    group = unit(tree, "slurmd")
    services = Services(tree.root, ("slurmd",))
    services.counts(has_switches=False)
    group.rename(tree.root / "old")  # so that the number of its inode is not given again
    unit(tree, "slurmd")
    for _ in range(2):
        assert services.counts(has_switches=False).restarts == 1


def test_the_first_version_of_control_groups_lists_processes(tree: Tree) -> None:
    group = unit(tree, "slurmd")
    (group / "cgroup.events").unlink()
    (group / "cgroup.procs").write_text("812\n")
    services = Services(tree.root, ("slurmd",))
    assert services.counts(has_switches=False).down == 0
    (group / "cgroup.procs").write_text("")
    assert services.counts(has_switches=False).down == 1


def test_what_is_not_enabled_counts_for_nothing_and_a_container_knows_nothing(tree: Tree) -> None:
    with pytest.raises(FileNotFoundError):
        Services(tree.root, ("slurmd",)).counts(has_switches=False)
    put(tree.root / "sys/fs/cgroup/system.slice/slurmd.service", {"cgroup.events": "populated 1\n"})
    found = Services(tree.root, ("slurmd", "nvidia-imex")).counts(has_switches=False)
    assert found[:3] == (0, 0, 0)
    assert {reason_of(value) for value in found[3:]} == {Gap.NOT_SUPPORTED}


@pytest.mark.parametrize(("switches", "down"), [(True, 1), (False, 0)])
def test_fabric_manager_ends_at_once_where_there_is_no_switch(tree: Tree, switches: bool, down: int) -> None:
    unit(tree, "nvidia-fabricmanager", runs=False)
    found = Services(tree.root, ("nvidia-fabricmanager",)).counts(switches)
    assert (found.down, found.fabric_manager) == (down, 0)


@pytest.mark.parametrize(
    ("peers", "expected"), [("10.0.0.1\n", None), ("# two\n10.0.0.1\n\n10.0.0.2\n", 0), (None, None)]
)
def test_imex_is_judged_where_its_domain_has_several_nodes(
    tree: Tree, peers: str | None, expected: float | None
) -> None:
    """A single node has none, and where jobs start it there is none without a job."""
    unit(tree, "nvidia-imex", runs=False)
    if peers is not None:
        put(tree.root, {"etc/nvidia-imex/nodes_config.cfg": peers})
    found = Services(tree.root, ("nvidia-imex",)).counts(has_switches=False)
    assert (None if reason_of(found.imex) else found.imex) == expected
    assert found.down == (expected is not None)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("boot login shutdown boot", 0), ("boot login boot", 1), ("boot shutdown boot boot login", 1),
        ("boot", None), ("", None), ("boot shutdown", None), ("shutdown boot login boot shutdown boot", 0),
    ],
)  # fmt: skip
def test_a_boot_without_a_shutdown_before_it_is_unclean(tree: Tree, words: str, expected: float | None) -> None:
    boots(tree, *words.split())
    boot = Boot(tree.root)
    if expected is None:
        with pytest.raises(FileNotFoundError):
            boot.unclean()
    else:
        assert boot.unclean() == boot.unclean() == (expected,)


def test_a_record_that_is_cut_off_is_left_out(tree: Tree) -> None:
    boots(tree, "boot", "boot")
    assert not ended_in_order(b"half of a record" + (tree.root / "var/log/wtmp").read_bytes())


def test_what_a_panic_left_counts_for_a_day(tree: Tree) -> None:
    boot = Boot(tree.root, lambda: now[0] * 10**9)
    now = [1_800_000_000]
    with pytest.raises(FileNotFoundError):
        boot.crash_records()
    put(tree.root, {"var/lib/systemd/pstore/1799/dmesg.txt": "Oops", "var/lib/systemd/pstore/dmesg-efi-1": "Oops"})
    for path in (tree.root / "var/lib/systemd/pstore").rglob("dmesg*"):
        os.utime(path, (now[0], now[0]))
    assert boot.crash_records() == (2,)
    now[0] += 90_000
    assert boot.crash_records() == (0,)


@pytest.mark.parametrize(
    ("word", "failed"), [("", 0), (", Failure detected", 1), (", Power Supply AC lost", 1), (", Predictive failure", 1)]
)
def test_a_supply_is_as_its_state_says_and_an_empty_place_is_none(word: str, failed: int) -> None:
    parts = PartLog()
    counts = {"node_supplies": 2, "node_supplies_failed": failed}
    assert supplies(SUPPLIES.format(word), parts) == counts
    assert [event.data["unit"] for event in parts.drain_events()] == ["PSU2"] * failed


@pytest.mark.parametrize(
    ("state", "speed", "failed"), [("ok", 9600, 0), ("cr", 9600, 1), ("ok", 0, 1), ("ok", 1500, 1), ("ok", 2000, 0)]
)
def test_a_fan_that_is_beyond_its_limits_or_much_slower_than_the_others_has_failed(
    state: str, speed: int, failed: int
) -> None:
    parts = PartLog()
    assert fans(FANS.format(state, speed), parts) == {"node_fans": 3, "node_fans_failed": failed}
    named = parts.drain_events()
    assert [event.data["unit"] for event in named] == ["FAN2_F"] * failed
    fans(FANS.format("ok", 9600), parts)
    assert [event.data["state"] for event in parts.drain_events()] == ["well"] * failed


def test_drives_are_as_bad_as_the_worst() -> None:
    worn = SMART.format('{"value":4}').replace('"percent_used":3', '"percentage_used":97').replace(":100", ":15")
    parts = PartLog()
    texts = {"nvme0": SMART.format(0), "nvme1": worn.replace('"media_errors":0', '"media_errors":6')}
    assert drives(texts, parts) == {
        "node_nvme_critical": 1,
        "node_nvme_worn_ratio": 0.97,
        "node_nvme_spare_ratio": pytest.approx(0.05),
        "node_nvme_media_errors_total": 6,
    }
    told = [event.data for event in parts.drain_events()]
    assert {one["unit"] for one in told} == {"nvme1"}
    assert [str(one["metric"]).removeprefix("node_nvme_") for one in told] == ["critical", "worn_ratio", "spare_ratio"]


def tasks(root: Path, ipmitool: str | None, nvme: str | None) -> list[Task]:
    """Return the tasks of a node without Redfish."""
    return [*bmc_tasks(root, ipmitool, None, BmcLog(None), PartLog()), drive_task(root, nvme, PartLog())]


def answers(work: Programs, wanted: str, other: Gap = Gap.NOT_READ) -> dict[str, float | str]:
    """Wait for an answer of a task; return all, with the words of gaps."""
    while reason_of(work.readings()[wanted]) is other:
        time.sleep(0.01)
    found = work.readings()
    return {name: value if (gap := reason_of(value)) is None else gap.word for name, value in found.items()}


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("exit 1", "error"), ("echo 'Could not open device: Permission denied' >&2; exit 1", "no_permission"),
        ("echo nonsense", "not_supported"), ("exec sleep 60", "timed_out"), (None, "not_supported"),
    ],
)  # fmt: skip
def test_a_program_that_fails_hangs_or_is_not_there_is_a_gap_and_the_others_go_on(
    tree: Tree, tmp_path: Path, script: str | None, word: str
) -> None:
    folder = tmp_path / "bin"
    programs(tree, folder)
    put(tree.root, {"sys/class/nvme/nvme0/transport": "pcie\n"})
    ipmitool = str(folder / "ipmitool") if script else None
    if script:
        put(folder, {"ipmitool": f"#!/bin/sh\n{script}\n"})
    work = Programs(tasks(tree.root, ipmitool, str(folder / "nvme")), deadline=1.0 if word == "timed_out" else 60)
    try:
        found = answers(work, "node_nvme_critical")
    finally:
        work.close()
    assert found["node_supplies"] == found["node_fans_failed"] == word
    assert found["node_nvme_critical"] == 0


def test_fans_supplies_and_drives_are_read_and_an_old_answer_is_none(tree: Tree, tmp_path: Path) -> None:
    programs(tree, tmp_path / "bin")
    put(tree.root, {"sys/class/nvme/nvme0/transport": "pcie\n"})
    now = [0.0]
    work = Programs(
        tasks(tree.root, str(tmp_path / "bin/ipmitool"), str(tmp_path / "bin/nvme")), monotonic=lambda: now[0]
    )
    try:
        found = answers(work, "node_nvme_critical")
        work.close()
        assert (found["node_supplies"], found["node_fans"], found["node_nvme_worn_ratio"]) == (2, 3, 0.03)
        now[0] = 1e6
        assert reason_of(work.readings()["node_fans"]) is Gap.TIMED_OUT
    finally:
        work.close()


class Clients:
    """The readings of a node's clients of parallel file systems."""

    def __init__(self, root: Path) -> None:
        self.now = 0.0
        self._reader = StorageClients(root, lambda: self.now)

    def read(self, seconds: float = 0.0) -> dict[str, float | str]:
        """Return the readings without `node_`, those of the present round, so many seconds later."""
        before = self._reader.readings()  # before the round is due: it may end within one call
        self.now += seconds
        while seconds and self._reader.readings() is before:
            time.sleep(0.01)
        while Gap.NOT_READ in map(reason_of, self._reader.readings().values()):
            time.sleep(0.01)
        return {
            name.removeprefix("node_"): value if (gap := reason_of(value)) is None else gap.word
            for name, value in self._reader.readings().items()
        }


NO_CLIENT = dict.fromkeys(
    ("lustre_imports", "lustre_imports_failing", "beegfs_targets", "beegfs_targets_failing", "ceph_sessions",
     "ceph_sessions_failing", "ceph_requests_homeless"), Gap.NOT_SUPPORTED.word
)  # fmt: skip


def test_connections_of_lustre_are_in_order_while_full_or_idle(tree: Tree) -> None:
    clients = Clients(tree.root)
    states = {"mdc/a": "FULL", "osc/a": "IDLE", "osc/b": "DISCONN", "osc/c": "EVICTED"}
    put(
        tree.root,
        {
            f"proc/fs/lustre/{name}/import": f"import:\n    name: x\n    state: {state}\n"
            for name, state in states.items()
        },
    )
    found = {"lustre_imports": 4, "lustre_imports_failing": 2}
    assert clients.read() == NO_CLIENT | found
    put(tree.root, {f"proc/fs/lustre/{name}/import": "    state: FULL\n" for name in states})
    assert clients.read(PERIOD) == NO_CLIENT | found | {"lustre_imports_failing": 0}


def test_targets_of_beegfs_are_in_order_while_online(tree: Tree) -> None:
    clients = Clients(tree.root)
    folder = "proc/fs/beegfs/1A2B-6A1925D1-n1"
    put(
        tree.root,
        {
            f"{folder}/meta_target_state": "[Target ID: 1] @ beegfs-meta m1 [ID: 1]: Online / Good \n",
            f"{folder}/storage_target_state": "[Target ID: 101] @ beegfs-storage s1 [ID: 1]: Probably-offline / Good \n"
            "[Target ID: 102] @ beegfs-storage s1 [ID: 1]: Online / Needs-resync \n",
        },
    )
    assert clients.read() == NO_CLIENT | {"beegfs_targets": 3, "beegfs_targets_failing": 1}


@pytest.mark.parametrize(
    ("sessions", "status", "osdc", "expected"),
    [
        ("mds.0 open\nmds.1 opening\n", "blocklisted: false\n", "REQUESTS 3 homeless 0\n", (2, 0, 0)),
        ("mds.0 hung\nmds.1 open\n", "", "REQUESTS 3 homeless 2\nLINGER", (2, 1, 2)),
        ("mds.0 open\nmds.1 rejected\n", "blocklisted: true\n", None, (2, 2, Gap.NOT_SUPPORTED.word)),
    ],
)
def test_sessions_of_ceph_are_in_order_while_open_and_the_client_is_not_blocked(
    tree: Tree, sessions: str, status: str, osdc: str | None, expected: tuple[object, ...]
) -> None:
    folder = "sys/kernel/debug/ceph/3f9e.client4711"
    put(
        tree.root,
        {f"{folder}/mds_sessions": f'global_id 4711\nname "n1"\n{sessions}', f"{folder}/status": status}
        | ({} if osdc is None else {f"{folder}/osdc": osdc}),
    )
    names = ("ceph_sessions", "ceph_sessions_failing", "ceph_requests_homeless")
    assert Clients(tree.root).read() == NO_CLIENT | dict(zip(names, expected, strict=True))


def test_a_client_whose_files_are_roots_is_not_permitted_and_one_that_is_not_loaded_is_none(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tree.root, {"sys/module/ceph/refcnt": "1\n"})

    def refuse(folder: Path) -> object:
        if "debug" in folder.parts:
            raise PermissionError(folder)
        return iter(os.listdir(folder))  # noqa: PTH208 - what is replaced is Path's own

    monkeypatch.setattr(Path, "iterdir", refuse)
    denied = dict.fromkeys([name for name in NO_CLIENT if "ceph" in name], Gap.NO_PERMISSION.word)
    assert Clients(tree.root).read() == NO_CLIENT | denied


def test_a_connection_that_hangs_is_an_old_answer_and_delays_nobody(tree: Tree) -> None:
    clients = Clients(tree.root)
    put(tree.root, {"proc/fs/lustre/osc/a/import": "    state: FULL\n"})
    assert clients.read()["lustre_imports"] == 1
    file = tree.root / "proc/fs/lustre/osc/a/import"
    file.unlink()
    os.mkfifo(file)  # opening it does not return
    for _ in range(5):
        clients.now += PERIOD
        found = clients.read()
    assert set(found.values()) == {Gap.TIMED_OUT.word}
    file.write_text("")  # lets the thread go


def test_a_node_without_such_a_client_has_none(tree: Tree) -> None:
    assert Clients(tree.root).read() == NO_CLIENT
