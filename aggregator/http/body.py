"""Bodies of requests that change something, and protection from web pages of other sites.

A page of another site can make a browser send a form here, but never a body that says it is JSON,
nor a DELETE, unless the server agrees beforehand (CORS), which it never does. Newer browsers report
by themselves (`Sec-Fetch-Site`) that a page of another site asks.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import hdrs, web

from aggregator.http.errors import RequestError, bad
from telemetry.settings import fault_of

T = TypeVar("T")

MOST_BYTES = 64 * 1024


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
            f"{request.content_type} is not accepted",
            "Send JSON, with 'Content-Type: application/json'.",
        )
    raw = await request.content.read(MOST_BYTES + 1)
    while len(raw) <= MOST_BYTES and not request.content.at_eof():
        raw += await request.content.read(MOST_BYTES + 1 - len(raw))
    if len(raw) > MOST_BYTES:
        raise RequestError(413, "body", f"it is longer than {MOST_BYTES} bytes", "Send less.")
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        fault = fault_of(error, kind)
        raise bad(f"body.{fault.place}".rstrip("."), fault.problem, fault.hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(
            "body", f"it is not JSON: {error}", 'Send an object, as {"why": "..."}.'
        ) from error
