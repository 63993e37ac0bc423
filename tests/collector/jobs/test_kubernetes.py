"""Pods on the GPUs of a node: a kubelet that speaks gRPC, and an API server with TLS."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from collector.jobs.grpc_call import CallError, call, fields
from collector.jobs.kubelet import ContainerDevice, container_devices, place
from collector.jobs.kubernetes import KubernetesConfig, KubernetesJobs
from collector.jobs.source import JobsAnswer, JobsInput
from telemetry.devices import Gpu, MigInstance
from telemetry.errors import ConfigError
from telemetry.wire.jobs import Precision
from tests.collector.jobs.given import START, at, process
from tests.kubernetes.kubelet import TYPES, Kubelet, listening, pod

UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(8)]
GPUS = tuple(Gpu(uuid=uuid, index=n, minor=n, name="H100") for n, uuid in enumerate(UUIDS))
RENUMBERED = tuple(
    Gpu(uuid=uuid, index=n, minor=7 - n, name="H100") for n, uuid in enumerate(UUIDS)
)
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
        pod(
            "shared-b", {"main": [("nvidia.com/gpu.shared", [f"{UUIDS[7]}::3"])]}, namespace="other"
        ),
        pod("both", {"one": [(WHOLE, UUIDS[4:5])], "two": [(WHOLE, UUIDS[5:6])]}),
        *(pod(f"web-{number}", {"main": [("rdma/hca", ["mlx5_0"])]}) for number in range(250)),
    ]
    answer = read(tmp_path)
    assert (answer.state.state, answer.state.message) == ("reading", "")
    assert held(answer) == {
        *(("team/train-0", "main", str(n), None) for n in range(4)),
        ("team/shared-a", "main", "7", None), ("other/shared-b", "main", "7", None),
        ("team/both", "one", "4", None), ("team/both", "two", "5", None),
    }  # fmt: skip
    assert {(job.key.id, job.name, job.account, job.begin) for job in answer.jobs} == {
        ("team/train-0", "train-0", "team", 0), ("team/shared-a", "shared-a", "team", 0),
        ("other/shared-b", "shared-b", "other", 0), ("team/both", "both", "team", 0),
    }  # fmt: skip
    kubelet.pods = kubelet.pods[:1]
    assert {job.key.id for job in read(tmp_path).jobs} == {"team/train-0"}


@pytest.mark.parametrize(
    ("device", "gpus", "gpu", "instance"),
    [
        (UUIDS[3], GPUS, 3, None),
        (f"{UUIDS[3]}::11", GPUS, 3, None),
        (f"MIG-{UUIDS[2]}/5/0", GPUS, 2, 5),
        ("nvidia1", GPUS, 1, None),
        ("nvidia1", RENUMBERED, 6, None),
        ("nvidia0/gi3", GPUS, 0, 3),
        ("nvidia0/vgpu1", GPUS, 0, None),
        ("nvidia0/gi3/vgpu1", GPUS, 0, 3),
        ("gpu.nvidia.com/n1/gpu-5", GPUS, 5, None),
    ],
)
def test_a_device_id_names_its_gpu(
    device: str, gpus: tuple[Gpu, ...], gpu: int, instance: int | None
) -> None:
    assert place(device, gpus) == (UUIDS[gpu], instance)


def test_amds_device_plugin_names_gpus_by_their_pci_address() -> None:
    """As plugins of network adapters do, whose devices are none of ours."""
    gpus = [Gpu(uuid="GPU-a", index=0, name="AMD Instinct MI300X", pci="0000:05:00.0")]
    assert place("0000:05:00.0", gpus) == ("GPU-a", None)
    assert place("0000:19:00.0", gpus) is None


@pytest.mark.parametrize(
    ("device", "gpus"),
    [
        ("GPU-ffffffff-0000-0000-0000-000000000000", GPUS),  # of another node
        (
            "MIG-b6ba6b2a-1cd4-5f1e-9a4c-1f2b3c4d5e6f",
            GPUS,
        ),  # an instance of which the driver says nothing
        ("nvidia9", GPUS),
        ("gpu.nvidia.com/n1/gpu-5", RENUMBERED),  # index or minor number? releases differ
        ("gpu.nvidia.com/n1/gpu-0-mig-1g10gb-19-0", GPUS),
    ],
)
def test_a_gpu_that_can_not_be_told_is_not_guessed(
    kubelet: Kubelet, tmp_path: Path, device: str, gpus: tuple[Gpu, ...]
) -> None:
    with pytest.raises(KeyError):
        place(device, gpus)
    parts = device.split("/")
    claims = [(parts[0], parts[2])] if parts[0] == "gpu.nvidia.com" else []
    kubelet.pods = [pod("odd", {"main": [] if claims else [(WHOLE, [device])]}, claims=claims)]
    answer = read(tmp_path, JobsInput(at=START, node="n1", gpus=gpus))
    assert answer.allocations == ()
    assert "no GPU of this node's inventory: " in answer.state.message


def test_an_instance_is_of_the_gpu_that_the_driver_says(kubelet: Kubelet, tmp_path: Path) -> None:
    part = MigInstance(
        uuid="MIG-b6ba6b2a-1cd4-5f1e-9a4c-1f2b3c4d5e6f", gpu=UUIDS[2], gpu_instance=7
    )
    kubelet.pods = [pod("part", {"main": [("nvidia.com/mig-1g.10gb", [part.uuid])]})]
    answer = read(tmp_path, JobsInput(at=START, node="n1", gpus=GPUS, instances=(part,)))
    assert held(answer) == {("team/part", "main", "2", 7)}
    assert answer.state.message == ""


@pytest.mark.parametrize("device", ["mlx5_0", "tpu-1", "", "nvidia", "gpu.amd.com/n1/gpu-1"])
def test_devices_of_other_kinds_are_nothing_to_us(device: str) -> None:
    assert place(device, GPUS) is None


def test_a_claim_names_its_gpu(kubelet: Kubelet, tmp_path: Path) -> None:
    """With dynamic resource allocation a container's devices are empty."""
    kubelet.pods = [pod("dra", {"main": []}, claims=[("gpu.nvidia.com", "gpu-2")])]
    assert held(read(tmp_path)) == {("team/dra", "main", "2", None)}


