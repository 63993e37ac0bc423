"""A real Slurm on loopback: munge, a controller, and a daemon for each of its nodes, all on this machine; with
accounting also slurmdbd and a MariaDB of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import free_port
from tests.kit.waiting import end_of_patience, wait_until

needs_slurm = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("slurmctld", "slurmd", "munged", "sbatch"))
    and not os.environ.get("CI"),
    reason="apt-get install slurm-wlm slurm-wlm-basic-plugins munge",
)
needs_accounting = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("slurmdbd", "mariadbd", "sacct")) and not os.environ.get("CI"),
    reason="apt-get install slurmdbd mariadb-server",
)
FREEZER = Path("/sys/fs/cgroup/freezer")
TWO_NODES = tuple(f"p{os.getpid()}n{number}" for number in (1, 2))
"""Names that no other run of the tests has: the cgroups of jobs lie below the name of their node."""
THIS_MACHINE = socket.gethostname().partition(".")[0]


def _may_make_cgroups() -> bool:
    """Return whether a process can be put into a cgroup of version 1, and is seen there: a machine may show them,
    and yet refuse."""
    trial = FREEZER / f"kilowatch-{os.getpid()}"
    process = subprocess.Popen(["sleep", "60"])
    try:
        trial.mkdir()
        (trial / "cgroup.procs").write_text(str(process.pid))
        (trial / "freezer.state").write_text("THAWED")
        return f":freezer:/{trial.name}\n" in Path(f"/proc/{process.pid}/cgroup").read_text()
    except OSError:
        return False
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            trial.rmdir()


HAS_CGROUPS = os.access(FREEZER, os.W_OK) and _may_make_cgroups()
"""Whether Slurm may make cgroups of version 1 here, as root where they are mounted."""
_DEVICES = ("null", "zero", "full", "random")
"""Devices that links in the place of GPUs lead to: the daemon refuses ordinary files."""
CONFIGURATION = """
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/control
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/control.pid
SlurmdPidFile={folder}/daemon-%n.pid
ProctrackType=proctrack/{tracking}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
{accounting}
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SwitchType=switch/none
MailProg=/bin/true
SlurmdParameters=config_overrides
GresTypes={kinds}
Prolog={folder}/prolog
Epilog={folder}/epilog
PrologFlags=Alloc
PartitionName=all Nodes={nodes} Default=YES MaxTime=1:00:00 State=UP
"""
_MARK = "KILOWATCH_SLURM_OF"
"""Variable of all processes of a cluster and its jobs: the process that runs the tests."""
_HOOK = """#!/bin/sh
before=$(date +%s%N)
{call}
echo "$SLURM_JOB_ID $before $(date +%s%N)" >> {folder}/{name}-$SLURMD_NODENAME.seen
exit 0
"""
_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
_ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageTRES=gres/gpu"""
_ACCOUNTING_DAEMON = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct_db
PidFile={folder}/accounting.pid
"""
_NODE = "NodeName={node} NodeHostName={host} NodeAddr=127.0.0.1 Port={port} CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=500 {gres}\n"


class HookRun(NamedTuple):
    """When a prolog or an epilog ran, ns since 1970: what it noted itself lies between."""

    before: int
    after: int


class SlurmCluster:
    """A cluster on loopback."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), _MARK: str(os.getpid())}
        self.daemons: list[subprocess.Popen[bytes]] = []
        """All that run or ran, as they were started."""

    def start(self, *command: str) -> None:
        """Start a daemon."""
        with (self.folder / f"{len(self.daemons)}-{command[0]}.out").open("wb") as output:
            self.daemons.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**self.environment, "MYSQL_UNIX_PORT": f"{self.folder}/database.socket"},
                )
            )

    def fail(self, node: str) -> None:
        """Kill all of Slurm on a node, the jobs too, so that no epilog runs, and have the controller notice."""
        conf = str(self.folder / "slurm.conf")
        for daemon in self.daemons:
            if daemon.args == ("slurmd", "-D", "-N", node) and daemon.poll() is None:
                daemon.kill()
                daemon.wait()
        for pid in _marked(conf):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name in {"slurmstepd", "slurm_script", "sleep"}:
                    os.kill(pid, signal.SIGKILL)
        self.text("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=failed")

    def recover(self, node: str) -> None:
        """Start the daemon of a node that failed."""
        self.start("slurmd", "-D", "-N", node)
        self.text("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def give_clock(self, node: str, environment: Mapping[str, str]) -> None:
        """Have the prolog and the epilog of kilowatch on a node run with this in their environment."""
        words = "\n".join(f"{name}={value}" for name, value in environment.items())
        (self.folder / f"clock-{node}").write_text(words)

    def hook_runs(self, name: str, node: str, job: str) -> list[HookRun]:
        """Return when the `prolog` or the `epilog` of a job ran on a node, once a run of the job."""
        path = self.folder / f"{name}-{node}.seen"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [HookRun(int(begin), int(end)) for number, begin, end in lines if number == job]

    def hook_ran(self, name: str, node: str, job: str) -> list[HookRun]:
        """Return the same once it has run: what the hook tells kilowatch comes before its end."""
        self.until(lambda: bool(self.hook_runs(name, node, job)))
        return self.hook_runs(name, node, job)

    def text(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=self.environment, timeout=60, cwd=self.folder
        ).stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """Submit a job and return its number."""
        return self.text("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script)

    def state(self, node: str | None = None) -> str:
        """Return the state of a node and its reason; `*` is a node that has not answered of late."""
        name = node or self.nodes[0]
        return self.text("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").replace("*", "")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        wait_until(condition, self.words, seconds=240, every=0.05)

    def words(self) -> str:
        """Return what a person would look at: the last lines of all daemons, the nodes and the jobs."""
        lines = [path.read_text(errors="replace")[-400:] for path in sorted(self.folder.glob("*.out"))]
        with contextlib.suppress(subprocess.SubprocessError):
            lines += [self.text("sinfo", "-N", "-o", "%N %T %E"), self.text("squeue")]
        return "\n".join([*lines, f"cgroups: {HAS_CGROUPS}"])

    def answers(self) -> bool:
        """Return whether all nodes wait for work."""
        try:
            return all(self.state(node).startswith("idle") for node in self.nodes)
        except subprocess.CalledProcessError:
            return False


@contextlib.contextmanager
def running(
    folder: Path,
    nodes: Sequence[str] = (THIS_MACHINE,),
    gpus: int = 0,
    hooks: Path | None = None,
    *,
    accounting: bool = False,
    cgroups: bool = False,
    shards: int = 0,
) -> Iterator[SlurmCluster]:
    """Start a cluster whose nodes have `gpus` GPUs that are none. `hooks`: folder with the prolog and epilog, which
    write to `folder/jobs-NODE`. `accounting`: with slurmdbd, the account physics for this user. `cgroups`: each
    job in a cgroup of its own (`HAS_CGROUPS`). `shards`: parts of each GPU that a job may have. Everything is stopped at
    the end."""
    folder.chmod(0o755)
    end_leftovers()
    cluster = SlurmCluster(folder, nodes)
    _write_settings(cluster, gpus, hooks, accounting=accounting, cgroups=cgroups, shards=shards)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    commands = [
        ("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
         f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
        *_accounting_commands(folder, accounting),
        ("slurmctld", "-D", "-i"),
        *(("slurmd", "-D", "-N", node) for node in nodes),
    ]  # fmt: skip
    try:
        for command in commands:
            cluster.start(*command)
            if command[0] == "munged":
                _wait((folder / "munge.socket").exists, folder)
            elif command[0] == "mariadbd":
                _wait((folder / "database.socket").exists, folder)
            elif command[0] == "slurmdbd":
                _wait(lambda: _registered(cluster), folder)
        _wait(cluster.answers, folder)
        yield cluster
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], check=False, env=cluster.environment, timeout=60)
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            cluster.until(lambda: not cluster.text("squeue", "-h"))  # a step outlives its daemon
        for process in reversed(cluster.daemons):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
        _end(_marked(str(folder / "slurm.conf")))
        _remove_cgroups(nodes)


def end_leftovers() -> None:
    """End the processes of clusters whose tests were killed. A job of theirs that was suspended is frozen: no
    signal reaches it, and a job of ours with its number would begin frozen."""
    for runner in {runner for runner, _ in _clusters().values()}:
        if not runner.isdecimal() or not Path("/proc", runner).exists():
            _end([pid for pid, (other, _) in _clusters().items() if other == runner])
    for path in FREEZER.glob("slurm_p*n[0-9]"):
        node = path.name.removeprefix("slurm_")
        if not Path("/proc", node[1:].partition("n")[0]).exists():
            _remove_cgroups([node])


def _clusters() -> dict[int, tuple[str, str]]:
    """Return the process that runs the tests and the settings of Slurm of each process of a cluster."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):
            pairs = (each.partition("=") for each in path.read_bytes().decode(errors="replace").split("\0"))
            its = {name: value for name, _, value in pairs if name in {_MARK, "SLURM_CONF"}}
            if _MARK in its:
                found[int(path.parent.name)] = its[_MARK], its.get("SLURM_CONF", "")
    return found


def _marked(settings: str) -> list[int]:
    return [pid for pid, (_, its) in _clusters().items() if its == settings]


def _end(processes: Sequence[int]) -> None:
    """Thaw and kill processes, and wait until they are gone."""
    for pid in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
                _, names, path = line.split(":", 2)
                if names == "freezer":
                    _thaw(FREEZER / path.lstrip("/"))
            os.kill(pid, signal.SIGKILL)
    end = end_of_patience()
    while any(_lives(pid) for pid in processes) and time.monotonic() < end:
        time.sleep(0.05)


def _thaw(folder: Path) -> None:
    """Thaw a cgroup and those that it lies in."""
    while folder != FREEZER and FREEZER in folder.parents:
        with contextlib.suppress(OSError):
            (folder / "freezer.state").write_text("THAWED")
        folder = folder.parent


def _lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:4]
    except OSError:
        return False


def _remove_cgroups(nodes: Sequence[str]) -> None:
    """Remove the cgroups of some nodes, in which no process is left; without a daemon they are nobody's."""
    for node in nodes:
        tree = FREEZER / f"slurm_{node}"
        for path in sorted(tree.rglob("*/"), reverse=True):
            _thaw(path)
            with contextlib.suppress(OSError):
                path.rmdir()
        with contextlib.suppress(OSError):
            tree.rmdir()


def _accounting_commands(folder: Path, accounting: bool) -> list[tuple[str, ...]]:
    """Return the commands of a database and of Slurm's accounting; makes the database first."""
    if not accounting:
        return []
    data, user = folder / "database", getpass.getuser()
    made = subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}",
         "--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}", "--skip-test-db"],
        check=False, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    start = folder / "database.sql"
    lines = ["create database if not exists slurm_acct_db;"]
    if user != "root":
        lines += [
            f"create user if not exists '{user}'@'localhost' identified via unix_socket;",
            f"grant all on *.* to '{user}'@'localhost';",
        ]
    start.write_text("\n".join(lines) + "\n")
    return [
        ("mariadbd", "--no-defaults", f"--datadir={data}", f"--user={user}", f"--socket={folder}/database.socket",
         "--skip-networking", f"--pid-file={folder}/database.pid", f"--init-file={start}",
         "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"),
        ("slurmdbd", "-D"),
    ]  # fmt: skip


