"""Checks of what others may do: publish under any name, read keys and state."""

from __future__ import annotations

import asyncio
import logging
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
from msgspec.structs import replace

from aggregator.access.tokens import read as read_tokens
from aggregator.config import AggregatorConfig
from aggregator.http.config import HttpConfig
from kilowatch.doctor.finding import DoctorFinding
from kilowatch.pki.authority import DAY, date, expiry
from telemetry.errors import ConfigError, KilowattError
from telemetry.files import local_token
from telemetry.files.private_file import OTHERS
from telemetry.files.secrets import secret_path
from telemetry.wire.mqtt import BrokerConfig, MqttClient, client_id, connect
from telemetry.wire.topics import Topic, topic

PROBE_SECONDS = 1.5
"""Seconds that a message may take to the broker and back."""
SOON = 30 * DAY
_REFUSALS = logging.getLogger(f"{__name__}.refusals")
_REFUSALS.setLevel(logging.CRITICAL + 1)
"""Says nothing: that a stranger is refused is what should be, and no error for a log."""
_LOOPBACK = ("127.", "::1", "localhost")
_PUBLIC = ("ca_file", "tokens_file")
"""Files without a secret: that of the tokens has hashes, and who may write it is checked with HTTP."""
_PKI = "kilowatch pki init  (docs/deploy.md)"


async def broker_access(config: BrokerConfig, cluster: str) -> list[DoctorFinding]:
    """Try what the broker lets others do. Nothing, if it can't be reached."""
    where = f"{config.host}:{config.port}"
    near = config.host.startswith(_LOOPBACK)
    found = []
    if not config.tls and not near:
        found.append(_warning(f"{where} is used without TLS: whoever is on the way reads and alters everything", _PKI))
    who = "every user of this machine" if near else f"everybody who reaches {where}"
    try:
        if await _stranger_writes(config, cluster):
            problem = f"{who} can publish as any node and command collectors: it asks for no user"
            return [*found, _warning(problem, _PKI)]
        async with asyncio.timeout(8), connect(config, client_id("kilowatch-doctor")) as client:
            free = await _writes_freely(client, cluster)
    except (KilowattError, aiomqtt.MqttError, TimeoutError, OSError):
        return found
    if free and local_token.find_at(config.host, config.port, local_token.BROKERS):
        text = f"{where} is `kilowatch run` of this user, who alone has its password"
        return [*found, DoctorFinding(subject="access", level="ok", text=text)]
    if free:
        problem = f"this user of {where} can publish as any node: it has no access list"
        return [*found, _warning(problem, "kilowatch pki acl --cluster NAME NODE...  (prints one)")]
    text = f"{where} lets nobody publish as another node"
    return [*found, DoctorFinding(subject="access", level="ok", text=text)]


async def _stranger_writes(config: BrokerConfig, cluster: str) -> bool:
    """Return whether a client without user and certificate may publish as any node."""
    bare = replace(config, username=None, password_file=None, cert_file=None, key_file=None)
    client = MqttClient(
        bare.host,
        bare.port,
        identifier=client_id("kilowatch-doctor"),
        tls_context=bare.context(),
        protocol=aiomqtt.ProtocolVersion.V311,
        timeout=5,
        logger=_REFUSALS,
    )
    try:
        async with client:
            return await _writes_freely(client, cluster)
    except aiomqtt.MqttError:
        return False
    finally:
        client._client.disconnect()  # noqa: SLF001 - aiomqtt leaves an abandoned socket open


async def _writes_freely(client: aiomqtt.Client, cluster: str) -> bool:
    """Return whether a message under the name of a node that nobody has comes back. Its last level is
    of no kind, so that no program reads it."""
    node = f"doctor-{secrets.token_hex(4)}"
    name = topic(cluster, node, Topic.FRAME).removesuffix(Topic.FRAME) + "doctor"
    await client.subscribe(name)
    await client.publish(name, b"", qos=1)
    await client.subscribe(name)  # mosquitto answers behind what it has sent, however busy it is
    if len(client.messages):
        return True
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await anext(aiter(client.messages))
    except TimeoutError:
        return False
    return True


