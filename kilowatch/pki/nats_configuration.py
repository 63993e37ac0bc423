"""Configuration of nats-server: listeners, TLS, JetStream, and what each certificate may do. Pure.

The certificates are those of `kilowatch pki`: a server knows a client by the subject of its certificate, and
the list of users is at the same time the access list. nats-server reads no list of revocations, so that a
name which is not in the list is what locks a certificate out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kilowatch.pki.authority import BROKER
from telemetry.errors import ConfigError
from telemetry.wire.topics import Topic, topic

CLIENT_PORT, ROUTE_PORT, MONITOR_PORT = 4222, 6222, 8222
SAFE_VERSION: tuple[int, ...] = (2, 10, 23)
"""Oldest nats-server that may run a cluster: older ones lose whole streams when processes are killed
(Jepsen's report on NATS 2.12, which names 2.10.22)."""
TIMEOUT_VERSION = (2, 12, 0)
"""From here on nats-server surely knows `js_api_timeout`; an older one does not start with a name that it does not know."""
MQTT_TIMEOUT = 'js_api_timeout: "2s"'
"""Of the MQTT door: it closes connections and refuses subscriptions after so long while a stream has no leader. With its 5 s a
client that came during an election of four to nine seconds waited for one or two more of them."""
FEWEST = 3
"""Servers of a cluster: two stop as soon as one of them does."""
_SERVER = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,62})=([^=:,\s]{1,253})(?::([1-9][0-9]{0,4}))?")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_ESCAPES = str.maketrans({"/": ".", ".": "//"})
_HEAD = """\
# nats-server of the cluster {cluster}: {name}. Written by `kilowatch cluster nats-config`; write it anew after each
# `kilowatch pki node`, `renew`, `revoke` or `aggregator`, then: nats-server --signal reload
server_name: "{name}"
listen: "0.0.0.0:{client}"
# For health checks of this machine alone: /healthz, /jsz.
http: "127.0.0.1:{monitor}"
max_connections: 30000
# The longest message: an inventory of 1,024 GPUs has less than 1 MB.
max_payload: 4MB
# Bytes that wait for one client. A hundred thousand GPUs bring 21 MB a second, and an aggregator may stop for
# some seconds; what is lost to it is noticed by its number and requested again.
max_pending: 256MB
ping_interval: "20s"
write_deadline: "10s"
tls {{ {certificate}, verify_and_map: true }}
cluster {{
  name: "{cluster}"
  listen: "0.0.0.0:{route}"
  routes: [{routes}]
  # A server of the cluster shows the broker's own certificate: any other of the authority would do for `verify`.
  authorization {{ user: "CN={broker},OU=broker" }}
  tls {{ {certificate}, verify_and_map: true }}
}}
jetstream {{
  store_dir: "{data}"
  # What is acknowledged is on the disk: the hall that this cluster watches may lose its power, servers and all.
  sync_interval: always
  max_memory_store: 256MB
  max_file_store: 10GB
}}
mqtt {{
  listen: "0.0.0.0:{mqtt}"
  max_ack_pending: 1024
  {timeout}
  tls {{ {certificate}, verify_and_map: true }}
}}
accounts {{
  kilowatch {{
    jetstream: enabled
    users: [
"""
_TAIL = """\
    ]
  }
}
"""


@dataclass(frozen=True, slots=True)
class NatsServer:
    """A server of the cluster, as `--server NAME=HOST[:PORT]` names it."""

    name: str
    host: str
    port: int = CLIENT_PORT
    """Where NATS clients connect. The other listeners are as far from their usual ports as this is from
    4222, so that several servers fit on one machine."""

    @property
    def shift(self) -> int:
        """Distance from the usual ports."""
        return self.port - CLIENT_PORT


def parse_server(text: str) -> NatsServer:
    """Return the server that an operator has named. Raises `ConfigError`."""
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ConfigError(
            "--server",
            f"{text!r} is not NAME=HOST[:PORT]",
            "For example --server nats-1=10.0.0.11; an IPv6 address needs a host name.",
        )
    return NatsServer(found[1], found[2], int(found[3] or CLIENT_PORT))


