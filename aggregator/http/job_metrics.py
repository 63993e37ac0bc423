"""Metrics of who holds a GPU or a MIG instance: a series to join with, at most one each."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.view import AggregatorView
from telemetry.fleet import Node
from telemetry.wire.exposition import (
    GAUGE,
    PREFIX,
    Family,
    Sample,
    gpu_pairs,
    instance_pairs,
    labels,
    node_pairs,
    unattributed_family,
    unattributed_samples,
)
from telemetry.wire.jobs import Allocation, Job, JobKey, holders_of


def job_families(view: AggregatorView, nodes: list[Node], scope: bool) -> list[Family]:
    """Return how many jobs hold each GPU and MIG instance of some nodes, and which one where it is one: with
    several, a join would match none. And how many devices of pods are of no GPU that is known."""
    info: list[Sample] = []
    count: list[Sample] = []
    instance_info: list[Sample] = []
    instance_count: list[Sample] = []
    unattributed: list[Sample] = []
    for node in nodes:
        message = view.jobs.lists.get(node.inventory.node)
        if message is None:
            continue  # nobody says who holds them: that is not 0
        facts = {job.key: job for job in message.jobs}
        unattributed += unattributed_samples(node_pairs(node.inventory, scope), message)
        for gpu in node.inventory.gpus:
            held = holders_of(message, gpu.uuid)
            pairs = gpu_pairs(node.inventory, gpu, scope)
            count.append((labels(pairs), float(len(held))))
            info += _only(held, pairs, facts)
        for instance in node.inventory.instances:
            held = holders_of(message, instance.gpu, (instance.gpu_instance,))
            pairs = instance_pairs(node.inventory, instance, scope)
            instance_count.append((labels(pairs), float(len(held))))
            instance_info += _only(held, pairs, facts)
    return [
        Family(f"{PREFIX}gpu_job_info", "1 for the job that holds a GPU alone; to join with.", GAUGE, info),
        Family(f"{PREFIX}gpu_holders", "Jobs that hold a GPU; absent where its node does not say.", GAUGE, count),
        Family(f"{PREFIX}instance_job_info", "1 for the job that holds a MIG instance alone; to join with.", GAUGE, instance_info),
        Family(f"{PREFIX}instance_holders", "Jobs that hold a MIG instance; absent where its node does not say.", GAUGE, instance_count),
        unattributed_family(unattributed),
    ]  # fmt: skip


def _only(
    held: list[Allocation], pairs: dict[str, str | None], facts: dict[JobKey, Job]
) -> Iterator[Sample]:
    """Yield the sample of the job that holds something alone."""
    if len(held) == 1:
        key = held[0].job
        job = facts.get(key, Job(key=key))
        more = {
            "job_id": key.id, "user": job.user, "account": job.account,
            "scheduler": key.scheduler, "kind": held[0].kind.value,
        }  # fmt: skip
        yield labels({**pairs, **more}), 1.0
