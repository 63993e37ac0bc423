"""Metrics of who holds a GPU: a series to join with, at most one a GPU."""

from __future__ import annotations

from aggregator.jobs.present import holders_of
from aggregator.view import AggregatorView
from telemetry.exposition import GAUGE, PREFIX, Family, Sample, gpu_pairs, labels
from telemetry.fleet import Node
from telemetry.jobs import Job


def job_families(view: AggregatorView, nodes: list[Node], scope: bool) -> list[Family]:
    """Return how many jobs hold each GPU of some nodes, and which one where it is one: with several, a
    join by GPU would match none."""
    info: list[Sample] = []
    count: list[Sample] = []
    for node in nodes:
        message = view.jobs.lists.get(node.inventory.node)
        if message is None:
            continue  # nobody says who holds them: that is not 0
        facts = {job.key: job for job in message.jobs}
        for gpu in node.inventory.gpus:
            held = holders_of(message, gpu.uuid)
            pairs = gpu_pairs(node.inventory, gpu, scope)
            count.append((labels(pairs), float(len(held))))
            if len(held) == 1:
                key = held[0].job
                job = facts.get(key, Job(key=key))
                more = {
                    "job_id": key.id, "user": job.user, "account": job.account,
                    "scheduler": key.scheduler, "kind": held[0].kind.value,
                }  # fmt: skip
                info.append((labels({**pairs, **more}), 1.0))
    return [
        Family(f"{PREFIX}gpu_job_info", "1 for the job that holds a GPU alone; to join with.", GAUGE, info),
        Family(f"{PREFIX}gpu_holders", "Jobs that hold a GPU; absent where its node does not say.", GAUGE, count),
    ]  # fmt: skip
