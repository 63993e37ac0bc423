"""GPUs by the kernel's compute driver (KFD): their numbers, the links between them, processes.

`/sys/class/kfd/kfd/topology/nodes/<n>` is a processor or a GPU, or a partition of one; a link of type 11 is
xGMI. `/sys/class/kfd/kfd/proc/<pid>/vram_<gpu_id>` is the memory that a process has on a GPU, in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from collector.probe.protocol import ProbeProcess, ProbeProcesses

KFD = "sys/class/kfd/kfd"
_XGMI = 11


@dataclass(slots=True)
class KfdGpu:
    """A GPU of the topology, with all its partitions."""

    ids: set[int] = field(default_factory=set)
    """Numbers by which files of processes name it."""
    peers: set[str] = field(default_factory=set)
    """PCI addresses, without function, of the GPUs that xGMI links to it."""


def place_of(pci: str) -> str:
    """Return a PCI address without its function, which numbers the partitions of a GPU."""
    return pci.rpartition(".")[0]


def read_topology(root: Path) -> dict[str, KfdGpu]:
    """Return the GPUs by PCI address without function; none where KFD is not there."""
    nodes = root / KFD / "topology/nodes"
    places: dict[str, str] = {}
    found: dict[str, KfdGpu] = {}
    for name in _names(nodes):
        gpu_id = _number(_text(nodes / name / "gpu_id"))
        if not gpu_id:
            continue  # a processor
        facts = _facts(nodes / name / "properties")
        location, domain = facts.get("location_id", 0), facts.get("domain", 0)
        place = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
        places[name] = place
        found.setdefault(place, KfdGpu()).ids.add(gpu_id)
    for name, place in places.items():
        links = nodes / name / "io_links"
        for link in _names(links):
            facts = _facts(links / link / "properties")
            peer = places.get(str(facts.get("node_to")))
            if facts.get("type") == _XGMI and peer is not None and peer != place:
                found[place].peers.add(peer)
    return found


def processes_of(root: Path, ids: set[int]) -> ProbeProcesses:
    """Return the processes of a GPU with these numbers."""
    folder = root / KFD / "proc"
    try:
        pids = [each.name for each in folder.iterdir() if each.name.isdigit()]
    except FileNotFoundError:
        return ProbeProcesses("not supported")
    except PermissionError:
        return ProbeProcesses("no permission")
    except OSError as error:
        return ProbeProcesses(f"KFD: {error.strerror}")
    rows = []
    for pid in sorted(pids, key=int):
        memory = [_text(folder / pid / f"vram_{each}") for each in ids]
        known = [number for each in memory if (number := _number(each)) is not None]
        if known:
            rows.append(ProbeProcess(int(pid), "compute", sum(known)))
    return ProbeProcesses("", rows)


def _names(folder: Path) -> list[str]:
    try:
        return sorted((each.name for each in folder.iterdir()), key=lambda name: (len(name), name))
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _facts(path: Path) -> dict[str, int]:
    found = {}
    for line in _text(path).splitlines():
        name, _, value = line.partition(" ")
        number = _number(value)
        if number is not None:
            found[name] = number
    return found
