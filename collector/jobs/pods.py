"""The pods of this node, as the API server of Kubernetes knows them: who made them, and when they began.

Optional: the kubelet alone says which pod has which GPU. The API server adds the identity by which a process's cgroup
names its pod, the object that made it, and exact times. It takes the right to list pods.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from collector.http.request import HttpRequestError, get
from collector.jobs.cgroups import SHORT_ID
from collector.jobs.device_names import PublishedDevice
from telemetry.notations.purpose import declared

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 5.0
"""Seconds after which the API server is given up for this time."""
SLICES = ("v1", "v1beta2", "v1beta1")
"""Versions of the group that lists what drivers of claims have, the newest first."""
OWNER_LABELS = {
    "training.kubeflow.org/job-name": "",
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "ray.io/cluster": "RayCluster",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "volcano.sh/job-name": "VolcanoJob",
    "batch.kubernetes.io/job-name": "Job",
}
"""Labels that name what a pod belongs to, above its direct owner, and its kind; "" is the kind of the owner."""
_QUEUE = "kueue.x-k8s.io/queue-name"
_PURPOSE = "kilowatch/purpose"
"""Annotation in which the owner of a pod declares what it is for."""
_TEMPLATE = "pod-template-hash"
"""Label with the end of a replica set's name that its deployment has added."""
_PCI = ("resource.kubernetes.io/pciBusID", "pciBusID", "pciAddr", "pciAddress")
"""Attributes in which drivers publish the PCI address of a device, the standard's first."""
_Item = TypeVar("_Item")


class _Slice(NamedTuple):
    pool: str
    """Driver and pool."""
    generation: int
    """Slices of older generations of their pool hold no more."""
    devices: dict[str, PublishedDevice]


