"""Forms in which device plugins and drivers of claims name GPUs, each through a real kubelet and a real API server."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.jobs.device_names import GPU_DRIVERS, Unplaced
from collector.jobs.kubernetes import KubernetesConfig, KubernetesJobs
from collector.jobs.source import JobsAnswer, JobsInput
from telemetry.devices import Gpu, MigInstance
from tests.collector.jobs.given import START
from tests.kubernetes.api_server import VERSIONS, resource_slice, serving
from tests.kubernetes.kubelet import Claim, listening, pod

NVIDIA, AMD = "gpu.nvidia.com", "gpu.amd.com"


def uuid(number: int) -> str:
    """Return the UUID of the GPU of an index."""
    return f"GPU-00000000-0000-0000-0000-00000000000{number}"


def part(number: int) -> str:
    """Return the UUID of an instance."""
    return f"MIG-b6ba6b2a-1cd4-5f1e-9a4c-{number:012}"


GPUS = (
    *(Gpu(uuid=uuid(n), index=n, minor=5 - n, name="H100", pci=f"0000:{n:02}:00.0") for n in range(6)),
    *(Gpu(uuid=uuid(n), index=n, name="MI300X", pci=f"0000:{n}5:00.0") for n in (6, 7)),
)
"""Six of NVIDIA whose minor numbers run the other way, and two of AMD."""
INSTANCES = (
    MigInstance(uuid=part(1), gpu=uuid(2), gpu_instance=7, profile="1g.10gb", placement=0),
    MigInstance(uuid=part(2), gpu=uuid(2), gpu_instance=8, profile="1g.10gb", placement=1),
    MigInstance(uuid=part(3), gpu=uuid(2), gpu_instance=9, profile="1g.10gb+me", placement=2),
    MigInstance(uuid=part(4), gpu=uuid(2), gpu_instance=1, profile="1c.3g.40gb", placement=4),
    MigInstance(uuid=part(5), gpu=uuid(2), gpu_instance=1, compute_instance=1, profile="2c.3g.40gb", placement=4),
    MigInstance(uuid=part(6), gpu=uuid(3), gpu_instance=2, profile="3g.40gb"),
    MigInstance(uuid=part(7), gpu=uuid(3), gpu_instance=11, profile="1g.10gb"),
    MigInstance(uuid=part(8), gpu=uuid(3), gpu_instance=12, profile="1g.10gb"),
    MigInstance(uuid=part(9), gpu=uuid(3), gpu_instance=13, profile="1g.20gb"),
)
"""Of GPU 2 with their places, of GPU 3 as the driver lists them to whoever may not ask for places."""


class Form(NamedTuple):
    """A device as a pod holds it."""

    name: str
    held: Claim | tuple[str, str]
    """A claim, or resource and id of a device plugin."""
    facts: Mapping[str, str] | None = None
    """Attributes in the resource slice of its driver; None: it is in none."""
    gpu: int | None = None
    """Index; None: it has no GPU here."""
    instance: int | None = None
    reason: str = ""


def plugin(name: str, resource: str, device: str, gpu: int, instance: int | None = None) -> Form:
    """Return a device of a device plugin."""
    return Form(name, (resource, device), None, gpu, instance)


def claim(
    name: str,
    device: str,
    facts: Mapping[str, str] | None,
    gpu: int,
    instance: int | None = None,
    driver: str = NVIDIA,
    **more: str,
) -> Form:
    """Return a device of a claim."""
    return Form(name, Claim(driver, device, **more), facts, gpu, instance)


def missed(name: str, held: Claim | tuple[str, str], reason: Unplaced, facts: Mapping[str, str] | None = None) -> Form:
    """Return a device that should be a GPU of this node and can't be attributed."""
    return Form(name, held, facts, reason=reason)


def parted(gpu: int, profile: str) -> dict[str, str]:
    """Return the attributes of a partition that is made when a claim needs it."""
    return {"type": "mig", "parentUUID": uuid(gpu), "profile": profile}


WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
ATTRIBUTED = (
    plugin("whole", WHOLE, uuid(3), 3),
    plugin("time-sliced", SHARED, f"{uuid(0)}::0", 0),
    plugin("time-sliced, another replica", SHARED, f"{uuid(0)}::11", 0),
    plugin("time-sliced under the usual name", WHOLE, f"{uuid(0)}::3", 0),
    plugin("MPS", SHARED, f"{uuid(1)}::7", 1),
    plugin("renamed by model", "nvidia.com/h100-80gb", uuid(4), 4),
    plugin("renamed by the site", "example.com/large", f"{uuid(4)}::1", 4),
    plugin("MIG, mixed", "nvidia.com/mig-1g.10gb", part(1), 2, 7),
    plugin("MIG, single", WHOLE, part(2), 2, 8),
    plugin("MIG with media engines", "nvidia.com/mig-1g.10gb.me", part(3), 2, 9),
    plugin("MIG, time-sliced", "nvidia.com/mig-1g.10gb.shared", f"{part(2)}::4", 2, 8),
    plugin("a compute instance", "nvidia.com/mig-1c.3g.40gb", part(4), 2, 1),
    plugin("MIG of old drivers", "nvidia.com/mig-1g.5gb", f"MIG-{uuid(2)}/5/0", 2, 5),
    plugin("MIG of old drivers, time-sliced", "nvidia.com/mig-1g.5gb", f"MIG-{uuid(2)}/5/0::2", 2, 5),
    plugin("GKE", WHOLE, "nvidia1", 4),
    plugin("GKE, shared", WHOLE, "nvidia0/vgpu1", 5),
    plugin("GKE, MIG", WHOLE, "nvidia3/gi7", 2, 7),
    plugin("GKE, MIG, shared", WHOLE, "nvidia3/gi7/vgpu0", 2, 7),
    plugin("AMD", "amd.com/gpu", "0000:65:00.0", 6),
    plugin("AMD, long domain", "amd.com/gpu", "00000000:75:00.0", 7),
    claim("claim by minor number", "gpu-5", {"type": "gpu", "uuid": uuid(0)}, 0),
    claim("claim by index", "gpu-1", {"type": "gpu", "uuid": uuid(1)}, 1),
    claim("claim of a pool of another name", "gpu-0", {"uuid": uuid(4)}, 4, pool="rack-7"),
    claim("claim with a qualified attribute", "gpu-4", {"gpu.nvidia.com/uuid": uuid(5)}, 5),
    claim("claim by PCI address alone", "gpu-3", {"resource.kubernetes.io/pciBusID": "0000:01:00.0"}, 1),
    claim("claim of a part of a GPU", "gpu-5", {"uuid": uuid(0)}, 0, share="a1b2"),
    claim("claim of another part of it", "gpu-5", {"uuid": uuid(0)}, 0, share="c3d4"),
    claim("static MIG", "gpu-3-mig-1g10gb-19-0", {"type": "mig", "parentUUID": uuid(2), "uuid": part(1)}, 2, 7),
    claim("static MIG of old releases", "gpu-2-mig-19-1-1", {"type": "mig", "uuid": part(2)}, 2, 8),
    claim("MIG made for the claim", "gpu-3-mig-1g10gb-0-0", parted(2, "1g.10gb"), 2, 7),
    claim("the same profile at another place", "gpu-3-mig-1g10gb-19-1", parted(2, "1g.10gb"), 2, 8),
    claim("MIG made with media engines", "gpu-3-mig-1g10gb-me-20-2", parted(2, "1g.10gb+me"), 2, 9),
    claim("MIG made, with compute instances", "gpu-3-mig-3g40gb-9-4", parted(2, "3g.40gb"), 2, 1),
    claim("MIG made, old form of name", "gpu-3-mig-9-4-4", parted(2, "3g.40gb"), 2, 1),
    claim("MIG made, places untold", "gpu-2-mig-3g40gb-9-4", parted(3, "3g.40gb"), 3, 2),
    claim("MIG made, another profile", "gpu-2-mig-1g20gb-15-6", parted(3, "1g.20gb"), 3, 13),
    claim("AMD's driver", "gpu-56-184", {"resource.kubernetes.io/pciBusID": "0000:65:00.0"}, 6, driver=AMD),
    claim("AMD's driver, first releases", "gpu-8-136", {"pciAddr": "0000:75:00.0"}, 7, driver=AMD),
    claim("a partition of AMD's", "gpu-9-137", {"type": "amdgpu-partition", "pciAddr": "0000:75:00.0"}, 7, driver=AMD),
    claim("a driver of somebody else", "slot-3", {"uuid": uuid(1)}, 1, driver="hami-core-gpu.project-hami.io"),
    claim("a name for the runtime with the UUID", "a", None, 5, driver="gpu.example.com", cdi=f"example.com/gpu={uuid(5)}"),
    claim("a name for the runtime with an instance", "b", None, 2, 9, driver="gpu.example.com", cdi=f"example.com/mig={part(3)}"),
    claim("a name for the runtime with the index", "gpu-4", None, 4, pool="unpublished", cdi="nvidia.com/gpu=4"),
    claim("a number that only one GPU has", "gpu-6", None, 6, pool="unpublished"),
)  # fmt: skip
MISSED = (
    missed("a GPU of another node", (WHOLE, "GPU-ffffffff-0000-0000-0000-000000000000"), Unplaced.UNKNOWN_GPU),
    missed("a minor number of no GPU", (WHOLE, "nvidia9"), Unplaced.UNKNOWN_GPU),
    missed("an instance of which the driver says nothing", ("nvidia.com/mig-1g.10gb", part(99)), Unplaced.UNKNOWN_INSTANCE),
    missed("a slot of a scheduler that chooses later", (WHOLE, f"{uuid(1)}-3"), Unplaced.UNKNOWN_GPU),
    missed("index or minor number", Claim(NVIDIA, "gpu-5", "unpublished"), Unplaced.AMBIGUOUS_NUMBER),
    missed("a form of name that is not known", Claim(AMD, "gpu-9-144"), Unplaced.AMBIGUOUS_NUMBER),
    missed("a board that was replaced", Claim(NVIDIA, "gpu-2"), Unplaced.UNKNOWN_GPU, {"uuid": "GPU-eeeeeeee-0000-0000-0000-000000000000"}),
    missed("an instance that is gone", Claim(NVIDIA, "gpu-3-mig-1g10gb-19-6"), Unplaced.UNKNOWN_INSTANCE, parted(2, "1g.10gb")),
    missed("no instance with its profile", Claim(NVIDIA, "gpu-2-mig-7g80gb-0-0"), Unplaced.UNKNOWN_INSTANCE, parted(3, "7g.80gb")),
    missed("one of two alike", Claim(NVIDIA, "gpu-2-mig-1g10gb-19-1"), Unplaced.AMBIGUOUS_INSTANCE, parted(3, "1g.10gb")),
    missed("in a virtual machine", Claim(NVIDIA, "gpu-vfio-0"), Unplaced.PASSED_THROUGH, {"type": "vfio", "uuid": "GPU-dddddddd-0000-0000-0000-000000000000"}),
    missed("in a virtual machine, unpublished", Claim(NVIDIA, "gpu-vfio-1"), Unplaced.PASSED_THROUGH),
)  # fmt: skip
OTHERS = (
    Form("a network card", ("rdma/hca", "mlx5_0")),
    Form("a network card by its address", ("nvidia.com/nic", "0000:19:00.0")),
    Form("a tensor processor", ("google.com/tpu", "tpu-1")),
    Form("nothing", (WHOLE, "")),
    Form("half a name", (WHOLE, "nvidia")),
    Form("a network card that is claimed", Claim("dra.net", "eth1"), {"resource.kubernetes.io/pciBusID": "0000:19:00.0"}),
    Form("a channel between nodes", Claim("compute-domain.nvidia.com", "channel-0"), {"type": "channel"}),
    Form("a GPU of a maker that is not watched", Claim("gpu.intel.com", "0000-03-00-0-0x56c0"), {"uuid": "0000-03-00-0-0x56c0"}),
    Form("a claim of a driver that publishes nothing", Claim("gpu.intel.com", "card1")),
)  # fmt: skip
FORMS = (*ATTRIBUTED, *MISSED, *OTHERS)


