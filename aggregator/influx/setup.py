"""The setup of a server: database and retention (1.x), buckets and their mapping (2.x).

Idempotent: what exists is brought to the settings, nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aggregator.influx.client import InfluxClient, InfluxServer, UnreachableError
from aggregator.influx.names import bucket, policies
from aggregator.influx.response import ServerReply
from aggregator.settings.influx import DAY, InfluxApi, InfluxConfig
from telemetry.errors import StoreError
from telemetry.text import exact_duration, parse_duration

Report = Callable[[str], None]


def prepare(client: InfluxClient, report: Report) -> InfluxServer:
    """Create all that is needed; `report` is called with each step. Raises `StoreError`."""
    try:
        server = client.server()
        if server.product == "VictoriaMetrics":
            report("VictoriaMetrics makes everything by itself; its -retentionPeriod holds for all")
        elif server.major >= 3:
            report(f"{server} makes its databases with the first write; set their retention there")
        elif server.major == 2:
            _buckets(client, report)
        elif server.major == 1:
            _database(client, report)
        else:
            raise StoreError(
                f"{client.config.url}: no InfluxDB answers there (no "
                "X-Influxdb-Version). Look at aggregator.store.influxdb.url."
            )
    except UnreachableError as error:
        raise StoreError(f"{error}. Start the server, or mend aggregator.store.influxdb.url.") from error
    return server


# -- 1.x -----------------------------------------------------------------------------------------


def _database(client: InfluxClient, report: Report) -> None:
    config = client.config
    if config.api is InfluxApi.V2:
        _check_v2(client)
    name = _quoted(config.database)
    kept = policies(config)
    first, seconds = next(iter(kept.items()))
    execute(
        client,
        f"CREATE DATABASE {name} WITH DURATION {exact_duration(seconds)} REPLICATION 1 NAME {_quoted(first)}",
        may_fail="retention policy conflicts",
    )
    there = {row[0]: row[2] for row in rows(execute(client, f"SHOW RETENTION POLICIES ON {name}"))}
    for number, (policy, seconds) in enumerate(kept.items()):
        verb = "ALTER" if policy in there else "CREATE"
        text = f"{verb} RETENTION POLICY {_quoted(policy)} ON {name} DURATION {exact_duration(seconds)}"
        if verb == "CREATE":
            text += " REPLICATION 1"
        elif (parse_duration(there[policy]) or 0) > seconds:  # it refuses an age below its shards'
            text += f" SHARD DURATION {_shard(seconds)}"
        execute(client, text + (" DEFAULT" if number == 0 else ""))
        report(f"{config.database}.{policy}: kept {exact_duration(seconds)}")


def _check_v2(client: InfluxClient) -> None:
    reply = client.request("POST", "/api/v2/write", {"bucket": "x", "org": "x"}, b"")
    if reply.status == 404 and "page not found" in reply.text:
        raise StoreError(
            f"{client.config.url}: this release has no /api/v2/write (InfluxDB 1.8 "
            'has). Write api = "v1" under [aggregator.store.influxdb].'
        )


def execute(client: InfluxClient, text: str, may_fail: str = "") -> dict[str, Any]:
    """Execute a statement on a 1.x server. Raises `StoreError`, `UnreachableError`."""
    reply = client.change(text)
    problem = reply.problem()
    if problem and not (may_fail and may_fail in problem):
        raise refused(client, reply, problem)
    if not problem and reply.status >= 300:
        raise refused(client, reply, reply.text[:200])
    return reply.json()


def rows(found: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of an reply to a query."""
    return [
        row
        for result in found.get("results", ())
        for series in result.get("series", ())
        for row in series.get("values", ())
    ]


def refused(client: InfluxClient, reply: ServerReply, problem: str) -> StoreError:
    """Return the error for a reply that reports a problem."""
    if reply.status in {401, 403}:
        cure = "Look at token_file, or username and password_file; `kilowatch influx setup` needs an administrator."
    else:
        cure = "See the server's log."
    return StoreError(f"{client.config.url}: {problem.rstrip('.')} ({reply.status})", cure)


def _shard(seconds: float) -> str:
    """Return how long a shard is, as 1.x chooses it for a new policy of that age."""
    if seconds < 2 * DAY:
        return "1h"
    return "1d" if seconds <= 180 * DAY else "7d"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- 2.x -----------------------------------------------------------------------------------------


def _buckets(client: InfluxClient, report: Report) -> None:
    config = client.config
    org = _org(client, config)
    kept = policies(config)
    for number, (policy, seconds) in enumerate(kept.items()):
        name = bucket(config.database, policy)
        rules = [{"type": "expire", "everySeconds": round(seconds)}]
        found = _json(client, "GET", "/api/v2/buckets", {"name": name, "orgID": org}).get("buckets")
        if found:
            ident = found[0]["id"]
            _json(client, "PATCH", f"/api/v2/buckets/{ident}", {}, {"retentionRules": rules})
        else:
            body = {"orgID": org, "name": name, "retentionRules": rules}
            ident = _json(client, "POST", "/api/v2/buckets", {}, body)["id"]
        _mapping(client, config.database, policy, ident, org, first=number == 0)
        report(f"bucket {name}: kept {exact_duration(seconds)}, mapped to {config.database}.{policy}")


def _org(client: InfluxClient, config: InfluxConfig) -> str:
    query = {"org": config.org} if config.org else {}
    found = _json(client, "GET", "/api/v2/orgs", query).get("orgs")
    if not found:
        raise StoreError(
            f"{config.url}: there is no organisation {config.org!r}. Look at aggregator.store.influxdb.org."
        )
    return str(found[0]["id"])


def _mapping(client: InfluxClient, database: str, policy: str, ident: str, org: str, *, first: bool) -> None:
    """Map database and policy to a bucket, for queries in InfluxQL."""
    query = {"orgID": org, "db": database, "rp": policy}
    found = _json(client, "GET", "/api/v2/dbrps", query).get("content") or []
    if any(each.get("bucketID") == ident and not each.get("virtual") for each in found):
        return
    body = {"bucketID": ident, "orgID": org, "database": database, "retention_policy": policy, "default": first}
    _json(client, "POST", "/api/v2/dbrps", {}, body)


def _json(client: InfluxClient, method: str, path: str, query: dict[str, str], body: object = None) -> dict[str, Any]:
    content = None if body is None else msgspec.json.encode(body)
    reply = client.request(method, path, query, content, {"Content-Type": "application/json"})
    found = reply.json()
    if reply.status == 404 and method == "GET":
        return {}
    if reply.status >= 300:
        raise refused(client, reply, str(found.get("message") or reply.text[:200]))
    return found
