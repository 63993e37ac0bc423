"""Fake trees of /sys, /proc and /etc of six kinds of nodes, made from facts about real ones."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.collector.network_tree import Tree, dgx_h100, hgx_roce, storage_node

EDAC = "sys/devices/system/edac/mc"
GPU, NETWORK, INFINIBAND, NVME, BRIDGE = "0x030200", "0x020000", "0x020700", "0x010802", "0x068000"
_AER = {
    "correctable": "RxErr {0}\nBadTLP 0\nBadDLLP 0\nTOTAL_ERR_COR {0}\n",
    "nonfatal": "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL {0}\n",
    "fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL {0}\n",
}
_PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_HOME = "40 28 0:52 / /home rw,relatime - nfs4 filer:/home rw,vers=4.2\n"
_LUSTRE = "41 28 0:53 / /scratch rw - lustre 10.0.0.1@o2ib:/fs rw,flock\n"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def counts(folder: Path, correctable: int = 0, nonfatal: int = 0, fatal: int = 0) -> None:
    """Write the error counts of a PCI Express device."""
    values = {"correctable": correctable, "nonfatal": nonfatal, "fatal": fatal}
    for word, value in values.items():
        (folder / f"aer_dev_{word}").write_text(_AER[word].format(value))


def device(tree: Tree, pci: str, bridges: str, kind: str, *, has_aer: bool = True) -> Path:
    """Put a PCI device of a class below its bridges, all with counts of errors."""
    folder = tree._device(pci, bridges)
    (folder / "class").write_text(f"{kind}\n")
    (folder / "vendor").write_text("0x10de\n" if kind == GPU else "0x15b3\n")
    if has_aer:
        root = tree.root / "sys/devices"
        for each in (folder, *folder.parents):
            if root in {each, each.parent}:  # the root complex is no device
                break
            counts(each)
    return folder


def drive(tree: Tree, number: int, *, state: str = "live", transport: str = "pcie") -> None:
    """Put an NVMe drive."""
    put(
        tree.root,
        {
            f"sys/class/nvme/nvme{number}/state": f"{state}\n",
            f"sys/class/nvme/nvme{number}/transport": f"{transport}\n",
            f"sys/class/nvme/nvme{number}/serial": f"S{number:04d}  \n",
        },
    )
    device(tree, f"0000:{0xC0 + number:02x}:00.0", f"pci0000:c0/0000:c0:{number:02x}.0", NVME)


def chip(tree: Tree, number: int, name: str, **files: int | str) -> None:
    """Put a chip of hwmon."""
    folder = f"sys/class/hwmon/hwmon{number}"
    put(tree.root, {f"{folder}/name": f"{name}\n"} | {f"{folder}/{key}": f"{value}\n" for key, value in files.items()})


def memory(tree: Tree, controllers: int) -> None:
    """Put memory controllers with ECC."""
    for number in range(controllers):
        put(tree.root, {f"{EDAC}/mc{number}/ce_count": "0\n", f"{EDAC}/mc{number}/ue_count": "0\n"})


def switches(tree: Tree, count: int) -> None:
    """Put NVSwitches."""
    for number in range(count):
        folder = device(tree, f"0000:{0x05 + number:02x}:00.0", f"pci0000:00/0000:00:{0x10 + number:02x}.0", BRIDGE)
        (folder / "vendor").write_text("0x10de\n")


def unit(tree: Tree, name: str, *, runs: bool = True) -> Path:
    """Put an enabled unit of systemd; return its control group."""
    wants = tree.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    link = wants / f"{name}.service"
    if not link.is_symlink():
        link.symlink_to(f"/lib/systemd/system/{name}.service")
    group = tree.root / "sys/fs/cgroup/system.slice" / f"{name}.service"
    put(group, {"cgroup.events": f"populated {int(runs)}\nfrozen 0\n"})
    return group


def boots(tree: Tree, *words: str) -> None:
    """Write a record of boots and shutdowns: `boot`, `shutdown`, `login`."""
    kinds = {"boot": (2, b"reboot"), "shutdown": (1, b"shutdown"), "login": (7, b"root")}
    path = tree.root / "var/log/wtmp"
    path.parent.mkdir(parents=True, exist_ok=True)
    records = (
        struct.pack("=h2xi32s4s32s256s", kinds[word][0], 1, b"~", b"~~", kinds[word][1], b"6.8.0") for word in words
    )
    path.write_bytes(b"".join(record.ljust(384, b"\0") for record in records))


SUPPLIES = """PSU1 Status      | C8h | ok  | 10.1 | Presence detected
PSU2 Status      | C9h | ok  | 10.2 | Presence detected{0}
PSU3 Status      | CAh | ok  | 10.3 |
PSU1 Input Power | D0h | ok  | 10.1 | 460 Watts
"""
FANS = """FAN1_F | 41h | ok  | 29.1 | 9800 RPM
FAN1_R | 42h | ok  | 29.2 | 9400 RPM
FAN2_F | 43h | {0}  | 29.3 | {1} RPM
FAN3_F | 44h | ns  | 29.4 | No Reading
"""
SEL = """   1 | 06/14/2023 | 10:01:17 | Event Logging Disabled SEL | Log area reset/cleared | Asserted
   2 | 01/02/2026 | 23:09:44 | Memory #0x88 | Correctable ECC (CPU0_G1) | Asserted
