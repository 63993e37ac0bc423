"""The hooks of deploy/: on a real Slurm, against a recorded kubectl, and on a machine with fake services."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.kilowatch.broken_node import program
from tests.slurm.cluster import THIS_MACHINE, SlurmCluster, needs_slurm, running

DEPLOY = Path(__file__).parents[2] / "deploy"
SLURM, KUBERNETES, NODE = DEPLOY / "slurm", DEPLOY / "kubernetes", DEPLOY / "node"
SCRIPTS = [path for folder in (SLURM, KUBERNETES, NODE) for path in sorted(folder.iterdir())]


def hook(
    path: Path, variables: Mapping[str, str], *arguments: str, first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a hook as `recover` does; `first` is a folder of programs in place of the system's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KILOWATCH")}
    if first is not None:
        clean["PATH"] = f"{first}:{clean['PATH']}"
    return subprocess.run(
        [str(path), *arguments],
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**clean, **variables},
        timeout=60,
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_hook_is_plain_shell_that_only_its_owner_changes(path: Path) -> None:
    done = subprocess.run(["sh", "-n", str(path)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    sourced = not path.read_text().startswith("#!/bin/sh\n")
    assert os.access(path, os.X_OK) is not sourced
    assert "eval" not in path.read_text()


@pytest.mark.parametrize("name", ["-a", "n1;reboot", "n1 n2", "$(reboot)", "n1\nn2", ""])
@pytest.mark.parametrize("path", [SLURM / "drain", KUBERNETES / "drain", NODE / "run"], ids=str)
def test_a_hook_refuses_a_name_that_no_node_has(tmp_path: Path, path: Path, name: str) -> None:
    log = tmp_path / "log"
    for each in ("scontrol", "sinfo", "squeue", "kubectl", "ssh", "hostname"):
        program(tmp_path / each, f'echo "{each} $*" >> {log}')
    arguments = ["stop"] if path.parent == NODE else []
    done = hook(path, {"KILOWATCH_NODE": name}, *arguments, first=tmp_path)
    assert done.returncode != 0
    assert "KILOWATCH_NODE" in done.stdout
    assert not log.exists()


# -- Slurm, the real one ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of one node."""
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def on_slurm(cluster: SlurmCluster, name: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a hook of deploy/slurm on the node."""
    variables = {
        "SLURM_CONF": cluster.environment["SLURM_CONF"], "KILOWATCH_NODE": THIS_MACHINE,
        "KILOWATCH_REASON": "kilowatch: gpu_fault GPU 1", "KILOWATCH_POLL_SECONDS": "1", **more,
    }  # fmt: skip
    return hook(SLURM / name, variables)


@needs_slurm
@pytest.mark.systems
def test_a_real_slurm_node_is_drained_when_its_jobs_have_ended_and_takes_work_again(slurm: SlurmCluster) -> None:
    job = slurm.text("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 300")
    slurm.until(lambda: slurm.text("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING")
    early = on_slurm(slurm, "drain", KILOWATCH_TIMEOUT="6")
    assert early.returncode == 1, early.stdout
    assert f"jobs that still run on {THIS_MACHINE}" in early.stdout
    assert job in early.stdout
    assert slurm.state() == "draining|kilowatch: gpu_fault GPU 1"
    assert slurm.text("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"  # no job is ended
    slurm.text("scancel", job)
    done = on_slurm(slurm, "drain", KILOWATCH_TIMEOUT="60")
    assert done.returncode == 0, done.stdout
    assert "already" in done.stdout
    slurm.until(lambda: slurm.state() == "drained|kilowatch: gpu_fault GPU 1")
    back = on_slurm(slurm, "uncordon")
    assert back.returncode == 0, back.stdout
    slurm.until(lambda: slurm.state().startswith("idle"))
    again = on_slurm(slurm, "uncordon")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True)


@needs_slurm
@pytest.mark.systems
def test_a_node_that_a_person_drained_stays_drained(slurm: SlurmCluster) -> None:
    slurm.text("scontrol", "update", f"nodename={THIS_MACHINE}", "state=drain", "reason=new riser (ann)")
    try:
        drained = on_slurm(slurm, "drain", KILOWATCH_TIMEOUT="60")
        assert drained.returncode == 0, drained.stdout
        assert "new riser (ann)" in drained.stdout
        back = on_slurm(slurm, "uncordon")
        assert back.returncode == 1
        assert "it stays so" in back.stdout
        assert slurm.state() == "drained|new riser (ann)"
    finally:
        slurm.text("scontrol", "update", f"nodename={THIS_MACHINE}", "state=resume")


@needs_slurm
@pytest.mark.systems
def test_a_node_is_found_by_its_short_name_and_an_unknown_one_is_an_error(slurm: SlurmCluster) -> None:
    slurm.until(lambda: slurm.state().startswith("idle"))
    long = on_slurm(slurm, "uncordon", KILOWATCH_NODE=f"{THIS_MACHINE}.example.org")
    assert (long.returncode, "nothing to do" in long.stdout) == (0, True), long.stdout
    none = on_slurm(slurm, "drain", KILOWATCH_NODE="nowhere")
    assert none.returncode == 1
    assert "nowhere not found" in none.stdout


def test_a_slurm_that_does_not_answer_drains_nothing(tmp_path: Path) -> None:
    for each in ("scontrol", "sinfo"):
        program(tmp_path / each, "echo idle")
    program(tmp_path / "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2", "exit 1")
    done = hook(SLURM / "drain", {"KILOWATCH_NODE": "n1"}, first=tmp_path)
    assert done.returncode == 1
    assert "Unable to contact" in done.stdout
    assert "no job runs" not in done.stdout


# -- Kubernetes, a recorded kubectl ----------------------------------------------------------------

TRAINS = 'team/train-0  {"nvidia.com/gpu":"8"}\n'
KUBECTL = r"""
printf 'kubectl %s\n' "$*" >> "$STATE/log"
case "$*" in
"get node n1 -o jsonpath={.spec.unschedulable}") cat "$STATE/cordoned" 2>/dev/null || true ;;
"get node n1 -o jsonpath={.metadata.annotations.kilowatch/drained}") cat "$STATE/why" 2>/dev/null || true ;;
"cordon n1") printf true > "$STATE/cordoned"; echo "node/n1 cordoned" ;;
"uncordon n1") rm -f "$STATE/cordoned"; echo "node/n1 uncordoned" ;;
"annotate node n1 --overwrite kilowatch/drained="*) printf '%s' "${5#*=}" > "$STATE/why" ;;
"annotate node n1 kilowatch/drained-") rm -f "$STATE/why" ;;
"get pods --all-namespaces --field-selector spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed -o jsonpath="*)
    case "$*" in *spec.resourceClaims*metadata.ownerReferences*|*metadata.ownerReferences*spec.resourceClaims*) ;; *) exit 9 ;; esac
    printf 'kube-system/proxy-1  {"cpu":"1"} owners=DaemonSet claims=\n'
    printf 'monitoring/exporter-1  {"cpu":"1"} owners=DaemonSet claims=all-gpus\n'
    if [ -s "$STATE/pods" ]; then head -n 1 "$STATE/pods"; sed -i 1d "$STATE/pods"; fi ;;
