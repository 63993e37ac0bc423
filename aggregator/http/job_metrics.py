"""Metrics of who holds a GPU or a MIG instance: a series to join with, at most one each; and where the settings want
it, one of each process."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from api.fleet import NodeStatus
from telemetry.fleet import Node
from telemetry.metric import Table
from telemetry.wire.exposition import (
    GAUGE,
    PREFIX,
    Family,
    Sample,
    device_pairs,
    gpu_pairs,
    labels,
    node_pairs,
    unattributed_family,
    unattributed_samples,
)
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs, UserPrivacy, holders_of
from telemetry.wire.persons import PersonWords


def job_families(view: AggregatorView, nodes: list[Node], scope: bool) -> list[Family]:
    """Return how many jobs hold each GPU and MIG instance of some nodes, and which one where it is one: with
    several, a join would match none. And how many devices of pods are of no GPU that is known, and the processes."""
    info: list[Sample] = []
    count: list[Sample] = []
    instance_info: list[Sample] = []
    instance_count: list[Sample] = []
    unattributed: list[Sample] = []
    processes: list[Sample] = []
    for node in nodes:
        message = view.jobs.lists.get(node.inventory.node)
        if message is None:
            continue  # nobody says who holds them: that is not 0
        if view.process_words is not None and status_of(node, view.now()) is NodeStatus.ONLINE:
            processes += _process_samples(node, message, view.process_words, scope)
        facts = {job.key: job for job in message.jobs}
        unattributed += unattributed_samples(node_pairs(node.inventory, scope), message)
        for gpu in node.inventory.gpus:
            held = holders_of(message, gpu.uuid)
            pairs = gpu_pairs(node.inventory, gpu, scope)
            count.append((labels(pairs), float(len(held))))
            info += _only(held, pairs, facts)
        for instance in node.inventory.instances:
            held = holders_of(message, instance.gpu, (instance.gpu_instance,))
            pairs = device_pairs(node.inventory, Table.INSTANCE, instance, scope)
            instance_count.append((labels(pairs), float(len(held))))
            instance_info += _only(held, pairs, facts)
    return [
        Family(f"{PREFIX}gpu_job_info", "1 for the job that holds a GPU alone; to join with.", GAUGE, info),
        Family(f"{PREFIX}gpu_holders", "Jobs that hold a GPU; absent where its node does not say.", GAUGE, count),
        Family(f"{PREFIX}instance_job_info", "1 for the job that holds a MIG instance alone; to join with.", GAUGE, instance_info),
        Family(f"{PREFIX}instance_holders", "Jobs that hold a MIG instance; absent where its node does not say.", GAUGE, instance_count),
        unattributed_family(unattributed),
        Family(f"{PREFIX}gpu_process_memory_bytes", "GPU memory of a process that holds a GPU now.", GAUGE, processes),
    ]  # fmt: skip


def _only(held: list[Allocation], pairs: dict[str, str | None], facts: dict[JobKey, Job]) -> Iterator[Sample]:
    """Yield the sample of the job that holds something alone."""
    if len(held) == 1:
        key = held[0].job
        job = facts.get(key, Job(key=key))
        more = {
            "job_id": key.id, "user": job.user, "account": job.account,
            "scheduler": key.scheduler, "kind": held[0].kind.value,
        }  # fmt: skip
        yield labels({**pairs, **more}), 1.0


def _process_samples(node: Node, message: NodeJobs, words: PersonWords, scope: bool) -> Iterator[Sample]:
    """Yield the memory of each process in the list of a node, where the driver says it: as many as the list's
    `MAX_MESSAGE_BYTES` hold. What a node hashed itself is not hashed again."""
    gpus = {gpu.uuid: gpu for gpu in node.inventory.gpus}
    named = message.users is UserPrivacy.NAMES
    for each in message.processes:
        gpu = gpus.get(each.gpu)
        if gpu is None or each.memory_bytes is None:
            continue
        job = words.key(each.job) if each.job and named else each.job
        more = {
            "gpu_instance": None if each.instance is None else str(each.instance),
            "pid": str(each.pid), "process": each.name, "user": words.person(each.user) if named else each.user,
            "job_id": None if job is None else job.id, "scheduler": None if job is None else job.scheduler,
        }  # fmt: skip
        yield labels({**gpu_pairs(node.inventory, gpu, scope), **more}), float(each.memory_bytes)
