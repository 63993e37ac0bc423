"""A real Slurm on loopback: munge, a controller, and a daemon for each of its nodes, all on this machine."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

needs_slurm = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("slurmctld", "slurmd", "munged", "sbatch"))
    and not os.environ.get("CI"),
    reason="apt-get install slurm-wlm slurm-wlm-basic-plugins munge",
)
THIS_MACHINE = socket.gethostname().partition(".")[0]
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SwitchType=switch/none
MailProg=/bin/true
SlurmdParameters=config_overrides
GresTypes=gpu
Prolog={folder}/prolog
Epilog={folder}/epilog
PrologFlags=Alloc
PartitionName=all Nodes={nodes} Default=YES MaxTime=1:00:00 State=UP
"""
_NODE = "NodeName={node} NodeHostName={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500 {gres}\n"


class SlurmCluster:
    """A cluster on loopback."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def text(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=self.environment, timeout=60,
            cwd=self.folder,
        ).stdout.strip()  # fmt: skip

    def submit(self, script: str, *options: str) -> str:
        """Submit a job and return its number."""
        return self.text("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script)

    def state(self, node: str | None = None) -> str:
        """Return the state of a node and its reason; `*` is a node that has not answered of late."""
        name = node or self.nodes[0]
        return self.text("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").replace("*", "")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        end = time.monotonic() + 240
        while not condition():
            assert time.monotonic() < end, f"{self.state()}\n{self.text('squeue')}"
            time.sleep(0.05)

    def answers(self) -> bool:
        """Return whether all nodes wait for work."""
        try:
            return all(self.state(node).startswith("idle") for node in self.nodes)
        except subprocess.CalledProcessError:
            return False


@contextlib.contextmanager
def running(
    folder: Path, nodes: Sequence[str] = (THIS_MACHINE,), gpus: int = 0, hooks: Path | None = None
) -> Iterator[SlurmCluster]:
    """Start a cluster whose nodes have `gpus` GPUs that are none. `hooks`: folder with the prolog and epilog, which
    write to `folder/jobs-NODE`. Everything is stopped at the end."""
    folder.chmod(0o755)
    cluster = SlurmCluster(folder, nodes)
    _write_settings(cluster, gpus, hooks)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    commands = [
        ("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket",
         f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
        ("slurmctld", "-D", "-i"),
        *(("slurmd", "-D", "-N", node) for node in nodes),
    ]  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (folder / f"{len(started)}-{command[0]}.out").open("wb") as output:
                started.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                        env=cluster.environment,
                    )
                )  # fmt: skip
            if command[0] == "munged":
                _wait((folder / "munge.socket").exists, folder)
        _wait(cluster.answers, folder)
        yield cluster
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], check=False, env=cluster.environment, timeout=60)  # fmt: skip
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            cluster.until(lambda: not cluster.text("squeue", "-h"))  # a step outlives its daemon
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


def _write_settings(cluster: SlurmCluster, gpus: int, hooks: Path | None) -> None:
    folder, nodes = cluster.folder, cluster.nodes
    ports = _ports(1 + len(nodes))
    text = CONFIGURATION.format(
        host=THIS_MACHINE,
        port=ports[0],
        user=getpass.getuser(),
        folder=folder,
        nodes=",".join(nodes),
    )
    gres = f"Gres=gpu:h100:{gpus}" if gpus else ""
    for node, port in zip(nodes, ports[1:], strict=True):
        text += _NODE.format(node=node, host=THIS_MACHINE, port=port, gres=gres)
        (folder / f"spool-{node}").mkdir()
    (folder / "control").mkdir()
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(
        "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
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
    )
    for name in ("prolog", "epilog"):
        call = "" if hooks is None else f'KILOWATCH_JOBS="{folder}/jobs-$SLURMD_NODENAME" exec "{hooks}/{name}"\n'  # fmt: skip
        script = folder / name
        script.write_text(f"#!/bin/sh\n{call}")
        script.chmod(0o755)


def _ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _wait(condition: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + 240
    while not condition():
        logs = "\n".join(path.read_text(errors="replace")[-800:] for path in folder.glob("*.out"))
        assert time.monotonic() < end, logs
        time.sleep(0.1)
