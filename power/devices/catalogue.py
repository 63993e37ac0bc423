"""The catalogue of GPUs and complete systems: a row is a device. Absent is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from power.devices.supply import Tier
from telemetry.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU model. Watts are of the board."""

    id: str
    name: str
    memory_gb: float
    """GB as vendors count; where a model has several sizes, the largest; 0 where it is not known."""
    tdp_watts: float
    floor_watts: float | None = None
    """Lowest power cap, as a fallback for the driver's own answer."""
    spike_watts: float | None = None
    """Peaks below a millisecond: a supply must bear them, a breaker does not react."""
    price_usd: float | None = None
    module_scope: bool = False
    """Whether its readings cover CPU and GPU."""
    source: str = ""
    """Where the board's watts are from."""


def _of(source: str, *cards: Card) -> tuple[Card, ...]:
    return tuple(replace(card, source=source) for card in cards)


_FLOORS = "lowest caps as `nvidia-smi -q` of users shows them"
CARDS = (
    *_of(
        f"NVIDIA data sheets: V100, T4; Titan and Quadro RTX product pages; {_FLOORS}",
        Card("v100-pcie", "V100 PCIe", 32, 250),
        Card("v100-sxm", "V100 SXM2", 32, 300, 150),
        Card("v100s-pcie", "V100S PCIe", 32, 250),
        Card("t4", "T4", 16, 70, 60),
        Card("titan-v", "Titan V", 12, 250),
        Card("titan-rtx", "Titan RTX", 24, 280),
        Card("quadro-gv100", "Quadro GV100", 32, 250),
        Card("quadro-rtx-6000", "Quadro RTX 6000", 24, 260, 100),
        Card("quadro-rtx-8000", "Quadro RTX 8000", 48, 260),
    ),
    *_of(
        "NVIDIA GeForce specifications, GTX 16 and RTX 20 series; Founders Editions of RTX 2080 and"
        f" 2080 Ti take 10 W more (reviews of Tom's Hardware and wccftech); {_FLOORS}",
        Card("gtx-1660-ti", "GeForce GTX 1660 Ti", 6, 120),
        Card("rtx-2060", "GeForce RTX 2060", 6, 160),
        Card("rtx-2060-super", "GeForce RTX 2060 SUPER", 8, 175),
        Card("rtx-2070", "GeForce RTX 2070", 8, 175),
        Card("rtx-2070-super", "GeForce RTX 2070 SUPER", 8, 215),
        Card("rtx-2080", "GeForce RTX 2080", 8, 215, 105),
        Card("rtx-2080-super", "GeForce RTX 2080 SUPER", 8, 250),
        Card("rtx-2080-ti", "GeForce RTX 2080 Ti", 11, 250),
    ),
    *_of(
        f"NVIDIA GeForce specifications, RTX 30 series; {_FLOORS}",
        Card("rtx-3050", "GeForce RTX 3050", 8, 130),
        Card("rtx-3060", "GeForce RTX 3060", 12, 170),
        Card("rtx-3060-ti", "GeForce RTX 3060 Ti", 8, 200),
        Card("rtx-3070", "GeForce RTX 3070", 8, 220),
        Card("rtx-3070-ti", "GeForce RTX 3070 Ti", 8, 290),
        Card("rtx-3080", "GeForce RTX 3080", 10, 320, 100),
        Card("rtx-3080-ti", "GeForce RTX 3080 Ti", 12, 350),
        Card("rtx-3090", "GeForce RTX 3090", 24, 350, 100, None, 800),
        Card("rtx-3090-ti", "GeForce RTX 3090 Ti", 24, 450),
    ),
    *_of(
        f"NVIDIA GeForce specifications, RTX 40 series; {_FLOORS}",
        Card("rtx-4060", "GeForce RTX 4060", 8, 115),
        Card("rtx-4060-ti", "GeForce RTX 4060 Ti", 16, 165),
        Card("rtx-4070", "GeForce RTX 4070", 12, 200),
        Card("rtx-4070-super", "GeForce RTX 4070 SUPER", 12, 220),
        Card("rtx-4070-ti", "GeForce RTX 4070 Ti", 12, 285),
        Card("rtx-4070-ti-super", "GeForce RTX 4070 Ti SUPER", 16, 285),
        Card("rtx-4080", "GeForce RTX 4080", 16, 320),
        Card("rtx-4080-super", "GeForce RTX 4080 SUPER", 16, 320, 150),
        Card("rtx-4090", "GeForce RTX 4090", 24, 450, 150, None, 1599),
        Card("rtx-4090-d", "GeForce RTX 4090 D", 24, 425),
    ),
    *_of(
        f"NVIDIA GeForce specifications, RTX 50 series; {_FLOORS}; peaks: Igor's Lab",
        Card("rtx-5050", "GeForce RTX 5050", 8, 130),
        Card("rtx-5060", "GeForce RTX 5060", 8, 145),
        Card("rtx-5060-ti", "GeForce RTX 5060 Ti", 16, 180, 150),
        Card("rtx-5070", "GeForce RTX 5070", 12, 250),
        Card("rtx-5070-ti", "GeForce RTX 5070 Ti", 16, 300),
        Card("rtx-5080", "GeForce RTX 5080", 16, 360, 250),
        Card("rtx-5090", "GeForce RTX 5090", 32, 575, 400, 901.1, 1999),
        Card("rtx-5090-d", "GeForce RTX 5090 D", 32, 575),
    ),
    *_of(
        f"NVIDIA RTX data sheets, Ampere; {_FLOORS}",
        Card("rtx-a2000", "RTX A2000", 12, 70),
        Card("rtx-a4000", "RTX A4000", 16, 140),
        Card("rtx-a4500", "RTX A4500", 20, 200),
        Card("rtx-a5000", "RTX A5000", 24, 230),
        Card("rtx-a5500", "RTX A5500", 24, 230),
        Card("rtx-a6000", "RTX A6000", 48, 300, 100),
    ),
    *_of(
        "NVIDIA RTX data sheets, Ada Generation",
        Card("rtx-2000-ada", "RTX 2000 Ada Generation", 16, 70),
        Card("rtx-4000-sff-ada", "RTX 4000 SFF Ada Generation", 20, 70),
        Card("rtx-4000-ada", "RTX 4000 Ada Generation", 20, 130),
        Card("rtx-4500-ada", "RTX 4500 Ada Generation", 24, 210),
        Card("rtx-5000-ada", "RTX 5000 Ada Generation", 32, 250),
        Card("rtx-5880-ada", "RTX 5880 Ada Generation", 48, 285),
        Card("rtx-6000-ada", "RTX 6000 Ada Generation", 48, 300, None, None, 6800),
    ),
    *_of(
        "NVIDIA RTX PRO data sheets, Blackwell",
        Card("rtx-pro-4000", "RTX PRO 4000 Blackwell", 24, 140),
        Card("rtx-pro-4500", "RTX PRO 4500 Blackwell", 32, 200),
        Card("rtx-pro-5000", "RTX PRO 5000 Blackwell", 72, 300),
        Card("rtx-pro-6000", "RTX PRO 6000 Blackwell Workstation", 96, 600, None, None, 8565),
        Card("rtx-pro-6000-server", "RTX PRO 6000 Blackwell Server Edition", 96, 600),
        Card("rtx-pro-6000-max-q", "RTX PRO 6000 Blackwell Max-Q", 96, 300),
    ),
    *_of(
        f"NVIDIA data centre data sheets, Ampere; {_FLOORS}",
        Card("a2", "A2", 16, 60),
        Card("a10", "A10", 24, 150, 100),
        Card("a16", "A16", 64, 250),
        Card("a30", "A30", 24, 165),
        Card("a40", "A40", 48, 300, 100),
        Card("a100-40gb-pcie", "A100 40GB PCIe", 40, 250),
        Card("a100-80gb-pcie", "A100 80GB PCIe", 80, 300),
        Card("a100-sxm", "A100 SXM4", 80, 400, 100),
    ),
    *_of(
        f"A10G, A800: limits as `nvidia-smi` of users shows them; H800: Hugging Face's list of hardware; {_FLOORS}",
        Card("a10g", "A10G", 24, 300, 100),
        Card("a800-80gb-pcie", "A800 80GB PCIe", 80, 300),
        Card("a800-sxm", "A800 SXM4", 80, 400),
        Card("h800-sxm", "H800 SXM5", 80, 700),
    ),
    *_of(
        f"NVIDIA data centre data sheets, Ada and Hopper; {_FLOORS}",
        Card("l4", "L4", 24, 72, 40, None, 2500),
        Card("l40", "L40", 48, 300),
        Card("l40s", "L40S", 48, 350, None, None, 8250),
        Card("h100-pcie", "H100 PCIe 80GB", 80, 350, None, None, 27500),
        Card("h100-sxm", "H100 SXM5 80GB", 80, 700, 200, None, 30000),
        Card("h100-nvl", "H100 NVL 94GB", 94, 400),
        Card("h20", "H20", 96, 400),
        Card("h200-sxm", "H200 SXM 141GB", 141, 700),
        Card("h200-nvl", "H200 NVL 141GB", 141, 600),
        Card("gh200", "GH200 Grace Hopper", 144, 1000, 450, module_scope=True),
    ),
    *_of(
        "NVIDIA Blackwell architecture brief; NVIDIA DPS device specifications (GB200); B300: the highest"
        " of published figures from 1,000 to 1,400 W",
        Card("b100-sxm", "B100 SXM", 192, 700),
        Card("b200-sxm", "B200 SXM", 180, 1000),
        Card("gb200", "GB200", 186, 1200, 200),
        Card("b300", "B300", 288, 1400),
    ),
    *_of(
        "AMD Instinct data sheets: board power",
        Card("mi50", "Instinct MI50", 32, 300),
        Card("mi100", "Instinct MI100", 32, 300),
        Card("mi210", "Instinct MI210", 64, 300),
        Card("mi250", "Instinct MI250", 128, 560),
        Card("mi250x", "Instinct MI250X", 128, 560),
        Card("mi300x", "Instinct MI300X", 192, 750),
        Card("mi325x", "Instinct MI325X", 256, 1000),
        Card("mi350x", "Instinct MI350X", 288, 1000),
        Card("mi355x", "Instinct MI355X", 288, 1400),
    ),
)
"""Volta to Blackwell: `tdp_watts` and `floor_watts` on a node describe every other card."""


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
    """GPUs that reach each other's memory over NVLink or xGMI."""
    feeds: int | None = None
    """Circuits that it is made for; None where it is two for redundant supplies, else one."""
    volts: tuple[float, float] | None = None
    """Nominal input of its supplies, where it is another than 200 to 240 V, or 100 to 240 V up to 1 kW."""
    source: str = ""
    """Where its watts are from, where that is no data sheet of the system."""


