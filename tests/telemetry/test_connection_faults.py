"""What keeps a connection from being made is told in words with a cure, and no word of OpenSSL's or errno's."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aggregator.mqtt.client import FanInClient
from api.stats import Stats
from kilowatch.pki.authority import Authority, PkiSettings, Role
from telemetry.errors import BusError
from telemetry.text.connection_faults import NOBODY, connection_fault
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from tests.brokers import Mosquitto, free_port, wait_for_port
from tests.kit.waiting import until

MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ssl.SSLCertVerificationError(1, "certificate verify failed: certificate has expired (_ssl.c:1006)"), "its certificate has expired, by the clock here"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed: certificate is not yet valid (_ssl.c:1006)"), "its certificate is not valid yet, by the clock here"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed: Hostname mismatch, certificate is not valid for 'b.example'. (_ssl.c:1006)"), "its certificate is for other names than b.example"),
        (ssl.SSLError(1, "[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired (_ssl.c:2580)"), "it refuses our certificate, which has expired"),
        (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"), "it refuses our certificate: it is from another authority than the one that it trusts"),
        (ssl.SSLError(1, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"), "it closed the connection in the middle of TLS' handshake"),
        (ssl.SSLError(1, "[SSL] record layer failure (_ssl.c:1006)"), "it does not speak TLS on this port"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "there is no way to it in the network"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed"), NOBODY),
        (TimeoutError(), "it does not answer"),
        (socket.gaierror(-3, "Temporary failure in name resolution"), "the name server does not answer"),
        (ValueError("what nobody has seen"), "what nobody has seen"),
    ],
)  # fmt: skip
def test_an_error_has_words_of_its_own(error: Exception, what: str) -> None:
    assert connection_fault(error).what == what


@dataclass
class Broker:
    """A mosquitto with TLS that asks for certificates, beside one without; `members` have one of its authority."""

    port: int
    plain: Mosquitto
    authority: Authority
    stranger: Authority

    def settings(
        self, name: str | None, *, host: str = "localhost", port: int = 0, ca: Path | None = None
    ) -> BrokerConfig:
        """Settings of a member; None is nobody."""
        whose = self.stranger if name == "stranger" else self.authority
        place = None if name is None else whose.folder / "nodes" / name
        return BrokerConfig(
            host=host,
            port=port or self.port,
            tls=True,
            ca_file=ca or self.authority.folder / "broker" / "ca.crt",
            cert_file=None if place is None else place / "node.crt",
            key_file=None if place is None else place / "node.key",
        )


def made(folder: Path, *nodes: str) -> Authority:
    authority = Authority.create(
        folder, PkiSettings(cluster="lab", names=("localhost",), port=free_port(), place=str(folder / "broker")), 10
    )
    for name in nodes:
        authority.issue(Role.NODE, name, 10)
    authority.publish()
    return authority


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("pki")
    authority, stranger = (made(folder / "ours", "member", "revoked"), made(folder / "theirs", "stranger"))
    kept = [(path, path.read_bytes()) for path in (authority.folder / "nodes/revoked").iterdir()]
    authority.revoke("revoked")
    authority.publish()
    for path, content in kept:  # who has lost the certificate still has it
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    settings, port = folder / "tls.conf", authority.settings.port
    settings.write_text(
        (authority.folder / "broker/kilowatch.conf").read_text() + ("user root\n" if os.geteuid() == 0 else "")
    )
    process = subprocess.Popen([MOSQUITTO, "-c", str(settings)], stderr=subprocess.DEVNULL)
    plain = Mosquitto(folder)
    try:
        plain.start()
        wait_for_port(port)
        yield Broker(port, plain, authority, stranger)
    finally:
        process.kill()
        process.wait()
        plain.kill()


RESET = "|it closed the connection"
"""Words where the end of the connection overtakes the alert in which TLS 1.3 says why."""
CASES = {
    "a member": (lambda b: b.settings("member"), ""),
    "another name": (lambda b: b.settings("member", host="127.0.0.1"), "its certificate is for other names than 127.0.0.1"),
    "nobody": (lambda b: b.settings(None), "it asks for a certificate, and we have none. Name ours: cert_file and key_file." + RESET),
    "revoked": (lambda b: b.settings("revoked"), "it refuses our certificate, which was revoked. Make a new one: kilowatch pki node NAME." + RESET),
    "of another authority": (lambda b: b.settings("stranger"), "it refuses our certificate: it is from another authority" + RESET),
    "another authority is trusted": (lambda b: b.settings("member", ca=b.stranger.folder / "broker/ca.crt"), "is not from an authority that is trusted here"),
    "no TLS there": (lambda b: b.settings("member", port=b.plain.port), "Check port, tls and certificate"),
    "TLS there": (lambda b: BrokerConfig(host="localhost", port=b.port), "Check port, tls and certificate"),
    "nothing there": (lambda b: b.settings("member", port=free_port()), NOBODY),
    "no such name": (lambda b: b.settings("member", host="no-such-host.invalid"), "no address is known for this name|the name server does not answer"),
}  # fmt: skip


@needs_openssl
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # paho leaves a socket that fails the handshake to its destructor
)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ours", ["collector", "aggregator"])
async def test_a_broker_that_does_not_let_us_in_is_told_in_words(
    case: str, ours: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    make, words = CASES[case]
    config = make(broker)
    said = await _said(config, ours, caplog)
    gc.collect()  # here, and not in the next test
    if not words:
        assert said == ""
        return
    assert re.search(words, said), said
    assert said.startswith(f"MQTT broker {config.address}: ")
    assert not re.search(r"ssl\.c|errno|SSL:|tlsv1|sslv3", said, re.IGNORECASE)
    assert [each for each in caplog.records if each.exc_info or each.levelname == "ERROR"] == []


async def _said(config: BrokerConfig, ours: str, caplog: pytest.LogCaptureFixture) -> str:
    """Why a client can't connect; "" where it can."""
    if ours == "collector":
        try:
            async with connect(config, client_id("test")) as client:
                await client.publish("kilowatch/v1/lab/member/status", b"x", qos=1)
        except BusError as error:
            return str(error)
        return ""
    stats = Stats()
    client = FanInClient(config, "lab", (), lambda *_: None, stats)
    with caplog.at_level("WARNING"):
        running = asyncio.create_task(client.run())
        try:
            await until(lambda: stats.bus_connected or any("next try" in each.getMessage() for each in caplog.records))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    lines = [each.getMessage() for each in caplog.records if "next try" in each.getMessage()]
    return lines[0].removeprefix("bus: ").partition("; next try")[0] if lines else ""
