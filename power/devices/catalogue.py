"""The catalogue of GPUs and complete systems: a row is a device. Absent is unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from power.devices.supply import Tier
from telemetry.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU model. Watts are of the board."""

    id: str
    name: str
    memory_gb: float
    """GB as vendors count; where a model has several sizes, the largest."""
    tdp_watts: float
    floor_watts: float | None = None
    """Lowest power cap, as a fallback for the driver's own answer."""
    spike_watts: float | None = None
    """Peaks below a millisecond: a supply must bear them, a breaker does not react."""
    price_usd: float | None = None
    module_scope: bool = False
    """Whether its readings cover CPU and GPU."""


CARDS = (
    Card("rtx-3090", "GeForce RTX 3090", 24, 350, 100, None, 800),
    Card("rtx-4090", "GeForce RTX 4090", 24, 450, 150, None, 1599),
    Card("rtx-5090", "GeForce RTX 5090", 32, 575, 400, 901.1, 1999),
    Card("rtx-6000-ada", "RTX 6000 Ada Generation", 48, 300, None, None, 6800),
    Card("rtx-pro-6000", "RTX PRO 6000 Blackwell Workstation", 96, 600, None, None, 8565),
    Card("rtx-pro-6000-max-q", "RTX PRO 6000 Blackwell Max-Q", 96, 300),
    Card("l4", "L4", 24, 72, None, None, 2500),
    Card("l40s", "L40S", 48, 350, None, None, 8250),
    Card("a100-40gb-pcie", "A100 40GB PCIe", 40, 250),
    Card("a100-80gb-pcie", "A100 80GB PCIe", 80, 300),
    Card("a100-sxm", "A100 SXM4", 80, 400),
    Card("h100-pcie", "H100 PCIe 80GB", 80, 350, None, None, 27500),
    Card("h100-sxm", "H100 SXM5 80GB", 80, 700, 200, None, 30000),
    Card("h100-nvl", "H100 NVL 94GB", 94, 400),
    Card("h200-sxm", "H200 SXM 141GB", 141, 700),
    Card("h200-nvl", "H200 NVL 141GB", 141, 600),
    Card("gh200", "GH200 Grace Hopper", 144, 1000, 450, module_scope=True),
    Card("b200-sxm", "B200 SXM", 180, 1000),
    Card("gb200", "GB200", 186, 1200, 200),
    Card("b300", "B300", 288, 1400),
    Card("mi300x", "Instinct MI300X", 192, 750),
)


@dataclass(frozen=True, slots=True)
class System:
    """A complete node. Watts are at the wall, under full load."""

    id: str
    name: str
    card: str | None
    gpus: int
    max_watts: float
    sustained_watts: float | None = None
    """Power of long training runs, where a source gives it."""
    supply_watts: float | None = None
    """Rating of one supply."""
    supplies: int = 1
    needed: int = 1
    """Supplies that must work for full performance."""
    tier: Tier = Tier.TITANIUM
    price_usd: float | None = None
    memory_gb: float | None = None
    linked_gpus: int = 1
    """GPUs that reach each other's memory over NVLink."""


SYSTEMS = (
    System(
        "dgx-spark",
        "DGX Spark",
        None,
        1,
        240,
        90,
        240,
        tier=Tier.GOLD,
        price_usd=4000,
        memory_gb=128,
    ),
    System("dgx-a100", "DGX A100", "a100-sxm", 8, 6500, None, 3000, 6, 3, linked_gpus=8),
    System(
        "dgx-h100",
        "DGX H100",
        "h100-sxm",
        8,
        10200,
        8500,
        3300,
        6,
        4,
        price_usd=350_000,
        linked_gpus=8,
    ),
    System("dgx-h200", "DGX H200", "h200-sxm", 8, 10200, 8500, 3300, 6, 4, linked_gpus=8),
    System("dgx-b200", "DGX B200", "b200-sxm", 8, 14300, None, 3300, 6, 5, linked_gpus=8),
    System("dgx-b300", "DGX B300", "b300", 8, 14500, linked_gpus=8),
    System("gb200-tray", "DGX GB200 compute tray", "gb200", 4, 6667, linked_gpus=4),
    System("gb200-nvl72", "GB200 NVL72", "gb200", 72, 120_000, linked_gpus=72),
    System("gb300-nvl72", "GB300 NVL72", "b300", 72, 120_000, linked_gpus=72),
)
"""Newer of NVIDIA's two figures for the GB200 tray; the price of a DGX H100 is half the published
$700,000 for two."""

CARD_BY_ID = {card.id: card for card in CARDS}
SYSTEM_BY_ID = {system.id: system for system in SYSTEMS}


def key_of(name: str) -> str:
    """Return the catalogue's key of a name: `NVIDIA GeForce RTX 5090` is `rtx-5090`."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    for prefix in ("nvidia-", "geforce-", "amd-instinct-", "instinct-", "amd-"):
        words = words.removeprefix(prefix)
    return words


def find_card(where: str, name: str) -> Card:
    """Return the card of this name. Raises `ConfigError` with the closest known one."""
    key = key_of(name)
    if key in CARD_BY_ID:
        return CARD_BY_ID[key]
    hit = next((card for card in CARDS if key_of(card.name) == key), None)
    if hit is None:
        cure = did_you_mean(key, CARD_BY_ID) or f"Known: {', '.join(CARD_BY_ID)}."
        raise ConfigError(where, f"there is no GPU {name!r}", cure)
    return hit


def find_system(where: str, name: str) -> System:
    """Return the system of this name. Raises `ConfigError` with the closest known one."""
    key = key_of(name)
    if key not in SYSTEM_BY_ID:
        cure = did_you_mean(key, SYSTEM_BY_ID) or f"Known: {', '.join(SYSTEM_BY_ID)}."
        raise ConfigError(where, f"there is no system {name!r}", cure)
    return SYSTEM_BY_ID[key]


def counted(where: str, text: str) -> tuple[int, str]:
    """Return number and name of `4x RTX 5090`, `rtx-5090:4` or `RTX 5090`."""
    match = re.fullmatch(r"\s*(\d+)\s*x\s*(.+)", text, re.IGNORECASE)
    if match:
        return int(match[1]), match[2].strip()
    name, colon, number = text.rpartition(":")
    if not colon:
        return 1, text.strip()
    if not number.strip().isdigit() or int(number) < 1:
        raise ConfigError(where, f"{number!r} is no number of devices", "Write rtx-5090:4.")
    return int(number), name.strip()