def check_servers(servers: Sequence[NatsServer], certified: Iterable[str]) -> None:
    """Raise `ConfigError` for servers that are no cluster, or whose hosts the certificate does not name."""
    if len(servers) < FEWEST or len(servers) % 2 == 0:
        raise ConfigError(
            "--server",
            f"{len(servers)} servers are named",
            "Name three or five, on different machines and feeds: an even number survives no more "
            "losses than one server less, and one or two stop as soon as one does.",
        )
    for what in ({each.name for each in servers}, {(each.host, each.port) for each in servers}):
        if len(what) < len(servers):
            raise ConfigError("--server", "two servers are named alike", "Name each server once.")
    for each in servers:
        if each.host not in set(certified):
            raise ConfigError(
                "--server",
                f"the broker's certificate does not name {each.host!r}",
                "Make the authority with --broker for each server's host: kilowatch pki init.",
            )
        if not -CLIENT_PORT < each.shift <= 65_535 - MONITOR_PORT:
            raise ConfigError(
                "--server",
                f"port {each.port} leaves no room for the other listeners",
                f"They are at {ROUTE_PORT} and {MONITOR_PORT} where this one is at {CLIENT_PORT}.",
            )


def check_version(text: str) -> tuple[int, ...]:
    """Return the version of a nats-server; `text`: its own `--version`. Raises `ConfigError` for one that must not run a
    cluster."""
    found = _VERSION.search(text)
    if found is None:
        raise ConfigError("nats-server", f"it names no version: {text.strip()[:80]!r}", "Update it.")
    version = tuple(map(int, found.groups()))
    if version < SAFE_VERSION:
        raise ConfigError(
            "nats-server",
            f"version {found[0]} can lose everything when a process is killed",
            f"Use {'.'.join(map(str, SAFE_VERSION))} or newer.",
        )
    return version


def subject(mqtt_topic: str) -> str:
    """Return the subject by which nats-server knows an MQTT topic: levels end at a dot, and a dot within
    a name is two slashes."""
    return mqtt_topic.translate(_ESCAPES)


def node_user(cluster: str, node: str) -> str:
    """Return the entry of a node: over MQTT alone, it publishes its own topics and reads them, its commands
    among them. Only an aggregator writes commands."""
    own = [topic(cluster, node, kind) for kind in Topic]
    written = [subject(each) for kind, each in zip(Topic, own, strict=True) if kind is not Topic.COMMAND]
    read = subject(own[0].rpartition("/")[0] + "/") + "*"
    return (
        f'      {{ user: {json.dumps(f"CN={node},OU=node")}, allowed_connection_types: ["MQTT"],\n'
        f"        permissions: {{ publish: {json.dumps(written)}, subscribe: {json.dumps([read])} }} }}\n"
    )


def aggregator_user(name: str) -> str:
    """Return the entry of an aggregator: all of the account, JetStream included, by NATS and by MQTT."""
    return f'      {{ user: {json.dumps(f"CN={name},OU=aggregator")}, permissions: {{ publish: [">"], subscribe: [">"] }} }}\n'


def nats_configuration(
    cluster: str,
    servers: Sequence[NatsServer],
    server: NatsServer,
    mqtt_port: int,
    place: str,
    data: str,
    aggregators: Iterable[str],
    nodes: Iterable[str],
    version: tuple[int, ...] = SAFE_VERSION,
) -> str:
    """Return the whole file of one server.

    `place`: folder of the broker's certificate, key and authority on that machine; `data`: JetStream's; `version`: that
    of the server.
    """
    oldest = ".".join(map(str, TIMEOUT_VERSION))
    certificate = ", ".join(
        f"{key}: {json.dumps(f'{place}/{file}')}"
        for key, file in (("cert_file", "broker.crt"), ("key_file", "broker.key"), ("ca_file", "ca.crt"))
    )
    routes = ", ".join(json.dumps(f"tls://{each.host}:{ROUTE_PORT + each.shift}") for each in servers if each != server)
    head = _HEAD.format(
        cluster=cluster,
        name=server.name,
        client=server.port,
        monitor=MONITOR_PORT + server.shift,
        route=ROUTE_PORT + server.shift,
        mqtt=mqtt_port + server.shift,
        certificate=certificate,
        routes=routes,
        data=data,
        broker=BROKER,
        timeout=MQTT_TIMEOUT if version >= TIMEOUT_VERSION else f"# From {oldest} on: {MQTT_TIMEOUT}",
    )
    users = [aggregator_user(name) for name in sorted(aggregators)]
    users += [node_user(cluster, name) for name in sorted(nodes)]
    return head + "".join(users) + _TAIL
