"""Kubernetes as a source of jobs: the GPUs that the kubelet gave to pods, and whose pods these are.

The kubelet names pods by namespace and name, a process's cgroup by the pod's uid. The API server joins them; without
it a process belongs to the pod that has its GPU, if only one has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collector.jobs.cgroups import owner_of
from collector.jobs.grpc_call import CallError
from collector.jobs.kubelet import (
    DRIVER,
    SOCKET,
    ContainerDevice,
    PlacedDevice,
    container_devices,
    place,
)
from collector.jobs.pods import ACCOUNT, Pod, PodsClient, PodsError, in_cluster
from collector.jobs.source import JobsAnswer, JobsInput, Ownership, ProcessId
from telemetry.errors import ConfigError
from telemetry.wire.jobs import Allocation, Job, JobKey, JobSourceState, Precision

NAME = "pod-resources"
SCHEDULER = "kubernetes"
_MOST_NAMED = 3


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods on the GPUs of a node of Kubernetes."""

    socket: Path = SOCKET
    """Socket of the kubelet. In a container, mount its folder: the socket is made anew when a kubelet starts."""
    api: bool = False
    """Whether to ask the API server who made each pod, and when it began. Needs the right to list pods."""
    server: str = ""
    """API server, `https://HOST:PORT`; empty: the one of the cluster that the collector runs in."""
    node: str = ""
    """This node's name in Kubernetes; empty: the same as in kilowatch."""
    token_file: Path = ACCOUNT / "token"
    """File with the token of the service account."""
    authority_file: Path = ACCOUNT / "ca.crt"
    """Certificate of the API server's CA."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for an API server without TLS: the token would be read on the way."""
        if self.server and not self.server.startswith("https://"):
            raise ConfigError(
                "jobs.kubernetes.server",
                f"{self.server!r} is no https:// address",
                "Write https://HOST:PORT, or leave it out in a cluster.",
            )


