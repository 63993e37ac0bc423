"""The machines around the simulated GPUs: power beside the GPUs, and rates of disk and network."""

from __future__ import annotations

from dataclasses import dataclass

from collector.simulated.boards import GpuBoard
from collector.simulated.programme import LoadProgramme

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChassis:
    """A model of machine."""

    product: str
    cpu: str
    cpus: int
    """Logical CPUs."""
    memory_bytes: int
    disk_bytes: int
    drives: int
    """Local NVMe drives."""
    mounts: int
    """Network file systems."""
    sustained: float
    """Watts at the wall, mean of a long training run with `gpus` GPUs of the usual model."""
    gpus: int
    efficiency: float
    """Of the power supplies, at about that load."""
    swing: float
    """Watts of CPUs, fans and network that follow the load, from none to full."""
    cpu_idle: float
    """Watts of the CPU packages without load; contained in the machine's."""
    cpu_swing: float
    network_rate: float
    """Bytes a second in each direction at full load."""
    read_rate: float
    """Bytes a second read from disk at full load."""
    checkpoint_rate: float
    """Bytes a second written while a checkpoint is saved."""

    def base(self, board: GpuBoard, reference: LoadProgramme) -> float:
        """Return the watts (direct current) that the machine draws without load beside its GPUs.

        Solved so that a long run of `reference` draws `sustained` at the wall.
        """
        gpu = board.idle + (full_power(board, 0.5) - board.idle) * reference.mean
        direct = self.sustained * self.efficiency
        return direct - self.gpus * gpu - self.swing * reference.mean


def full_power(board: GpuBoard, luck: float) -> float:
    """Return the mean watts of a GPU at its limit; `luck`, 0 to 1, differs between GPUs."""
    return board.limit * (0.982 + 0.006 * luck)


WORKSTATION = NodeChassis(
    product="Four-way workstation",
    cpu="AMD Ryzen Threadripper 7970X 32-Cores",
    cpus=64,
    memory_bytes=256 * _GIB,
    disk_bytes=4_000_787_030_016,
    drives=1,
    mounts=0,
    sustained=2550.0,
    gpus=4,
    efficiency=0.90,  # 80 PLUS Gold on 115 V between half and full load
    swing=120.0,
    cpu_idle=58.0,
    cpu_swing=90.0,
    network_rate=2e6,
    read_rate=150e6,
    checkpoint_rate=1.8e9,
)

DGX = NodeChassis(
    product="DGX H100",
    cpu="Intel(R) Xeon(R) Platinum 8480C",
    cpus=224,
    memory_bytes=2048 * _GIB,
    disk_bytes=30_725_970_923_520,
    drives=10,
    mounts=2,
    sustained=8500.0,
    gpus=8,
    efficiency=0.94,  # 80 PLUS Titanium at 200 to 240 V
    swing=700.0,
    cpu_idle=210.0,
    cpu_swing=320.0,
    network_rate=38e9,
    read_rate=900e6,
    checkpoint_rate=6e9,
)
