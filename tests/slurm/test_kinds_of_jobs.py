"""Kinds of jobs side by side on a real Slurm: sharers of a GPU, sessions of a person, a short one, one that leaves a process
behind, one over a step of its node's clock; each with the energy that the registers of its GPUs grew by."""

from __future__ import annotations

import os
import pty
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.brokers import Mosquitto
from tests.fake_nvml.registers import PEAK, Registers
from tests.faults.wrong_clock import WrongClock
from tests.kit.night import size
from tests.slurm.cluster import FREEZER, HAS_CGROUPS, TWO_NODES, SlurmCluster, needs_slurm, running
from tests.slurm.site import WORK, SlurmSite
from tests.slurm.test_attribution import AGREED, HOOKS, given_by_slurm, named, uses

pytestmark = [pytest.mark.systems, pytest.mark.nightly, needs_slurm]
N1, N2 = TWO_NODES
GPUS = 4
LONG = size(16.0, 60.0)
"""Seconds of the long jobs once all are known: from 20 on their energy is right to 3 %, from 60 on to 1 %."""
AHEAD = 3500.0
"""Seconds by which the clock of the second node is ahead for a while. Files have the kernel's times, which are right here: by
an hour more the prolog would remove what was written a moment ago."""
LOOK = 2.0
"""Seconds by which a time may be off that was read while the clock was ahead: a look at the files of the hooks later."""
COUNTED = 8.0
"""Seconds after which the aggregator has read the registers of all GPUs, as it does every five: what they grow by before
is in no sum."""
RULES = """
[[rule]]
name = "left_over"
when = { type = "process_outside" }
severity = "ticket"
remediation = "application"
summary = "a process on {where} belongs to no allocation: {process}"
description = "{line}"
runbook = "process-outside"

[[rule.example]]
every = 60
given = "- -"
then = "- F"
jobs = ["a -!"]

[[rule]]
name = "does_nothing"
when = { type = "of_job", share = 1.0, of = { type = "expr", expr = "gpu_utilization_ratio < 0.01" } }
severity = "ticket"
remediation = "application"
summary = "job {job} of {user} does nothing"
description = "As job_idle, at once."
runbook = "job-idle"

[[rule.example]]
every = 60
given = "0.5 0 0"
then = "- F F"
jobs = ["a"]
"""
LEAVE = """
setsid sh -c '{child}' &
child=$!
while [ ! -e {folder}/leave ]; do sleep 0.1; done
[ ! -w {freezer} ] || echo $child > {freezer}/cgroup.procs
"""
"""Script that leaves a process behind: of another session, and in no cgroup of its job any more."""


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes whose GPUs are given whole or by quarters."""
    folder = tmp_path_factory.mktemp("slurm")
    with running(folder, TWO_NODES, GPUS, HOOKS, cgroups=HAS_CGROUPS, shards=4) as cluster:
        yield cluster


@pytest.fixture
def clock(tmp_path: Path) -> WrongClock:
    """The clock of the second node, of its collector and its hooks."""
    return WrongClock(tmp_path)


@pytest.fixture
def site(slurm: SlurmCluster, mosquitto: Mosquitto, tmp_path: Path, clock: WrongClock) -> Iterator[SlurmSite]:
    for node in slurm.nodes:
        (tmp_path / node).mkdir()
    slurm.give_clock(N2, clock.environment)
    site = SlurmSite(tmp_path, mosquitto, slurm, rules=RULES, clocks={N2: clock.environment})
    yield site
    site.close()


@contextmanager
def session(slurm: SlurmCluster, *command: str) -> Iterator[None]:
    """A session at a terminal of its own, until its job is over."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        ("setsid", "--ctty", *command), stdin=its, stdout=its, stderr=its, env=slurm.environment, cwd=slurm.folder
    ) as process:
        os.close(its)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)
            os.close(ours)