"drain n1 --ignore-daemonsets --timeout="*) echo "node/n1 drained" ;;
*) echo "unexpected: $*"; exit 9 ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """A folder with a kubectl that answers as recorded, and refuses anything else."""
    program(tmp_path / "kubectl", f"STATE={tmp_path}", KUBECTL)
    return tmp_path


def on_kubernetes(folder: Path, name: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a hook of deploy/kubernetes."""
    variables = {"KILOWATCH_NODE": "n1", "KILOWATCH_REASON": "kilowatch: gpu_fault GPU 1", "KILOWATCH_POLL_SECONDS": "1", **more}  # fmt: skip
    return hook(KUBERNETES / name, variables, *arguments, first=folder)


def asked(folder: Path) -> list[str]:
    """Return the verbs that kubectl was called with, in order."""
    return [line.split()[1] for line in (folder / "log").read_text().splitlines()]


def test_a_kubernetes_node_is_cordoned_waited_for_drained_and_uncordoned(kubectl: Path) -> None:
    (kubectl / "pods").write_text(TRAINS * 2)
    done = on_kubernetes(kubectl, "drain", "--delete-emptydir-data", KILOWATCH_TIMEOUT="60")
    assert done.returncode == 0, done.stdout
    assert asked(kubectl) == ["get", "cordon", "annotate", "get", "get", "get", "drain"]
    assert "--delete-emptydir-data" in (kubectl / "log").read_text().splitlines()[-1]
    assert (kubectl / "why").read_text() == "kilowatch: gpu_fault GPU 1"
    back = on_kubernetes(kubectl, "uncordon")
    assert back.returncode == 0, back.stdout
    assert not (kubectl / "cordoned").exists()
    assert not (kubectl / "why").exists()


@pytest.mark.parametrize(
    "pod",
    [
        'team/train-0  {"nvidia.com/gpu":"8"}\n',
        'team/train-0  {"cpu":"2","nvidia.com/mig-1g.10gb":"1"}\n',
        'team/train-0 {"nvidia.com/gpu.shared":"1"} {"cpu":"1"}\n',
        'team/train-0  {"cpu":"1"} owners=Job claims=gpus\n',
        "team/train-0   owners= claims=shared nic\n",
    ],
)
def test_pods_that_use_gpus_are_waited_for_and_never_evicted(kubectl: Path, pod: str) -> None:
    (kubectl / "pods").write_text(pod * 20)
    done = on_kubernetes(kubectl, "drain", KILOWATCH_TIMEOUT="7")
    assert done.returncode == 1
    assert "team/train-0" in done.stdout
    assert "proxy-1" not in done.stdout
    assert "exporter-1" not in done.stdout
    assert "drain" not in asked(kubectl)
    assert (kubectl / "cordoned").exists()


def test_a_node_that_somebody_else_cordoned_stays_cordoned(kubectl: Path) -> None:
    (kubectl / "cordoned").write_text("true")
    assert on_kubernetes(kubectl, "drain", KILOWATCH_TIMEOUT="60").returncode == 0
    assert not (kubectl / "why").exists()
    back = on_kubernetes(kubectl, "uncordon")
    assert back.returncode == 1
    assert "by somebody else" in back.stdout
    assert (kubectl / "cordoned").exists()


def test_a_kubernetes_that_does_not_answer_drains_nothing(tmp_path: Path) -> None:
    program(tmp_path / "kubectl", "echo 'Unable to connect to the server' >&2", "exit 1")
    done = on_kubernetes(tmp_path, "drain")
    assert done.returncode == 1
    assert "Unable to connect" in done.stdout


# -- The node itself -------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with services that are recorded, and devices that are files."""
    devices = tmp_path / "dev"
    devices.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia-uvm"):
        (devices / name).touch()
    program(
        tmp_path / "systemctl",
        f'echo "$*" >> {tmp_path}/log',
        'if [ "$1" = is-active ]; then case $3 in kilowatch-collector|nvidia-persistenced|nvidia-fabricmanager) exit 0;; *) exit 3;; esac; fi',
    )
    program(
        tmp_path / "nvidia-smi",
        f'echo "nvidia-smi $*" >> {tmp_path}/log',
        f"exit $(cat {tmp_path}/code 2>/dev/null || echo 0)",
    )
    return tmp_path


def at_node(folder: Path, name: str, gpus: str, uuids: str = "") -> subprocess.CompletedProcess[str]:
    """Run a hook of deploy/node on the machine."""
    variables = {
        "KILOWATCH_GPUS": gpus,
        "KILOWATCH_UUIDS": uuids,
        "KILOWATCH_DEVICES": str(folder / "dev"),
        "KILOWATCH_STOPPED": str(folder / "stopped"),
    }
    return hook(NODE / name, variables, first=folder)


def done_at(folder: Path) -> list[str]:
    """Return what services and nvidia-smi were asked to do."""
    log = (folder / "log").read_text().splitlines()
    return [line for line in log if not line.startswith("is-active")]


@pytest.mark.skipif(shutil.which("fuser") is None, reason="apt-get install psmisc")
@pytest.mark.parametrize("gpus", ["1", "all"])
def test_services_are_stopped_for_the_reset_and_started_after_it(machine: Path, gpus: str) -> None:
    stopped = at_node(machine, "stop", gpus)
    assert stopped.returncode == 0, stopped.stdout
    (machine / "code").write_text("0")
    reset = at_node(machine, "reset", gpus, "GPU-n1-1")
    assert reset.returncode == 0, reset.stdout
    units = ["kilowatch-collector", *(["nvidia-fabricmanager"] if gpus == "all" else []), "nvidia-persistenced"]
    command = "nvidia-smi --gpu-reset" + ("" if gpus == "all" else " -i GPU-n1-1")
    log = done_at(machine)
    assert sorted(log[: len(units)]) == [f"stop {unit}" for unit in units]
    assert log[len(units) :] == [command, *(f"start {unit}" for unit in units)]
    assert not (machine / "stopped").exists()


@pytest.mark.skipif(shutil.which("fuser") is None, reason="apt-get install psmisc")
def test_a_process_that_holds_a_gpu_is_named_and_not_killed(machine: Path) -> None:
    with (machine / "dev" / "nvidia1").open() as device:
        holder = subprocess.Popen(["sleep", "60"], stdin=device)
    try:
        done = at_node(machine, "stop", "1")
        assert done.returncode == 1
        assert f"{holder.pid} (sleep)" in done.stdout
        assert holder.poll() is None
    finally:
        holder.kill()
        holder.wait()


def test_a_reset_that_fails_starts_the_services_all_the_same(machine: Path) -> None:
    (machine / "stopped").write_text("nvidia-persistenced\n")
    (machine / "code").write_text("19")
    done = at_node(machine, "reset", "1")
    assert done.returncode == 19
    assert done_at(machine) == ["nvidia-smi --gpu-reset -i 1", "start nvidia-persistenced"]


HERE = ("console", "console.lab.example", "alias", "localhost", "127.0.0.1", "::1", "10.9.8.7")


@pytest.mark.parametrize("name", HERE)
def test_a_node_that_is_named_as_this_machine_does_nothing_to_it(machine: Path, name: str) -> None:
    """It says its own name. The settings say which node this machine is, where it is one."""
    program(
        machine / "hostname",
        "case ${1:-} in -s) echo console;; -I) echo 10.9.8.7 fd00::7;; *) echo console.lab.example;; esac",
    )
    program(machine / "getent", '[ "$2" = alias ] && echo "10.9.8.7 STREAM alias"')
    program(machine / "ssh", f'echo "ssh $*" >> {machine}/log')
    variables = {
        "KILOWATCH_NODE": name,
        "KILOWATCH_GPUS": "1",
        "KILOWATCH_UUIDS": "GPU-1",
        "KILOWATCH_STOPPED": str(machine / "stopped"),
    }
    refused = hook(NODE / "run", variables, "reset", first=machine)
    assert refused.returncode == 1
    assert f"{name} is this machine" in refused.stdout
    assert not (machine / "log").exists()
    own = hook(NODE / "run", variables, "reset", name, first=machine)
    assert own.returncode == 0, own.stdout
    assert done_at(machine) == ["nvidia-smi --gpu-reset -i GPU-1"]


def test_the_node_is_reached_by_ssh_without_a_question(machine: Path) -> None:
    program(machine / "ssh", f'for each; do echo "$each" >> {machine}/log; done')
    variables = {"KILOWATCH_NODE": "dgx-01", "KILOWATCH_GPUS": "1", "KILOWATCH_UUIDS": "GPU-1"}
    assert hook(NODE / "run", variables, "reset", first=machine).returncode == 0
    *options, node, command = done_at(machine)
    assert (options, node) == (["-o", "BatchMode=yes", "--"], "dgx-01")
    assert command == f"KILOWATCH_GPUS=1 KILOWATCH_UUIDS=GPU-1 {NODE / 'reset'}"
    odd = hook(NODE / "run", {**variables, "KILOWATCH_UUIDS": "GPU-1;reboot"}, "reset", first=machine)
    assert odd.returncode == 1
    assert hook(NODE / "run", variables, "rm", first=machine).returncode == 1
