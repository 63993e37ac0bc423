"""Pictures that a receiver fetches by itself: signed links, and how Slack gets them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from aiohttp import web

from alerts.message.picture_link import LIFE_SECONDS, PictureLink, PictureSigner
from alerts.notifiers.channel import Message
from alerts.notifiers.http_sender import open_sender
from alerts.notifiers.result import Delivered, Refused
from alerts.notifiers.slack import Slack
from api.alerts import Action
from api.evidence import EvidenceReadings
from tests.alerts.notices import NOON, notice
from tests.alerts.test_evidence import card, message, receiver, reply

SIGNER = PictureSigner(b"k" * 32)
BASE = "https://kilowatch.example/gpus/"
SECOND = 10**9


def link_of(url: str) -> PictureLink:
    """Return what a URL names."""
    return PictureLink(**dict(parse_qsl(urlsplit(url).query, strict_parsing=True)))


def with_card(signer: PictureSigner | None = SIGNER) -> Message:
    """A new page with one card."""
    made = message(reply(card()))
    return replace(made, links=replace(made.links, pictures=signer))


def test_a_link_opens_its_own_picture_until_its_end() -> None:
    url = SIGNER.url(BASE, "gpu_lost-1", "gpu_lost/dgx-01/GPU-3", NOON)
    assert url.startswith("https://kilowatch.example/gpus/evidence.png?")
    link = link_of(url)
    assert link[:2] == ("gpu_lost-1", "gpu_lost/dgx-01/GPU-3")
    assert SIGNER.opens(link, NOON)
    assert LIFE_SECONDS == 7 * 86_400
    assert SIGNER.opens(link, NOON + LIFE_SECONDS * SECOND - 1)
    assert not SIGNER.opens(link, NOON + LIFE_SECONDS * SECOND)
    assert not PictureSigner(b"l" * 32).opens(link, NOON)
    assert SIGNER.key.decode() not in repr(SIGNER)


@pytest.mark.parametrize(
    "changed",
    [
        {"incident": "gpu_lost-2"},
        {"alert": "gpu_lost/dgx-02/GPU-3"},
        {"expires": "9999999999"},
        {"expires": "soon"},
        {"signature": ""},
        {"signature": "é\udcff"},
        {"incident": "\udc80"},
        {"alert": "\ud800"},
        {"expires": "\udc80"},
        {"incident": 'gpu_lost-1","gpu', "alert": "_lost/dgx-01/GPU-3"},
    ],
    ids=str,
)
def test_a_changed_link_opens_nothing(changed: dict[str, str]) -> None:
    link = link_of(SIGNER.url(BASE, "gpu_lost-1", "gpu_lost/dgx-01/GPU-3", NOON))
    assert not SIGNER.opens(link._replace(**changed), NOON)


def picture_in(body: dict[str, Any]) -> str | None:
    """Return the URL of the picture in a message to Slack."""
    blocks = body["attachments"][0]["blocks"]
    return next((each["image_url"] for each in blocks if each["type"] == "image"), None)


def test_slack_gets_a_link_to_the_picture_of_a_new_page_where_it_can_fetch_it() -> None:
    slack = Slack(url_file=Path("/x"), public_url=BASE)
    url = picture_in(slack.body(with_card()))
    assert url is not None
    assert SIGNER.opens(link_of(url), NOON)
    assert link_of(url).alert == card().alert
    bare = msgspec.structs.replace(card(), readings=EvidenceReadings())
    again = msgspec.structs.replace(notice(), reason="repeat")
    for channel, sent in (
        (Slack(url_file=Path("/x")), with_card()),
        (slack, with_card(None)),
        (slack, replace(with_card(), evidence=None)),
        (slack, replace(with_card(), evidence=reply(bare))),
        (slack, replace(with_card(), notice=again)),
        (slack, replace(with_card(), notice=notice(Action.RESOLVE))),
    ):
        assert picture_in(channel.body(sent)) is None


@pytest.mark.parametrize("takes_none", [True, False], ids=["the picture", "everything"])
async def test_what_slack_refuses_with_its_picture_goes_without(tmp_path: Path, takes_none: bool) -> None:
    """Slack answers 400 for a picture that its servers can't fetch: the page must not be lost."""
    taken: list[str | None] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(picture_in(await request.json()))
        refused = taken[-1] is not None or not takes_none
        return web.Response(status=400 if refused else 200, text="invalid_blocks")

    file = tmp_path / "url"
    async with receiver(take) as port, open_sender() as sender:
        file.write_text(f"http://127.0.0.1:{port}/services/T0")
        slack = Slack(url_file=file, public_url=BASE)
        answer = await slack.send(with_card(), sender)
    assert [url is not None for url in taken] == [True, False]
    assert isinstance(answer, Delivered if takes_none else Refused)


def test_a_public_url_that_is_none_is_named() -> None:
    (problem,) = Slack(url_file=Path("/x"), public_url="kilowatch.example").problems()
    assert problem[0] == "public_url"
