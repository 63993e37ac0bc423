"""The metrics of the InfluxDB store: sender and spool, on `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.influx.sender import SenderMetrics
from aggregator.influx.spool import Spool
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, Family, Sample, labels

KNOWN_DROPS = ("spool_full", "spool_old")
KNOWN_REFUSALS = ("field_type", "beyond_retention", "unparsable", "server_error")
"""Reasons that are shown as 0 before they first occur, so that their rate is right."""


def families(sender: SenderMetrics, spool: Spool, dropped: Mapping[str, int]) -> tuple[Family, ...]:
    """Return the metrics of a store. `dropped`: points that the spool dropped, by reason."""
    oldest = spool.oldest()
    return (
        _one("connected", "1 while the server accepts data.", GAUGE, sender.connected),
        _one("requests_total", "Requests sent to the server.", COUNTER, sender.requests),
        _one("requests_failed_total", "Requests that failed and are sent again.",
             COUNTER, sender.failures),
        _one("request_seconds_total", "Time spent in requests.", COUNTER, sender.seconds),
        _one("points_delivered_total", "Points that the server has accepted.", COUNTER, sender.delivered),
        _one("delivered_bytes_total", "Bytes sent, compressed.", COUNTER, sender.delivered_bytes),
        _family("points_refused_total", "Points that the server refuses for good, by reason.",
                COUNTER, _by_reason(KNOWN_REFUSALS, sender.refused)),
        _family("points_dropped_total", "Points that were dropped from the spool: no room, or too old.",
                COUNTER, _by_reason(KNOWN_DROPS, dropped)),
        _one("spool_points", "Points that wait for the server.", GAUGE, spool.points),
        _one("spool_bytes", "Bytes of the spool on disk.", GAUGE, spool.bytes),
        _family("spool_oldest_timestamp_seconds", "When the oldest waiting point was sampled.",
                GAUGE, [] if oldest is None else [("", oldest / 1000)]),
    )  # fmt: skip


def _family(name: str, text: str, kind: str, samples: list[Sample]) -> Family:
    return Family(f"{PREFIX}influxdb_{name}", text, kind, samples)


def _one(name: str, text: str, kind: str, value: float) -> Family:
    return _family(name, text, kind, [("", float(value))])


def _by_reason(known: tuple[str, ...], counts: Mapping[str, int]) -> list[Sample]:
    found = {**dict.fromkeys(known, 0), **counts}
    return [(labels({"reason": word}), float(count)) for word, count in sorted(found.items())]
