"""Jobs of a scenario by node: a job is a load programme with a shift in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collector.simulated.programme import HOUR, LoadProgramme, cluster_training, desktop_training, programme
from collector.simulated.random import draw, unit

_VARIANTS = 4  # programmes of a kind in a fleet: they cost memory, jobs differ by their shift too
_SHARES = (("training", 0.55), ("inference", 0.20), ("mixed", 0.12), ("evaluation", 0.06), ("idle", 0.07))


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """SimulatedJob of one or several nodes."""

    number: int
    kind: str
    programme: LoadProgramme
    shift: int
    """Seconds of the programme's hour that lie before the scenario's start."""
    synchronous: bool
    """Whether all GPUs have the same load in the same second; else each has a shift of its own."""


def one_job(scenario: str, seed: int, nodes: Sequence[str]) -> dict[str, SimulatedJob]:
    """Return one long training run over all nodes."""
    plays = desktop_training() if scenario == "desktop-4x5090" else cluster_training(seed, 0)
    return dict.fromkeys(nodes, SimulatedJob(0, "training", plays, 0, synchronous=True))


def many_jobs(seed: int, nodes: Sequence[str]) -> dict[str, SimulatedJob]:
    """Return a fleet's jobs: training on 1 to 8 neighbouring nodes, all else on one."""
    jobs: dict[str, SimulatedJob] = {}
    first = 0
    while first < len(nodes):
        kind = _kind(unit(seed, "kind", first))
        count = (1, 2, 4, 8)[draw(seed, "size", first) % 4] if kind == "training" else 1
        job = SimulatedJob(
            first,
            kind,
            programme(seed, kind, draw(seed, "variant", first) % _VARIANTS),
            draw(seed, "shift", first) % HOUR,
            kind != "inference",
        )
        jobs.update(dict.fromkeys(nodes[first : first + count], job))
        first += count
    return jobs


def _kind(share: float) -> str:
    for kind, part in _SHARES:
        if share < part:
            return kind
        share -= part
    return _SHARES[0][0]