def told_by_slurm(slurm: SlurmCluster, number: str) -> tuple[float, float]:
    """Return begin and end of a job as Slurm itself has them, seconds since 1970."""
    text = subprocess.run(
        ["scontrol", "show", "job", number], check=True, capture_output=True, text=True, timeout=60,
        env={**slurm.environment, "SLURM_TIME_FORMAT": "%s"},
    ).stdout  # fmt: skip
    its = dict(word.partition("=")[::2] for word in text.split())
    return float(its["StartTime"]), float(its["EndTime"])


def refusal(site: SlurmSite, number: str) -> str:
    """Return why there is no such job for the aggregator; "" where there is."""
    try:
        with urllib.request.urlopen(f"http://{site.http}/api/v1/jobs/{number}", timeout=30):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def fires(site: SlurmSite, rule: str) -> list[dict[str, Any]]:
    """Return the alerts of a rule that fire."""
    found = (site.get("/api/v1/alerts") or {}).get("alerts", ())
    return [each for each in found if each["rule"] == rule and each["state"] == "firing"]


def over(site: SlurmSite, number: str) -> bool:
    """Return whether a job has ended, and its epilog said so."""
    reply = site.job(number)
    rows = [] if reply is None else [each for each in reply["allocations"] if each["kind"] == "allocated"]
    return bool(rows) and all(each["end"] and each["end_from"] == "hook" for each in rows)


def energy(site: SlurmSite) -> float:
    """Return the energy of all jobs and of nobody in this month."""
    use = site.get("/api/v1/use?by=job") or {"rows": ()}
    rows = [*use["rows"], use.get("unheld"), use.get("unreported")]
    return sum(each["energy_joules"] or 0.0 for each in rows if each is not None)


class Ended:
    """A job that has ended, with what is known of it."""

    def __init__(self, site: SlurmSite, number: str) -> None:
        reply = site.job(number)
        assert reply is not None
        self.job, self.summary = reply["job"], reply["job"]["summary"]
        self.given = [each for each in reply["allocations"] if each["kind"] == "allocated"]
        self.used = [each for each in reply["allocations"] if each["kind"] == "used"]
        self.begin = min(each["begin"] for each in self.given) / 1e9
        self.end = max(each["end"] for each in self.given) / 1e9

    def check_times(self, slurm: SlurmCluster) -> None:
        """Check begin and end against Slurm's, and the hours against both."""
        begin, end = told_by_slurm(slurm, self.job["id"])
        node, number = self.given[0]["node"], self.job["id"]
        (prolog,), (epilog,) = (slurm.hook_runs(name, node, number) for name in ("prolog", "epilog"))
        # Slurm's times are whole seconds, cut off; on a machine that is late its hooks are later than it says.
        assert abs(self.begin - begin) <= max(AGREED, prolog.after / 1e9 - begin), self.given
        assert abs(self.end - end) <= max(AGREED, epilog.after / 1e9 - end), self.given
        assert prolog.before / 1e9 - LOOK <= self.begin <= prolog.after / 1e9 + LOOK, self.given
        assert epilog.before / 1e9 - LOOK <= self.end <= epilog.after / 1e9 + LOOK, self.given
        assert all(each["end"] is not None and not each["lost"] for each in (*self.given, *self.used))

    def check_hours(self) -> None:
        """Check that it has had its GPUs for the whole of its time."""
        seconds = sum(each["end"] - each["begin"] for each in self.given) / 1e9
        assert abs(self.summary["gpu_hours"] * 3600 - seconds) <= 0.01 * seconds + 0.1

    def check_energy(self, registers: Registers, numbers: Mapping[str, int]) -> None:
        """Check its energy against what the registers of its GPUs grew by."""
        truth, slack = registers.of(self.given, numbers)
        seconds = self.end - self.begin
        second = sum(PEAK * registers.watts(numbers[each["gpu"]]) for each in self.given)
        off = 2 * second if seconds < 20 else (0.03 if seconds < 60 else 0.01) * truth
        found = self.summary["energy_joules"]
        assert abs(found - truth) <= off + slack, (found, truth, off, slack, self.given)
        assert self.summary["energy_coverage"] >= 0.97


