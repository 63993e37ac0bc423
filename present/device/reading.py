"""A metric, its reading and the reason of a gap in words, whatever device it is of."""

from __future__ import annotations

from present.units import value_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Unit

NONE = "none"
"""The text of a gap: never a number."""


def reading_text(name: str, value: float | None) -> str:
    """Return a reading with its unit; `none` for a gap."""
    metric = BY_NAME.get(name)
    if value is None:
        return NONE
    return f"{value:g}" if metric is None else value_text(metric.unit, metric.states, value)


def metric_text(name: str) -> str:
    """Return a metric's name for people: `memory temperature` of `gpu_memory_temperature_celsius`."""
    metric = BY_NAME.get(name)
    text = name.partition("_")[2]
    if metric is not None and metric.unit not in {Unit.COUNT, Unit.FLAG, Unit.STATE}:
        text = text.removesuffix("_total").removesuffix(f"_{metric.unit.value}")
    return plain(text.removesuffix("_total"))


def plain(word: str) -> str:
    """Return a word of the API or of a gap as people write it: `device lost` of `device_lost`."""
    return word.replace("_", " ")