def test_a_process_belongs_to_the_only_pod_that_has_its_gpu(
    kubelet: Kubelet, tmp_path: Path
) -> None:
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
    assert {job.key.id: job.aliases for job in answer.jobs} == {
        "team/one": (POD,), "team/a": (), "team/b": ()
    }, "as which its processes were known before"  # fmt: skip


# -- The API server ------------------------------------------------------------------------------


class ApiServer:
    """Lists pods over TLS to whoever has the token."""

    def __init__(self, folder: Path) -> None:
        """Make a certificate and a token in a folder."""
        self.items: list[dict[str, Any]] = []
        self.slices: dict[str, list[dict[str, Any]]] = {}
        """Resource slices by the version of their group; others are not there."""
        self.status = 200
        self.asked: list[str] = []
        self.authority, key = folder / "ca.crt", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", key, "-out", self.authority, "-days", "2", "-subj", "/CN=api",
             "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.token = folder / "token"
        self.token.write_text("secret\n")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                right = self.headers["Authorization"] == "Bearer secret"
                items, status = outer.items, outer.status
                if self.path.startswith("/apis/resource.k8s.io/"):
                    version = self.path.split("/")[3]
                    items = outer.slices.get(version, [])
                    status = status if version in outer.slices else 404
                body = json.dumps({"kind": "List", "items": items}).encode()
                self.send_response(status if right else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def settings(self) -> dict[str, Any]:
        """Return the settings that lead here."""
        return {
            "api": True, "server": f"https://127.0.0.1:{self.server.server_address[1]}",
            "token_file": self.token, "authority_file": self.authority,
        }  # fmt: skip


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """Start an API server."""
    running = ApiServer(tmp_path)
    thread = threading.Thread(target=running.server.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        running.server.server_close()
        thread.join()


def item(name: str, uid: str = POD, **more: Any) -> dict[str, Any]:
    """Return a pod as the API server lists it."""
    facts = {"name": name, "namespace": "team", "uid": uid, "labels": more.get("labels", {})}
    if owner := more.get("owner"):
        facts["ownerReferences"] = [{"kind": "Node", "name": "n1"}, {"kind": owner[0], "name": owner[1], "controller": True}]  # fmt: skip
    state = {"terminated": {"exitCode": more["code"], "finishedAt": "2026-09-21T14:20:10Z"}} if "code" in more else {"running": {}}  # fmt: skip
    return {
        "metadata": facts,
        "status": {
            "phase": more.get("phase", "Running"), "startTime": "2026-09-21T14:13:25Z",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }  # fmt: skip


def test_the_api_server_says_whose_a_pod_is_and_when_it_began(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
    kubelet.pods = [
        pod("llm-worker-0", {"main": [(WHOLE, [f"{UUIDS[0]}::0"])]}),
        pod("other", {"main": [(WHOLE, [f"{UUIDS[0]}::1"])]}),
        pod("done", {"main": [(WHOLE, UUIDS[1:2])]}),
    ]
    api.items = [
        item("llm-worker-0", labels={"training.kubeflow.org/job-name": "llm", "kueue.x-k8s.io/queue-name": "big"}, owner=("PyTorchJob", "llm")),
        item("other", "1" * 8 + "-1111-1111-1111-" + "1" * 12, owner=("ReplicaSet", "other-6d4f")),
        item("done", "2" * 8 + "-2222-2222-2222-" + "2" * 12, phase="Failed", code=137),
    ]  # fmt: skip
    mine = process(10, gpu=UUIDS[0], cgroup=CGROUP)
    stranger = process(11, gpu=UUIDS[1], cgroup=CGROUP.replace("0fba5f6e", "ffffffff"))
    given = JobsInput(at=START, node="kw-1", gpus=GPUS, processes=(mine, stranger))
    answer = read(tmp_path, given, node="ip-10-0-0-1.internal", **api.settings())
    assert answer.state.message == ""
    assert api.asked == ["/api/v1/pods?fieldSelector=spec.nodeName%3Dip-10-0-0-1.internal"]
    jobs = {job.name: job for job in answer.jobs}
    assert (jobs["llm-worker-0"].owner, jobs["llm-worker-0"].queue) == ("PyTorchJob/llm", "big")
    assert (jobs["other"].owner, jobs["other"].queue) == ("ReplicaSet/other-6d4f", "team")
    assert (jobs["done"].state, jobs["done"].exit_code, jobs["done"].end - jobs["done"].begin) == ("FAILED", 137, 405 * 10**9)  # fmt: skip
    assert {each[0]: its.job.id for each, its in answer.owners.items()} == {10: "team/llm-worker-0"}
    assert {a.begin_from for a in answer.allocations} == {Precision.SCHEDULER}
    assert {a.begin for a in answer.allocations} == {at(5)}
    assert {bool(a.end) for a in answer.allocations if a.job.id == "team/done"} == {True}


def slices(*devices: tuple[str, str], basic: bool = False) -> list[dict[str, Any]]:
    """Return what a driver publishes of its devices: name and UUID of each."""
    rows = []
    for name, uuid in devices:
        facts = {"uuid": {"string": uuid}, "index": {"int": 9}, "productName": {"string": "H100"}}
        rows.append({"name": name, **({"basic": {"attributes": facts}} if basic else {"attributes": facts})})  # fmt: skip
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1}, "devices": rows}  # fmt: skip
    return [{"metadata": {"name": "n1-gpu"}, "spec": spec}]


@pytest.mark.parametrize(
    ("version", "basic"), [("v1", False), ("v1beta2", False), ("v1beta1", True)]
)
def test_a_claim_has_the_gpu_that_its_driver_publishes(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path, version: str, basic: bool
) -> None:
    """Whatever its number, and an instance of MIG; asked for when a device is new."""
    part = MigInstance(
        uuid="MIG-b6ba6b2a-1cd4-5f1e-9a4c-1f2b3c4d5e6f", gpu=UUIDS[2], gpu_instance=7
    )
    api.slices[version] = slices(
        ("gpu-5", UUIDS[1]), ("gpu-2-mig-1g10gb-19-0", part.uuid), ("gpu-6", UUIDS[6]), basic=basic
    )
    kubelet.pods = [
        pod("whole", {"main": []}, claims=[("gpu.nvidia.com", "gpu-5")]),
        pod("part", {"main": []}, claims=[("gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0")]),
        pod("nic", {"main": []}, claims=[("dra.net", "mlx5_0")]),
    ]
    source = KubernetesJobs(KubernetesConfig(socket=tmp_path / "kubelet.sock", **api.settings()))
    given = JobsInput(at=START, node="n1", gpus=RENUMBERED, instances=(part,))
    answer = source.read(given)
    assert answer.state.message == ""
    assert held(answer) == {("team/whole", "main", "1", None), ("team/part", "main", "2", 7)}
    asked = [path for path in api.asked if "resourceslices" in path]
    assert asked[-1] == f"/apis/resource.k8s.io/{version}/resourceslices?fieldSelector=spec.nodeName%3Dn1"  # fmt: skip
    source.read(given)
    assert len([path for path in api.asked if "resourceslices" in path]) == len(asked)


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
    assert "no resource slices: claims are not known; pods have devices that are no GPU" in answer.state.message  # fmt: skip
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
    kubelet: Kubelet, api: ApiServer, tmp_path: Path,
    labels: dict[str, str], owner: tuple[str, str] | None, shown: str,
) -> None:  # fmt: skip
    kubelet.pods = [pod("p", {"main": [(WHOLE, UUIDS[:1])]})]
    api.items = [item("p", labels=labels, owner=owner)]
    (job,) = read(tmp_path, **api.settings()).jobs
    assert job.owner == shown


def test_pods_on_two_instances_of_a_gpu_have_their_own_processes(
    kubelet: Kubelet, tmp_path: Path
) -> None:
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


def test_a_process_is_in_the_container_of_its_id(
    kubelet: Kubelet, api: ApiServer, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize(
    "fault", ["401", "403", "500", "no list", "another certificate", "nobody", "no token"]
)
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


@pytest.mark.parametrize(
    "message",
    [b"\x80", b"\x0a\x05ab", b"\x0b", b"\x0d\x00", b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x7f"],
)
def test_rubbish_is_no_message(message: bytes) -> None:
    with pytest.raises(CallError):
        list(fields(message))


def test_a_padded_frame_is_read_without_its_padding(tmp_path: Path) -> None:
    device = b"\x0a\x04main\x12\x09\x12\x07nvidia1"
    message = b"\x0a\x01p\x12\x01n\x1a" + bytes((len(device),)) + device
    body = b"\x0a" + bytes((len(message),)) + message
    data = b"\0" + len(body).to_bytes(4, "big") + body
    padded = bytes((3,)) + data + b"\0\0\0"
    frame = len(padded).to_bytes(3, "big") + b"\x00\x09" + (1).to_bytes(4, "big") + padded
    with speaking(tmp_path / "odd.sock", [frame]):
        assert container_devices(tmp_path / "odd.sock", 10.0) == [
            ContainerDevice("n", "p", "main", "nvidia1")
        ]
