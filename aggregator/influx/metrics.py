"""What the InfluxDB store says of itself on `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from telemetry.exposition import COUNTER, GAUGE, PREFIX, Family, Sample, labels

KNOWN_DROPS = ("spool_full", "spool_old")
KNOWN_REFUSALS = ("field_type", "beyond_retention", "unparsable", "server_error")
"""Reasons that are shown as 0 before they first occur, so that their rate is right."""


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """One look at sender and spool."""

    connected: bool
    requests: int
    failures: int
    seconds: float
    delivered: int
    delivered_bytes: int
    refused: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    spool_points: int = 0
    spool_bytes: int = 0
    oldest: int | None = None
    """ms since 1970 of the oldest point that waits."""
    problem: str = ""


def state_of(store: object) -> SpoolStatus | None:
    """Return what a store that is InfluxDB says of itself, None of any other."""
    tell = getattr(store, "state", None)
    state = tell() if callable(tell) else None
    return state if isinstance(state, SpoolStatus) else None


def influx_families(store: object) -> list[Family]:
    """Return the families of a store that is InfluxDB, nothing of any other."""
    state = state_of(store)
    if state is None:
        return []
    dropped = {**dict.fromkeys(KNOWN_DROPS, 0), **state.dropped}
    refused = {**dict.fromkeys(KNOWN_REFUSALS, 0), **state.refused}
    return [
        _one("connected", "1 while the server takes what it is sent.", GAUGE, state.connected),
        _one("requests_total", "Requests sent to the server.", COUNTER, state.requests),
        _one("requests_failed_total", "Requests that came to nothing and are tried again.",
             COUNTER, state.failures),
        _one("request_seconds_total", "Time spent in requests.", COUNTER, state.seconds),
        _one("points_delivered_total", "Points that the server has.", COUNTER, state.delivered),
        _one("delivered_bytes_total", "Bytes sent, compressed.", COUNTER, state.delivered_bytes),
        _family("points_refused_total", "Points that the server refuses for good, by reason.",
                COUNTER, _by("reason", refused)),
        _family("points_dropped_total", "Points that the spool had no room for or kept too long.",
                COUNTER, _by("reason", dropped)),
        _one("spool_points", "Points that wait for the server.", GAUGE, state.spool_points),
        _one("spool_bytes", "Disk that the spool takes.", GAUGE, state.spool_bytes),
        _family("spool_oldest_timestamp_seconds", "When the oldest point that waits was taken.",
                GAUGE, [] if state.oldest is None else [("", state.oldest / 1000)]),
    ]  # fmt: skip


def _family(name: str, text: str, kind: str, samples: list[Sample]) -> Family:
    return Family(f"{PREFIX}influxdb_{name}", text, kind, samples)


def _one(name: str, text: str, kind: str, value: float) -> Family:
    return _family(name, text, kind, [("", float(value))])


def _by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [(labels({label: word}), float(count)) for word, count in sorted(counts.items())]
