"""A real server on loopback and a real client, for tests of HTTP."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from aggregator.access.tokens import AccessScope, make, read, write
from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from aggregator.view import AggregatorView
from tests.aggregator.fake_view import FakeView, inventory


class Door:
    """What a client sees of a server."""

    def __init__(
        self, session: aiohttp.ClientSession, port: int, secret: str = "", token_file: Path = Path("/nowhere")
    ) -> None:
        """`secret`: of a token named `ann` that permits everything; in `token_file` too."""
        self.session = session
        self.port = port
        self.secret = secret
        self.token_file = token_file
        self.bearer = bearer(secret)
        self.url = f"http://127.0.0.1:{port}"

    async def text(
        self, path: str, *, headers: dict[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, str, Any]:
        """Return status, body and headers."""
        async with self.session.request(method, self.url + path, headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers

    async def json(self, path: str, **more: Any) -> tuple[int, Any]:
        """Return status and the parsed body; NaN in it is an error."""
        status, body, _ = await self.text(path, **more)
        return status, json.loads(body, parse_constant=_refuse)


def bearer(secret: str) -> dict[str, str]:
    """Return the header that carries a token."""
    return {"Authorization": f"Bearer {secret}"}


def add_token(
    path: Path, name: str, *scopes: AccessScope, expires: int | None = None, now: int | None = None, user: str = ""
) -> str:
    """Add a token to a tokens file; returns its secret."""
    token, secret = make(name, scopes, time.time_ns() if now is None else now, expires, user)
    write(path, [*read(path), token])
    return secret


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


@asynccontextmanager
async def door(view: AggregatorView, config: HttpConfig | None = None) -> AsyncIterator[Door]:
    """Serve a view on a free port, for a caller without a token and for `ann`, who may do everything."""
    config = config or HttpConfig(listen="127.0.0.1:0")
    with tempfile.TemporaryDirectory() as folder:
        path = config.tokens_file or Path(folder) / "tokens.json"
        secret = add_token(path, "ann", AccessScope.ADMIN)
        (alone := Path(folder) / "token").write_text(secret)
        config = msgspec.structs.replace(config, tokens_file=path)
        async with (
            listening(view, config) as (_, port),
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session,
        ):
            yield Door(session, port, secret, alone)


async def small_cluster() -> FakeView:
    """Two nodes of two GPUs with two links each, after one tick."""
    view = FakeView()
    view.add(inventory("n1"))
    view.add(inventory("n2"))
    await view.tick(0)
    return view