_AMD_BOARD = "eight times AMD's board power, and the host of a DGX H100 (4.2 kW inside the case): no maker's figure"
_OPEN_RACK = "Open Compute Project, Open Rack V3: six rectifiers, one of them spare; at the wall by 80 PLUS Titanium, no maker's figure"
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
    # Whole racks: two feeds a side.
    System("gb200-nvl72", "GB200 NVL72", "gb200", 72, 120_000, linked_gpus=72, feeds=4),
    System("gb200-nvl72-132kw", "GB200 NVL72 132 kW", "gb200", 72, 132_000, linked_gpus=72, feeds=4,
           source="Schneider Electric's reference design; Supermicro has 132 kW as what eight power shelves give, of direct current"),
    System("gb300-nvl72", "GB300 NVL72", "b300", 72, 140_000, linked_gpus=72, feeds=4,
           source="Supermicro: 132 to 140 kW; Microsoft: about 136 kW"),
    System("gb300-nvl72-142kw", "GB300 NVL72 142 kW", "b300", 72, 142_000, linked_gpus=72, feeds=4,
           source="the highest figure that is named, for Schneider Electric's reference design; others have up to 140 kW"),
    # Power shelves, when what is behind them draws all that they carry with one rectifier spare.
    System("orv3-shelf-18kw", "ORv3 power shelf 18 kW", None, 0, 16_187, None, 3000, 6, 5, feeds=1, volts=(200, 277), source=_OPEN_RACK),
    System("orv3-shelf-33kw", "ORv3 power shelf 33 kW", None, 0, 29_676, None, 5500, 6, 5, feeds=1, volts=(200, 277),
           source=f"{_OPEN_RACK}; NVIDIA Base Command Manager's manual: six supplies of 5.5 kW in each shelf of a GB200 rack"),
    # AMD sells boards of eight GPUs that all see each other; servers around them are of many makers.
    System("mi300x-platform", "Instinct MI300X platform", "mi300x", 8, 10_600, None, 3000, 6, 4,
           linked_gpus=8, source=f"{_AMD_BOARD}; six supplies of 3 kW, four of which do"),
    System("mi325x-platform", "Instinct MI325X platform", "mi325x", 8, 12_700, linked_gpus=8,
           source=_AMD_BOARD),
    System("mi350x-platform", "Instinct MI350X platform", "mi350x", 8, 12_700, linked_gpus=8,
           source=_AMD_BOARD),
    System("mi355x-platform", "Instinct MI355X platform", "mi355x", 8, 16_000, linked_gpus=8,
           source=f"{_AMD_BOARD}; liquid cooling takes some of it away"),
)  # fmt: skip
"""Newer of NVIDIA's two figures for the GB200 tray; the price of a DGX H100 is half the published
$700,000 for two."""

