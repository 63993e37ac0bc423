"""Simulated clusters: the source `simulated:<scenario>`.

Every value is a pure function of (scenario, node, GPU, metric, tick); the scenario holds the seed,
the start and the faults. There is no state from tick to tick, so everything that a node published
can be computed again in any process at any time, and loss can be audited bit for bit (`expect`).

A job is an hour of load in a table, repeated (`programme`); a GPU's power is linear in that load,
its energy the table's running sum, its temperature the table's exponential response (`gpu`); faults
cut the time of a GPU into spans in which power is a constant share of the job's demand (`course`).
So every value is in closed form, and a row costs about 10 us.
"""

from __future__ import annotations

from collector.simulated.expect import expected_bytes, expected_rows, silent, value
from collector.simulated.faults import FaultKind, SimulatedFault, parse
from collector.simulated.host import LACKED, SELF
from collector.simulated.scenario import EPOCH, KINDS, Scenario, scenario
from collector.simulated.source import SimulatedSource

__all__ = [
    "EPOCH",
    "KINDS",
    "LACKED",
    "SELF",
    "FaultKind",
    "Scenario",
    "SimulatedFault",
    "SimulatedSource",
    "expected_bytes",
    "expected_rows",
    "parse",
    "scenario",
    "silent",
    "value",
]
