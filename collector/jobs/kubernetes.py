"""Kubernetes as a source of jobs: the GPUs that the kubelet gave to pods, and whose pods these are.

The kubelet names pods by namespace and name, a process's cgroup by the pod's uid. The API server joins them; without
it a process belongs to the pod that has its GPU, if only one has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collector.jobs.device_names import PlacedDevice, PublishedDevice, Unplaced, UnplacedError, distinguished, place
from collector.jobs.grpc_call import CallError
from collector.jobs.kubelet import SOCKET, ContainerDevice, container_devices
from collector.jobs.pods import ACCOUNT, Pod, PodsClient, PodsError, in_cluster
from collector.jobs.source import JobsAnswer, JobsInput, Ownership, ProcessId
from telemetry.errors import ConfigError
from telemetry.wire.jobs import MOST_JOB_LABELS, Allocation, Job, JobKey, JobSourceState, Precision

NAME = "pod-resources"
SCHEDULER = "kubernetes"
SLICES_SECONDS = 300.0
"""Seconds for which the devices of drivers hold: one that starts anew may name them otherwise."""
UNPUBLISHED_SECONDS = 30.0
"""Seconds between two questions for a device that was not published, or that has no GPU here."""
_MOST_NAMED = 3
_WHY = {
    Unplaced.UNKNOWN_GPU: "no GPU of this node's inventory",
    Unplaced.UNKNOWN_INSTANCE: "no instance that the driver lists",
    Unplaced.AMBIGUOUS_NUMBER: "index of one GPU, minor number of another: set jobs.kubernetes.api",
    Unplaced.AMBIGUOUS_INSTANCE: "one of several instances alike, and no process says which",
    Unplaced.PASSED_THROUGH: "in a virtual machine, which this node's driver does not see",
}
_GONE = {Unplaced.UNKNOWN_GPU, Unplaced.UNKNOWN_INSTANCE}


class KubernetesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods on the GPUs of a node of Kubernetes."""

    socket: Path = SOCKET
    """Socket of the kubelet. In a container, mount its folder: the socket is made anew when a kubelet starts."""
    api: bool = False
    """Whether to ask the API server who made each pod, and when it began. Needs the right to list pods."""
    pod_labels: tuple[str, ...] = ()
    """Labels of pods that leave the node with them, at most 32: `["team", "app.kubernetes.io/name"]`. Readings under
    the names of dcgm-exporter then have them as `team` and `app_kubernetes_io_name`. Needs `api`."""
    server: str = ""
    """API server, `https://HOST:PORT`; empty: the one of the cluster that the collector runs in."""
    node: str = ""
    """This node's name in Kubernetes; empty: the same as in kilowatch."""
    token_file: Path = ACCOUNT / "token"
    """File with the token of the service account."""
    authority_file: Path = ACCOUNT / "ca.crt"
    """Certificate of the API server's CA."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for an API server without TLS, for the token would be read on the way, and for labels
        that can't be had."""
        if self.pod_labels and not self.api:
            raise ConfigError(
                "jobs.kubernetes.pod_labels",
                "the kubelet does not know the labels of pods",
                "Set jobs.kubernetes.api = true, or leave them out.",
            )
        if len(self.pod_labels) > MOST_JOB_LABELS:
            raise ConfigError(
                "jobs.kubernetes.pod_labels",
                f"{len(self.pod_labels)} labels are too many",
                f"Name {MOST_JOB_LABELS} at most: each value begins series of its own.",
            )
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
        self._published: Mapping[str, PublishedDevice] = {}
        """Devices of claims, as their drivers have published them."""
        self._asked: tuple[int, frozenset[str]] = (0, frozenset())
        """Time of the last question, ns since 1970, and the names that it was about."""
        self._problem = ""
        self._distinguished: dict[str, PlacedDevice] = {}
        """Instances of claims that were one of several alike, until nobody holds them."""
        self._missed = False
        """Whether a device has been published that is not here."""

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return the pods that have GPUs now."""
        try:
            devices = container_devices(self._config.socket)
        except FileNotFoundError:
            return _nothing("absent", f"no kubelet listens at {self._config.socket}")
        except PermissionError:
            return _nothing("no permission", f"{self._config.socket} is root's: run as root, or let the group read it")
        except (OSError, CallError) as error:
            return _nothing("failing", f"{self._config.socket}: {error}")
        client, problem = self._client(given.node)
        problem_of_claims = self._ask_for_slices(client, devices, given.at)
        placed = _placed(devices, given, self._published)
        pods: Mapping[tuple[str, str], Pod] = {}
        if client is not None and (placed.found or placed.missed):
            try:
                pods = {(pod.namespace, pod.name): pod for pod in client.pods()}
            except PodsError as error:
                problem = str(error)
        if not (placed.found or placed.missed):
            problem = ""
        placed = self._distinguish(placed, given, pods)
        self._missed = any(device.driver and error.reason in _GONE for device, error in placed.missed)
        owners = _owners(placed, given, pods)
        uids = _uids(owners, given, pods)
        holding = {each.job for each in owners.values()} | {_key(d.namespace, d.pod) for d, _ in placed.found}
        return JobsAnswer(
            state=_state(placed.missed, problem or problem_of_claims, unasked=bool(problem_of_claims)),
            jobs=tuple(
                replace(_job(*each, pods, self._config.pod_labels), aliases=uids.get(_key(*each), ()))
                for each in sorted({(d.namespace, d.pod) for d in devices})
                if _key(*each) in holding
            ),
            allocations=tuple(_allocation(device, where, pods) for device, where in placed.found),
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
            return (None, "jobs.kubernetes.server is not set, and this is no pod: name the API server")
        client = PodsClient(
            server=server, node=config.node or node, token_file=config.token_file, authority_file=config.authority_file
        )
        return client, ""

    def _ask_for_slices(self, client: PodsClient | None, devices: Sequence[ContainerDevice], now: int) -> str:
        """Ask what drivers of claims have published when a device is new, and now and then; return what fails."""
        wanted = frozenset(each.name for each in devices if each.driver)
        if client is None or not wanted:
            return ""
        asked_at, asked_for = self._asked
        lacking = self._missed or self._problem or not wanted <= self._published.keys()
        pause = UNPUBLISHED_SECONDS if lacking else SLICES_SECONDS
        known = self._published.keys() | asked_for
        if wanted <= known and 0 <= now - asked_at < pause * 1e9:
            return self._problem
        self._asked, self._problem = (now, wanted), ""
        try:
            self._published = client.published()
        except PodsError as error:
            self._problem = str(error)
        return self._problem

    def _distinguish(
        self, placed: _PlacedDevices, given: JobsInput, pods: Mapping[tuple[str, str], Pod]
    ) -> _PlacedDevices:
        """Return the devices with the instances that could be told only together."""
        among = {device.name: error.among for device, error in placed.missed if error.among}
        self._distinguished = {
            name: where for name, where in self._distinguished.items() if where in among.get(name, ())
        }
        if not among:
            return placed
        names = {pod.uid: key for key, pod in pods.items()}
        used: dict[tuple[str, str], set[PlacedDevice]] = defaultdict(set)
        for each in given.processes:
            owner = each.owner
            if owner is not None and owner.id in names:
                used[names[owner.id]].add(PlacedDevice(each.process.gpu, each.process.instance))
        holders: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for device, _ in placed.missed:
            holders[device.name].add((device.namespace, device.pod))
        taken = [*self._distinguished.values(), *(where for _, where in placed.found)]
        self._distinguished |= distinguished(
            {name: its for name, its in among.items() if name not in self._distinguished},
            taken,
            {name: frozenset(its) for name, its in holders.items()},
            {key: frozenset(its) for key, its in used.items()},
        )
        return _PlacedDevices(
            [
                *placed.found,
                *(
                    (each, self._distinguished[each.name])
                    for each, _ in placed.missed
                    if each.name in self._distinguished
                ),
            ],
            [each for each in placed.missed if each[0].name not in self._distinguished],
        )


class _PlacedDevices(NamedTuple):
    found: list[tuple[ContainerDevice, PlacedDevice]]
    """Devices that are GPUs of this node, each once a container."""
    missed: list[tuple[ContainerDevice, UnplacedError]]
    """Devices that are GPUs here, or should be, and can't be attributed."""