class PodsError(Exception):
    """An answer of the API server that is none, with what to do."""

    def __init__(self, text: str, status: int | None = None) -> None:
        """`status`: of the answer, where one came."""
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node."""

    uid: str
    namespace: str
    name: str
    purpose: str = ""
    owner: str = ""
    """`PyTorchJob/llm`; empty where it was made by itself."""
    queue: str = ""
    begin: int = 0
    """When the node began it, ns since 1970."""
    end: int = 0
    """When its last container ended; 0 while one runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)
    """Names of its containers by the first digits of their ids, as cgroups have them."""
    phase: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsClient:
    """Where the API server is, and how it is asked."""

    server: str
    """`https://10.0.0.1:443`."""
    node: str
    """This node's name in Kubernetes."""
    token_file: Path = ACCOUNT / "token"
    authority_file: Path = ACCOUNT / "ca.crt"

    def pods(self) -> list[Pod]:
        """Return the pods of this node. Raises `PodsError`."""
        return self._list("/api/v1/pods", "pods", _pod)

    def published(self) -> dict[str, PublishedDevice]:
        """Return the devices that drivers of claims have on this node, by `driver/pool/device`. Raises `PodsError`."""
        for version in SLICES:
            try:
                slices = self._list(f"/apis/resource.k8s.io/{version}/resourceslices", "resource slices", _slice)
            except PodsError as error:
                if error.status != 404:
                    raise
                continue
            newest: dict[str, int] = {}
            for each in slices:
                newest[each.pool] = max(each.generation, newest.get(each.pool, 0))
            current = (each for each in slices if each.generation == newest[each.pool])
            return {f"{each.pool}/{name}": facts for each in current for name, facts in each.devices.items()}
        raise PodsError("the API server has no resource slices: claims are not known")

    def _list(self, path: str, what: str, read: Callable[[Mapping[str, Any]], _Item]) -> list[_Item]:
        path = f"{path}?fieldSelector=spec.nodeName%3D{quote(self.node, safe='')}"
        try:
            token = self.token_file.read_text().strip()
            trust = ssl.create_default_context(cafile=str(self.authority_file))
            body = get(self.server, path, token=token, seconds=SECONDS, trust=trust)
        except HttpRequestError as error:
            raise PodsError(_refused(error, what), error.status) from error
        except OSError as error:
            raise PodsError(f"{error.filename or self.server}: {error.strerror or error}") from error
        try:
            return [read(each) for each in json.loads(body)["items"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PodsError(f"{self.server} answers with no list of {what}: {error!r}") from error


def in_cluster() -> str:
    """Return the API server of the cluster that this process runs in; "" outside of one."""
    host, port = (os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT"))
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _refused(error: HttpRequestError, what: str) -> str:
    if error.status is None:
        return str(error)
    cure = {
        401: "the token is not accepted; look at jobs.kubernetes.token_file",
        403: f"it may not list {what}; give its service account a ClusterRole with that: list",
    }
    return f"the API server answers {error.status}: {cure.get(error.status, 'look at its log')}"


def _slice(item: Mapping[str, Any]) -> _Slice:
    spec = item["spec"]
    driver, pool = spec["driver"], spec["pool"]
    devices = {}
    for device in spec.get("devices") or ():  # `basic`: of v1beta1
        facts = device.get("attributes") or (device.get("basic") or {}).get("attributes") or {}
        texts = {name.removeprefix(f"{driver}/"): str(value.get("string", "")) for name, value in facts.items()}
        devices[device["name"]] = PublishedDevice(
            uuid=texts.get("uuid", ""),
            parent=texts.get("parentUUID", ""),
            profile=texts.get("profile", ""),
            pci=next(filter(None, (texts.get(name) for name in _PCI)), ""),
            passed=texts.get("type") == "vfio",
        )
    return _Slice(f"{driver}/{pool['name']}", int(pool.get("generation", 0)), devices)


def _pod(item: Mapping[str, Any]) -> Pod:
    facts, status = item["metadata"], item.get("status", {})
    labels, notes = facts.get("labels") or {}, facts.get("annotations") or {}
    owners: list[Mapping[str, str]] = facts.get("ownerReferences") or []
    made_by = next((each for each in owners if each.get("controller")), None)
    states = [each.get("state", {}) for each in status.get("containerStatuses") or ()]
    ended = [state["terminated"] for state in states if "terminated" in state]
    over = bool(states) and len(ended) == len(states)
    codes = [each["exitCode"] for each in ended if isinstance(each.get("exitCode"), int)]
    return Pod(
        uid=str(facts["uid"]),
        namespace=str(facts["namespace"]),
        name=str(facts["name"]),
        owner=_owner(labels, made_by),
        queue=str(labels.get(_QUEUE, "")),
        labels={str(name): str(value) for name, value in labels.items()},
        purpose=declared(f"kilowatch: {notes[_PURPOSE]}") if _PURPOSE in notes else "",
        begin=_time(status.get("startTime")),
        end=max((_time(each.get("finishedAt")) for each in ended), default=0) if over else 0,
        containers={
            str(each["containerID"]).rpartition("/")[2][:SHORT_ID]: str(each["name"])
            for each in status.get("containerStatuses") or ()
            if each.get("containerID")
        },
        phase=str(status.get("phase", "")),
        exit_code=max(codes, key=abs) if over and codes else None,
    )


def _owner(labels: Mapping[str, str], made_by: Mapping[str, str] | None) -> str:
    kind = "" if made_by is None else made_by["kind"]
    for label, known in OWNER_LABELS.items():
        if name := labels.get(label):
            return f"{known or kind or 'Job'}/{name}"
    if made_by is None:
        return ""
    name = made_by["name"]
    suffix = f"-{labels.get(_TEMPLATE, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return f"Deployment/{name.removesuffix(suffix)}"
    return f"{kind}/{name}"


def _time(text: str | None) -> int:
    """Return ns since 1970 of a time as the API server writes it; 0 where there is none."""
    return round(datetime.fromisoformat(text).timestamp() * 1e9) if text else 0
