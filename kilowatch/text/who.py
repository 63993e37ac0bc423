"""Who uses the GPUs, as text."""

from __future__ import annotations

from collections.abc import Sequence

from kilowatch.text.table import columns
from present.device.use import HEADS, PROCESSES, UseLine, lacking_lines, use_lines
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import NodeJobs

_WIDTH = 140
_DRIVER_WORKS = frozenset({"up", "none"})


def is_gpu(text: str) -> bool:
    """Return whether an argument is an index, a UUID or a PCI address of a GPU, and not a node's name."""
    return text.isdecimal() or text.upper().startswith(("GPU-", "MIG-")) or ":" in text


def find_gpu(gpus: Sequence[Gpu], text: str) -> Gpu:
    """Return the GPU of an index, a UUID or the begin of one, or a PCI address. Raises `ConfigError`."""
    found = [
        gpu
        for gpu in gpus
        if text == str(gpu.index)
        or gpu.uuid.lower().startswith(text.lower())
        or (gpu.pci is not None and gpu.pci.endswith(text.lower()))
    ]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index}" for gpu in gpus) or "none"
        raise ConfigError(
            "GPU",
            f"{text!r} is {'no GPU' if not found else 'more than one GPU'} of this machine",
            f"Its GPUs are {known}.",
        )
    return found[0]


def who_lines(inventory: Inventory, gpus: Sequence[Gpu], found: NodeJobs, now: int) -> list[str]:
    """Return a line a process of some GPUs, one for each of them that is allocated or free without one, then
    what could not be read. `now`: ns since 1970."""
    rows = [_cells(line) for gpu in gpus for line in use_lines(found, gpu, now)]
    head = [word.upper() for word in HEADS]
    lines = columns([head, *rows], width=_WIDTH) if rows else ["no GPU"]
    if inventory.driver_state not in _DRIVER_WORKS:
        lines.append(f"driver: {inventory.driver_state}: {inventory.driver_message}")
    return [*lines, *lacking_lines(found)]


def _cells(line: UseLine) -> list[str]:
    its = str(line.gpu.index)
    gpu = its if line.instance is None else f"{its} instance {line.instance}"
    cells = (gpu, line.pid, line.user, line.job, line.memory, line.use, line.age, line.program)
    return [cell or "-" for cell in cells]


def troubled(inventory: Inventory, found: NodeJobs) -> bool:
    """Return whether processes or their owners are not known."""
    states = {source.name: source.state for source in found.sources}
    return (
        inventory.driver_state not in _DRIVER_WORKS
        or any(each in {"failing", "no permission"} for each in states.values())
        or (states.get(PROCESSES) == "absent" and len(states) == 1)
    )
