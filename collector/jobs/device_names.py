"""GPUs behind the names of devices: ids of device plugins, and devices of claims (dynamic resource allocation).

A device of a claim is what its driver has published of it in a resource slice. Without that its name has a number,
which is the index of a GPU in some releases of the driver and the minor number in others. A partition that the driver
makes when a claim needs it has no UUID there, and is one of several alike: those are told apart together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from collector.jobs.kubelet import ContainerDevice
from telemetry.devices import INSTANCE_PREFIX, Gpu, MigInstance
from telemetry.notations.pci import normal_pci

GPU_DRIVERS = frozenset({"gpu.nvidia.com", "gpu.amd.com"})
"""Drivers of claims on GPUs: a device of theirs that has no GPU here is missed. Those of others may be anything."""
_REPLICA = re.compile(r"::\d+$")
_INSTANCE_OF_GPU = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/\d+", re.IGNORECASE)
_MINOR = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu\d+)?")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CDI_INDEX = re.compile(r"nvidia\.com/gpu=(\d+)")
_CLAIMED = re.compile(r"gpu-(\d+)(?:-mig-(?:.*[a-z].*-\d+-(\d+)|\d+-(\d+)-\d+))?")
"""`gpu-5`; `gpu-5-mig-PROFILE-ID-START`, or `gpu-5-mig-ID-START-SIZE` in older releases."""
_PROFILE = re.compile(r"gpu-\d+-mig-(.*[a-z].*)-\d+-\d+")
_PART_OF_INSTANCE = re.compile(r"^\d+c\.")
_NO_SIGN = re.compile(r"[^0-9a-z]")


class PlacedDevice(NamedTuple):
    """A GPU, or an instance of it."""

    gpu: str
    """UUID."""
    instance: int | None


class Unplaced(StrEnum):
    """Reason for which a device that is a GPU could not be attributed."""

    UNKNOWN_GPU = "unknown_gpu"
    """This node's inventory has no such GPU."""
    UNKNOWN_INSTANCE = "unknown_instance"
    """The driver lists no such instance of MIG."""
    AMBIGUOUS_NUMBER = "ambiguous_number"
    """Its number is the index of one GPU and the minor number of another."""
    AMBIGUOUS_INSTANCE = "ambiguous_instance"
    """Several instances of its GPU fit, and no process says which it is."""
    PASSED_THROUGH = "passed_through"
    """A virtual machine has the whole device: this node's driver does not see it."""


class UnplacedError(Exception):
    """A device that is a GPU of this node, or should be, and can't be attributed."""

    def __init__(self, reason: Unplaced, among: Iterable[PlacedDevice] = ()) -> None:
        """`among`: the instances of which it is one."""
        super().__init__(reason.value)
        self.reason = reason
        self.among = frozenset(among)


class PublishedDevice(NamedTuple):
    """A device as its driver publishes it in a resource slice; a text is empty where it does not."""

    uuid: str = ""
    parent: str = ""
    """UUID of the GPU that it is a partition of."""
    profile: str = ""
    """`1g.10gb`."""
    pci: str = ""
    passed: bool = False
    """Whether it is for virtual machines."""


class _NodeDevices(NamedTuple):
    gpus: Sequence[Gpu]
    instances: Sequence[MigInstance]


def place(
    device: ContainerDevice,
    gpus: Sequence[Gpu],
    instances: Sequence[MigInstance] = (),
    published: Mapping[str, PublishedDevice] = MappingProxyType({}),
) -> PlacedDevice | None:
    """Return the GPU of a device; None for a device of another kind. `published`: devices of claims by their names.
    Raises `UnplacedError` for one that means a GPU of this node which can't be told."""
    node = _NodeDevices(gpus, instances)
    if not device.driver:
        return _of_plugin(_REPLICA.sub("", device.device), node)
    facts = published.get(device.name)
    found = None if facts is None else _of_slice(facts, device.device, node)
    if found is None:
        found = next(filter(None, (_of_cdi(each, node) for each in device.cdi)), None)
    if found is None and device.driver in GPU_DRIVERS:
        return _of_name(device.device, node)
    return found


def _of_plugin(name: str, node: _NodeDevices) -> PlacedDevice | None:
    if match := _INSTANCE_OF_GPU.fullmatch(name):
        return PlacedDevice(_known(match[1], node), int(match[2]))
    if name.startswith(("GPU-", INSTANCE_PREFIX)):
        return _by_uuid(name, node)
    if match := _MINOR.fullmatch(name):
        gpu = next((gpu.uuid for gpu in node.gpus if gpu.minor == int(match[1])), "")
        return PlacedDevice(_known(gpu, node), None if match[2] is None else int(match[2]))
    return _by_pci(name, node)  # AMD's device plugin, and those of network adapters


def _of_slice(facts: PublishedDevice, name: str, node: _NodeDevices) -> PlacedDevice | None:
    if facts.uuid.startswith(("GPU-", INSTANCE_PREFIX)):
        if facts.passed and all(gpu.uuid != facts.uuid for gpu in node.gpus):
            raise UnplacedError(Unplaced.PASSED_THROUGH)
        return _by_uuid(facts.uuid, node)
    if facts.parent:
        return _partition(_known(facts.parent, node), name, facts.profile, node)
    if found := _by_pci(facts.pci, node):
        return found
    if facts.passed:
        raise UnplacedError(Unplaced.PASSED_THROUGH)
    return None