"""
AC_LOST = "  3a | 11/25/2026 | 14:03:12 | Power Supply PSU2 | Power Supply AC lost | Asserted\n"
SEL_INFO = (
    "SEL Information\nVersion          : 1.5 (v1.5, v2 compliant)\nEntries          : 2\nPercent Used     : {}%\n"
)
SMART = '{{"critical_warning":{0},"avail_spare":100,"spare_thresh":10,"percent_used":3,"media_errors":0}}\n'


def programs(tree: Tree, folder: Path) -> None:
    """Put `ipmitool` and `nvme` into a folder, which print what stands in the tree, and a BMC."""
    put(tree.root, {"dev/ipmi0": "", "said/Power Supply": SUPPLIES.format(""), "said/Fan": FANS.format("ok", 9600),
                    "said/nvme": SMART.format(0), "said/sel elist": SEL, "said/sel info": SEL_INFO.format(7)})  # fmt: skip
    scripts = {
        "ipmitool": f'cat "{tree.root}/said/$([ "$1" = sel ] && echo "$1 $2" || echo "$3")"',
        "nvme": f'cat "{tree.root}/said/nvme"',
    }
    for name, line in scripts.items():
        put(folder, {name: f"#!/bin/sh\n{line}\n"})
        (folder / name).chmod(0o755)


def _classes(tree: Tree) -> None:
    """Give the GPUs and adapters that are there their class and counts."""
    for link in sorted((tree.root / "sys/bus/pci/devices").glob("*")):
        kind = GPU if link.name in tree.gpus else INFINIBAND
        folder = link.resolve()
        device(tree, link.name, str(folder.parent.relative_to(tree.root / "sys/devices")), kind)


def _proc(tree: Tree, mounts: str, table: str = "") -> None:
    put(
        tree.root,
        {
            "proc/self/mountinfo": "28 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n" + mounts,
            "etc/fstab": table,
            "proc/vmstat": "oom_kill 0\n",
            "proc/pressure/cpu": _PSI,
            "proc/pressure/io": _PSI,
            "proc/pressure/memory": _PSI,
        },
    )


def dgx(root: Path) -> Tree:
    """A DGX H100: two Xeons, eight data drives and two of the system, InfiniBand, Lustre and a home by NFS."""
    tree = dgx_h100(root)
    _classes(tree)
    for number in range(10):
        drive(tree, number)
    for number in range(2):
        chip(
            tree,
            number,
            "coretemp",
            temp1_label=f"Package id {number}",
            temp1_input=52_000 + 3_000 * number,
            temp1_crit=100_000,
            temp2_label="Core 0",
            temp2_input=91_000,
            temp2_crit=100_000,
        )
    memory(tree, 16)
    _proc(tree, _HOME + _LUSTRE, "filer:/home /home nfs4 defaults 0 0\n")
    switches(tree, 4)
    for name in ("nvidia-fabricmanager", "nvidia-persistenced", "slurmd"):
        unit(tree, name)
    tree.interface("eno1", "0000:0b:00.0", "pci0000:00/0000:00:1c.0", speed=10_000)
    tree.route("eno1")
    boots(tree, "boot", "login", "shutdown", "boot")
    return tree


def hgx(root: Path) -> Tree:
    """An HGX with RoCE: two EPYCs, whose sensor has no critical temperature, and one scratch drive."""
    tree = hgx_roce(root)
    _classes(tree)
    drive(tree, 0)
    chip(tree, 0, "k10temp", temp1_label="Tctl", temp1_input=61_250, temp3_label="Tccd1", temp3_input=80_000)
    chip(tree, 1, "k10temp", temp1_label="Tctl", temp1_input=58_000)
    memory(tree, 24)
    _proc(tree, _HOME)
    members = [
        tree.interface(f"ens7f{number}np{number}", f"0000:a7:00.{number}", "pci0000:a0/0000:a0:01.0")
        for number in range(2)
    ]
    tree.bond("bond0", members)
    tree.route("bond0")
    return tree


def gb200_tray(root: Path) -> Tree:
    """A compute tray of a GB200 NVL72: four GPUs and four ports on two Arm CPUs without a sensor of ours."""
    tree = Tree(root)
    for number in range(4):
        bridges = f"pci000{number}:00/000{number}:00:00.0"
        tree.gpu(f"000{number}:01:00.0", bridges)
        tree.adapter(f"mlx5_{number}", f"000{number}:03:00.0", f"{bridges}/000{number}:02:00.0", board="MT_0000001093")
    _classes(tree)
    for number in range(4):
        drive(tree, number)
    chip(tree, 0, "acpitz", temp1_input=40_000)
    memory(tree, 2)
    _proc(tree, _LUSTRE, "10.0.0.1@o2ib:/fs /scratch lustre _netdev 0 0\n")
    unit(tree, "nvidia-imex")
    put(tree.root, {"etc/nvidia-imex/nodes_config.cfg": "10.0.0.1\n10.0.0.2\n"})
    return tree


def desktop(root: Path) -> Tree:
    """A desktop with four cards: no ECC, no adapter, and a home on its own disk."""
    tree = Tree(root)
    for number in range(4):
        tree.gpu(f"0000:{number + 1:02x}:00.0", f"pci0000:00/0000:00:0{number + 1}.1")
    _classes(tree)
    drive(tree, 0)
    chip(tree, 0, "k10temp", temp1_label="Tctl", temp1_input=71_000)
    chip(tree, 1, "nvme", temp1_label="Composite", temp1_input=49_000, temp1_crit=94_800)
    _proc(tree, "")
    tree.interface("enp5s0", "0000:05:00.0", "pci0000:00/0000:00:02.5", speed=2_500)
    tree.route("enp5s0")
    unit(tree, "nvidia-fabricmanager", runs=False)  # installed with the driver, for nothing
    return tree


def storage(root: Path) -> Tree:
    """A storage node: no GPU, two ports, twelve drives, one more behind a network."""
    tree = storage_node(root)
    _classes(tree)
    for number in range(12):
        drive(tree, number)
    put(
        tree.root,
        {
            "sys/class/nvme/nvme20/transport": "tcp\n",
            "sys/class/nvme/nvme20/state": "connecting\n",
            "sys/class/nvme/nvme20/serial": "remote\n",
        },
    )
    chip(tree, 0, "coretemp", temp1_label="Package id 0", temp1_input=48_000, temp1_crit=95_000)
    memory(tree, 8)
    _proc(tree, "")
    return tree


def head(root: Path) -> Tree:
    """A head node, a virtual machine: no GPU, no adapter, no sensor, no ECC and no drive of its own. Its scratch
    is not mounted."""
    tree = Tree(root)
    device(tree, "0000:00:03.0", "pci0000:00", NETWORK, has_aer=False)
    tree.interface("ens3", "0000:00:04.0", "pci0000:00", speed=-1)
    tree.route("ens3")
    for name in ("slurmctld", "slurmdbd", "munge"):
        unit(tree, name)
    _proc(tree, _HOME, "filer:/home /home nfs4 defaults 0 0\n10.0.0.1@o2ib:/fs /scratch lustre _netdev 0 0\n")
    return tree
