"""Bodies of requests that change something, and what a browser could be tricked into.

A page of another site can make a browser send a form here, but never a body that says it is JSON,
nor a DELETE, unless we agree beforehand (CORS), which we never do. Newer browsers say by themselves
(`Sec-Fetch-Site`) that a page of another site asks.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web

from aggregator.http.errors import RequestError, bad
from telemetry.errors import did_you_mean

T = TypeVar("T")

MOST_BYTES = 64 * 1024
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


def same_site(request: web.Request) -> None:
    """Raise a 403 when a browser says that a page of another site asks."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in {"none", "same-origin"}:
        raise RequestError(
            403, "Sec-Fetch-Site", "a page of another site asks", "Ask from no browser page."
        )


async def read(request: web.Request, kind: type[T]) -> T:
    """Return the body. Raises 403, 413, 415, or a 400 that names the field."""
    same_site(request)
    if request.content_type != "application/json":
        raise RequestError(
            415,
            hdrs.CONTENT_TYPE,
            f"{request.content_type} is not taken",
            "Send JSON, with 'Content-Type: application/json'.",
        )
    raw = await request.content.read(MOST_BYTES + 1)
    while len(raw) <= MOST_BYTES and not request.content.at_eof():
        raw += await request.content.read(MOST_BYTES + 1 - len(raw))
    if len(raw) > MOST_BYTES:
        raise RequestError(413, "body", f"it is longer than {MOST_BYTES} bytes", "Say less.")
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        where = place.strip("`").replace("$", "body", 1) or "body"
        found = _UNKNOWN.search(problem)
        cure = did_you_mean(found[1], _fields(kind)) if found else ""
        raise bad(where, problem[0].lower() + problem[1:], cure) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(
            "body", f"it is not JSON: {error}", 'Send an object, as {"why": "..."}.'
        ) from error


def _fields(kind: type) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(kind, "__struct_encode_fields__", ())
    return found