@pytest.fixture(scope="module", params=VERSIONS)
def answer(request: pytest.FixtureRequest) -> Iterator[JobsAnswer]:
    """Ask once, of a pod for each form; the API server has one version of resource slices."""
    version: str = request.param
    published: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for form in FORMS:
        if isinstance(form.held, Claim) and form.facts is not None:
            its = published.setdefault((form.held.driver, form.held.pool), {})
            its[form.held.device] = form.facts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with listening(folder / "kubelet.sock") as kubelet, serving(folder) as api:
            api.slices[version] = [
                resource_slice(devices, version=version, driver=driver, pool=pool)
                for (driver, pool), devices in published.items()
            ]
            kubelet.pods = [
                pod(form.name, {"main": []}, claims=[form.held])
                if isinstance(form.held, Claim)
                else pod(form.name, {"main": [(form.held[0], [form.held[1]])]})
                for form in FORMS
            ]
            config = KubernetesConfig(socket=folder / "kubelet.sock", **api.settings())
            given = JobsInput(at=START, node="n1", gpus=GPUS, instances=INSTANCES)
            yield KubernetesJobs(config).read(given)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_device_is_of_the_gpu_that_it_means(answer: JobsAnswer, form: Form) -> None:
    held = [(each.gpu, each.instance) for each in answer.allocations if each.job.id == f"team/{form.name}"]
    assert held == ([] if form.gpu is None else [(uuid(form.gpu), form.instance)])


