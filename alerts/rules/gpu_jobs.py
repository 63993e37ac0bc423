"""Who holds each GPU, as conditions read it: one entry a GPU row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from alerts.rules.row_memory import Flags, Floats, Index
from telemetry.devices import Event
from telemetry.notations.purpose import Purpose
from telemetry.wire.jobs import Job

OF_JOBS = ("job", "user", "account")
"""Labels of alerts that tell whose work it is."""


class GpuHolding(IntEnum):
    """Whether a GPU belongs to one job."""

    UNKNOWN = 0
    """Its node does not say."""
    FREE = 1
    ONE_JOB = 2
    SHARED = 3
    """Several jobs have it, or parts of it: what it reads is the work of none of them alone."""


@dataclass(slots=True)
class GpuJobs:
    """Holder of each GPU row."""

    holding: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    """`GpuHolding`."""
    job: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    """Number of the only job that has it, from 1; 0 for none. The same number on all nodes of a job."""
    allocated: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Whether a scheduler gave it to that job; else processes of the job use it."""
    batch: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Whether that job is to compute all the time: no service, notebook or shell, which wait for people."""
    begin: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds since 1970 at which the job got it; NaN where that is not known."""
    asked: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    """Number of GPUs that the job asked for, on all nodes; 0 where that is not known."""
    outside: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    """1: a process on it belongs to no allocation; 0: none does; -1: that is not known."""
    outside_from: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds since 1970 from which on that process counts; 0: at once."""
    outsiders: dict[int, Event] = field(default_factory=dict)
    """By row: what is known of such a process, as the cause of an alert."""
    jobs: dict[int, Job] = field(default_factory=dict)
    """Job by number."""
    purposes: dict[int, Purpose] = field(default_factory=dict)
    """By number of a job: what its owner declares of it; only of those that do."""
    count: int = 1
    """How many numbers of jobs there may be, 0 included."""

    @property
    def alone(self) -> Index:
        """Number of the job of each row that one job has; 0 for all others."""
        found: Index = np.where(self.holding == GpuHolding.ONE_JOB, self.job, 0)
        return found

    def grow(self, size: int) -> None:
        """Make room for the GPU rows of a larger fleet."""
        more = size - len(self.job)
        if more <= 0:
            return
        self.holding = np.append(self.holding, np.zeros(more, np.int8))
        self.job = np.append(self.job, np.zeros(more, np.intp))
        self.allocated = np.append(self.allocated, np.zeros(more, np.bool_))
        self.batch = np.append(self.batch, np.zeros(more, np.bool_))
        self.begin = np.append(self.begin, np.full(more, np.nan))
        self.asked = np.append(self.asked, np.zeros(more, np.intp))
        self.outside = np.append(self.outside, np.full(more, -1, np.int8))
        self.outside_from = np.append(self.outside_from, np.zeros(more))

    def clear(self, rows: slice) -> None:
        """Set rows to what is known of no node."""
        self.holding[rows] = GpuHolding.UNKNOWN
        self.job[rows] = self.asked[rows] = 0
        self.allocated[rows] = self.batch[rows] = False
        self.begin[rows] = np.nan
        self.outside[rows] = -1
        self.outside_from[rows] = 0
        for row in range(rows.start, rows.stop):
            self.outsiders.pop(row, None)


def labels_of_job(job: Job) -> Mapping[str, str]:
    """Return the labels of an alert by which the owner of a job is found; empty ones are left out."""
    of_user = job.key.scheduler == "user"
    found = {
        "job": "" if of_user else job.key.id,
        "user": job.user or (job.key.id if of_user else ""),
        "account": job.account,
    }
    return {name: text for name, text in found.items() if text}
