"""Whose GPUs, on a real Slurm with accounting: jobs with real processes, over a kill -9 of collector and aggregator."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry.notations.slurm import expanded
from tests.brokers import Mosquitto
from tests.slurm.cluster import HAS_CGROUPS, TWO_NODES, SlurmCluster, needs_accounting, needs_slurm, running
from tests.slurm.site import SlurmSite

pytestmark = [pytest.mark.systems, needs_slurm, needs_accounting]
HOOKS = Path(__file__).parents[2] / "deploy" / "slurm"
N1, N2 = TWO_NODES
ATTRIBUTED, AGREED = 5.0, 2.0
"""Seconds by which begins and ends may be off, and by which the accounting's may be off from ours: on a machine
on which Slurm itself is in time. Where it is not, the test has seen by how much."""
WAITS = "suspended by its scheduler: its GPUs wait"
SECOND, TICK, FOREVER = 1e9, 1e7, 1e12


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes of four GPUs whose numbers in Slurm are not those of their devices."""
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder, TWO_NODES, 4, HOOKS, accounting=True, cgroups=HAS_CGROUPS) as cluster:
        yield cluster


@pytest.fixture
def site(slurm: SlurmCluster, mosquitto: Mosquitto, tmp_path: Path) -> Iterator[SlurmSite]:
    for node in slurm.nodes:
        (tmp_path / node).mkdir()
    site = SlurmSite(tmp_path, mosquitto, slurm)
    for name in ("aggregator", *slurm.nodes):
        site.start(name)
    yield site
    site.close()


def given_by_slurm(cluster: SlurmCluster, job: str) -> dict[str, set[int]]:
    """Return the GPUs of a job by node as Slurm itself says, as numbers of devices."""
    text = shown(cluster, job)
    return {
        node: {3 - int(each) for each in expanded(f"[{index}]")}
        for nodes, index in re.findall(r"Nodes=(\S+) .*?GRES=\S*\(IDX:([0-9,-]+)\)", text)
        for node in expanded(nodes)
    }


def shown(cluster: SlurmCluster, job: str) -> str:
    """Return what Slurm's controller shows of a job: the number of an array is also that of its last task."""
    text = cluster.text("scontrol", "show", "job", "-d", job)
    return next(each for each in text.split("\n\n") if f"JobId={job} " in each)


def shown_rows(reply: dict[str, Any]) -> str:
    """Return the allocations of a job, a line each."""
    return "\n".join(str(each) for each in reply["allocations"])


def check_begin(site: SlurmSite, number: str, since: float, run: int = 0) -> dict[str, Any]:
    """Check who has the GPUs of a job that runs, and since when: the test had Slurm begin it at `since`, seconds
    since 1970, and saw when its prologs ran. Return it."""
    reply = site.job(number)
    assert reply is not None
    row = reply["job"]
    assert site.given(number) == given_by_slurm(site.slurm, number) != {}
    for each in reply["allocations"]:
        prolog = site.slurm.hook_runs("prolog", each["node"], number)[run]
        assert not each["assumed"]
        if each["kind"] == "used":
            told = site.told(each["node"], number)
            assert prolog.before - TICK <= each["begin"] <= told + site.late(ATTRIBUTED), shown_rows(reply)
        else:
            assert prolog.before <= each["begin"] <= prolog.after, each
        assert since - 1 <= row["begin"] / SECOND <= prolog.before / SECOND + 1, "Slurm's own second"
    assert (row["account"], row["queue"], row["cluster"]) == ("physics", "all", "loop")
    assert row["submitted"] <= row["eligible"] <= row["begin"]
    assert row["wait_seconds"] == (row["begin"] - row["eligible"]) / SECOND
    assert (row["time_limit_seconds"], row["unlimited"]) == (3600, False), "that of the partition"
    return dict(row)