def check_sharers(first: Ended, second: Ended, registers: Registers, numbers: Mapping[str, int]) -> None:
    """Check hours and energy of two jobs of a GPU of which the first ended first: each has its part of both by the use of
    their processes, where a cgroup tells whose they are, and the second has the rest for itself."""
    (gpu,) = {numbers[each["gpu"]] for each in (*first.given, *second.given)}
    share = 0.75 if HAS_CGROUPS else 0.5
    both = first.end - max(first.begin, second.begin)
    seconds = share * both, (1 - share) * both + second.end - first.end
    apart = abs(first.begin - second.begin)
    if HAS_CGROUPS:  # begins and ends without a process of one of them
        (one,), (other,) = first.used, second.used
        apart += max(one["begin"], other["begin"]) / 1e9 - min(first.begin, second.begin)
        apart += first.end - one["end"] / 1e9 + second.end - other["end"] / 1e9
    for its, expected in zip((first, second), seconds, strict=True):
        assert abs(its.summary["gpu_hours"] * 3600 - expected) <= 0.03 * expected + apart
        assert all(each["shared"] for each in its.summary["gpus"])
        assert its.summary["energy_from"] == "samples"
    together = registers.grown(gpu, first.begin, first.end)
    alone = registers.grown(gpu, first.end, second.end)
    a_second = PEAK * registers.watts(gpu) * (1 + apart + registers.late)
    for its, expected in zip((first, second), (share * together, (1 - share) * together + alone), strict=True):
        assert abs(its.summary["energy_joules"] - expected) <= 0.03 * expected + a_second
    sums = sum(its.summary["energy_joules"] for its in (first, second))
    assert abs(sums - together - alone) <= 0.03 * sums + a_second


class Kinds(NamedTuple):
    """Numbers of the jobs that run side by side."""

    parts: list[str]
    """Both have half of one GPU's shards."""
    leaves: str
    """Ends when it is told to, and leaves a process behind."""
    idle: str
    long: str
    """On two GPUs of the node whose clock is set."""
    stepped: str
    """Ends while that clock is ahead."""
    person: str
    """Is a session at a terminal, and idle."""

    @property
    def all(self) -> list[str]:
        """All of them."""
        return [*self.parts, self.leaves, self.idle, self.long, self.stepped, self.person]


def begin(site: SlurmSite, slurm: SlurmCluster, stack: ExitStack) -> Kinds:
    """Have all kinds run, and known with their processes."""
    work = WORK.format(folder=site.work)
    parts = [site.submit("-J", f"part {one}", "--gres=shard:2", "-w", N1) for one in (1, 2)]
    site.busy = dict(zip(parts, (60, 20), strict=True))
    script = LEAVE.format(child=work, folder=site.work, freezer=FREEZER)
    leaves = site.submit("-J", "leaves", "--gres=gpu:1", "-w", N1, work=script)
    idle = site.submit("-J", "idle", "--gres=gpu:1", "-w", N1)
    long = site.submit("-J", "long", "--gres=gpu:2", "-w", N2)
    stepped = site.submit("-J", "stepped", "--gres=gpu:1", "-w", N2)
    called = "train" if HAS_CGROUPS else "interactive"  # its step tells, else its name
    stack.enter_context(
        session(
            slurm,
            "salloc",
            "-A",
            "physics",
            "-J",
            called,
            "--gres=gpu:1",
            "-w",
            N1,
            "srun",
            "--interactive",
            "--preserve-env",
            "--pty",
            "sh",
            "-c",
            work,
        )
    )
    slurm.until(lambda: bool(slurm.text("squeue", "-h", "-n", called, "-o", "%A")))
    person = slurm.text("squeue", "-h", "-n", called, "-o", "%A")
    jobs = Kinds(parts, leaves, idle, long, stepped, person)
    site.until("all jobs with their names", lambda: named(site, *jobs.all))
    site.until("their processes", lambda: all(uses(site, one, 2 if one == long else 1) for one in jobs.all))
    for one in jobs.all:
        assert site.given(one) == given_by_slurm(slurm, one) != {}
    for one in (idle, person):
        (gpu,) = site.given(one)[N1]
        site.drivers[N1].call("nvmlDeviceGetUtilizationRates", 0, 0, gpu=gpu)
    return jobs


