"""Registry of the sources of jobs that are asked on a real node.

To add one, write a class that fits `collector.jobs.source.JobSource`, and name its factory here. The
order is that of trust: where two name an owner of one process, the first is believed.
"""

from __future__ import annotations

from collections.abc import Callable

from collector.jobs.config import JobsConfig
from collector.jobs.kubernetes import KubernetesJobs
from collector.jobs.ray import RayJobs
from collector.jobs.slurm import SlurmJobs
from collector.jobs.source import JobSource

JobSourceMaker = Callable[[JobsConfig], JobSource | None]

JOB_SOURCES: tuple[JobSourceMaker, ...] = (
    lambda config: SlurmJobs(config.slurm),
    lambda config: KubernetesJobs(config.kubernetes),
    lambda config: RayJobs(config.ray) if config.ray.url else None,
)
"""Factories; one returns None where the settings want no such source."""


def job_sources(config: JobsConfig) -> list[JobSource]:
    """Return the sources that the settings want. Raises `ConfigError` for settings that can't work."""
    made = (maker(config) for maker in JOB_SOURCES)
    return [source for source in made if source is not None]
