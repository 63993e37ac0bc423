"""Parts of the queries of boards about jobs and users: readings of the GPUs that a job holds alone."""

from __future__ import annotations

C = 'cluster=~"$cluster"'
H = f'{C},user=~"$user",account=~"$account"'
INFO = f"kilowatch_gpu_job_info{{{H}}}"
HOLDERS = f"kilowatch_gpu_holders{{{C}}}"
ON = "on (cluster, node, uuid)"
IDLE_RATIO = 0.01
"""Use of a GPU below which the reports call it idle."""
JOB = "cluster, scheduler, job_id, user, account"


def held(metric: str, labels: str) -> str:
    """Return the readings of held GPUs with some labels of their jobs."""
    return f"kilowatch_{metric}{{{C}}} * {ON} group_left ({labels}) {INFO}"


def summed(how: str, metric: str, labels: str) -> str:
    """Return the readings of held GPUs aggregated by labels of their jobs."""
    return f"{how} by ({labels}) ({held(metric, labels.removeprefix('cluster, '))})"


def idle(labels: str) -> str:
    """Return how many held GPUs do nothing, by labels of their jobs."""
    reading = f"(kilowatch_gpu_utilization_ratio{{{C}}} < bool {IDLE_RATIO})"
    more = labels.removeprefix("cluster, ")
    return f"sum by ({labels}) ({reading} * {ON} group_left ({more}) {INFO})"
