"""The protective device of a circuit or panel: its class, trip band and limits, with every default."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from power.devices.breaker import Band, Curve, band, continuous_ratio, default_curve, effective_amps, latest_amps
from power.devices.connectors import find_connector
from power.devices.lsi import LsiSettings, check
from power.site.config import PowerConfig
from telemetry.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Protection:
    """Limits of a protective device and of what is in line with it."""

    rated_amps: float
    effective_amps: float
    """Rating after derating for heat and grouping, and by the dial of a trip unit."""
    continuous_amps: float
    """The least of the continuous limit, the effective rating and the connector's."""
    curve: Curve | None
    """None where the physical rating is not known; there is no trip time then."""
    band: Band
    """Over `effective_amps`; its latest edge is not derated."""


def protect(
    place: str,
    rated_amps: float | None,
    volts: float,
    site: PowerConfig,
    *,
    curve: Curve | None = None,
    lsi: LsiSettings | None = None,
    continuous: float | None = None,
    grouping: float = 1.0,
    connector: str | None = None,
    derated: bool = False,
) -> Protection:
    """Return the protection of a circuit of this rating; None is no known breaker, which limits nothing.

    `derated`: the rating is the continuous limit already. Raises `ConfigError` with place and cure.
    """
    if lsi is not None:
        _check_lsi(place, curve, lsi)
    if rated_amps is None:
        usual = curve or default_curve(volts, site.region)
        return Protection(inf, inf, inf, None, band(usual, inf, lsi))
    found = curve or default_curve(volts, site.region, rated_amps)
    carries = rated_amps * (lsi.ir if lsi is not None else 1.0)
    most = inf
    if connector is not None:
        usual = default_curve(volts, site.region)
        most = find_connector(f"{place}.connector", connector).limit_amps(usual is Curve.UL489)
    if derated:
        return Protection(rated_amps, rated_amps, min(rated_amps, most), None, band(found, rated_amps, lsi))
    effective = effective_amps(carries, found, site.site.ambient_c, grouping)
    ratio = continuous_ratio(found, volts, site.region) if continuous is None else continuous
    limit = min(carries * ratio, effective, most)
    tested = latest_amps(carries, found, site.site.ambient_c)
    trips = band(found, rated_amps, lsi).derated(effective, tested)
    return Protection(rated_amps, effective, limit, found, trips)


def _check_lsi(place: str, curve: Curve | None, lsi: LsiSettings) -> None:
    if curve is not Curve.LSI:
        raise ConfigError(
            f"{place}.lsi", "the settings of an electronic trip unit need its class", 'Write curve = "LSI".'
        )
    try:
        check(lsi)
    except ValueError as error:
        raise ConfigError(
            f"{place}.lsi",
            str(error),
            "Write what its dials show: lsi = { ir = 0.9, tr = 16, isd = 6, tsd = 0.2, ii = 10 }.",
        ) from error
