"""HTTPS: the aggregator's own certificate, new ones without a restart, clients that trust a private authority."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner, Result

from aggregator.access.tokens import AccessScope
from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from kilowatch.__main__ import main
from telemetry.errors import ConfigError
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import add_token, small_cluster
from tests.kit.waiting import until, within
from tests.tui.test_client import following
from tui.feed.connection import ConnectionState

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None and not os.environ.get("CI"), reason="apt-get install openssl"
)


def openssl(*arguments: str) -> None:
    """Run it."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a private authority."""
    return make_authority(tmp_path_factory.mktemp("ca"))


def make_authority(folder: Path) -> Path:
    """Make a private authority in a folder; returns that."""
    openssl(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(folder / "ca.key"),
        "-out",
        str(folder / "ca.crt"),
        "-days",
        "2",
        "-subj",
        "/CN=an authority of our own",
    )
    return folder


def issue(authority: Path, folder: Path, serial: int) -> tuple[Path, Path]:
    """Write a certificate for this machine, and its key."""
    folder.mkdir(exist_ok=True)
    cert, key, asked = folder / "http.crt", folder / "http.key", folder / "http.csr"
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl(
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(folder / "new.key"),
        "-out",
        str(asked),
        "-subj",
        "/CN=aggregator",
    )
    openssl(
        "x509",
        "-req",
        "-in",
        str(asked),
        "-CA",
        str(authority / "ca.crt"),
        "-CAkey",
        str(authority / "ca.key"),
        "-set_serial",
        str(serial),
        "-days",
        "2",
        "-extfile",
        str(folder / "names"),
        "-out",
        str(folder / "new.crt"),
    )
    (folder / "new.key").rename(key)
    (folder / "new.crt").rename(cert)
    return cert, key


def config_of(folder: Path, cert: Path, key: Path | None) -> HttpConfig:
    """Settings of a listener with a certificate."""
    return HttpConfig(listen="127.0.0.1:0", tls_cert=cert, tls_key=key, tokens_file=folder / "tokens.json")


async def serial(port: int, trusted: Path) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=trusted)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return int(found, 16)


@asynccontextmanager
async def secure(folder: Path, authority: Path) -> AsyncIterator[int]:
    """An aggregator that speaks HTTPS; yields its port."""
    cert, key = issue(authority, folder / "tls", 7)
    async with listening(await small_cluster(), config_of(folder, cert, key)) as (_, port):
        yield port


async def test_commands_and_the_dashboard_trust_an_authority_that_is_named(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its name they refuse, and say what to do."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    monkeypatch.delenv("SSL_CERT_FILE")

    def kilowatch(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    async with secure(tmp_path, authority) as port:
        where = f"https://127.0.0.1:{port}"
        refused = await asyncio.to_thread(kilowatch, "alerts", where)
        assert refused.exit_code == 3
        assert "--ca FILE" in refused.stderr
        async with following(where) as feed:
            await until(lambda: "certificate" in feed.connection.reason)
        ca = str(authority / "ca.crt")
        shown = await asyncio.to_thread(kilowatch, "alerts", where, "--ca", ca)
        assert (shown.exit_code, shown.stdout) == (0, "no open incident\n")
        status = await asyncio.to_thread(kilowatch, "status", where, "--ca", ca)
        assert "KILOWATCH" in status.stdout
        assert "UNKNOWN: https" not in status.stdout
        async with following(where) as feed:
            await until(lambda: feed.connection.state is ConnectionState.LIVE)
    wrong = await asyncio.to_thread(kilowatch, "alerts", where, "--ca", str(tmp_path / "tokens.json"))
    assert wrong.exit_code == 64
    assert "it holds no certificate" in wrong.stderr


async def test_a_new_certificate_is_used_without_a_restart_and_a_broken_one_is_not(
    tmp_path: Path, authority: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = authority / "ca.crt"
    async with secure(tmp_path, authority) as port:
        assert await serial(port, ca) == 7
        (tmp_path / "tls" / "http.crt").write_text("half a certif")
        async with within():
            while "the certificate before stays in force" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await serial(port, ca) == 7
        issue(authority, tmp_path / "tls", 8)
        async with within():
            while await serial(port, ca) != 8:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["no such file", "no certificate", "of another key", "a password"])
def test_a_certificate_that_can_not_be_used_is_an_error_at_the_start(
    tmp_path: Path, authority: Path, fault: str
) -> None:
    """OpenSSL never asks for a password: a service has no terminal."""
    cert, key = issue(authority, tmp_path / "one", 1)
    match fault:
        case "no such file":
            cert = tmp_path / "none.crt"
        case "no certificate":
            cert.write_text("nothing")
        case "of another key":
            _, key = issue(authority, tmp_path / "two", 2)
        case _:
            openssl("ec", "-in", str(key), "-aes256", "-passout", "pass:x", "-out", str(key) + ".x")
            key = Path(f"{key}.x")
    with pytest.raises(ConfigError, match=r"aggregator\.tls_cert: .* can't be used"):
        config_of(tmp_path, cert, key).certificate()


def test_a_key_alone_is_an_error_and_both_may_be_in_one_file(tmp_path: Path, authority: Path) -> None:
    cert, key = issue(authority, tmp_path / "one", 1)
    with pytest.raises(ConfigError, match="there is no certificate to it"):
        HttpConfig(tls_key=key).certificate()
    cert.write_text(cert.read_text() + key.read_text())
    assert config_of(tmp_path, cert, None).certificate() is not None


async def test_handshakes_that_do_not_end_are_counted_and_closed(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.http.listener.HANDSHAKE_SECONDS", 1.0)
    cert, key = issue(authority, tmp_path / "tls", 7)
    config = msgspec.structs.replace(config_of(tmp_path, cert, key), max_connections_each=3)
    context = ssl.create_default_context(cafile=authority / "ca.crt")
    async with listening(FakeView(), config) as (_, port):
        lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        _, third = lines[2]
        third.write(b"GET / HTTP/1.1\r\n\r\n")  # plain HTTP is no handshake, and ends it
        async with within():
            for reader, _ in lines[:2]:
                assert await reader.read() == b""
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{port}/healthz"
            async with session.get(url, ssl=context) as answer:
                assert answer.status == 200
        for _, writer in lines:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def test_a_handshake_more_than_the_bound_is_refused(tmp_path: Path, authority: Path) -> None:
    cert, key = issue(authority, tmp_path / "tls", 7)
    config = msgspec.structs.replace(config_of(tmp_path, cert, key), max_connections_each=2)
    async with listening(FakeView(), config) as (_, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with within():
            assert await reader.read() == b""
        for each in (writer, *(other for _, other in held)):
            each.close()


async def test_old_protocols_are_refused(tmp_path: Path, authority: Path) -> None:
    cert, key = issue(authority, tmp_path / "tls", 7)
    certificate = config_of(tmp_path, cert, key).certificate()
    assert certificate is not None
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_without_encryption_the_log_says_so_elsewhere_than_on_loopback(
    tmp_path: Path, authority: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.json"
    add_token(path, "ann", AccessScope.READ)
    cert, key = issue(authority, tmp_path / "tls", 7)
    plain = HttpConfig(listen="0.0.0.0:0", tokens_file=path)
    for config, warned in (
        (plain, True),
        (msgspec.structs.replace(plain, tls_cert=cert, tls_key=key), False),
        (HttpConfig(listen="127.0.0.1:0"), False),
    ):
        caplog.clear()
        async with listening(FakeView(), config):
            assert ("is not encrypted" in caplog.text) is warned