def secret_files(settings: msgspec.Struct) -> list[DoctorFinding]:
    """Check that no file with a secret that the settings name can be read by other users, and that
    no certificate expires soon."""
    found = []
    for where, path in _files(settings, ""):
        try:
            found.append(_secret_file(where, secret_path(where, path)))
        except (OSError, ConfigError):
            continue  # a service's credential, or not for this user: `config check` names it
    return [each for each in dict.fromkeys(found) if each is not None]


def _secret_file(where: str, path: Path) -> DoctorFinding | None:
    if where.endswith(("cert_file", "tls_cert")):
        return _certificate(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & stat.S_IROTH:
        return None
    return DoctorFinding(
        subject="access",
        level="fault",
        text=f"{path}: every user of this machine can read this secret (mode {mode:04o})",
        cure=f"chmod 600 {path}; for a systemd unit LoadCredential=; then replace the secret",
    )


def _certificate(path: Path) -> DoctorFinding | None:
    end, now = expiry(path), time.time()
    if end - now > SOON:
        return None
    return DoctorFinding(
        subject="access",
        level="fault" if end <= now else "warning",
        text=f"{path}: the certificate {'has expired' if end <= now else 'expires'} on {date(end)}",
        cure="kilowatch pki renew NAME, and put the new files here",
    )


def state_folders(folders: Sequence[Path]) -> list[DoctorFinding]:
    """Check that no other user of this machine can enter the state folders."""
    found = []
    for folder in dict.fromkeys(folders):
        try:
            mode = stat.S_IMODE(folder.stat().st_mode)
        except OSError:
            continue
        if mode & OTHERS:
            problem = f"{folder}: other users of this machine can enter it (mode {mode:04o})"
            found.append(_warning(problem, f"chmod 700 {folder}"))
    return found


def _files(value: Any, where: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of secrets and certificates that settings name, by their keys."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        for key, inner in value.items():
            place = f"{where}.{key}".lstrip(".")
            if isinstance(inner, str | Path) and _is_secret(str(key)):
                yield place, Path(inner)
            else:
                yield from _files(inner, place)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _files(inner, where)


def _is_secret(key: str) -> bool:
    return key in {"tls_key", "tls_cert"} or (key.endswith("_file") and key not in _PUBLIC)


def http_access(config: AggregatorConfig) -> list[DoctorFinding]:
    """Check who may use the aggregator's HTTP, and who may listen in."""
    if not config.listen:
        return []
    http, found = HttpConfig.of(config), []
    try:
        http.check()
        http.certificate()
        counters = http.counters()
        tokens = 0 if http.tokens_file is None else len(read_tokens(http.tokens_file))
    except ConfigError as error:
        return [DoctorFinding(subject="access", level="fault", text=f"{error.where}: {error.problem}", cure=error.hint)]
    if not http.loopback and http.tls_cert is None:
        found.append(
            _warning(
                f"HTTP on {http.listen} is not encrypted: whoever is on the way reads its tokens",
                "set aggregator.tls_cert, or listen on 127.0.0.1 behind a proxy that encrypts",
            )
        )
    if counters.missing:
        found.append(
            _warning(
                f"names of aggregator.dcgm_counters that are not served: {len(counters.missing)}; {counters.missing[0]}",
                "docs/dcgm.md names what is there in their place; kilowatch config check lists them",
            )
        )
    if http.anonymous_read:
        found.append(
            _warning(
                f"everybody who reaches HTTP on {http.listen} reads all but users and jobs",
                "aggregator.anonymous_read = false, and kilowatch token add NAME",
            )
        )
    text = f"HTTP on {http.listen}: changes need a token ({tokens} in {http.tokens_file})"
    return found or [DoctorFinding(subject="access", level="ok", text=text)]


def _warning(text: str, cure: str) -> DoctorFinding:
    return DoctorFinding(subject="access", level="warning", text=text, cure=cure)
