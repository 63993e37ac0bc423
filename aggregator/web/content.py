"""The content of a page, and what its reader may see of it."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec
from aiohttp import web

from aggregator.access.private_fields import public_json
from aggregator.http.auth import CALLER
from aggregator.http.reply import json_bytes
from api.decoding import decode

Reply = TypeVar("Reply", bound=msgspec.Struct)


class PageContent(NamedTuple):
    """A page without its frame."""

    title: str
    body: str
    """HTML."""
    live: bool = False
    """Whether its script loads it again every few seconds."""
    titled: bool = True
    """Whether its title is seen; else its body begins with words of its own, and the title is read aloud alone."""


def shown_to(request: web.Request, reply: Reply) -> Reply:
    """Return an answer of the API as this caller would get it: without private fields where it reads
    anonymously from elsewhere."""
    if request[CALLER].sees_private:
        return reply
    return decode(public_json(json_bytes(reply)), type(reply))
