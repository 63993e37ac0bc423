"""Metrics of access to HTTP: refusals, wrong tokens, connections."""

from __future__ import annotations

from aiohttp import web

from aggregator.http.auth import GUARD
from aggregator.http.listener import CONNECTIONS
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, Family, labels


def access_families(app: web.Application) -> list[Family]:
    """Return the families of an application's listener."""
    guard, connections = app[GUARD], app[CONNECTIONS]
    rows = (
        ("connections", "Connections to HTTP.", GAUGE, connections.open),
        ("connections_refused_total", "Connections refused because there were too many.", COUNTER, connections.refused),
        (
            "connections_dropped_total",
            "Connections closed because their reader did not read.",
            COUNTER,
            connections.dropped,
        ),
        ("wrong_tokens_total", "Requests with a token that is not known or has expired.", COUNTER, guard.wrong.count),
    )
    return [
        *(
            Family(f"{PREFIX}aggregator_http_{name}", text, kind, [("", float(value))])
            for name, text, kind, value in rows
        ),
        Family(
            f"{PREFIX}aggregator_http_refused_total",
            "Requests refused before they were read, by what is wrong with them.",
            COUNTER,
            [(labels({"reason": word}), float(n)) for word, n in sorted(guard.refused.items())],
        ),
    ]