def test_what_could_not_be_attributed_is_counted_with_the_reason(answer: JobsAnswer) -> None:
    """And named in the state of the source."""
    counts: dict[str, int] = {}
    for form in MISSED:
        counts[form.reason] = counts.get(form.reason, 0) + 1
    assert answer.state.unattributed == counts
    assert set(counts) == set(Unplaced), "each reason has a row"
    assert "(index of one GPU, minor number of another: set jobs.kubernetes.api): " in answer.state.message


def test_forty_forms_are_attributed() -> None:
    assert len(ATTRIBUTED) >= 40
    assert {form.held.driver for form in ATTRIBUTED if isinstance(form.held, Claim)} > GPU_DRIVERS


def test_without_an_api_server_a_name_counts_where_its_number_means_one_gpu() -> None:
    gpus = tuple(Gpu(uuid=uuid(n), index=n, minor=n, name="H100") for n in range(6))
    forms = {
        "gpu-5": (5, None),
        "gpu-2-mig-1g10gb-19-1": (2, 8),
        "gpu-2-mig-9-4-4": (2, 1),
        "gpu-3-mig-1g20gb-15-6": (3, 13),
    }
    with tempfile.TemporaryDirectory() as name:
        socket = Path(name) / "kubelet.sock"
        with listening(socket) as kubelet:
            kubelet.pods = [pod(each, {"main": []}, claims=[(NVIDIA, each)]) for each in forms]
            given = JobsInput(at=START, node="n1", gpus=gpus, instances=INSTANCES)
            answer = KubernetesJobs(KubernetesConfig(socket=socket)).read(given)
    assert {each.job.id.removeprefix("team/"): (each.gpu, each.instance) for each in answer.allocations} == {
        name: (uuid(gpu), instance) for name, (gpu, instance) in forms.items()
    }
    assert answer.state.unattributed == {}
