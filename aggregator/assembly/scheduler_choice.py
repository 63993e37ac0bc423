"""The scheduler that the settings have an aggregator ask: how it is asked, and where its word is kept."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence

from aggregator.config import AggregatorConfig
from aggregator.impairments import Impairments
from aggregator.jobs.scheduled import SchedulerWord, Word
from aggregator.jobs.service import JobService
from aggregator.jobs.slots import SlotWord
from aggregator.scheduler.listed import JobListing
from aggregator.scheduler.names import LSF, PBS
from aggregator.scheduler.poll import LSF_QUESTIONS, PBS_QUESTIONS, CondorPoll, SchedulerPoll, SlurmPoll, TablePoll
from telemetry.devices import Gpu
from telemetry.notations.slurm import gres_order, usual_order
from telemetry.wire.jobs import JobKey


def word_of(config: AggregatorConfig, gpus_of: Callable[[str], Sequence[Gpu]], now: int) -> Word | None:
    """Return the place of the scheduler's word; None where none is to be asked. `gpus_of`: GPUs of a node; `now`: ns since
    1970."""
    if config.htcondor.enabled:
        return SlotWord(gpus_of, now)
    if config.slurm.enabled:
        return SchedulerWord(functools.partial(gres_order, config.slurm.gres_file), gpus_of, now)
    if config.pbs.enabled:
        return SchedulerWord(_assumed_order, gpus_of, now, PBS)
    return SchedulerWord(_assumed_order, gpus_of, now, LSF) if config.lsf.enabled else None


def _assumed_order(_: str, gpus: Sequence[Gpu]) -> tuple[Sequence[int], str]:
    return usual_order(gpus), "its numbers of GPUs are taken for those of /dev/nvidiaN"


def poll_of(
    config: AggregatorConfig,
    impairments: Impairments,
    jobs: JobService,
    hear: Callable[[JobListing], Awaitable[Sequence[str]]],
    wall: Callable[[], int],
) -> SchedulerPoll | None:
    """Return what asks the scheduler; None where none is to be asked. `hear` gets each listing; `wall`: ns since 1970."""

    def ended() -> list[JobKey]:
        return jobs.unlisted.without_account(wall())

    if config.htcondor.enabled:
        return CondorPoll(config.htcondor, impairments, hear, ended, jobs.settle, wall)
    if config.slurm.enabled:
        return SlurmPoll(config.slurm, impairments, hear, ended, jobs.settle, wall)
    if config.pbs.enabled:
        return TablePoll(PBS_QUESTIONS, config.pbs, impairments, hear, ended, jobs.settle, wall)
    if config.lsf.enabled:
        return TablePoll(LSF_QUESTIONS, config.lsf, impairments, hear, ended, jobs.settle, wall)
    return None
