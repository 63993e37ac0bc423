"""Pods on the GPUs of a node: a kubelet that speaks gRPC, and an API server with TLS."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from collector.jobs.grpc_call import CallError, call
from collector.jobs.kubelet import ContainerDevice, container_devices
from collector.jobs.kubernetes import KubernetesConfig, KubernetesJobs
from collector.jobs.source import JobsAnswer, JobsInput
from telemetry.devices import Gpu, MigInstance
from telemetry.errors import ConfigError
from telemetry.wire.jobs import Precision
from tests.collector.jobs.given import START, at, process
from tests.kubernetes.api_server import ApiServer, resource_slice, serving
from tests.kubernetes.kubelet import TYPES, Kubelet, listening, pod

UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(8)]
GPUS = tuple(Gpu(uuid=uuid, index=n, minor=n, name="H100") for n, uuid in enumerate(UUIDS))
RENUMBERED = tuple(Gpu(uuid=uuid, index=n, minor=7 - n, name="H100") for n, uuid in enumerate(UUIDS))
WHOLE = "nvidia.com/gpu"
POD = "0fba5f6e-1cd4-4f1e-9a4c-1f2b3c4d5e6f"
CGROUP = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """Start a kubelet."""
    with listening(tmp_path / "kubelet.sock") as running:
        yield running


def read(folder: Path, given: JobsInput | None = None, **settings: Any) -> JobsAnswer:
    """Ask once."""
    source = KubernetesJobs(KubernetesConfig(socket=folder / "kubelet.sock", **settings))
    return source.read(given or JobsInput(at=START, node="n1", gpus=GPUS))


def held(answer: JobsAnswer) -> set[tuple[str, str, str, int | None]]:
    """Return pod, container, GPU and instance of each allocation."""
    return {(a.job.id, a.step, a.gpu[-1], a.instance) for a in answer.allocations}


def test_pods_have_the_gpus_that_the_kubelet_gave_them(kubelet: Kubelet, tmp_path: Path) -> None:
    """Containers, shares of one GPU, and pods without a GPU among 250."""
    kubelet.pods = [
        pod("train-0", {"main": [(WHOLE, UUIDS[:4])], "sidecar": []}),
        pod("shared-a", {"main": [("nvidia.com/gpu.shared", [f"{UUIDS[7]}::2"])]}),
        pod("shared-b", {"main": [("nvidia.com/gpu.shared", [f"{UUIDS[7]}::3"])]}, namespace="other"),
        pod("both", {"one": [(WHOLE, UUIDS[4:5])], "two": [(WHOLE, UUIDS[5:6])]}),
        *(pod(f"web-{number}", {"main": [("rdma/hca", ["mlx5_0"])]}) for number in range(250)),
    ]
    answer = read(tmp_path)
    assert (answer.state.state, answer.state.message) == ("reading", "")
    assert held(answer) == {
        *(("team/train-0", "main", str(n), None) for n in range(4)),
        ("team/shared-a", "main", "7", None),
        ("other/shared-b", "main", "7", None),
        ("team/both", "one", "4", None),
        ("team/both", "two", "5", None),
    }
    assert {(job.key.id, job.name, job.account, job.begin) for job in answer.jobs} == {
        ("team/train-0", "train-0", "team", 0),
        ("team/shared-a", "shared-a", "team", 0),
        ("other/shared-b", "shared-b", "other", 0),
        ("team/both", "both", "team", 0),
    }
    kubelet.pods = kubelet.pods[:1]
    assert {job.key.id for job in read(tmp_path).jobs} == {"team/train-0"}


def test_an_instance_is_of_the_gpu_that_the_driver_says(kubelet: Kubelet, tmp_path: Path) -> None:
    part = MigInstance(uuid="MIG-b6ba6b2a-1cd4-5f1e-9a4c-1f2b3c4d5e6f", gpu=UUIDS[2], gpu_instance=7)
    kubelet.pods = [pod("part", {"main": [("nvidia.com/mig-1g.10gb", [part.uuid])]})]
    answer = read(tmp_path, JobsInput(at=START, node="n1", gpus=GPUS, instances=(part,)))
    assert held(answer) == {("team/part", "main", "2", 7)}
    assert answer.state.message == ""


def test_a_claim_names_its_gpu(kubelet: Kubelet, tmp_path: Path) -> None:
    """With dynamic resource allocation a container's devices are empty."""
    kubelet.pods = [pod("dra", {"main": []}, claims=[("gpu.nvidia.com", "gpu-2")])]
    assert held(read(tmp_path)) == {("team/dra", "main", "2", None)}