CARD_BY_ID = {card.id: card for card in CARDS}
SYSTEM_BY_ID = {system.id: system for system in SYSTEMS}


_BRANDS = ("nvidia-", "geforce-", "tesla-", "amd-instinct-", "instinct-", "amd-")


_DRIVERS_NAMES = {
    "a100-pcie-40gb": "a100-40gb-pcie",
    "a100-pcie-80gb": "a100-80gb-pcie",
    "b200": "b200-sxm",
    "b300-sxm6-ac": "b300",
    "gb300": "b300",
    "gh200-144g-hbm3e": "gh200",
    "h100-80gb-hbm3": "h100-sxm",
    "h200": "h200-sxm",
    "h800": "h800-sxm",
    "mi300x-oam": "mi300x",
    "rtx-pro-6000-blackwell-max-q-workstation-edition": "rtx-pro-6000-max-q",
    "rtx-pro-6000-blackwell-workstation-edition": "rtx-pro-6000",
}
"""Keys of drivers' names that are none of the card: they name the memory, or no form factor."""


@lru_cache(maxsize=4096)
def key_of(name: str) -> str:
    """Return the catalogue's key of a name: `NVIDIA GeForce RTX 5090` is `rtx-5090`."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    for prefix in _BRANDS:
        words = words.removeprefix(prefix)
    return words


@lru_cache(maxsize=4096)
def _card_of(key: str) -> Card | None:
    # As people and drivers write them: A100 SXM4, Tesla V100-SXM2-32GB, A6000, RTX 6000 Ada Generation.
    spoken = re.sub(r"-\d+gb$", "", re.sub(r"(sxm|nvl)\d", r"\1", key))
    spoken = re.sub(r"-(generation|laptop-gpu)$", "", spoken)
    for one in (key, spoken, f"rtx-{spoken}", _DRIVERS_NAMES.get(key, "")):
        if one in CARD_BY_ID and "laptop" not in key:
            return CARD_BY_ID[one]
    return next((card for card in CARDS if key_of(card.name) == key), None)


def find_card(where: str, name: str) -> Card:
    """Return the card of this name. Raises `ConfigError` with the closest known one."""
    key = key_of(name)
    hit = _card_of(key)
    if hit is None:
        near = did_you_mean(key, CARD_BY_ID)
        cure = near or f"Known: {', '.join(CARD_BY_ID)}."
        raise ConfigError(
            where,
            f"there is no GPU {name!r}",
            f"{cure} For a card that is not known, write tdp_watts (and floor_watts) on its node.",
        )
    return hit


def find_system(where: str, name: str) -> System:
    """Return the system of this name. Raises `ConfigError` with the closest known one."""
    key = key_of(name)
    if key not in SYSTEM_BY_ID:
        cure = did_you_mean(key, SYSTEM_BY_ID) or f"Known: {', '.join(SYSTEM_BY_ID)}."
        raise ConfigError(where, f"there is no system {name!r}", cure)
    return SYSTEM_BY_ID[key]


_AMD = re.compile(r"\b(?:amd|instinct|radeon|mi\d{2,3}[apx]?)\b", re.IGNORECASE)


def makers(models: Iterable[str]) -> tuple[bool, bool]:
    """Return whether any of these GPUs is of NVIDIA, and of AMD. A name that tells nothing is NVIDIA's."""
    found = {_AMD.search(model) is not None for model in models} or {False}
    return False in found, True in found


