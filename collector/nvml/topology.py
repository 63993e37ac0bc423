"""Who reaches whose memory: links with names at both ends, and the pools that they make. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from telemetry.inventory import Gpu, Link, MemoryPool


def with_peers(links: Iterable[Link], gpus: Sequence[Gpu]) -> tuple[Link, ...]:
    """Return the links with the UUID of the GPU at the far end, where it is one of ours."""
    by_pci = {gpu.pci: gpu.uuid for gpu in gpus if gpu.pci is not None}
    return tuple(
        msgspec.structs.replace(link, peer=by_pci.get(link.peer_pci))
        if link.peer_pci is not None
        else link
        for link in links
    )


def pools(gpus: Sequence[Gpu], links: Iterable[Link]) -> tuple[MemoryPool, ...]:
    """Return the pools of a node: all GPUs on switches are one, GPUs linked to each other are one,
    and every other GPU is alone."""
    switched: set[str] = set()
    parent = {gpu.uuid: gpu.uuid for gpu in gpus}

    def root(uuid: str) -> str:
        while parent[uuid] != uuid:
            uuid = parent[uuid]
        return uuid

    for link in links:
        if link.gpu not in parent:
            continue
        if link.peer_kind == "switch":
            switched.add(link.gpu)
        elif link.peer is not None and link.peer in parent:
            parent[root(link.gpu)] = root(link.peer)
    first = min(switched, default=None)
    for uuid in switched:
        parent[root(uuid)] = root(first or uuid)
    members: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        members.setdefault(root(gpu.uuid), []).append(gpu)
    return tuple(_pool(group, switched) for group in members.values())


def _pool(group: list[Gpu], switched: set[str]) -> MemoryPool:
    sizes = [gpu.memory_bytes for gpu in group]
    known = [size for size in sizes if size is not None]
    over = "none"
    if len(group) > 1:
        over = "nvswitch" if any(gpu.uuid in switched for gpu in group) else "nvlink"
    return MemoryPool(
        gpus=tuple(gpu.uuid for gpu in group),
        bytes=sum(known) if len(known) == len(sizes) else None,
        over=over,
    )