def _nothing(state: str, message: str) -> JobsAnswer:
    return JobsAnswer(state=JobSourceState(name=NAME, state=state, message=message))


def _placed(
    devices: Sequence[ContainerDevice], given: JobsInput, published: Mapping[str, PublishedDevice]
) -> _PlacedDevices:
    found: dict[tuple[str, str, str, PlacedDevice], ContainerDevice] = {}
    missed = []
    for device in devices:
        try:
            where = place(device, given.gpus, given.instances, published)
        except UnplacedError as error:
            missed.append((device, error))
            continue
        if where is not None:
            found[device.namespace, device.pod, device.container, where] = device
    return _PlacedDevices([(device, key[3]) for key, device in found.items()], missed)


def _state(missed: Sequence[tuple[ContainerDevice, UnplacedError]], problem: str, *, unasked: bool) -> JobSourceState:
    """Return the state of the source. `unasked`: what drivers of claims have could not be read: a device that is
    missed then has not ended."""
    parts = [problem] if problem else []
    by_reason: dict[Unplaced, list[str]] = defaultdict(list)
    for device, error in missed:
        by_reason[error.reason].append(device.name)
    for reason, names in sorted(by_reason.items()):
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = ", ".join(names[:_MOST_NAMED])
        parts.append(f"pods have devices without a GPU here ({_WHY[reason]}): {listed}{more}")
    return JobSourceState(
        name=NAME,
        message="; ".join(parts),
        state="failing" if unasked and any(device.driver for device, _ in missed) else "reading",
        unattributed=dict(sorted(Counter(error.reason.value for _, error in missed).items())),
    )