class KubernetesJobs:
    """Pods with GPUs of this node."""

    name = NAME
    interval = 5.0

    def __init__(self, config: KubernetesConfig) -> None:
        """Nothing is opened before the first question."""
        self._config = config
        self._claimed: Mapping[str, str] = {}
        """UUIDs of devices of claims, as their driver has published them."""

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return the pods that have GPUs now."""
        try:
            devices = container_devices(self._config.socket)
        except FileNotFoundError:
            return _nothing("absent", f"no kubelet listens at {self._config.socket}")
        except PermissionError:
            return _nothing("no permission", f"{self._config.socket} is root's: run as root, or let the group read it")  # fmt: skip
        except (OSError, CallError) as error:
            return _nothing("failing", f"{self._config.socket}: {error}")
        client, problem = self._client(given.node)
        claimed, problem_of_claims = self._claims(client, devices)
        placed, unknown = _placed(devices, given, claimed)
        pods: Mapping[tuple[str, str], Pod] = {}
        if client is not None and placed:
            try:
                pods = {(pod.namespace, pod.name): pod for pod in client.pods()}
            except PodsError as error:
                problem = str(error)
        problem = (problem if placed else "") or problem_of_claims
        owners = _owners(placed, given, pods)
        uids = _uids(owners, given, pods)
        return JobsAnswer(
            state=_state(unknown, problem),
            jobs=tuple(
                replace(_job(*each, pods), aliases=uids.get(_key(*each), ()))
                for each in sorted({(d.namespace, d.pod) for d, _ in placed})
            ),
            allocations=tuple(_allocation(device, where, pods) for device, where in placed),
            owners=owners,
        )

    def close(self) -> None:
        """Nothing stays open between two questions."""

    def _client(self, node: str) -> tuple[PodsClient | None, str]:
        """Return what asks the API server, and why there is none although the settings want it."""
        config = self._config
        if not config.api:
            return None, ""
        server = config.server or in_cluster()
        if not server:
            return (
                None,
                "jobs.kubernetes.server is not set, and this is no pod: name the API server",
            )
        client = PodsClient(
            server=server, node=config.node or node, token_file=config.token_file,
            authority_file=config.authority_file,
        )  # fmt: skip
        return client, ""

    def _claims(
        self, client: PodsClient | None, devices: Sequence[ContainerDevice]
    ) -> tuple[Mapping[str, str], str]:
        """Return the UUIDs of devices of claims, asked for when one is new: a driver that starts anew may name them
        otherwise, and then names all of them."""
        wanted = {each.device for each in devices if each.device.startswith(f"{DRIVER}/")}
        if client is None or wanted <= self._claimed.keys():
            return self._claimed, ""
        try:
            self._claimed = client.claimed()
        except PodsError as error:
            return self._claimed, str(error)
        return self._claimed, ""


def _nothing(state: str, message: str) -> JobsAnswer:
    return JobsAnswer(state=JobSourceState(name=NAME, state=state, message=message))


def _placed(
    devices: Sequence[ContainerDevice], given: JobsInput, claimed: Mapping[str, str]
) -> tuple[list[tuple[ContainerDevice, PlacedDevice]], list[str]]:
    """Return the devices that are GPUs of this node with their GPUs, each once a container, and the ids of GPUs
    that are none."""
    placed: dict[tuple[str, str, str, PlacedDevice], ContainerDevice] = {}
    unknown = []
    for device in devices:
        try:
            where = place(device.device, given.gpus, given.instances, claimed)
        except KeyError:
            unknown.append(device.device)
            continue
        if where is not None:
            placed[device.namespace, device.pod, device.container, where] = device
    return [(device, key[3]) for key, device in placed.items()], unknown


def _state(unknown: Sequence[str], problem: str) -> JobSourceState:
    parts = [problem] if problem else []
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        names = ", ".join(unknown[:_MOST_NAMED])
        parts.append(f"pods have devices that are no GPU of this node's inventory: {names}{more}")
    return JobSourceState(name=NAME, state="reading", message="; ".join(parts))


def _key(namespace: str, pod: str) -> JobKey:
    return JobKey(SCHEDULER, "", f"{namespace}/{pod}")


def _job(namespace: str, name: str, pods: Mapping[tuple[str, str], Pod]) -> Job:
    pod = pods.get((namespace, name))
    if pod is None:
        return Job(key=_key(namespace, name), name=name, account=namespace, queue=namespace)
    return Job(
        key=_key(namespace, name), name=name, account=namespace, queue=pod.queue or namespace,
        owner=pod.owner, begin=pod.begin, end=pod.end, state=pod.phase.upper(), exit_code=pod.exit_code,
    )  # fmt: skip


def _allocation(
    device: ContainerDevice, where: PlacedDevice, pods: Mapping[tuple[str, str], Pod]
) -> Allocation:
    pod = pods.get((device.namespace, device.pod))
    known = Precision.PROCESS if pod is None else Precision.SCHEDULER
    return Allocation(
        job=_key(device.namespace, device.pod), gpu=where.gpu, instance=where.instance,
        step=device.container, source=NAME, begin=0 if pod is None else pod.begin,
        end=0 if pod is None else pod.end, begin_from=known, end_from=known,
    )  # fmt: skip


def _owners(
    placed: Sequence[tuple[ContainerDevice, PlacedDevice]],
    given: JobsInput,
    pods: Mapping[tuple[str, str], Pod],
) -> dict[ProcessId, Ownership]:
    """Return the pod of each process in one: by its uid, or as the only one that has its GPU or its instance of it. The
    container is known by its id, and where the pod has one only."""
    by_uid = {pod.uid: key for key, pod in pods.items()}
    containers: dict[tuple[str, str], set[str]] = defaultdict(set)
    holders: dict[tuple[str, int | None], set[tuple[str, str]]] = defaultdict(set)
    for device, where in placed:
        containers[device.namespace, device.pod].add(device.container)
        holders[where.gpu, where.instance].add((device.namespace, device.pod))
    found = {}
    for each in given.processes:
        owner = owner_of(each.cgroup)
        if owner is None or owner.scheduler != SCHEDULER:
            continue
        key = by_uid.get(owner.id)
        its = holders[each.process.gpu, each.process.instance]
        if key is None and not by_uid and len(its) == 1:
            (key,) = its
        if key is not None and key in containers:
            names = containers[key]
            (step,) = names if len(names) == 1 else ("",)
            if (pod := pods.get(key)) is not None:
                step = pod.containers.get(owner.step, step)
            found[each.id] = Ownership(_key(*key), step, NAME)
    return found


def _uids(
    owners: Mapping[ProcessId, Ownership],
    given: JobsInput,
    pods: Mapping[tuple[str, str], Pod],
) -> dict[JobKey, tuple[str, ...]]:
    """Return the uids of pods, by which their processes are known until the kubelet has named them."""
    found = {_key(*key): {pod.uid} for key, pod in pods.items()}
    for each in given.processes:
        owner = owner_of(each.cgroup) if each.id in owners else None
        if owner is not None:
            found.setdefault(owners[each.id].job, set()).add(owner.id)
    return {key: tuple(sorted(uids)) for key, uids in found.items()}