def test_a_process_belongs_to_the_only_pod_that_has_its_gpu(kubelet: Kubelet, tmp_path: Path) -> None:
    """Of a GPU that two pods share, none is guessed."""
    kubelet.pods = [
        pod("one", {"main": [(WHOLE, UUIDS[:1])]}),
        pod("a", {"main": [(WHOLE, [f"{UUIDS[1]}::0"])]}),
        pod("b", {"main": [(WHOLE, [f"{UUIDS[1]}::1"])]}),
    ]
    inside = process(10, gpu=UUIDS[0], cgroup=CGROUP)
    outside = process(11, gpu=UUIDS[0], cgroup="0::/user.slice/user-1000.slice/session-2.scope")
    shared = process(12, gpu=UUIDS[1], cgroup=CGROUP)
    given = JobsInput(at=START, node="n1", gpus=GPUS, processes=(inside, outside, shared))
    answer = read(tmp_path, given)
    assert {each[0]: its.job.id for each, its in answer.owners.items()} == {10: "team/one"}
    assert {job.key.id: job.aliases for job in answer.jobs} == {"team/one": (POD,), "team/a": (), "team/b": ()}, (
        "as which its processes were known before"
    )


# -- The API server ------------------------------------------------------------------------------


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """Start an API server."""
    with serving(tmp_path) as running:
        yield running


