"""The schedulers that are asked, and how they and their commands are called. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.notations.batch import LSF as LSF_NAME
from telemetry.notations.batch import PBS as PBS_NAME
from telemetry.notations.htcondor import SCHEDULER as CONDOR_NAME
from telemetry.notations.slurm import SCHEDULER as SLURM_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerNames:
    """A scheduler and its commands, as they are called."""

    scheduler: str
    """As in `JobKey`."""
    title: str
    source: str
    """Command that lists its jobs, and source of what it alone says."""
    accounting: str = ""
    """Command about runs that have ended; empty where the listing has them."""
    sees_all: str = ""
    """Its setting by which the user who asks may not see all jobs; empty where a job that runs may be missing in the listing."""
    has_runs: bool = True
    """Whether each run of a job has an account of its own; else that of a job has one of its begins."""


SLURM = SchedulerNames(scheduler=SLURM_NAME, title="Slurm", source="squeue", accounting="sacct", sees_all="PrivateData")
PBS = SchedulerNames(
    scheduler=PBS_NAME, title="PBS", source="qstat", accounting="qstat -x", sees_all="query_other_jobs"
)
LSF = SchedulerNames(scheduler=LSF_NAME, title="LSF", source="bjobs", sees_all="SECURE_JOB_INFO_LEVEL")
CONDOR = SchedulerNames(
    scheduler=CONDOR_NAME, title="HTCondor", source="condor_status", accounting="condor_history", has_runs=False
)
SCHEDULERS = {each.scheduler: each for each in (SLURM, PBS, LSF, CONDOR)}
"""By the name in `JobKey`."""
SOURCES = frozenset(each.source for each in SCHEDULERS.values())
