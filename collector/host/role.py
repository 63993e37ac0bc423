"""The role of this machine in its cluster, by its PCI bus and its services.

The PCI bus decides whether a machine has GPUs, never the driver: a node whose driver is gone stays a
GPU node, whose driver is missing, and does not turn into one without GPUs.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from telemetry.wire.inventory import NodeRole

NVIDIA, AMD = "0x10de", "0x1002"
_GPU_CLASSES = {NVIDIA: ("0x0300", "0x0302"), AMD: ("0x0302", "0x0380", "0x1200")}
"""PCI classes by vendor: displays, 3D controllers, processing accelerators. AMD's displays are parts of a CPU."""
PCI = "sys/bus/pci/devices"
_MODULES = ("proc/driver/nvidia/version", "dev/dxg", "dev/nvhost-ctrl", "dev/kfd")
"""Files of loaded GPU drivers whose GPU need not be on the PCI bus: a Jetson, WSL."""
_HEAD_UNITS = ("slurmctld", "k3s", "kube-apiserver", "pbs_server", "lsf_master")
_HEAD_FILES = ("etc/kubernetes/manifests/kube-apiserver.yaml",)
_STORAGE_UNITS = ("beegfs-storage", "beegfs-meta", "glusterd", "weka-agent-backend")
_STORAGE_FOLDERS = ("proc/fs/lustre/obdfilter", "proc/fs/lustre/mdt", "sys/fs/lustre/obdfilter",
                    "sys/fs/lustre/mdt", "var/lib/ceph/osd")  # fmt: skip
_NFSD = "proc/fs/nfsd/threads"
UNITS = ("sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice")
"""Folders of the services' cgroups, of version 2 and 1."""


def gpus_on_the_bus(devices: Path = Path("/", PCI), vendors: Collection[str] = (NVIDIA, AMD)) -> int | None:
    """Return how many GPUs of these vendors the PCI bus has, whether or not a driver reads them; None where
    the bus is not shown. One that is passed to a virtual machine does not count."""
    try:
        return sum(_is_gpu(device, vendors) for device in devices.iterdir())
    except OSError:
        return None


def _is_gpu(device: Path, vendors: Collection[str]) -> bool:
    try:
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
    except OSError:  # it is being removed
        return False
    try:
        driver = os.path.basename(os.readlink(device / "driver"))  # noqa: PTH115, PTH119 - the name alone
    except OSError:
        driver = ""
    classes = _GPU_CLASSES.get(vendor, ()) if vendor in vendors else ()
    return kind.startswith(classes) and driver != "vfio-pci"


def may_have_gpus(root: Path = Path("/")) -> bool:
    """Return whether this machine has a GPU, or may have one that the PCI bus does not show."""
    found = gpus_on_the_bus(root / PCI)
    return found is None or found > 0 or any((root / name).exists() for name in _MODULES)


def guessed_role(root: Path = Path("/")) -> NodeRole | None:
    """Return the role that the hardware and the running services show; None where the PCI bus is not shown.
    Login nodes look like compute nodes: the settings tell them apart."""
    found = gpus_on_the_bus(root / PCI)
    if found or (found == 0 and may_have_gpus(root)):
        return NodeRole.GPU
    if found is None:
        return None
    if any(runs(name, root) for name in _HEAD_UNITS) or any((root / name).exists() for name in _HEAD_FILES):
        return NodeRole.HEAD
    if any(runs(name, root) for name in _STORAGE_UNITS) or _serves_files(root):
        return NodeRole.STORAGE
    return NodeRole.COMPUTE


def runs(unit: str, root: Path = Path("/")) -> bool:
    """Return whether a service has processes, by its cgroup: no service manager is asked."""
    for folder in UNITS:
        try:
            if (root / folder / f"{unit}.service" / "cgroup.procs").read_bytes().strip():
                return True
        except OSError:
            continue
    return False


def _serves_files(root: Path) -> bool:
    for name in _STORAGE_FOLDERS:
        try:
            if any((root / name).iterdir()):
                return True
        except OSError:
            continue
    try:
        return int((root / _NFSD).read_text()) > 0
    except (OSError, ValueError):
        return False
