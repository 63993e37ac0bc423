"""Pages that are followed: what of them is sent, to whom, and for how long."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from aggregator.access.guests import GuestCounter
from aggregator.access.tokens import write
from aggregator.http.config import HttpConfig
from aggregator.web import frame, live_pages
from aggregator.web.content import PageContent
from aggregator.web.frame import PAGES
from aggregator.web.live_pages import EVENTS, LivePages
from tests.aggregator.http_client import bearer, door
from tests.aggregator.test_http_circuits import lab
from tests.kit.waiting import PATIENCE, until, within
from tests.web.kept_pages import keep_pages

FOLLOW = {"Accept": EVENTS}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events come twenty times a second."""
    monkeypatch.setattr(live_pages, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(LivePages, "SECONDS", 0.02)


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """Yield the parts of each event."""
    while line := await answer.content.readuntil(b"\n\n"):
        yield json.loads(line.removeprefix(b"data: "))


def counter(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have `/circuits` count how often it is made."""
    made = [0]

    async def page(_: web.Request) -> PageContent:
        made[0] += 1
        body = f'<p data-k="count">{made[0]}</p><p data-k="still">it stays</p>'
        return PageContent("Counter", body, live=True)

    monkeypatch.setitem(frame.PAGES, "/circuits", page)
    return made


async def test_only_what_has_changed_since_the_page_that_a_viewer_has_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counter(monkeypatch)
    async with door(await lab()) as client:
        _, body, _ = await client.text("/circuits")
        (identity,) = re.findall(r'data-live="(\w+)"', body)
        known = FOLLOW | {"Last-Event-ID": identity}
        async with client.session.get(f"{client.url}/circuits", headers=known) as answer:
            following = events(answer)
            assert answer.headers["Content-Type"] == EVENTS
            while not (found := await anext(following)):
                pass  # it is the page that the viewer has
            assert re.fullmatch(r'<p data-k="main/count">\d+</p>', found.pop("main/count"))
            assert set(found) <= {"top/live"}
            assert made[0] > 1


async def test_an_unknown_page_is_replaced_whole_and_its_events_are_decompressed_as_they_come() -> None:
    """By a client that inflates what it is sent, a block at a time."""
    async with door(await lab()) as client, aiohttp.ClientSession(auto_decompress=False) as session:
        zipped = {**FOLLOW, "Last-Event-ID": "gone", "Accept-Encoding": "gzip"}
        async with session.get(f"{client.url}/circuits", headers=zipped) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            text = b""
            while text.count(b"\n\n") < 3:
                text += inflate.decompress(await answer.content.readany())
    first = json.loads(text.partition(b"\n\n")[0].removeprefix(b"data: "))
    assert list(first) == [""]
    assert first[""].startswith("<!doctype html>")
    assert "lab/2" in first[""]


async def test_a_page_is_made_once_for_all_who_follow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are sent the same, and nothing is made once they are gone."""
    monkeypatch.setattr(LivePages, "SECONDS", 3600.0)
    made = counter(monkeypatch)
    async with door(await lab()) as client, asyncio.TaskGroup() as group:

        async def follow() -> list[dict[str, str]]:
            async with client.session.get(f"{client.url}/circuits", headers=FOLLOW) as answer:
                following = events(answer)
                return [await anext(following) for _ in range(3)]

        viewers = [group.create_task(follow()) for _ in range(20)]
        sent = [await each for each in viewers]
        assert all(each == sent[0] for each in sent)
        assert made == [1]


async def test_a_viewer_is_let_go_when_it_leaves_and_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_pages(monkeypatch)
    async with aiohttp.ClientSession() as session:
        async with door(await lab()) as client:
            async with session.get(f"{client.url}/circuits", headers=FOLLOW) as answer:
                await anext(events(answer))
                assert kept[0].viewers.total == 1
            await until(lambda: kept[0].viewers.total == 0)
            last = await session.get(f"{client.url}/circuits", headers=FOLLOW)
            await anext(events(last))
            assert kept[0].viewers.total == 1
        assert kept[0].viewers.total == 0
        last.close()


async def test_there_are_bounds_for_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_pages, "GuestCounter", lambda *_: GuestCounter(1, 1))
    async with door(await lab()) as client, client.session.get(f"{client.url}/circuits", headers=FOLLOW) as answer:
        await anext(events(answer))
        status, body, _ = await client.text("/nodes", headers=FOLLOW)
        assert status == 503
        assert "no more are possible" in body
        assert (await client.text("/nodes"))[0] == 200, "but the page itself is shown"


async def test_who_may_not_read_a_page_may_not_follow_it(tmp_path: Path) -> None:
    """Nor go on following when the token ends."""
    path = tmp_path / "t"
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=path, anonymous_read=False)
    async with door(await lab(), config) as client:
        status, body, _ = await client.text("/circuits", headers=FOLLOW)
        assert (status, "lab/2" in body) == (401, False)
        headers = {**FOLLOW, **bearer(client.secret)}
        async with client.session.get(f"{client.url}/circuits", headers=headers) as answer:
            assert answer.status == 200
            following = events(answer)
            await anext(following)
            write(path, [])
            async with within(PATIENCE):
                async for _ in following:
                    pass


async def test_every_page_that_follows_the_cluster_has_parts() -> None:
    """The time in the head changes alone, whatever else is on a page."""
    following = []
    async with door(await lab()) as client:
        for path in PAGES:
            if "{" in path:
                continue
            _, body, _ = await client.text(path)
            if "data-live" in body:
                following.append(path)
                assert 'data-k="top/live"' in body, path
                assert len(set(re.findall(r'data-k="([^"]+)"', body))) > 3, path
    assert {"/", "/circuits", "/nodes", "/alerts"} <= {*following}
