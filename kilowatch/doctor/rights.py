"""A check of what the broker lets us do: a message of the kind that our role sends, there and back."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess

import aiomqtt

from kilowatch.doctor.access import PROBE_SECONDS
from kilowatch.doctor.finding import DoctorFinding
from kilowatch.doctor.role import MachineRole
from kilowatch.pki.authority import AGGREGATOR
from kilowatch.settings import Settings
from telemetry.errors import KilowattError
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, topic

_NAME = re.compile(r"CN\s*=\s*([^,/\n]+)")
_TRIES = 2
"""Probes that must be lost before the list is blamed: a broker may be slow once."""


async def bus_rights(settings: Settings, role: MachineRole) -> list[DoctorFinding]:
    """Try what each service of this machine must be permitted. Nothing, if the broker can't be reached.

    The messages are empty, which nobody obeys or stores: an inventory of the node, a command to a node that
    nobody has.
    """
    found = []
    cluster, node = settings.cluster, settings.collector.node
    if role.collects:
        where = topic(cluster, node, Topic.INVENTORY)
        found += await _tried(settings.collector.broker, where, node, "collector")
    if role.aggregates:
        where = topic(cluster, f"doctor-{secrets.token_hex(4)}", Topic.COMMAND)
        found += await _tried(settings.aggregator.broker, where, AGGREGATOR, "aggregator")
    return found


async def _tried(config: BrokerConfig, where: str, expected: str, service: str) -> list[DoctorFinding]:
    try:
        for _ in range(_TRIES):
            if await _comes_back(config, where):
                text = f"the broker lets this {service} publish and subscribe"
                return [DoctorFinding(subject="rights", level="ok", text=text)]
    except (KilowattError, aiomqtt.MqttError, TimeoutError, OSError):
        return []  # the check of the broker says so
    name = await asyncio.to_thread(bus_name, config)
    known = f"as {name!r}" if name else "without a name"
    text = f"the broker lets us in {known}, and passes nothing on: its access list gives no rights to a {service} of that name"
    if name == expected:
        cure = "copy broker/ of the authority to the broker, and systemctl reload mosquitto"
    elif service == "aggregator":
        cure = f"the name must be {expected!r} (CN of the certificate), or one that kilowatch pki aggregator NAME has added"
    else:
        cure = f"the name must be that of the node, {expected!r} (collector.node): kilowatch pki node {expected}"
    return [DoctorFinding(subject="rights", level="fault", text=text, cure=cure)]


async def _comes_back(config: BrokerConfig, where: str) -> bool:
    """Return whether an empty message comes back that was published on a topic."""
    async with asyncio.timeout(8), connect(config, client_id("kilowatch-doctor")) as client:
        await client.subscribe(where)
        await client.publish(where, b"", qos=1)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                async for message in client.messages:
                    if not message.payload:  # what is retained there comes first
                        return True
        except TimeoutError:
            pass
    return False


def bus_name(config: BrokerConfig) -> str:
    """Return the name by which the broker knows us: the user, else the common name of the certificate; ""
    where it is not known."""
    if config.username is not None:
        return config.username
    if config.cert_file is None:
        return ""
    try:
        done = subprocess.run(
            ["openssl", "x509", "-in", str(config.cert_file), "-noout", "-subject"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    found = _NAME.search(done.stdout)
    return found[1].strip() if found else ""