def limit_command(models: Iterable[str], watts: float, index: int | None = None) -> str:
    """Return the command that sets the power limit of GPUs of these models: of one by its index, or of all."""
    nvidia, amd = makers(models)
    one = "" if index is None else f" -i {index}"
    every = "all" if index is None else index
    commands = [f"nvidia-smi{one} -pl {watts:.0f}"] if nvidia else []
    commands += [f"amd-smi set --gpu {every} --power-cap {watts:.0f}"] if amd else []
    return "; ".join(commands)


def floor_command(models: Iterable[str]) -> str:
    """Return the commands that show the lowest power limit of GPUs of these models."""
    nvidia, amd = makers(models)
    return "; ".join(["nvidia-smi -q -d POWER"] * nvidia + ["amd-smi static --limit"] * amd)


def clock_command(models: Iterable[str]) -> str:
    """Return the commands that limit the clocks of GPUs of these models, without the limit."""
    nvidia, amd = makers(models)
    return "; ".join(["nvidia-smi -lgc"] * nvidia + ["amd-smi set --clk-limit sclk max"] * amd)


def counted_models(where: str, text: str) -> list[tuple[int, str]]:
    """Return number and name of each model of one machine: of `rtx-4090:2,rtx-a6000`, or of one complete
    system. Raises `ConfigError` for a system beside others."""
    found = [counted(where, part) for part in text.split(",")]
    systems = [name for _, name in found if key_of(name) in SYSTEM_BY_ID]
    if systems and len(found) > 1:
        raise ConfigError(
            where,
            f"{systems[0]!r} is a whole machine, and {text!r} lists the GPUs of one",
            f"Ask for {systems[0]} alone.",
        )
    if not all(name for _, name in found):
        raise ConfigError(where, f"{text!r} has a part without a name", "Write rtx-4090:2,rtx-a6000:1.")
    return found


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
