"""The pods of this node, as the API server of Kubernetes knows them: who made them, and when they began.

Optional: the kubelet alone says which pod has which GPU. The API server adds the identity by which a process's cgroup
names its pod, the object that made it, and exact times. It takes the right to list pods.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 5.0
"""Seconds after which the API server is given up for this time."""
MOST_BYTES = 16 * 1024 * 1024
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


class PodsError(Exception):
    """An answer of the API server that is none, with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node."""

    uid: str
    namespace: str
    name: str
    owner: str = ""
    """`PyTorchJob/llm`; empty where it was made by itself."""
    queue: str = ""
    begin: int = 0
    """When the node began it, ns since 1970."""
    end: int = 0
    """When its last container ended; 0 while one runs."""
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
        where = (
            f"{self.server}/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(self.node, safe='')}"
        )
        try:
            token = self.token_file.read_text().strip()
            trust = ssl.create_default_context(cafile=str(self.authority_file))
            opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trust))
            request = Request(where, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - `server` is https
            with opener.open(request, timeout=SECONDS) as answer:
                body = answer.read(MOST_BYTES + 1)
        except HTTPError as error:
            raise PodsError(_refused(error.code)) from error
        except URLError as error:
            raise PodsError(f"{self.server} does not answer: {error.reason}") from error
        except OSError as error:
            raise PodsError(
                f"{error.filename or self.server}: {error.strerror or error}"
            ) from error
        if len(body) > MOST_BYTES:
            raise PodsError(f"the list of pods is larger than {MOST_BYTES} bytes")
        try:
            return [_pod(each) for each in json.loads(body)["items"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PodsError(f"{self.server} answers with no list of pods: {error!r}") from error


def in_cluster() -> str:
    """Return the API server of the cluster that this process runs in; "" outside of one."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _refused(status: int) -> str:
    cure = {
        401: "the token is not accepted; look at jobs.kubernetes.token_file",
        403: "it may not list pods; give its service account a ClusterRole with pods: list",
    }
    return f"the API server answers {status}: {cure.get(status, 'look at its log')}"


def _pod(item: Mapping[str, Any]) -> Pod:
    facts, status = item["metadata"], item.get("status", {})
    labels = facts.get("labels") or {}
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
        begin=_time(status.get("startTime")),
        end=max((_time(each.get("finishedAt")) for each in ended), default=0) if over else 0,
        phase=str(status.get("phase", "")),
        exit_code=max(codes, key=abs) if over and codes else None,
    )


def _owner(labels: Mapping[str, str], made_by: Mapping[str, str] | None) -> str:
    kind = "" if made_by is None else made_by["kind"]
    for label, known in OWNER_LABELS.items():
        if name := labels.get(label):
            return f"{known or kind or 'Job'}/{name}"
    return "" if made_by is None else f"{kind}/{made_by['name']}"


def _time(text: str | None) -> int:
    """Return ns since 1970 of a time as the API server writes it; 0 where there is none."""
    return round(datetime.fromisoformat(text).timestamp() * 1e9) if text else 0