def _key(namespace: str, pod: str) -> JobKey:
    return JobKey(SCHEDULER, "", f"{namespace}/{pod}")


def _job(namespace: str, name: str, pods: Mapping[tuple[str, str], Pod], labels: Sequence[str]) -> Job:
    pod = pods.get((namespace, name))
    if pod is None:
        return Job(key=_key(namespace, name), name=name, account=namespace, queue=namespace)
    return Job(
        key=_key(namespace, name),
        name=name,
        account=namespace,
        queue=pod.queue or namespace,
        owner=pod.owner,
        purpose=pod.purpose,
        begin=pod.begin,
        end=pod.end,
        state=pod.phase.upper(),
        exit_code=pod.exit_code,
        labels={each: pod.labels[each] for each in labels if each in pod.labels},
    )


def _allocation(device: ContainerDevice, where: PlacedDevice, pods: Mapping[tuple[str, str], Pod]) -> Allocation:
    pod = pods.get((device.namespace, device.pod))
    known = Precision.PROCESS if pod is None else Precision.SCHEDULER
    return Allocation(
        job=_key(device.namespace, device.pod),
        gpu=where.gpu,
        instance=where.instance,
        step=device.container,
        source=NAME,
        begin=0 if pod is None else pod.begin,
        end=0 if pod is None else pod.end,
        begin_from=known,
        end_from=known,
    )


def _owners(
    placed: _PlacedDevices, given: JobsInput, pods: Mapping[tuple[str, str], Pod]
) -> dict[ProcessId, Ownership]:
    """Return the pod of each process in one: by its uid, or as the only one that has its GPU or its instance of it. The
    container is known by its id, and where the pod has one only."""
    by_uid = {pod.uid: key for key, pod in pods.items()}
    containers: dict[tuple[str, str], set[str]] = defaultdict(set)
    holders: dict[tuple[str, int | None], set[tuple[str, str]]] = defaultdict(set)
    for device, _ in (*placed.found, *placed.missed):
        containers[device.namespace, device.pod].add(device.container)
    for device, where in placed.found:
        holders[where.gpu, where.instance].add((device.namespace, device.pod))
    found = {}
    for each in given.processes:
        owner = each.owner
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
    owners: Mapping[ProcessId, Ownership], given: JobsInput, pods: Mapping[tuple[str, str], Pod]
) -> dict[JobKey, tuple[str, ...]]:
    """Return the uids of pods, by which their processes are known until the kubelet has named them."""
    found = {_key(*key): {pod.uid} for key, pod in pods.items()}
    for each in given.processes:
        owner = each.owner if each.id in owners else None
        if owner is not None:
            found.setdefault(owners[each.id].job, set()).add(owner.id)
    return {key: tuple(sorted(uids)) for key, uids in found.items()}