def set_the_clock(site: SlurmSite, clock: WrongClock, jobs: Kinds) -> str:
    """Have a job end and another one begin while a clock is ahead; return the latter."""
    clock.be_ahead(AHEAD)
    site.slurm.text("scancel", jobs.stepped)
    inside = site.submit("-J", "inside", "--gres=gpu:1", "-w", N2)
    site.until("its process", lambda: named(site, inside) and uses(site, inside, 1))
    site.until("an end under a step", lambda: over(site, jobs.stepped))
    clock.be_ahead(0)
    return inside


def test_each_kind_of_job_is_told_as_what_it_is_and_pays_for_what_its_gpus_drew(
    site: SlurmSite, slurm: SlurmCluster, clock: WrongClock
) -> None:
    registers = {node: Registers(driver, GPUS) for node, driver in site.drivers.items()}
    with ExitStack() as stack:
        for name in ("aggregator", *slurm.nodes):
            site.start(name)
        site.until("the nodes", lambda: len((site.get("/api/v1/nodes") or {}).get("nodes", ())) == 2)
        heard = time.time()
        site.until("the registers to be read", lambda: time.time() > heard + COUNTED + site.late(0) / 1e9)
        for each in registers.values():
            stack.enter_context(each)
        jobs, began = begin(site, slurm, stack), time.time()
        (shared,) = site.given(jobs.parts[0])[N1]
        assert site.given(jobs.parts[1]) == {N1: {shared}}
        holders = site.get(f"/api/v1/nodes/{N1}")["gpus"][shared]["holders"]
        assert sorted(each["job"] for each in holders) == sorted(jobs.parts)

        (site.work / "leave").touch()
        brief = site.submit("-J", "brief", "--hold", "--gres=gpu:1", "-w", N2)
        site.until("why it waits", lambda: "waits: JobHeldUser" in refusal(site, brief))
        slurm.text("scontrol", "release", brief)
        site.until("its process", lambda: named(site, brief) and uses(site, brief, 1))
        slurm.text("scancel", brief)
        site.until("the ends of both", lambda: all(over(site, one) for one in (brief, jobs.leaves)))
        inside = set_the_clock(site, clock, jobs)
        site.until("an alert", lambda: fires(site, "does_nothing"))
        idle = {each["labels"]["job"] for each in fires(site, "does_nothing")}
        assert idle == {jobs.idle}, "a person may wait"
        left = f"left over from job {jobs.leaves}, which has ended"
        if HAS_CGROUPS:  # else nobody knows whose it was, and root may diagnose for a while
            site.until(left, lambda: any(left in each["description"] for each in fires(site, "left_over")))
        site.until("time enough", lambda: time.time() > began + LONG)
        everything = [*jobs.all, brief, inside]
        slurm.text("scancel", jobs.parts[0])
        site.until("the end of one", lambda: over(site, jobs.parts[0]))
        slurm.text("scancel", *everything)
        site.until("the end of all", lambda: all(over(site, one) for one in everything))
        for each in registers.values():
            each.stop()

    counted = [jobs.leaves, jobs.idle, jobs.long, jobs.person, brief]
    site.until(
        "energy by counters", lambda: all(site.jobs()[one]["summary"]["energy_from"] == "counters" for one in counted)
    )
    drawn = sum(each.total() for each in registers.values())
    site.until("all energy", lambda: abs(energy(site) - drawn) <= 0.005 * drawn)
    ended = {one: Ended(site, one) for one in everything}
    for its in ended.values():
        its.check_times(slurm)
    for one in (*counted, jobs.stepped, inside):
        ended[one].check_hours()
    for one in counted:
        ended[one].check_energy(registers[ended[one].given[0]["node"]], site.numbers)
    first, second = (ended[one] for one in jobs.parts)
    check_sharers(first, second, registers[N1], site.numbers)
    assert ended[brief].job["reason"], "of its wait"
    if HAS_CGROUPS:
        assert len(ended[jobs.long].used) == 2, "a step of the clock ends no use of a GPU"
        assert {each["step"] for each in ended[jobs.person].used} == {"interactive"}
