"""Energy and cost: `/api/v1/report`."""

from __future__ import annotations

import msgspec


class Energy(msgspec.Struct, frozen=True):
    """What was taken over a time, and what it cost."""

    hours: float | None = None
    kwh: float | None = None
    gpu_kwh: float | None = None
    cost: float | None = None
    co2_kg: float | None = None
    estimated_ratio: float | None = None
    unknown_hours: float | None = None


class Idle(msgspec.Struct, frozen=True):
    """What GPUs that do nothing cost."""

    gpu_hours: float | None = None
    ratio: float | None = None
    kwh: float | None = None
    cost: float | None = None


class Report(msgspec.Struct, frozen=True):
    """`/api/v1/report`, as far as it is shown."""

    currency: str | None = None
    sustained_watts: float | None = None
    peak_watts: float | None = None
    committed_watts: float | None = None
    pue: float | None = None
    verdict: str = ""
    verdict_reason: str = ""
    memory_gb: float | None = None
    measured: Energy | None = None
    month: Energy | None = None
    utilisation: float | None = None
    idle: Idle | None = None