def _of_cdi(name: str, node: _NodeDevices) -> PlacedDevice | None:
    """Return the GPU of an id of the Container Device Interface, where it says more than the device's name."""
    if match := _UUID.search(name):
        return _by_uuid(match[0], node)
    if match := _CDI_INDEX.fullmatch(name):
        gpu = next((gpu.uuid for gpu in node.gpus if gpu.index == int(match[1])), "")
        return PlacedDevice(_known(gpu, node), None)
    return None


def _of_name(name: str, node: _NodeDevices) -> PlacedDevice:
    """Return the GPU that a claim's device is named after, where its number means one GPU only."""
    if name.startswith("gpu-vfio-"):
        raise UnplacedError(Unplaced.PASSED_THROUGH)
    match = _CLAIMED.fullmatch(name)
    if match is None:
        raise UnplacedError(Unplaced.AMBIGUOUS_NUMBER)
    number = int(match[1])
    meant = {gpu.uuid for gpu in node.gpus if number in {gpu.index, gpu.minor}}
    if len(meant) > 1:
        raise UnplacedError(Unplaced.AMBIGUOUS_NUMBER)
    gpu = _known(next(iter(meant), ""), node)
    return PlacedDevice(gpu, None) if name == f"gpu-{number}" else _partition(gpu, name, "", node)


def _partition(gpu: str, name: str, profile: str, node: _NodeDevices) -> PlacedDevice:
    """Return the instance that was made for a claim: the one at the place that its name says, where the driver tells
    the places of its instances; else it is one of those with its profile."""
    its = [each for each in node.instances if each.gpu == gpu]
    match = _CLAIMED.fullmatch(name)
    start = None if match is None else match[2] or match[3]
    if start is not None and its and all(each.placement is not None for each in its):
        places = {PlacedDevice(gpu, each.gpu_instance) for each in its if each.placement == int(start)}
        if len(places) == 1:
            return places.pop()
        raise UnplacedError(Unplaced.UNKNOWN_INSTANCE)
    named = _PROFILE.fullmatch(name)
    wanted = _plain(profile or (named[1] if named else ""))
    among = {PlacedDevice(gpu, each.gpu_instance) for each in its if wanted in {"", _plain(each.profile)}}
    raise UnplacedError(Unplaced.AMBIGUOUS_INSTANCE if among else Unplaced.UNKNOWN_INSTANCE, among)


def _plain(profile: str) -> str:
    """Return the profile of a GPU instance without its signs, as names of devices have it: `1g10gb`, `1g10gbme`."""
    return _NO_SIGN.sub("", _PART_OF_INSTANCE.sub("", profile.lower()))


def _by_uuid(uuid: str, node: _NodeDevices) -> PlacedDevice:
    if not uuid.startswith(INSTANCE_PREFIX):
        return PlacedDevice(_known(uuid, node), None)
    each = next((each for each in node.instances if each.uuid == uuid), None)
    if each is None:
        raise UnplacedError(Unplaced.UNKNOWN_INSTANCE)
    return PlacedDevice(_known(each.gpu, node), each.gpu_instance)


def _by_pci(text: str, node: _NodeDevices) -> PlacedDevice | None:
    pci = normal_pci(text)
    return next((PlacedDevice(gpu.uuid, None) for gpu in node.gpus if pci and gpu.pci == pci), None)


def _known(uuid: str, node: _NodeDevices) -> str:
    if all(gpu.uuid != uuid for gpu in node.gpus):
        raise UnplacedError(Unplaced.UNKNOWN_GPU)
    return uuid


def distinguished(
    among: Mapping[str, frozenset[PlacedDevice]],
    taken: Iterable[PlacedDevice],
    holders: Mapping[str, frozenset[tuple[str, str]]],
    used: Mapping[tuple[str, str], frozenset[PlacedDevice]],
) -> dict[str, PlacedDevice]:
    """Return the instances of devices that are each one of several, as far as that can be known.

    A pod that holds as many devices as it has processes on such instances holds these; what is left of the instances
    is that of the last device. `among`: the instances of each device, by name; `taken`: by other devices; `holders`:
    pods with each device, by namespace and name; `used`: instances with a process of each pod.
    """
    free = frozenset().union(*among.values()) - frozenset(taken)
    groups: dict[tuple[frozenset[PlacedDevice], frozenset[tuple[str, str]]], list[str]]
    groups = defaultdict(list)
    for name, places in among.items():
        groups[places, holders[name]].append(name)
    found: dict[str, PlacedDevice] = {}
    for (places, pods), names in groups.items():
        seen = free & places & frozenset().union(*(used.get(pod, frozenset()) for pod in pods))
        if len(seen) == len(names):
            found.update(zip(sorted(names), sorted(seen), strict=True))
    while True:
        free -= frozenset(found.values())
        left = {name: free & places for name, places in among.items() if name not in found}
        sure = [
            name
            for name, places in left.items()
            if len(places) == 1 and sum(bool(places & other) for other in left.values()) == 1
        ]
        if not sure:
            return found
        found.update((name, next(iter(left[name]))) for name in sure)