def check_end(
    site: SlurmSite, number: str, since: float, until: float, run: int = 0, blind: float = FOREVER
) -> dict[str, Any]:
    """Check when a job ended, here and in the accounting: the test had Slurm begin it at `since` and end it at
    `until`, and saw when its prologs and epilogs ran; from `blind` on nobody looked. Return it."""

    def allowed() -> bool:
        reply = site.job(number, run)
        account = None if reply is None else reply["job"]["account_of_run"]
        return account is not None and account["time_limit_seconds"] is not None

    site.until("its limit, which the accounting may have a moment later than its end", allowed)
    reply = site.job(number, run)
    assert reply is not None
    row = reply["job"]
    account = row["account_of_run"]
    for each in reply["allocations"]:
        prolog = site.slurm.hook_runs("prolog", each["node"], number)[run]
        epilog = site.slurm.hook_runs("epilog", each["node"], number)[run]
        began, over = account["begin"] / SECOND, account["end"] / SECOND
        assert since - 1 <= began <= prolog.before / SECOND + 1
        assert until - 1 <= over <= epilog.before / SECOND + 1
        if each["kind"] == "used":
            told = site.told(each["node"], number, gone=True)
            earliest = min(until, blind) * SECOND - site.late(ATTRIBUTED)
            assert earliest <= each["end"] <= told + site.late(ATTRIBUTED), each
            continue
        assert not each["lost"]
        assert prolog.before <= each["begin"] <= prolog.after, each
        assert epilog.before <= each["end"] <= epilog.after, each
        # Slurm's times are whole seconds, cut off.
        late = prolog.after / SECOND - since, epilog.after / SECOND - until
        assert abs(each["begin"] / SECOND - began) <= max(AGREED, late[0]) + 1, late
        assert abs(each["end"] / SECOND - over) <= max(AGREED, late[1]) + 1, late
    assert account["time_limit_seconds"] == row["time_limit_seconds"] == 3600
    assert (account["submitted"], account["eligible"]) == (row["submitted"], row["eligible"])
    assert abs(row["end"] - account["end"]) / SECOND <= AGREED
    assert abs(row["begin"] - account["begin"]) / SECOND <= AGREED
    return dict(row)


def first_release(site: SlurmSite, number: str) -> float:
    """Return when a job gave the first of its GPUs back, seconds since 1970."""
    rows = (site.job(number) or {})["allocations"]
    return min(float(each["end"]) for each in rows if each["kind"] == "allocated") / SECOND


def ended(site: SlurmSite, *numbers: str) -> bool:
    """Return whether jobs have ended here, and their accounts are known."""
    jobs = site.jobs()
    return all(jobs.get(one, {}).get("account_of_run") and jobs[one]["end"] is not None for one in numbers)


def named(site: SlurmSite, *numbers: str) -> bool:
    """Return whether Slurm's word on jobs has come, and that of the prologs on its GPUs, which is more exact."""
    jobs = site.jobs()
    return all(jobs.get(one, {}).get("job_name") and by_hook(site, one) for one in numbers)


def by_hook(site: SlurmSite, number: str) -> bool:
    """Return whether the prolog has said since when a job has its GPUs."""
    rows = (site.job(number) or {}).get("allocations", ())
    sources = {each["begin_from"] for each in rows if each["kind"] == "allocated"}
    return sources == {"hook"}


def uses(site: SlurmSite, number: str, gpus: int) -> bool:
    """Return whether the processes of a job are known on so many GPUs, as far as a cgroup can tell whose
    they are."""
    reply = site.job(number)
    if reply is None:
        return False
    found = {each["gpu"] for each in reply["processes"]}
    return len(found) == gpus if HAS_CGROUPS else bool(site.given(number))


def sources(site: SlurmSite) -> dict[str, str]:
    """Return the state of each source of Slurm's word."""
    reply = site.get("/api/v1/jobs") or {}
    return {each["name"]: each["state"] for each in reply.get("sources", ())}


