"""`/evidence.png`: the picture of a card, by a signed link and without a token.

Slack fetches the pictures of a message from its own servers. Whatever is wrong with a link, the answer is the
same 404: it says neither which incidents there are nor how near a guess was.
"""

from __future__ import annotations

import asyncio

from aiohttp import hdrs, web

from aggregator.http.errors import RequestError
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import query
from aggregator.http.reply import STORE_SECONDS, VIEW
from alerts.message.picture_link import PATH, PictureLink

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


OPERATIONS = (
    Operation(
        PATH,
        picture,
        "evidencePicture",
        "The picture of the readings of a card, by the signed link of a message to a channel that has "
        "`public_url`: for seven days, without a token.",
        None,
        (
            Parameter("incident", "Whole key of the incident.", "gpu_lost/n1", required=True),
            Parameter("alert", "Key of the alert.", "gpu_lost/n1/GPU-1", required=True),
            Parameter("expires", "End of the link, seconds since 1970.", "1785578400", required=True),
            Parameter("signature", "Of the three before.", "0" * 64, required=True),
        ),
        (404, 503),
        text_type=PNG,
        scope=None,
    ),
)
