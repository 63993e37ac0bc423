"""Sources of wall power, their order and uncertainty."""

from __future__ import annotations

from enum import StrEnum


class WallSource(StrEnum):
    """Sources of wall power, best first."""

    CIRCUIT_METER = "circuit meter"
    PDU = "pdu"
    PLUG = "plug"
    BMC = "bmc"
    UPS = "ups"
    MODEL = "model"
    """GPU watts by the driver, plus a model of the host."""
    COMMITTED = "committed"
    """Power commitment of a silent node that is not off."""


SIGMA_RATIO = {
    WallSource.CIRCUIT_METER: 0.01,
    WallSource.PDU: 0.01,
    WallSource.PLUG: 0.02,
    WallSource.BMC: 0.04,
    WallSource.UPS: 0.04,
    WallSource.MODEL: 0.12,
    WallSource.COMMITTED: 0.12,
}
"""Standard deviation of each source, as a part of its value."""
STALE_PENALTY = 0.15
"""Added uncertainty while a better source is stale."""
COMMITTED_SECONDS = 300.0
"""Seconds for which a silent node is assumed to draw its power commitment."""
