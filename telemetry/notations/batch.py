"""Numbers of jobs as PBS and LSF write them: `4711`, `4711[3]` of an array, `4711[3].server` of a server. Pure."""

from __future__ import annotations

import re

from telemetry.notations.slurm import SCHEDULER as SLURM

PBS, LSF = "pbs", "lsf"
"""Names of both in the key of a job."""
NUMBERED = frozenset({SLURM, PBS, LSF})
"""Schedulers whose cgroups name the number of a job alone."""
_OF_SERVER = re.compile(r"(\d+(?:\[\d*\])?)\.(?=[^.]*[A-Za-z])[A-Za-z0-9._-]+", re.ASCII)
_TASK = re.compile(r"(\d+)\[(\d+)\]", re.ASCII)


def without_server(name: str) -> str:
    """Return the id of a job without the name of its server: `4711[3]` of `4711[3].server`. Others, as HTCondor's `152.3`, are
    as they were."""
    found = _OF_SERVER.fullmatch(name)
    return name if found is None else found[1]


def array_task(name: str) -> tuple[str, str]:
    """Return the number of an array and that of a task of it by the id of the task; both empty for other ids."""
    found = _TASK.fullmatch(name)
    return ("", "") if found is None else (found[1], found[2])
