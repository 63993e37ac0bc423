"""Inspection of a server as a writer and a reader meet it: faults, and their cures."""

from __future__ import annotations

import gzip
from dataclasses import dataclass

from aggregator.influx.client import InfluxClient, InfluxServer, UnreachableError
from aggregator.influx.names import RAW, policies
from aggregator.influx.response import WriteAction, evaluate
from aggregator.influx.setup import rows
from telemetry.text import exact_duration, parse_duration

SETUP = "kilowatch influx setup"
_NOTHING = gzip.compress(b"# kilowatch checks whether it may write\n")
"""A comment of line protocol: a write that stores nothing."""


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """The result of one check."""

    level: str
    """`ok`, `warning` or `fault`."""
    text: str
    cure: str = ""


def inspect(client: InfluxClient, now: float) -> list[ServerFinding]:
    """Return the state of the server; `now` in seconds since 1970. Writes nothing into it."""
    url = client.config.url
    try:
        server = client.server()
        if server.product == "unknown":
            return [ServerFinding("fault", f"{url}: no InfluxDB answers there", "check aggregator.store.influxdb.url")]
        found = [ServerFinding("ok", f"{url}: {server}"), _write(client, now)]
        if server.major in {1, 2} and found[-1].level == "ok":
            found += _policies(client, server)
        if server.product == "VictoriaMetrics":
            found.append(
                ServerFinding(
                    "warning",
                    "VictoriaMetrics answers no InfluxQL: /api/v1/history says so",
                    "query it in PromQL, or use the embedded store",
                )
            )
    except UnreachableError as error:
        return [
            ServerFinding(
                "fault",
                str(error),
                "start the server, or mend aggregator.store.influxdb.url; what comes waits in the spool",
            )
        ]
    return found


def _write(client: InfluxClient, now: float) -> ServerFinding:
    verdict = evaluate(client.write(RAW, _NOTHING), 1, now)
    if verdict.action is WriteAction.ON:
        return ServerFinding("ok", "it accepts data")
    if verdict.missing:
        return ServerFinding("fault", f"it can't accept data: {verdict.problem}", SETUP)
    return ServerFinding(
        "fault",
        f"it accepts no data: {verdict.problem}",
        "check api, org, token_file or password_file in aggregator.store.influxdb",
    )


def _policies(client: InfluxClient, server: InfluxServer) -> list[ServerFinding]:
    config = client.config
    answer = client.request("GET", "/query", {"q": f'SHOW RETENTION POLICIES ON "{config.database}"'})
    problem = answer.problem()
    if problem:
        return [
            ServerFinding("warning", f"its retention can't be read: {problem}", SETUP if "not found" in problem else "")
        ]
    there = {str(row[0]): str(row[1]) for row in rows(answer.json())}
    if server.major == 2:
        there = {name.rpartition("/")[2]: length for name, length in there.items()}
    missing = [name for name in policies(config) if name not in there]
    if missing:
        return [ServerFinding("fault", f"{config.database} has no retention policy {', '.join(missing)}", SETUP)]
    other = [
        f"{name} is {there[name]}, not {exact_duration(seconds)}"
        for name, seconds in policies(config).items()
        if server.major == 1 and parse_duration(there[name]) != round(seconds)
    ]
    if other:
        return [ServerFinding("warning", f"retention: {'; '.join(other)}", SETUP)]
    return [ServerFinding("ok", f"{config.database}: {', '.join(policies(config))}")]
