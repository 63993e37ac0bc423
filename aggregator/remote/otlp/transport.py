"""Sending OTLP's requests: by HTTP, or by gRPC where the settings want it."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp

from aggregator.settings.otlp import OtlpConfig, OtlpProtocol
from telemetry.runtime.http_outcome import HttpOutcome, outcome_of
from telemetry.text.connection_faults import connection_fault

_GZIP, _FASTEST = 31, 1
_WORDS = 200
"""Characters of a receiver's own words that are kept."""


class Signal(StrEnum):
    """Content of a request; its path by HTTP."""

    METRICS = "/v1/metrics"
    LOGS = "/v1/logs"


_METHODS = {
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}


class OtlpAnswer(NamedTuple):
    """Outcome of a request."""

    outcome: HttpOutcome
    why: str = ""
    """Why it was not delivered, in words."""
    body: bytes = b""


class Sender(Protocol):
    """A connection to a receiver."""

    def packed(self, body: bytes) -> bytes:
        """Return a request as it waits and is sent; in any thread."""

    async def send(self, signal: Signal, body: bytes) -> OtlpAnswer:
        """Send a packed request. Never raises for what a receiver or the network does."""


def compressed(body: bytes) -> bytes:
    """Return a body as gzip, in the least time."""
    packer = zlib.compressobj(_FASTEST, wbits=_GZIP)
    return packer.compress(body) + packer.flush()


@asynccontextmanager
async def sender_of(config: OtlpConfig) -> AsyncIterator[Sender]:
    """Open the connection of some settings. Raises `ConfigError`."""
    if config.protocol is OtlpProtocol.GRPC:
        async with _by_grpc(config) as sender:
            yield sender
        return
    trusted = config.certificates()
    context = True if trusted is None else ssl.create_default_context(cadata=trusted.decode())
    headers = config.headers() | {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
    timeout = aiohttp.ClientTimeout(total=config.timeout_seconds)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
        yield _Http(session, config.url.rstrip("/"))


class _Http:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    def packed(self, body: bytes) -> bytes:
        return compressed(body)

    async def send(self, signal: Signal, body: bytes) -> OtlpAnswer:
        try:
            async with self._session.post(self._url + signal, data=body) as answer:
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return OtlpAnswer(HttpOutcome.RETRY, connection_fault(error).what)
        words = content[:_WORDS].decode(errors="replace")
        return OtlpAnswer(outcome_of(status), f"{status} {words}".strip(), content)


@asynccontextmanager
async def _by_grpc(config: OtlpConfig) -> AsyncIterator[Sender]:
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, and 20 MB: only where the settings want it

    parts = urlsplit(config.url)
    secure = parts.scheme == "https"
    trusted = grpc.ssl_channel_credentials(config.certificates()) if secure else None
    options: dict[str, Any] = {"compression": grpc.Compression.Gzip}
    target = parts.netloc
    channel = (
        grpc.aio.secure_channel(target, trusted, **options) if secure else grpc.aio.insecure_channel(target, **options)
    )
    async with channel:
        yield _Grpc(channel, tuple(config.headers().items()), config.timeout_seconds)


class _Grpc:
    _TRANSIENT = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
    """Codes after which OTLP sends the same request again; a message that is too long (RESOURCE_EXHAUSTED) stays so."""

    def __init__(self, channel: Any, metadata: tuple[tuple[str, str], ...], seconds: float) -> None:
        self._metadata, self._seconds = metadata, seconds
        self._calls = {signal: channel.unary_unary(method) for signal, method in _METHODS.items()}

    def packed(self, body: bytes) -> bytes:
        return body  # gRPC compresses by itself

    async def send(self, signal: Signal, body: bytes) -> OtlpAnswer:
        from grpc.aio import AioRpcError  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

        try:
            content = await self._calls[signal](body, timeout=self._seconds, metadata=self._metadata)
        except AioRpcError as error:
            code, words = error.code().name, (error.details() or "")[:_WORDS]
            outcome = HttpOutcome.RETRY if code in self._TRANSIENT else HttpOutcome.REFUSED
            return OtlpAnswer(outcome, f"{code} {words}".strip())
        return OtlpAnswer(HttpOutcome.DELIVERED, body=content)