def item(name: str, uid: str = POD, **more: Any) -> dict[str, Any]:
    """Return a pod as the API server lists it."""
    facts = {"name": name, "namespace": "team", "uid": uid, "labels": more.get("labels", {})}
    if purpose := more.get("purpose"):
        facts["annotations"] = {"kilowatch/purpose": purpose}
    if owner := more.get("owner"):
        facts["ownerReferences"] = [
            {"kind": "Node", "name": "n1"},
            {"kind": owner[0], "name": owner[1], "controller": True},
        ]
    state = (
        {"terminated": {"exitCode": more["code"], "finishedAt": "2026-09-21T14:20:10Z"}}
        if "code" in more
        else {"running": {}}
    )
    return {
        "metadata": facts,
        "status": {
            "phase": more.get("phase", "Running"),
            "startTime": "2026-09-21T14:13:25Z",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }


def test_the_api_server_says_whose_a_pod_is_and_when_it_began(kubelet: Kubelet, api: ApiServer, tmp_path: Path) -> None:
    kubelet.pods = [
        pod("llm-worker-0", {"main": [(WHOLE, [f"{UUIDS[0]}::0"])]}),
        pod("other", {"main": [(WHOLE, [f"{UUIDS[0]}::1"])]}),
        pod("done", {"main": [(WHOLE, UUIDS[1:2])]}),
    ]
    api.items = [
        item(
            "llm-worker-0",
            labels={"training.kubeflow.org/job-name": "llm", "kueue.x-k8s.io/queue-name": "big"},
            owner=("PyTorchJob", "llm"),
        ),
        item("other", "1" * 8 + "-1111-1111-1111-" + "1" * 12, owner=("ReplicaSet", "other-6d4f"), purpose="idle=ok"),
        item("done", "2" * 8 + "-2222-2222-2222-" + "2" * 12, phase="Failed", code=137),
    ]
    mine = process(10, gpu=UUIDS[0], cgroup=CGROUP)
    stranger = process(11, gpu=UUIDS[1], cgroup=CGROUP.replace("0fba5f6e", "ffffffff"))
    given = JobsInput(at=START, node="kw-1", gpus=GPUS, processes=(mine, stranger))
    answer = read(tmp_path, given, node="ip-10-0-0-1.internal", **api.settings())
    assert answer.state.message == ""
    assert api.asked == ["/api/v1/pods?fieldSelector=spec.nodeName%3Dip-10-0-0-1.internal"]
    jobs = {job.name: job for job in answer.jobs}
    assert (jobs["llm-worker-0"].owner, jobs["llm-worker-0"].queue) == ("PyTorchJob/llm", "big")
    assert (jobs["other"].owner, jobs["other"].queue) == ("ReplicaSet/other-6d4f", "team")
    assert {job.name: job.purpose for job in answer.jobs} == {"llm-worker-0": "", "other": "idle=ok", "done": ""}
    assert (jobs["done"].state, jobs["done"].exit_code, jobs["done"].end - jobs["done"].begin) == (
        "FAILED",
        137,
        405 * 10**9,
    )
    assert {each[0]: its.job.id for each, its in answer.owners.items()} == {10: "team/llm-worker-0"}
    assert {a.begin_from for a in answer.allocations} == {Precision.SCHEDULER}
    assert {a.begin for a in answer.allocations} == {at(5)}
    assert {bool(a.end) for a in answer.allocations if a.job.id == "team/done"} == {True}


def test_labels_of_a_pod_leave_the_node_where_a_setting_names_them(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    kubelet.pods = [pod("train-0", {"main": [(WHOLE, UUIDS[:1])]}), pod("bare", {"main": [(WHOLE, UUIDS[1:2])]})]
    api.items = [item("train-0", labels={"team": "vision", "app.kubernetes.io/name": "llm", "secret": "x"})]
    named = ("team", "app.kubernetes.io/name", "tier")
    answer = read(tmp_path, pod_labels=named, **api.settings())
    assert {job.name: job.labels for job in answer.jobs} == {
        "train-0": {"team": "vision", "app.kubernetes.io/name": "llm"},
        "bare": {},
    }
    assert {tuple(job.labels) for job in read(tmp_path, **api.settings()).jobs} == {()}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [({"pod_labels": ("a",)}, "the kubelet does not know"), ({"pod_labels": ("a",) * 33, "api": True}, "33 labels")],
)
def test_labels_that_can_not_be_had_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        KubernetesConfig(**settings)
    assert caught.value.where == "jobs.kubernetes.pod_labels"


def questions(api: ApiServer) -> int:
    """Return how often resource slices were asked for."""
    return sum("resourceslices" in path for path in api.asked)


def test_slices_are_asked_for_when_a_device_is_new_and_now_and_then(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    """A driver that starts anew may name its devices otherwise: an older generation of its pool holds no more."""
    first = {"gpu-5": {"uuid": UUIDS[1]}, "gpu-6": {"uuid": UUIDS[6]}}
    api.slices["v1"] = [resource_slice(first), resource_slice({"gpu-5": {}}, node="n2")]
    kubelet.pods = [
        pod("whole", {"main": []}, claims=[("gpu.nvidia.com", "gpu-5")]),
        pod("nic", {"main": []}, claims=[("dra.net", "mlx5_0")]),
    ]
    source = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock", **api.settings()))

    def asked(seconds: float) -> JobsAnswer:
        return source.read(JobsInput(at=at(seconds), node="n1", gpus=RENUMBERED))

    assert held(asked(0)) == {("team/whole", "main", "1", None)}
    assert [path for path in api.asked if "resourceslices" in path] == [
        "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dn1"
    ]
    asked(29)
    assert questions(api) == 1, "the network card is in no slice: not at every look"
    asked(30)
    assert questions(api) == 2
    api.slices["v1"].append(resource_slice({"mlx5_0": {}}, driver="dra.net"))
    asked(60)
    kubelet.pods.append(pod("late", {"main": []}, claims=[("gpu.nvidia.com", "gpu-6")]))
    assert ("team/late", "main", "6", None) in held(asked(65))
    assert questions(api) == 3, "it was published before anybody claimed it"
    second = {"gpu-5": {"uuid": UUIDS[2]}, "gpu-6": {"uuid": UUIDS[6]}}
    api.slices["v1"].insert(0, resource_slice(second, generation=2))
    assert ("team/whole", "main", "1", None) in held(asked(359))
    assert ("team/whole", "main", "2", None) in held(asked(360))
    assert questions(api) == 4


def test_a_claim_that_moves_is_where_it_is_now(kubelet: Kubelet, api: ApiServer, tmp_path: Path) -> None:
    """To another pod, and to another device; while the API server is away, what it had said holds."""
    devices = {f"gpu-{n}": {"uuid": uuid} for n, uuid in enumerate(UUIDS)}
    api.slices["v1"] = [resource_slice(devices)]
    source = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock", **api.settings()))

    def asked(seconds: float, name: str, device: str) -> JobsAnswer:
        kubelet.pods = [pod(name, {"main": []}, claims=[("gpu.nvidia.com", device)])]
        return source.read(JobsInput(at=at(seconds), node="n1", gpus=RENUMBERED))

    assert held(asked(0, "a", "gpu-5")) == {("team/a", "main", "5", None)}
    assert held(asked(5, "b", "gpu-5")) == {("team/b", "main", "5", None)}
    api.status = 503
    answer = asked(400, "b", "gpu-4")
    assert held(answer) == {("team/b", "main", "4", None)}
    assert "the API server answers 503" in answer.state.message
    api.status = 200
    assert answer.state.state == "reading", "nothing is missed"
    assert asked(431, "b", "gpu-4").state.message == ""
    api.status = 503
    assert asked(440, "c", "gpu-3").state.state == "reading", "published before"
    again = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock", **api.settings()))
    answer = again.read(JobsInput(at=at(450), node="n1", gpus=RENUMBERED))
    assert answer.allocations == ()
    assert answer.state.state == "failing", "the claim of before has not ended by that"


def test_a_kubelet_that_starts_anew_is_asked_at_its_new_socket(tmp_path: Path) -> None:
    source = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock"))
    given = JobsInput(at=START, node="n1", gpus=GPUS)
    states = []
    for number in (1, 2):
        with listening(tmp_path / "kubelet.sock") as running:
            running.pods = [pod("p", {"main": []}, claims=[("gpu.nvidia.com", f"gpu-{number}")])]
            answer = source.read(given)
            assert held(answer) == {("team/p", "main", str(number), None)}
        answer = source.read(given)
        assert answer.allocations == ()
        states.append(answer.state.state)
    assert set(states) <= {"absent", "failing"}, "nothing is ended by that"


ALIKE = tuple(MigInstance(uuid=f"MIG-{n}", gpu=UUIDS[2], gpu_instance=n, profile="1g.10gb") for n in (7, 8, 9))


def test_instances_alike_are_told_apart_by_their_processes_and_then_by_what_is_left(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    """Partitions that a driver makes for claims have no UUID in its slices; what was told holds while it is claimed."""
    names = [f"gpu-5-mig-1g10gb-19-{place}" for place in (0, 1, 2)]
    facts = {"type": "mig", "parentUUID": UUIDS[2], "profile": "1g.10gb"}
    api.slices["v1"] = [resource_slice(dict.fromkeys(names, facts))]
    uids = {name: f"{number}" * 8 + POD[8:] for number, name in enumerate("abc")}
    api.items = [item(name, uid) for name, uid in uids.items()]
    source = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock", **api.settings()))

    def asked(pods: str, instances: tuple[MigInstance, ...] = ALIKE, **used: int) -> JobsAnswer:
        kubelet.pods = [pod(name, {"main": []}, claims=[("gpu.nvidia.com", names["abc".index(name)])]) for name in pods]
        processes = tuple(
            process(10 + number, gpu=UUIDS[2], instance=number, cgroup=CGROUP.replace("0fba5f6e", uids[name][:8]))
            for name, number in used.items()
        )
        given = JobsInput(at=START, node="n1", gpus=RENUMBERED, instances=instances, processes=processes)
        return source.read(given)

    assert held(asked("a", ALIKE[:1])) == {("team/a", "main", "2", 7)}, "there is one only"
    answer = asked("ab", ALIKE[:1])
    assert answer.state.unattributed == {"ambiguous_instance": 1}, "the second is not listed yet"
    assert held(asked("ab", ALIKE[:2])) == {("team/a", "main", "2", 7), ("team/b", "main", "2", 8)}
    asked("")
    assert held(asked("ab", ALIKE[:1])) == set(), "it is of one of them"
    asked("")
    answer = asked("abc")
    assert answer.allocations == ()
    assert answer.state.unattributed == {"ambiguous_instance": 3}
    assert "one of several instances alike, and no process says which" in answer.state.message
    answer = asked("abc", b=7)
    assert held(answer) == {("team/b", "main", "2", 7)}
    assert answer.state.unattributed == {"ambiguous_instance": 2}
    every = {("team/b", "main", "2", 7), ("team/c", "main", "2", 8), ("team/a", "main", "2", 9)}
    assert held(asked("abc", c=8)) == every
    assert held(asked("abc")) == every
    assert held(asked("ac")) == every - {("team/b", "main", "2", 7)}


def test_the_processes_of_a_pod_whose_device_has_no_gpu_here_are_its_own(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    kubelet.pods = [pod("odd", {"main": []}, claims=[("gpu.nvidia.com", "gpu-5")])]
    api.items = [item("odd", owner=("Job", "train"))]
    given = JobsInput(at=START, node="n1", gpus=RENUMBERED, processes=(process(10, gpu=UUIDS[0], cgroup=CGROUP),))
    answer = read(tmp_path, given, **api.settings())
    assert answer.state.unattributed == {"ambiguous_number": 1}
    assert {each[0]: its.job.id for each, its in answer.owners.items()} == {10: "team/odd"}
    assert [job.owner for job in answer.jobs] == ["Job/train"]


def test_a_claim_of_a_driver_that_publishes_nothing_is_not_guessed(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    """Where index and minor number differ; the pods are read all the same."""
    kubelet.pods = [
        pod("claims", {"main": []}, claims=[("gpu.nvidia.com", "gpu-5")]),
        pod("one", {"main": [(WHOLE, UUIDS[:1])]}),
    ]
    given = JobsInput(at=START, node="n1", gpus=RENUMBERED)
    answer = read(tmp_path, given, **api.settings())
    assert held(answer) == {("team/one", "main", "0", None)}
    assert (
        "no resource slices: claims are not known; pods have devices without a GPU here (index of one GPU"
        in answer.state.message
    )
    api.slices["v1"] = [{"spec": None}]
    assert "no list of resource slices" in read(tmp_path, given, **api.settings()).state.message


@pytest.mark.parametrize(
    ("labels", "owner", "shown"),
    [
        ({"batch.kubernetes.io/job-name": "train"}, ("Job", "train"), "Job/train"),
        ({"batch.kubernetes.io/job-name": "night-29384", "controller-uid": "x"}, ("Job", "night-29384"), "Job/night-29384"),
        ({"training.kubeflow.org/job-name": "llm", "training.kubeflow.org/replica-index": "3"}, ("PyTorchJob", "llm"), "PyTorchJob/llm"),
        ({"training.kubeflow.org/job-name": "hpl"}, ("MPIJob", "hpl"), "MPIJob/hpl"),
        ({"training.kubeflow.org/job-name": "bert"}, ("TFJob", "bert"), "TFJob/bert"),
        ({"jobset.sigs.k8s.io/jobset-name": "big", "batch.kubernetes.io/job-name": "big-w-0"}, ("Job", "big-w-0"), "JobSet/big"),
        ({"ray.io/cluster": "lab", "ray.io/node-type": "worker"}, ("RayCluster", "lab"), "RayCluster/lab"),
        ({"leaderworkerset.sigs.k8s.io/name": "vllm"}, ("StatefulSet", "vllm-0"), "LeaderWorkerSet/vllm"),
        ({"volcano.sh/job-name": "v"}, ("Job", "v"), "VolcanoJob/v"),
        ({"pod-template-hash": "6d4f8b"}, ("ReplicaSet", "chat-ui-6d4f8b"), "Deployment/chat-ui"),
        ({"pod-template-hash": "other"}, ("ReplicaSet", "chat-ui-6d4f8b"), "ReplicaSet/chat-ui-6d4f8b"),
        ({}, ("StatefulSet", "notebook"), "StatefulSet/notebook"),
        ({}, ("DaemonSet", "dcgm"), "DaemonSet/dcgm"),
        ({}, None, ""),
    ],
)  # fmt: skip
def test_a_pod_belongs_to_what_its_labels_and_its_owner_name(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path, labels: dict[str, str], owner: tuple[str, str] | None, shown: str
) -> None:
    kubelet.pods = [pod("p", {"main": [(WHOLE, UUIDS[:1])]})]
    api.items = [item("p", labels=labels, owner=owner)]
    (job,) = read(tmp_path, **api.settings()).jobs
    assert job.owner == shown


def test_pods_on_two_instances_of_a_gpu_have_their_own_processes(kubelet: Kubelet, tmp_path: Path) -> None:
    """Without the API server: an instance has one pod, though its GPU has two."""
    kubelet.pods = [
        pod(name, {"main": [("nvidia.com/mig-3g.40gb", [f"MIG-{UUIDS[2]}/{number}/0"])]})
        for name, number in (("one", 1), ("two", 2))
    ]
    processes = [
        process(pid, gpu=UUIDS[2], cgroup=CGROUP.replace("0fba5f6e", f"{pid:08x}"), instance=number)
        for pid, number in ((10, 1), (11, 2), (12, None))
    ]
    given = JobsInput(at=START, node="n1", gpus=GPUS, processes=tuple(processes))
    owners = read(tmp_path, given).owners
    assert {each[0]: its.job.id for each, its in owners.items()} == {10: "team/one", 11: "team/two"}


def test_a_process_is_in_the_container_of_its_id(kubelet: Kubelet, api: ApiServer, tmp_path: Path) -> None:
    """And not in the only one that asked for the GPU."""
    kubelet.pods = [pod("p", {"main": [(WHOLE, UUIDS[:1])], "sidecar": []})]
    api.items = [item("p")]
    api.items[0]["status"]["containerStatuses"] = [
        {"name": name, "containerID": f"containerd://{digits * 32}", "state": {"running": {}}}
        for name, digits in (("main", "cd"), ("sidecar", "ab"))
    ]
    mine = process(10, gpu=UUIDS[0], cgroup=CGROUP)
    other = process(11, gpu=UUIDS[0], cgroup=CGROUP.replace("ab" * 32, "ee" * 32))
    given = JobsInput(at=START, node="n1", gpus=GPUS, processes=(mine, other))
    owners = read(tmp_path, given, **api.settings()).owners
    assert {each[0]: its.step for each, its in owners.items()} == {10: "sidecar", 11: "main"}


@pytest.mark.parametrize("fault", ["401", "403", "500", "no list", "another certificate", "nobody", "no token"])
def test_without_the_api_server_the_kubelet_alone_is_believed(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path, fault: str
) -> None:
    kubelet.pods = [pod("one", {"main": [(WHOLE, UUIDS[:1])]})]
    settings = api.settings()
    match fault:
        case "401":
            api.token.write_text("another")
            problem = "answers 401: the token is not accepted"
        case "403":
            api.status, problem = 403, "answers 403: it may not list pods; give its service account"
        case "500":
            api.status, problem = 500, "answers 500"
        case "no list":
            api.items, problem = [{"metadata": None}], "answers with no list of pods"
        case "another certificate":
            other = tmp_path / "other"
            other.mkdir()
            stranger = ApiServer(other)
            stranger.server.server_close()
            settings["authority_file"] = stranger.authority
            problem = "does not answer: [SSL: CERTIFICATE_VERIFY_FAILED]"
        case "nobody":
            with socket.create_server(("127.0.0.1", 0)) as free:
                settings["server"] = f"https://127.0.0.1:{free.getsockname()[1]}"
            problem = "does not answer: Connection refused"
        case _:
            api.token.unlink()
            problem = "token: No such file or directory"
    answer = read(tmp_path, **settings)
    assert problem in answer.state.message
    assert answer.state.state == "reading"
    assert held(answer) == {("team/one", "main", "0", None)}


def test_an_api_server_without_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match="no https:// address"):
        KubernetesConfig(server="http://10.0.0.1")


# -- A kubelet that is not there, or is no kubelet -----------------------------------------------


def test_a_node_without_a_kubelet_says_so(tmp_path: Path) -> None:
    answer = read(tmp_path)
    assert (answer.state.state, answer.allocations) == ("absent", ())
    assert "no kubelet listens at" in answer.state.message


def test_a_kubelet_that_refuses_is_a_state(kubelet: Kubelet, tmp_path: Path) -> None:
    def too_often(context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    kubelet.before = too_often
    answer = read(tmp_path)
    assert answer.state.state == "failing"
    assert "no whole message came" in answer.state.message
    kubelet.before = lambda _: None
    assert read(tmp_path).state.state == "reading"
    with pytest.raises(CallError, match="no whole message"):
        call(tmp_path / "kubelet.sock", "/v1.PodResourcesLister/Nope", 5.0)


def test_a_kubelet_that_hangs_is_given_up(kubelet: Kubelet, tmp_path: Path) -> None:
    over = threading.Event()
    kubelet.before = lambda _: over.wait() and None
    try:
        with pytest.raises(CallError, match=r"no answer within 0.3 s"):
            container_devices(tmp_path / "kubelet.sock", 0.3)
    finally:
        over.set()


def test_an_old_socket_file_is_a_kubelet_that_is_gone(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "kubelet.sock"))
    answer = read(tmp_path)
    assert (answer.state.state, "Connection refused" in answer.state.message) == ("failing", True)


@contextlib.contextmanager
def speaking(path: Path, words: list[bytes]) -> Iterator[None]:
    """Answer each connection with the next of some bytes, and close it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            for said in words:
                with contextlib.suppress(OSError):
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(65_536)
                        peer.sendall(said)
                        peer.shutdown(socket.SHUT_WR)
                        while peer.recv(65_536):
                            pass  # until the client has gone, as a server would

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()


def framed(body: bytes) -> bytes:
    """Return an answer as a server frames it: settings, the message in two pieces, and trailers."""
    message = b"\0" + len(body).to_bytes(4, "big") + body
    pieces = [(4, 0, 0, b""), (0, 0, 1, message[:40]), (0, 0, 1, message[40:]), (1, 5, 1, b"\x88")]
    return b"".join(
        len(piece).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + piece
        for kind, flags, stream, piece in pieces
    )


def test_whatever_a_kubelet_answers_is_devices_or_one_error(tmp_path: Path) -> None:
    """Changed, cut off and invented answers: never another exception, never without an end."""
    one = pod("train-0", {"main": [(WHOLE, UUIDS[:4])]}, claims=[("gpu.nvidia.com", "gpu-5")])
    good = framed(TYPES["ListPodResourcesResponse"](pod_resources=[one]).SerializeToString())
    dice = random.Random(18)
    words = [good, good[: len(good) // 2], b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 40]
    for _ in range(2000):
        body = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        words.append(bytes(body[: dice.randrange(len(body))] if dice.random() < 0.2 else body))
    path = tmp_path / "odd.sock"
    outcomes = []
    with speaking(path, words):
        for _ in words:
            try:
                outcomes.append(len(container_devices(path, 10.0)))
            except (CallError, OSError) as error:
                outcomes.append(type(error).__name__)
    assert outcomes[0] == 5
    assert set(outcomes[1:5]) <= {"CallError"}
    assert len(outcomes) == len(words)


def test_a_padded_frame_is_read_without_its_padding(tmp_path: Path) -> None:
    device = b"\x0a\x04main\x12\x09\x12\x07nvidia1"
    message = b"\x0a\x01p\x12\x01n\x1a" + bytes((len(device),)) + device
    body = b"\x0a" + bytes((len(message),)) + message
    data = b"\0" + len(body).to_bytes(4, "big") + body
    padded = bytes((3,)) + data + b"\0\0\0"
    frame = len(padded).to_bytes(3, "big") + b"\x00\x09" + (1).to_bytes(4, "big") + padded
    with speaking(tmp_path / "odd.sock", [frame]):
        assert container_devices(tmp_path / "odd.sock", 10.0) == [ContainerDevice("n", "p", "main", "nvidia1")]
