"""A kubelet that speaks real gRPC on a Unix socket.

The messages are made by protobuf's own library from the public names and numbers of pod-resources v1, so that
the collector's reader is held against an encoder that is not ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_INT64, _STRING, _MESSAGE = 3, 9, 11
_FIELDS: dict[str, tuple[tuple[int, str, bool, str], ...]] = {
    # number, name, repeated, type
    "NUMANode": ((1, "ID", False, "int64"),),
    "TopologyInfo": ((1, "nodes", True, "NUMANode"),),
    "ContainerDevices": (
        (1, "resource_name", False, ""), (2, "device_ids", True, ""), (3, "topology", False, "TopologyInfo"),
    ),
    "CDIDevice": ((1, "name", False, ""),),
    "ClaimResource": (
        (1, "cdi_devices", True, "CDIDevice"), (2, "driver_name", False, ""),
        (3, "pool_name", False, ""), (4, "device_name", False, ""), (5, "share_id", False, ""),
    ),
    "DynamicResource": (
        (2, "claim_name", False, ""), (3, "claim_namespace", False, ""),
        (4, "claim_resources", True, "ClaimResource"),
    ),
    "ContainerResources": (
        (1, "name", False, ""), (2, "devices", True, "ContainerDevices"), (3, "cpu_ids", True, "int64"),
        (5, "dynamic_resources", True, "DynamicResource"),
    ),
    "PodResources": (
        (1, "name", False, ""), (2, "namespace", False, ""), (3, "containers", True, "ContainerResources"),
    ),
    "ListPodResourcesResponse": ((1, "pod_resources", True, "PodResources"),),
}  # fmt: skip


def _message_types() -> Mapping[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package="v1", syntax="proto3")
    for name, its in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field, repeated, kind in its:
            made = message.field.add(name=field, number=number, label=3 if repeated else 1)
            made.type = {"": _STRING, "int64": _INT64}.get(kind, _MESSAGE)
            if made.type == _MESSAGE:
                made.type_name = f".v1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in _FIELDS}


TYPES = _message_types()
Containers = Mapping[str, Sequence[tuple[str, Sequence[str]]]]
"""Resource names and device ids by container."""


class Claim(NamedTuple):
    """A device of a claim."""

    driver: str
    device: str
    pool: str = "n1"
    cdi: str = ""
    """Its id for the runtime; empty: as NVIDIA's driver makes it."""
    share: str = ""
    """Of a device that several claims have parts of."""


def pod(name: str, containers: Containers, *, namespace: str = "team", claims: Sequence[tuple[str, ...]] = ()) -> Any:
    """Return a pod as the kubelet lists it; `claims`: of its first container, as `Claim`."""
    made = []
    for number, (container, devices) in enumerate(containers.items()):
        topology = TYPES["TopologyInfo"](nodes=[TYPES["NUMANode"](ID=1)])
        given = [
            TYPES["ContainerDevices"](resource_name=resource, device_ids=list(ids), topology=topology)
            for resource, ids in devices
        ]
        claimed = [
            TYPES["DynamicResource"](
                claim_name="claim",
                claim_namespace=namespace,
                claim_resources=[
                    TYPES["ClaimResource"](
                        driver_name=each.driver,
                        pool_name=each.pool,
                        device_name=each.device,
                        cdi_devices=[TYPES["CDIDevice"](name=each.cdi or f"k8s.{each.driver}/claim=1-{each.device}")],
                        share_id=each.share,
                    )
                ],
            )
            for each in ((Claim(*one) for one in claims) if number == 0 else ())
        ]
        made.append(
            TYPES["ContainerResources"](name=container, devices=given, cpu_ids=[0, 1, 300], dynamic_resources=claimed)
        )
    return TYPES["PodResources"](name=name, namespace=namespace, containers=made)


class Kubelet:
    """What a kubelet answers now."""

    def __init__(self) -> None:
        """No pods yet."""
        self.pods: list[Any] = []
        self.before: Callable[[grpc.ServicerContext], None] = lambda _: None
        """Called first; may abort the call."""

    def answer(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer `List`."""
        self.before(context)
        encoded: bytes = TYPES["ListPodResourcesResponse"](pod_resources=self.pods).SerializeToString()
        return encoded


@contextlib.contextmanager
def listening(socket: Path) -> Iterator[Kubelet]:
    """Start a kubelet; stop it at the end."""
    kubelet = Kubelet()
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(kubelet.answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler}),))
    assert server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield kubelet
    finally:
        server.stop(None).wait()
