"""A picture of evidence reaches a receiver that has no token; whoever changes its link gets nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import msgspec
import pytest

from aggregator.alerting.picture_key import FILE, signer_of
from aggregator.evidence import collector as evidence
from aggregator.service import Aggregator
from alerts.config import AlertsConfig
from tests.aggregator.test_evidence import LiveNode, config, seen
from tests.aggregator.test_service import running
from tests.alerts.alertmanagers import Hook
from tests.alerts.pager import Pager
from tests.brokers import Broker
from tests.kit.waiting import until

PNG = b"\x89PNG\r\n"
BASE = "https://kilowatch.example"


@pytest.mark.systems
async def test_slack_fetches_the_picture_of_a_page_and_nothing_else(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an aggregator that shows nothing without a token."""
    monkeypatch.setattr(evidence, "PAGE_SECONDS", 60.0)
    monkeypatch.setattr(evidence, "QUERY_SECONDS", 50.0)
    monkeypatch.setattr(evidence, "STEP_NS", evidence.SECOND)
    hook, node = Hook(), LiveNode(broker.config, "a")
    (tmp_path / "slack").write_text(hook.url)
    (tmp_path / "token").write_text("0123456789abcdef" * 4)
    slack = {"type": "slack", "url_file": str(tmp_path / "slack"), "public_url": BASE}
    settings = msgspec.structs.replace(
        config(broker, tmp_path, Pager()),
        token_file=tmp_path / "token",
        alerts=AlertsConfig(channels={"chat": slack}, group_wait_seconds=0),
    )
    async with hook.listening(), node, running(settings) as aggregator:
        await seen(aggregator, node)
        began = time.time_ns()
        while time.time_ns() < began + 3 * evidence.SECOND:
            await node.tick()
            await asyncio.sleep(0.1)
        await node.xid(1, node.described().gpus[0])
        await until(lambda: bool(hook.bodies))
        (url,) = [
            block["image_url"] for block in hook.bodies[0]["attachments"][0]["blocks"] if block["type"] == "image"
        ]
        assert url.startswith(f"{BASE}/evidence.png?")
        asked = dict(parse_qsl(urlsplit(url).query))
        assert await got(aggregator, asked) == (200, True)
        key = settings.data_dir / FILE
        assert key.stat().st_mode & 0o777 == 0o600
        refusals = [
            await got(aggregator, asked | changed)
            for changed in (
                {"signature": "0" * 64},
                {"expires": str(int(asked["expires"]) + 1)},
                {"incident": asked["incident"] + "x"},
                {"alert": asked["alert"] + "x"},
            )
        ]
        signer = signer_of(settings.data_dir)
        assert signer is not None
        past = time.time_ns() - 8 * 86_400 * evidence.SECOND
        links = (
            signer.url(BASE, asked["incident"], asked["alert"], past),
            signer.url(BASE, "none", asked["alert"], began),
            signer.url(BASE, asked["incident"], "none", began),
        )
        for link in links:
            refusals += [await got(aggregator, dict(parse_qsl(urlsplit(link).query)))]
        refusals.append(await got(aggregator, {"incident": asked["incident"]}))
        assert set(refusals) == {(404, False)}
        for path in ("/api/v1/incidents", "/api/v1/alerts", "/metrics"):
            assert (await got(aggregator, asked, path))[0] == 401


async def got(aggregator: Aggregator, asked: dict[str, str], path: str = "/evidence.png") -> tuple[int, bool]:
    """Return the status of an answer to a request without a token, and whether it is a picture."""
    await until(aggregator.serving.is_set)
    assert aggregator.http_address is not None
    host, port = aggregator.http_address
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}?{urlencode(asked)}") as answer,
    ):
        body = await answer.read()
        return answer.status, answer.content_type == "image/png" and body.startswith(PNG)


def test_a_key_is_made_once_and_again_where_it_is_none(tmp_path: Path) -> None:
    first = signer_of(tmp_path)
    assert first is not None
    assert len(first.key) == 32
    assert signer_of(tmp_path) == first
    (tmp_path / FILE).write_text("no key\n")
    second = signer_of(tmp_path)
    assert second is not None
    assert second != first
    assert signer_of(tmp_path) == second
    (tmp_path / FILE).unlink()
    assert signer_of(tmp_path) not in {None, first, second}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert signer_of(tmp_path / "absent") is None
