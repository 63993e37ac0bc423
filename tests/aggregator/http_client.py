"""A real server on loopback and a real client, for tests of HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from aggregator.http.app import listening
from aggregator.http.config import HttpConfig
from tests.aggregator.fake_view import FakeView, inventory


class Door:
    """What a client sees of a server."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.session = session
        self.port = port
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


def _refuse(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


@asynccontextmanager
async def door(view: FakeView, config: HttpConfig | None = None) -> AsyncIterator[Door]:
    """Serve a view on a free port."""
    config = config or HttpConfig(listen="127.0.0.1:0")
    async with (
        listening(view, config) as (_, port),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session,
    ):
        yield Door(session, port)


async def small_cluster() -> FakeView:
    """Two nodes of two GPUs with two links each, after one tick."""
    view = FakeView()
    view.add(inventory("n1"))
    view.add(inventory("n2"))
    await view.tick(0)
    return view
