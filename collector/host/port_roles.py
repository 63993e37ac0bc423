"""Role of each port of a node, and its rail. Pure.

A port that the operator names is what he says. Else a member of a bond is one, and what carries the default route is
management; what shares a PCI Express switch with a GPU is compute. InfiniBand is compute too where no port of the
node is nearer to a GPU than others, and storage where some are or where there is no GPU. RoCE that is near no GPU is
storage. Of other Ethernet nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

import msgspec

from telemetry.devices import Gpu, Port

NUMBERS = {"": 0, "compute": 1, "storage": 2, "management": 3, "member": 4}
"""Numbers of the roles in `port_role`."""


def with_roles(
    ports: Sequence[Port], gpus: Sequence[Gpu], routes: AbstractSet[str], given: Mapping[str, str]
) -> list[Port]:
    """Return the ports with their roles and rails. `routes`: interfaces of default routes; `given`: roles by
    pattern of the adapter's or interface's name."""
    order = {gpu.uuid: gpu.index for gpu in gpus}
    near = any(port.gpu in order for port in ports)
    found = [
        msgspec.structs.replace(port, role=_role(port, bool(gpus), near, routes, given), rail=None) for port in ports
    ]
    last = len(order)
    compute = [number for number, port in enumerate(found) if port.role == "compute"]
    compute.sort(key=lambda at: (order.get(found[at].gpu or "", last), at))
    for rail, number in enumerate(compute):
        found[number] = msgspec.structs.replace(found[number], rail=rail)
    return found


def _role(port: Port, has_gpus: bool, near: bool, routes: AbstractSet[str], given: Mapping[str, str]) -> str:
    names = (port.adapter, port.interface or port.adapter)
    for pattern, role in given.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return role
    if port.bond is not None:
        return "member"
    ethernet = port.link_layer != "InfiniBand"
    if ethernet and not routes.isdisjoint(names):
        return "management"
    if port.gpu is not None:
        return "compute"
    if not ethernet:
        return "compute" if has_gpus and not near else "storage"
    return "storage" if port.is_rdma else ""
