"""The committed figures and faults as types, and which faults a seed draws."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

FOLDER = Path(__file__).parent
DURATION = 3600
"""Seconds of a recording."""
SETTLED = 60
"""Seconds at the end of a recording in which nothing is expected any more."""


class FaultCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"sets": "set"}):
    """A row of `cases.toml`."""

    name: str
    severity: Literal["page", "ticket", "any"]
    owner: tuple[str, ...]
    within: float
    lines: tuple[str, ...] = ()
    sets: dict[str, float] = {}
    scale: dict[str, float] = {}
    rate: dict[str, float] = {}
    step: dict[str, float] = {}
    """Counters that grow by so much at once."""
    gap: str = ""
    silent: bool = False
    frozen: bool = False
    on: int = 1
    nodes: int = 1
    load: str = ""


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault with its place and time."""

    case: FaultCase
    second: int
    """Since the start of the recording."""
    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    """Indexes within the node; empty for a fault of the node."""


@cache
def noise() -> dict[str, Any]:
    """Return the figures of `noise.toml`."""
    return tomllib.loads((FOLDER / "noise.toml").read_text())


@cache
def drawn() -> dict[str, Any]:
    """Return the table `draw` of `cases.toml`."""
    found: dict[str, Any] = tomllib.loads((FOLDER / "cases.toml").read_text())["draw"]
    return found


@cache
def healthy() -> dict[str, int]:
    """Return how many pages and tickets a healthy hour may have."""
    found: dict[str, int] = tomllib.loads((FOLDER / "cases.toml").read_text())["healthy"]
    return found


@cache
def cases() -> tuple[FaultCase, ...]:
    """Return all faults that may be planted."""
    rows = tomllib.loads((FOLDER / "cases.toml").read_text())["case"]
    return msgspec.convert(rows, tuple[FaultCase, ...])


def plant(seed: int, training: Iterable[int], nodes: int, a_rack: int) -> list[PlantedFault]:
    """Return the faults of a seed, each on nodes of its own. `training`: the nodes that run a
    training job; `a_rack`: how many nodes share a circuit."""
    random = np.random.default_rng([seed, 1])
    every = cases()
    chosen = sorted(random.choice(len(every), drawn()["cases"], replace=False))
    free = [int(node) for node in random.permutation(nodes)]
    racks = [int(rack) for rack in random.permutation(nodes // a_rack)]
    busy = set(training)
    found: dict[int, PlantedFault] = {}
    order = sorted(chosen, key=lambda number: (-every[number].nodes, every[number].load != "training"))
    for number in order:
        case = every[number]
        if case.nodes > 1:
            rack = next(rack for rack in racks if all(rack * a_rack + one in free for one in range(a_rack)))
            its = tuple(rack * a_rack + one for one in range(case.nodes))
            taken = set(range(rack * a_rack, (rack + 1) * a_rack))
        else:
            its = (next(node for node in free if case.load != "training" or node in busy),)
            taken = set(its)
        free = [node for node in free if node not in taken]
        last = DURATION - SETTLED - round(case.within)
        second = int(random.integers(drawn()["first_second"], last))
        gpus = tuple(int(gpu) for gpu in random.permutation(noise()["fleet"]["gpus"])[: case.on])
        found[number] = PlantedFault(case, second, its, tuple(sorted(gpus)))
    return [found[number] for number in chosen]
