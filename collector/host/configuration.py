"""Facts of what this machine is made of and configured with, for the comparison with nodes of its kind: memory, drives,
mounts, services, kernel arguments.

Only lists of the kernel are read, no mount and no device is touched: nothing here can hang. A fact that can't
be read is left out: it is not known, which is no difference from anybody.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from collector.host.mounts import TYPES, mounted
from collector.host.role import UNITS
from telemetry.notations.kernel_args import kept_arguments
from telemetry.wire.inventory import (
    ARGUMENTS_FACT,
    DRIVES_FACT,
    MEMORY_BLOCKS_FACT,
    MEMORY_FACT,
    MOUNT_FACT,
    MOUNTS_FACT,
    SERVICE_FACT,
)

MOST_MOUNTS, MOST_SERVICES = 64, 64
_LOCAL = frozenset({"ext4", "xfs", "btrfs", "zfs"})
_MEMINFO = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)


def configuration(root: Path = Path("/"), services: Iterable[str] = ()) -> dict[str, str]:
    """Return these facts. `root` is where proc and sys are; `services`: names, without `.service`."""
    found = {**_memory(root), **_mounts(root), **_services(root, services)}
    drives = _drives(root)
    if drives is not None:
        found[DRIVES_FACT] = str(drives)
    with contextlib.suppress(OSError):
        found[ARGUMENTS_FACT] = kept_arguments((root / "proc/cmdline").read_text(errors="replace"))
    return found


def _memory(root: Path) -> dict[str, str]:
    """Return the size of the memory: of the installed blocks, where the kernel lists them. What it counts as
    its own is smaller, by a part that differs between kernels."""
    folder = root / "sys/devices/system/memory"
    try:
        size = int((folder / "block_size_bytes").read_text(), 16)
        blocks = sum(each.name[6:].isdigit() for each in folder.iterdir() if each.name.startswith("memory"))
        if blocks:
            return {MEMORY_FACT: str(size * blocks), MEMORY_BLOCKS_FACT: "1"}
    except (OSError, ValueError):
        pass
    try:
        match = _MEMINFO.search((root / "proc/meminfo").read_text())
    except OSError:
        return {}
    return {MEMORY_FACT: str(int(match[1]) * 1024)} if match else {}


def _drives(root: Path) -> int | None:
    """Return the number of local NVMe drives; None where the kernel lists no devices."""
    if not (root / "sys/class").is_dir():
        return None
    found = 0
    for folder in (root / "sys/class/nvme").glob("nvme*"):
        try:
            found += (folder / "transport").read_text().strip() == "pcie"
        except OSError:
            continue
    return found


def _mounts(root: Path) -> dict[str, str]:
    try:
        mounts = mounted((root / "proc/self/mountinfo").read_text(errors="replace"))
    except (OSError, ValueError):
        return {}
    kept = [mount for mount in mounts.values() if mount.type in TYPES or mount.type in _LOCAL]
    # Of many, those of other machines: local ones are on the same disks.
    kept.sort(key=lambda mount: (mount.type not in TYPES, mount.path))
    found = {f"{MOUNT_FACT}{mount.path}": mount.type for mount in kept[:MOST_MOUNTS]}
    return {**found, MOUNTS_FACT: str(len(kept))}


def _services(root: Path, services: Iterable[str]) -> dict[str, str]:
    """Return by service whether it has processes; nothing where cgroups are not shown."""
    folder = next((root / name for name in UNITS if (root / name).is_dir()), None)
    if folder is None:
        return {}
    names = list(dict.fromkeys(services))[:MOST_SERVICES]
    found = {}
    for name in names:
        try:
            text = (folder / f"{name}.service" / "cgroup.procs").read_bytes().strip()
        except FileNotFoundError:
            text = b""
        except OSError:  # not known
            continue
        found[f"{SERVICE_FACT}{name}"] = "running" if text else "not running"
    return found
