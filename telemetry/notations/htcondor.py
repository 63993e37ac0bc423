"""HTCondor's own notations: names of slots, ids of jobs, and the names that it gives GPUs. Pure.

A GPU is called by the begin of its UUID (`GPU-b156e653`), by all of it, or by its place (`CUDA0`), as condor_gpu_discovery
was told to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from telemetry.devices import Gpu

SCHEDULER = "htcondor"
"""Name of HTCondor in the key of a job, and of a slot of which only the pool knows whose it is."""
_PLACE = re.compile(r"CUDA(\d{1,3})", re.ASCII)
_LEAST_UUID = len("GPU-") + 8
"""Letters of a short name of a GPU."""


def slot_of(name: str) -> str:
    """Return a slot without the machine: cgroups have it by its full name, its short one, or not at all."""
    return name.partition("@")[0]


def gpu_of(name: str, gpus: Sequence[Gpu]) -> tuple[str, bool]:
    """Return the UUID of the GPU of a node that a name means, and whether that is assumed: CUDA's order need not be that of
    the PCI bus. Empty where it means none, or several."""
    place = _PLACE.fullmatch(name)
    if place is not None:
        found = [gpu.uuid for gpu in gpus if gpu.index == int(place[1])]
    else:
        long = len(name) >= _LEAST_UUID
        found = [gpu.uuid for gpu in gpus if long and gpu.uuid.lower().startswith(name.lower())]
    return (found[0] if len(found) == 1 else ""), place is not None
