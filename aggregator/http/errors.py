"""Faults of a request, as JSON: where it is, what is wrong, what to do instead."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import msgspec
from aiohttp import hdrs, web

from alerts.message.text import clean
from api.errors import ErrorDetail, ErrorReply
from telemetry.errors import StoreError, did_you_mean
from telemetry.runtime.isolation import Isolation

log = logging.getLogger(__name__)

MOST_COMPARED = 1000
"""Names that a wrong one is compared with."""
FEW = 8
"""Names that are listed when none is near."""
MOST_TEXT = 2000
"""Characters of each text of a fault."""

PAGES_ASIDE = web.AppKey("pages aside", Isolation)
"""Where pages that fail as a whole are noted, by their route."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Middleware(Protocol):
    """A middleware: called between a request and its handler."""

    def __call__(self, request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        """Answer, or call the handler."""


class RequestError(Exception):
    """A request can't be answered; carries the status and the fault."""

    def __init__(
        self, status: int, where: str, what: str, cure: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{where}: {what}. {cure}".rstrip())
        self.status = status
        self.fault = ErrorDetail(str(where), what, cure)  # a header's name is a subclass of str
        self.headers = dict(headers or {})


def bad(where: str, what: str, cure: str = "") -> RequestError:
    """Return a 400: the request itself is wrong."""
    return RequestError(400, where, what, cure)


def unknown(where: str, word: str, known: Iterable[str], status: int = 404, few: int = FEW) -> RequestError:
    """Return a 404 for a name that is not known, or a 400 for a parameter's value. `few`: names of which all are listed."""
    names = list(dict.fromkeys(map(str, known)))
    if len(names) > MOST_COMPARED:  # 50 us each: a fleet of UUIDs would hold up the loop for seconds
        names = [name for name in names if _alike(name, word)][:MOST_COMPARED]
    cure = did_you_mean(word[:128], names)
    if not cure and len(names) <= few:
        cure = f"Known: {', '.join(names)}." if names else ""
    return RequestError(status, where, f"{word[:128]!r} is not known", cure)


def _alike(name: str, word: str) -> bool:
    return abs(len(name) - len(word)) <= 2 and (name[:8] == word[:8] or name[-4:] == word[-4:])


def printable(fault: ErrorDetail) -> ErrorDetail:
    """Return a fault without control characters: what the caller sent is in its texts."""
    return ErrorDetail(*(clean(text, MOST_TEXT) for text in (fault.where, fault.what, fault.cure)))


def reply(status: int, fault: ErrorDetail, headers: dict[str, str] | None = None) -> web.Response:
    """Make the answer."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(ErrorReply(printable(fault))),
        content_type="application/json",
        headers=headers,
    )


_EXTRA = {401: {"WWW-Authenticate": "Bearer"}, 426: {"Upgrade": "websocket"}}
"""Headers that a status must come with."""


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into JSON; answer OPTIONS for every route."""
    try:
        response = await handler(request)
    except RequestError as error:
        return reply(error.status, error.fault, _EXTRA.get(error.status, {}) | error.headers)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted({*error.allowed_methods, hdrs.METH_OPTIONS}))
        if request.method == hdrs.METH_OPTIONS:
            return web.Response(status=204, headers={"Allow": allowed})
        fault = ErrorDetail("method", f"{request.method} is not possible here", f"Use {allowed}.")
        return reply(405, fault, {"Allow": allowed})
    except web.HTTPNotFound:
        return reply(404, ErrorDetail("path", f"there is nothing at {request.path}", _near(request)))
    except web.HTTPException as error:
        return reply(error.status, ErrorDetail("request", error.reason))
    except StoreError as error:
        cure = error.cure or "Try again; /healthz has the state of the store."
        return reply(503, ErrorDetail("store", error.problem, cure))
    except TimeoutError:
        return reply(503, ErrorDetail("store", "it did not answer in time", "Request less, or try again."))
    except asyncio.CancelledError:
        raise
    except Exception as error:
        log.exception("request failed path=%s", request.path)
        request.app[PAGES_ASIDE].fail(_part(request), error, asyncio.get_running_loop().time())
        return reply(500, ErrorDetail("server", "the request failed", "The aggregator's log has the cause."))
    if len(request.app[PAGES_ASIDE]):
        request.app[PAGES_ASIDE].works(_part(request))
    return response


def _part(request: web.Request) -> str:
    """Return the name under which the page of a request is set aside."""
    resource = request.match_info.route.resource
    return f"page/{'' if resource is None else resource.canonical}"


def _near(request: web.Request) -> str:
    """Name the routes closest to a path that is not there."""
    routes = sorted({resource.canonical for resource in request.app.router.resources()})
    close = difflib.get_close_matches(request.path, routes, n=3, cutoff=0.5)
    return f"Near it: {', '.join(close)}." if close else "GET /api/v1/openapi.json lists all."