def _registered(cluster: SlurmCluster) -> bool:
    """Return whether the accounting answers and knows the cluster, an account and this user; add them."""
    user = getpass.getuser()
    try:
        for what in (("cluster", "loop"), ("account", "physics"), ("user", user, "account=physics")):
            subprocess.run(
                ["sacctmgr", "-i", "add", *what], check=False, capture_output=True, env=cluster.environment, timeout=60
            )
        known = cluster.text("sacctmgr", "-n", "-P", "list", "associations", "format=Account,User")
    except subprocess.SubprocessError:
        return False
    return f"physics|{user}" in known.splitlines()


def _write_settings(
    cluster: SlurmCluster, gpus: int, hooks: Path | None, *, accounting: bool, cgroups: bool, shards: int
) -> None:
    folder, nodes = cluster.folder, cluster.nodes
    ports = [free_port() for _ in range(2 + len(nodes))]
    itself = {"host": THIS_MACHINE, "user": getpass.getuser(), "folder": folder}
    accounts = _ACCOUNTING.format(folder=folder, port=ports[-1]) if accounting else _NO_ACCOUNTING
    text = CONFIGURATION.format(
        port=ports[0],
        nodes=",".join(nodes),
        accounting=accounts,
        tracking="cgroup" if cgroups else "linuxproc",
        kinds="gpu,shard" if shards else "gpu",
        **itself,
    )
    daemon = folder / "slurmdbd.conf"
    daemon.write_text(_ACCOUNTING_DAEMON.format(port=ports[-1], **itself))
    daemon.chmod(0o600)
    parts = f",shard:{gpus * shards}" if shards else ""
    gres = f"Gres=gpu:h100:{gpus}{parts}" if gpus else ""
    for node, port in zip(nodes, ports[1:-1], strict=True):
        text += _NODE.format(node=node, host=THIS_MACHINE, port=port, gres=gres)
        (folder / f"spool-{node}").mkdir()
    (folder / "control").mkdir()
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(
        "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
    )
    (folder / "dev").mkdir()
    for number in range(gpus):
        (folder / "dev" / f"nvidia{number}").symlink_to(f"/dev/{_DEVICES[number]}")
    # In reverse, so that Slurm's numbers are not those of the devices.
    (folder / "gres.conf").write_text(
        "".join(
            f"NodeName={','.join(nodes)} Name=gpu Type=h100 File={folder}/dev/nvidia{number}\n"
            for number in reversed(range(gpus))
        )
        + (f"NodeName={','.join(nodes)} Name=shard Count={gpus * shards}\n" if shards else "")
    )
    for name in ("prolog", "epilog"):
        call = (
            ""
            if hooks is None
            else f'env $(cat "{folder}/clock-$SLURMD_NODENAME" 2>/dev/null) KILOWATCH_JOBS="{folder}/jobs-$SLURMD_NODENAME" "{hooks}/{name}"'
        )
        script = folder / name
        script.write_text(_HOOK.format(call=call, folder=folder, name=name))
        script.chmod(0o755)


def _wait(condition: Callable[[], bool], folder: Path) -> None:
    end = end_of_patience(240)
    while not condition():
        logs = "\n".join(path.read_text(errors="replace")[-800:] for path in folder.glob("*.out"))
        assert time.monotonic() < end, logs
        time.sleep(0.1)
