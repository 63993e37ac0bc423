"""A part of a file that is of one format: its findings, and what it proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from alerts.diagnosis.finding import Finding, FindingGpu
from kilowatch.saved_logs.evidence import GpuReadings


@dataclass(slots=True)
class Part:
    """Findings and proof of one format in a file."""

    format: str
    """Its name for people: `nvidia-smi -q`, `kernel log`."""
    findings: list[Finding] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    """Aspects that it proves to be well, apart from its findings; empty when it proves nothing."""
    lacks: list[str] = field(default_factory=list)
    """Aspects that one might expect of it, and that it does not show."""
    problem: str = ""
    """Why it proves nothing, or is not whole; "" when there is no such reason."""
    broken: bool = False
    """Whether it should be judged and can't be: it is cut off, or not understood."""
    gpus: list[FindingGpu] = field(default_factory=list)
    """GPUs that it describes."""
    readings: Sequence[GpuReadings] = ()
    """Readings of its GPUs, for the evidence of findings."""
    of_driver: bool = False
    """Whether it proves that the NVIDIA driver runs on the node."""
    needs_driver: bool = False
    """Whether it proves nothing unless something else proves that the driver runs."""
