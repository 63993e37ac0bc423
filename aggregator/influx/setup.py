"""Makes what kilowatch writes into: database and retention (1.x), buckets and their mapping (2.x).

Everything may be done again and again: what is there is brought to the settings, nothing is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aggregator.influx.client import InfluxClient, InfluxServer, UnreachableError
from aggregator.influx.config import DAY, InfluxApi, InfluxConfig
from aggregator.influx.names import bucket, policies
from aggregator.influx.response import WriteReply
from telemetry.errors import StoreError
from telemetry.text import exact_duration, parse_duration

Say = Callable[[str], None]


def prepare(client: InfluxClient, say: Say) -> InfluxServer:
    """Make all that is needed; `say` is told what was done. Raises `StoreError`."""
    try:
        server = client.server()
        if server.product == "VictoriaMetrics":
            say("VictoriaMetrics makes everything by itself; its -retentionPeriod holds for all")
        elif server.major >= 3:
            say(f"{server} makes its databases with the first write; set their retention there")
        elif server.major == 2:
            _buckets(client, say)
        elif server.major == 1:
            _database(client, say)
        else:
            raise StoreError(f"{client.config.url}: no InfluxDB answers there (no "
                             "X-Influxdb-Version). Look at aggregator.store.influxdb.url.")  # fmt: skip
    except UnreachableError as error:
        raise StoreError(f"{error}. Start the server, or mend aggregator.store.influxdb.url."
                         ) from error  # fmt: skip
    return server


# -- 1.x -----------------------------------------------------------------------------------------


def _database(client: InfluxClient, say: Say) -> None:
    config = client.config
    if config.api is InfluxApi.V2:
        _check_v2(client)
    name = _quoted(config.database)
    kept = policies(config)
    first, seconds = next(iter(kept.items()))
    tell(client, f"CREATE DATABASE {name} WITH DURATION {exact_duration(seconds)} REPLICATION 1 "
                 f"NAME {_quoted(first)}", may_fail="retention policy conflicts")  # fmt: skip
    there = {row[0]: row[2] for row in rows(tell(client, f"SHOW RETENTION POLICIES ON {name}"))}
    for number, (policy, seconds) in enumerate(kept.items()):
        verb = "ALTER" if policy in there else "CREATE"
        text = f"{verb} RETENTION POLICY {_quoted(policy)} ON {name} DURATION {exact_duration(seconds)}"
        if verb == "CREATE":
            text += " REPLICATION 1"
        elif (parse_duration(there[policy]) or 0) > seconds:  # it refuses an age below its shards'
            text += f" SHARD DURATION {_shard(seconds)}"
        tell(client, text + (" DEFAULT" if number == 0 else ""))
        say(f"{config.database}.{policy}: kept {exact_duration(seconds)}")


def _check_v2(client: InfluxClient) -> None:
    answer = client.ask("POST", "/api/v2/write", {"bucket": "x", "org": "x"}, b"")
    if answer.status == 404 and "page not found" in answer.text:
        raise StoreError(f"{client.config.url}: this release has no /api/v2/write (InfluxDB 1.8 "
                         'has). Write api = "v1" under [aggregator.store.influxdb].')  # fmt: skip


def tell(client: InfluxClient, text: str, may_fail: str = "") -> dict[str, Any]:
    """Tell a 1.x server something. Raises `StoreError`, `UnreachableError`."""
    answer = client.change(text)
    found = decoded(answer)
    problem = found.get("error") or next(
        (each["error"] for each in found.get("results", ()) if "error" in each), ""
    )
    if problem and not (may_fail and may_fail in problem):
        raise refused(client, answer, str(problem))
    if not problem and answer.status >= 300:
        raise refused(client, answer, answer.text[:200])
    return found


def rows(found: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of an answer to a query."""
    return [
        row
        for result in found.get("results", ())
        for series in result.get("series", ())
        for row in series.get("values", ())
    ]


def decoded(answer: WriteReply) -> dict[str, Any]:
    """Return an answer's JSON object; empty when it is none."""
    try:
        found = msgspec.json.decode(answer.text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def refused(client: InfluxClient, answer: WriteReply, problem: str) -> StoreError:
    """Return the error of an answer that is none."""
    if answer.status in {401, 403}:
        cure = "Look at token_file, or username and password_file; `kilowatch influx setup` needs an administrator."
    else:
        cure = "The server's log says more."
    return StoreError(f"{client.config.url}: {problem.rstrip('.')} ({answer.status}). {cure}")


def _shard(seconds: float) -> str:
    """Return how long a shard is, as 1.x chooses it for a new policy of that age."""
    if seconds < 2 * DAY:
        return "1h"
    return "1d" if seconds <= 180 * DAY else "7d"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- 2.x -----------------------------------------------------------------------------------------


def _buckets(client: InfluxClient, say: Say) -> None:
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
        say(f"bucket {name}: kept {exact_duration(seconds)}, mapped to {config.database}.{policy}")


def _org(client: InfluxClient, config: InfluxConfig) -> str:
    query = {"org": config.org} if config.org else {}
    found = _json(client, "GET", "/api/v2/orgs", query).get("orgs")
    if not found:
        raise StoreError(f"{config.url}: there is no organisation {config.org!r}. Look at "
                         "aggregator.store.influxdb.org.")  # fmt: skip
    return str(found[0]["id"])


def _mapping(
    client: InfluxClient, database: str, policy: str, ident: str, org: str, *, first: bool
) -> None:
    """Map database and policy to a bucket, for those who ask in InfluxQL."""
    query = {"orgID": org, "db": database, "rp": policy}
    found = _json(client, "GET", "/api/v2/dbrps", query).get("content") or []
    if any(each.get("bucketID") == ident and not each.get("virtual") for each in found):
        return
    body = {"bucketID": ident, "orgID": org, "database": database,
            "retention_policy": policy, "default": first}  # fmt: skip
    _json(client, "POST", "/api/v2/dbrps", {}, body)


def _json(
    client: InfluxClient, method: str, path: str, query: dict[str, str], body: object = None
) -> dict[str, Any]:
    content = None if body is None else msgspec.json.encode(body)
    answer = client.ask(method, path, query, content, {"Content-Type": "application/json"})
    found = decoded(answer)
    if answer.status == 404 and method == "GET":
        return {}
    if answer.status >= 300:
        raise refused(client, answer, str(found.get("message") or answer.text[:200]))
    return found
