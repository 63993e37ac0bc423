"""Devices in the hands of containers, as the kubelet of this node says (pod-resources, version 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from collector.jobs.grpc_call import CallError, call, fields
from telemetry.devices import INSTANCE_PREFIX, Gpu, MigInstance
from telemetry.notations.pci import normal_pci

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
METHOD = "/v1.PodResourcesLister/List"
SECONDS = 2.0
"""Seconds after which a kubelet is given up for this time."""
_REPLICA = re.compile(r"::\d+$")
_INSTANCE_OF_GPU = re.compile(r"MIG-(GPU-[0-9a-f-]+)/(\d+)/\d+", re.IGNORECASE)
_MINOR = re.compile(r"nvidia(\d+)(?:/gi(\d+))?(?:/vgpu\d+)?")
_CLAIMED = re.compile(r"gpu-(\d+)")
DRIVER = "gpu.nvidia.com"
"""Driver of claims on NVIDIA's GPUs."""


class ContainerDevice(NamedTuple):
    """A device that a container was given."""

    namespace: str
    pod: str
    container: str
    device: str
    """The device plugin's id, or the device of a claim as `driver/pool/device`."""


class PlacedDevice(NamedTuple):
    """A GPU, or an instance of it."""

    gpu: str
    """UUID."""
    instance: int | None


def container_devices(socket: Path, seconds: float = SECONDS) -> list[ContainerDevice]:
    """Return all devices of all containers of the node, not of GPUs alone. Raises `OSError`, `CallError`."""
    found = []
    for number, pod in fields(call(socket, METHOD, seconds)):
        if number == 1:
            found += _devices_of(pod)
    return found


def _devices_of(pod: bytes | int) -> list[ContainerDevice]:
    parts = _grouped(pod)
    name, namespace = _text(parts, 1), _text(parts, 2)
    found = []
    for container in parts.get(3, ()):
        its = _grouped(container)
        ids = [
            str(each, "utf-8", "replace")
            for devices in its.get(2, ())
            for each in _grouped(devices).get(2, ())
            if isinstance(each, bytes)
        ]
        for claim in its.get(5, ()):
            for resource in _grouped(claim).get(4, ()):
                claimed = _grouped(resource)
                ids.append("/".join(_text(claimed, number) for number in (2, 3, 4)))
        found += [ContainerDevice(namespace, name, _text(its, 1), each) for each in ids]
    return found


def _grouped(message: bytes | int) -> dict[int, list[bytes | int]]:
    if not isinstance(message, bytes):
        raise CallError("a number in the place of a message")
    found: dict[int, list[bytes | int]] = {}
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    return found


def _text(parts: Mapping[int, Sequence[bytes | int]], number: int) -> str:
    value = parts.get(number, [b""])[-1]
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else ""


def place(
    device: str,
    gpus: Sequence[Gpu],
    instances: Sequence[MigInstance] = (),
    claimed: Mapping[str, str] = MappingProxyType({}),
) -> PlacedDevice | None:
    """Return the GPU of a device's id; None for a device of another kind, and for one that no GPU has. `claimed`: UUIDs
    of devices of claims, where their driver says. Raises `KeyError` for an id that means a GPU of this node which
    can't be told."""
    known = {gpu.uuid for gpu in gpus}
    bare = claimed.get(device) or _REPLICA.sub("", device)
    if bare.startswith("GPU-"):
        return _of(bare, None, known)
    if match := _INSTANCE_OF_GPU.fullmatch(bare):
        return _of(match[1], int(match[2]), known)
    if bare.startswith(INSTANCE_PREFIX):
        each = next((each for each in instances if each.uuid == bare), None)
        return _of(None, None, known) if each is None else _of(each.gpu, each.gpu_instance, known)
    if match := _MINOR.fullmatch(bare):
        return _of(
            _by_minor(gpus, int(match[1])), None if match[2] is None else int(match[2]), known
        )
    if pci := normal_pci(bare):  # AMD's device plugin, and those of network adapters
        return next((PlacedDevice(gpu.uuid, None) for gpu in gpus if gpu.pci == pci), None)
    driver, _, name = bare.partition("/")
    if driver == DRIVER:
        match = _CLAIMED.fullmatch(name.rpartition("/")[2])
        return _of(match and _by_both_numbers(gpus, int(match[1])), None, known)
    return None


def _by_minor(gpus: Sequence[Gpu], minor: int) -> str | None:
    return next((gpu.uuid for gpu in gpus if gpu.minor == minor), None)


def _by_both_numbers(gpus: Sequence[Gpu], number: int) -> str | None:
    """Claims name a GPU by a number, and which one that is depends on the driver's release: it is believed where
    index and minor number are the same."""
    return next(
        (gpu.uuid for gpu in gpus if gpu.index == number and gpu.minor in {None, number}), None
    )


def _of(uuid: str | None, instance: int | None, known: set[str]) -> PlacedDevice:
    if uuid is None or uuid not in known:
        raise KeyError(uuid)
    return PlacedDevice(uuid, instance)
