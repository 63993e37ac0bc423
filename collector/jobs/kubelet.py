"""Devices in the hands of containers, as the kubelet of this node says (pod-resources, version 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from collector.jobs.grpc_call import CallError, call
from telemetry.wire.protobuf import ProtobufError, fields

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
METHOD = "/v1.PodResourcesLister/List"
SECONDS = 2.0
"""Seconds after which a kubelet is given up for this time."""


class ContainerDevice(NamedTuple):
    """A device that a container was given."""

    namespace: str
    pod: str
    container: str
    device: str
    """The device plugin's id, or the device's name in a claim."""
    driver: str = ""
    """Driver of the claim; empty for a device of a plugin."""
    pool: str = ""
    cdi: tuple[str, ...] = ()
    """Ids by which the runtime gives a claim's device to the container: `k8s.gpu.nvidia.com/claim=UID-gpu-0`."""

    @property
    def name(self) -> str:
        """Name of the device, of a claim with driver and pool."""
        return f"{self.driver}/{self.pool}/{self.device}" if self.driver else self.device


def container_devices(socket: Path, seconds: float = SECONDS) -> list[ContainerDevice]:
    """Return all devices of all containers of the node, not of GPUs alone. Raises `OSError`, `CallError`."""
    answer = call(socket, METHOD, seconds)
    try:
        return _devices(answer)
    except ProtobufError as error:
        raise CallError(str(error)) from error


def _devices(answer: bytes) -> list[ContainerDevice]:
    found: list[ContainerDevice] = []
    for number, pod in fields(answer):
        if number == 1:
            found += _devices_of(pod)
    return found


def _devices_of(pod: bytes | int) -> list[ContainerDevice]:
    parts = _grouped(pod)
    name, namespace = _text(parts, 1), _text(parts, 2)
    found = []
    for container in parts.get(3, ()):
        its = _grouped(container)
        place = namespace, name, _text(its, 1)
        found += [
            ContainerDevice(*place, str(each, "utf-8", "replace"))
            for devices in its.get(2, ())
            for each in _grouped(devices).get(2, ())
            if isinstance(each, bytes)
        ]
        for claim in its.get(5, ()):
            for resource in _grouped(claim).get(4, ()):
                claimed = _grouped(resource)
                driver, pool, device = (_text(claimed, number) for number in (2, 3, 4))
                cdi = tuple(_text(_grouped(each), 1) for each in claimed.get(1, ()))
                found.append(ContainerDevice(*place, device, driver, pool, cdi))
    return found


def _grouped(message: bytes | int) -> dict[int, list[bytes | int]]:
    if not isinstance(message, bytes):
        raise ProtobufError("a number in the place of a message")
    found: dict[int, list[bytes | int]] = {}
    for number, value in fields(message):
        found.setdefault(number, []).append(value)
    return found


def _text(parts: Mapping[int, Sequence[bytes | int]], number: int) -> str:
    value = parts.get(number, [b""])[-1]
    return str(value, "utf-8", "replace") if isinstance(value, bytes) else ""
