"""The GPU boards that can be simulated: limits, capabilities, temperatures."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024
_MEGA = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBoard:
    """A GPU model, as its driver describes it."""

    name: str
    architecture: str
    part_number: str
    vbios: str
    brand: str
    inforom: str
    memory_bytes: int
    reserved_bytes: int
    bar1_bytes: int
    limit: float
    """Power limit in force, watts; the factory default."""
    limit_min: float
    limit_max: float
    idle: float
    """Watts without work."""
    hot: float
    """Core temperature in a long run at the power limit, Celsius, at 25 Celsius of air."""
    hot_memory: float | None
    """The same for the memory; None where the driver doesn't report it."""
    max_operating: float
    """Core temperature at which the thermal margin is 0."""
    margin_slowdown: float
    margin_shutdown: float
    sm_max: float
    sm_capped: float
    """SM clock at the power limit, hertz."""
    sm_idle: float
    memory_clock: float
    memory_clock_idle: float
    video_max: float
    idle_state: int
    """Performance state without work."""
    idle_generation: int
    """PCIe generation without work."""
    fan: bool
    ecc: bool
    gpm: bool
    """Whether activity can be read."""
    mig: bool
    banks: int
    """Memory banks with spare rows."""
    links: int
    """NVLinks; all go to switches."""
    nvlink_rate: float
    """Bytes a second in one direction under full load, all links together."""
    pcie_rate: float
    driver: str
    cuda: str


H100 = GpuBoard(
    name="NVIDIA H100 80GB HBM3",
    architecture="Hopper",
    part_number="692-2G520-0200-000",
    vbios="96.00.89.00.01",
    brand="NVIDIA",
    inforom="G520.0200.00.05",
    memory_bytes=81559 * _MIB,
    reserved_bytes=480 * _MIB,
    bar1_bytes=131072 * _MIB,
    limit=700.0,
    limit_min=200.0,
    limit_max=700.0,
    idle=74.0,
    hot=66.0,
    hot_memory=82.0,
    max_operating=87.0,
    margin_slowdown=-2.0,
    margin_shutdown=-8.0,
    sm_max=1980 * _MEGA,
    sm_capped=1650 * _MEGA,
    sm_idle=345 * _MEGA,
    memory_clock=2619 * _MEGA,
    memory_clock_idle=2619 * _MEGA,
    video_max=1545 * _MEGA,
    idle_state=0,
    idle_generation=5,
    fan=False,
    ecc=True,
    gpm=True,
    mig=True,
    banks=2560,
    links=18,
    nvlink_rate=140e9,
    pcie_rate=6e9,
    driver="580.105.08",
    cuda="13.0",
)

RTX_5090 = GpuBoard(
    name="NVIDIA GeForce RTX 5090",
    architecture="Blackwell",
    part_number="N/A",
    vbios="98.02.2e.00.03",
    brand="GeForce",
    inforom="G002.0000.00.03",
    memory_bytes=32607 * _MIB,
    reserved_bytes=518 * _MIB,
    bar1_bytes=32768 * _MIB,
    limit=575.0,
    limit_min=400.0,
    limit_max=600.0,
    idle=24.0,
    hot=77.0,
    hot_memory=None,
    max_operating=90.0,
    margin_slowdown=-2.0,
    margin_shutdown=-5.0,
    sm_max=3090 * _MEGA,
    sm_capped=2430 * _MEGA,
    sm_idle=180 * _MEGA,
    memory_clock=14001 * _MEGA,
    memory_clock_idle=405 * _MEGA,
    video_max=3090 * _MEGA,
    idle_state=8,
    idle_generation=1,
    fan=True,
    ecc=False,
    gpm=False,
    mig=False,
    banks=0,
    links=0,
    nvlink_rate=0.0,
    pcie_rate=18e9,
    driver="580.105.08",
    cuda="13.0",
)