def test_jobs_of_a_real_slurm_are_attributed_over_a_kill_of_collector_and_aggregator(site: SlurmSite) -> None:
    slurm = site.slurm
    site.until("Slurm's word", lambda: sources(site) == {"squeue": "reading", "sacct": "reading"})
    since = time.time()
    plain = site.submit("-J", "plain", "--gres=gpu:2", "-w", N1)
    array = site.submit("-J", "sweep", "--gres=gpu:1", "-w", N1, "--array=0-1")
    idle = site.submit("-J", "idle one", "--exclusive", "-w", N2, work="sleep 600")

    def numbers() -> list[str]:
        return sorted(set(slurm.text("squeue", "-h", "-r", "-j", array, "-o", "%A").split()), key=int)

    slurm.until(lambda: len(numbers()) == 2)
    tasks = [*(set(numbers()) - {array}), array]  # cancelled by the number of the array, all of it ends
    everything = (plain, *tasks, idle)
    site.until("all jobs with their names", lambda: named(site, *everything))
    site.until("their processes", lambda: uses(site, plain, 2) and all(uses(site, one, 1) for one in tasks))
    row = check_begin(site, plain, since)
    assert (row["job_name"], row["gpus"], row["gpus_asked"], row["state"]) == ("plain", 2, 2, "RUNNING")
    owners = [check_begin(site, one, since)["owner"] for one in tasks]
    assert sorted(owners) == [f"Array/{array}_0", f"Array/{array}_1"]
    row = check_begin(site, idle, since)
    assert (row["job_name"], row["gpus"], row["gpus_asked"]) == ("idle one", 4, None)
    assert site.job(idle)["processes"] == []  # type: ignore[index]

    site.until("it on disk", lambda: not HAS_CGROUPS or site.remembers(N1, plain, *tasks))
    blind = time.time()
    site.kill(N1)
    site.kill("aggregator")
    cancelled = time.time()
    # By its number alone, which is also that of the array, both tasks would end.
    slurm.text("scancel", owners[0].removeprefix("Array/"))
    slurm.until(lambda: tasks[0] not in slurm.text("squeue", "-h", "-r", "-o", "%A").split())
    failed = time.time()
    failing = site.submit("-J", "failing", "--gres=gpu:1", "-w", N1, work="exit 3")
    slurm.until(lambda: failing not in slurm.text("squeue", "-h", "-o", "%A").split())
    site.start("aggregator")
    site.start(N1)
    site.until("what ended while both were dead", lambda: ended(site, tasks[0], failing))
    row = check_end(site, tasks[0], since, cancelled, blind=blind)
    assert (row["state"], row["account_of_run"]["state"]) == ("CANCELLED", "CANCELLED")
    row = check_end(site, failing, failed, failed)
    assert (row["state"], row["exit_code"], row["account_of_run"]["exit_code"]) == ("FAILED", 3, 3)
    for one in (plain, tasks[1], idle):
        check_begin(site, one, since)
    suspended = time.time()
    slurm.text("scontrol", "suspend", plain)
    site.until("a suspended job", lambda: site.jobs()[plain]["state"] == "SUSPENDED")
    site.until("the hint about it", lambda: WAITS in site.jobs()[plain]["hints"])
    cancelled = time.time()
    slurm.text("scancel", plain, owners[1].removeprefix("Array/"), idle)
    site.until("the end of all", lambda: ended(site, *everything))
    # For Slurm a job that is cancelled while it is suspended ended when it was suspended, and yet had its GPUs.
    for one, end in ((plain, suspended), (tasks[1], cancelled), (idle, cancelled)):
        row = check_end(site, one, since, end)
        assert row["account_of_run"]["state"] == "CANCELLED"
        assert first_release(site, one) >= cancelled, "until it is cancelled"
    found = [row for row in site.get("/api/v1/jobs")["jobs"] if row["scheduler"] == "slurm"]
    assert sorted(row["id"] for row in found) == sorted((*everything, failing)), found


