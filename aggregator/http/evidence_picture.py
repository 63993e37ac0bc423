"""`/evidence.png`: the picture of a card, by a signed link and without a token.

Slack fetches the pictures of a message from its own servers. Whatever is wrong with a link, the answer is the
same 404: it says neither which incidents there are nor how near a guess was.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web

from aggregator.http.errors import RequestError
from aggregator.http.parameters import query
from aggregator.http.reply import STORE_SECONDS, VIEW
from alerts.message.picture_link import PictureLink

PNG = "image/png"


async def picture(request: web.Request) -> web.Response:
    """Answer with the picture that a signed link names."""
    asked = query(request, *PictureLink._fields)
    view, body = request.app[VIEW], None
    if asked.keys() == set(PictureLink._fields):
        async with asyncio.timeout(STORE_SECONDS):
            body = await view.delivery.picture(PictureLink(**asked), view.wall())
    if body is None:
        raise RequestError(404, "picture", "there is none, or its link is wrong or has ended")
    return web.Response(body=body, headers={hdrs.CONTENT_TYPE: PNG})