def test_components_steps_and_restarts_of_a_real_slurm(site: SlurmSite) -> None:
    slurm, folder = site.slurm, site.work
    (folder / "step").write_text(
        f'#!/bin/sh\necho "$SLURM_JOB_GPUS $$" > {folder}/.step\nmv {folder}/.step {folder}/$SLURM_JOB_ID.$SLURMD_NODENAME\nexec sleep 600\n'
    )
    (folder / "step").chmod(0o755)
    since = time.time()
    het = site.submit("-J", "het", "--gres=gpu:1", "-w", N1, ":", "-A", "physics", "--gres=gpu:2", "-w", N2)
    parts = (het, str(int(het) + 1))
    site.until("both components", lambda: named(site, *parts))
    owners = [check_begin(site, one, since)["owner"] for one in parts]
    assert owners == [f"Component/{het}+0", f"Component/{het}+1"]
    again = site.submit(
        "-J", "again", "--gres=gpu:1", "-w", N2, "--requeue", work=f"srun -n1 --gres=gpu:1 {folder}/step"
    )
    site.until("its step", lambda: uses(site, again, 1))
    if HAS_CGROUPS:
        allocations = site.job(again)["allocations"]  # type: ignore[index]
        assert {each["step"] for each in allocations if each["kind"] == "used"} == {"0"}
    cancelled = time.time()
    slurm.text("scancel", het)
    slurm.text("scontrol", "requeue", again)
    site.until("the end of the first run", lambda: site.jobs()[again]["end"])
    # Its daemon refuses a second run within the second of the first's end ("already killed, do not launch").
    slurm.until(lambda: slurm.text("squeue", "-h", "-j", again, "-o", "%T") == "PENDING")
    restarted = time.time()
    slurm.text("scontrol", "update", f"JobId={again}", "StartTime=now+5")
    site.until("the second run", lambda: site.jobs()[again]["restart"] == 1 and site.given(again))
    site.until("its name", lambda: named(site, again))
    check_begin(site, again, restarted, 1)
    site.until("the account of the first run", lambda: site.job(again, 0)["job"]["account_of_run"])  # type: ignore[index]
    first = site.job(again, 0)
    assert first is not None
    assert first["job"]["account_of_run"]["state"] == "REQUEUED"
    assert first["job"]["end"] < site.jobs()[again]["begin"]
    stopped = time.time()
    slurm.text("scancel", again)
    site.until("the end of all", lambda: ended(site, again, *parts))
    check_end(site, again, restarted, stopped, 1)
    for one in parts:
        row = check_end(site, one, since, cancelled)
        assert row["account_of_run"]["state"] == "CANCELLED"


def test_a_job_whose_node_failed_ends_by_what_came_after(site: SlurmSite) -> None:
    """No epilog wrote its end, and Slurm 22.05 runs no prolog for the newer run, at times: then squeue alone knows it."""
    slurm = site.slurm
    begun = site.submit("-J", "fails", "--gres=gpu:4", "-w", N1, "--requeue")
    site.until("its processes", lambda: named(site, begun) and uses(site, begun, 4))
    epilog = slurm.folder / "epilog"
    hook = epilog.read_text()
    epilog.write_text("#!/bin/sh\nexit 0\n")  # as on a full disk: Slurm runs it when the daemon is back
    failed = time.time()
    slurm.fail(N1)
    slurm.until(lambda: slurm.text("squeue", "-h", "-j", begun, "-o", "%T") == "PENDING")
    # Before the node is back: from then on Slurm may begin it between any two looks.
    slurm.text("scontrol", "update", f"JobId={begun}", "StartTime=now+1")
    slurm.recover(N1)
    site.until("the second run", lambda: site.jobs()[begun]["restart"] == 1 and len(site.given(begun)[N1]) == 4)
    site.until("the end of the first run", lambda: site.job(begun, 0)["job"]["end"])  # type: ignore[index]
    first = site.job(begun, 0)
    assert first is not None
    assert slurm.hook_runs("epilog", N1, begun) == [], "else it was no such case"
    assert first["job"]["phase"] == "ended"
    second = site.job(begun, 1)
    assert second is not None
    for each in first["allocations"]:
        assert each["end"] is not None, shown_rows(first)
        if each["kind"] == "allocated":
            assert each["end_by"] in {"a newer run of it", "a newer run in squeue"}
            assert failed - 1 <= each["end"] / SECOND <= second["job"]["begin"] / SECOND + site.late(ATTRIBUTED)
            assert each["begin"] < each["end_after"] <= each["end"]
    epilog.write_text(hook)
    holders = site.get(f"/api/v1/nodes/{N1}")["gpus"]
    assert all(len(each["holders"]) == 1 for each in holders), holders
    slurm.text("scancel", begun)
    site.until("the end of all", lambda: ended(site, begun))
    over = site.job(begun, 0)
    assert over is not None
    assert over["job"]["end"] == first["job"]["end"], "the epilog of the newer run ends itself alone"
