"""Access to the server: the token, and protection from web pages of other sites.

A listener on loopback needs no token, but a web page can still send a browser there: by a name that
it points at 127.0.0.1 (DNS rebinding; seen in the Host header), or by a WebSocket from a foreign page
(seen in the Origin header). Both are refused. It can send a form too, but never a body declared as
JSON, nor a DELETE, unless the server agrees beforehand (CORS), which it never does. Newer browsers
report (`Sec-Fetch-Site`) that a request comes from a page of another site.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from aggregator.http.config import HttpConfig, is_loopback
from aggregator.http.errors import Handler, Middleware, RequestError

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths for machines that hold no token; they show nothing of the fleet but its health."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def guard(config: HttpConfig, token: str | None) -> Middleware:
    """Make the middleware that accepts or refuses a request."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if config.loopback:
            _check_host(request, config.names)
        _check_origin(request)
        if token is not None and request.path not in OPEN:
            _check_token(request, token)
        return await handler(request)

    return check


async def harden(_: web.Request, response: web.StreamResponse) -> None:
    """Add modest security headers to every answer, errors too."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def host_of(address: str) -> str:
    """Return the host of `host`, `host:port` or `[::1]:port`, in lower case; "" when it is none."""
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def _check_host(request: web.Request, names: tuple[str, ...]) -> None:
    host = host_of(request.headers.get(hdrs.HOST, ""))
    if not is_loopback(host) and host not in {name.lower() for name in names}:
        raise RequestError(
            421,
            "Host",
            f"this listener is not called {host!r}",
            "Use 127.0.0.1 or localhost, or add the name to aggregator.names.",
        )


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return
    try:
        place = urlsplit(origin).netloc.lower()
    except ValueError:
        place = ""
    if place != request.headers.get(hdrs.HOST, "").lower():
        raise RequestError(
            403,
            "Origin",
            "the request comes from a page of another site",
            "Send it from outside a browser.",
        )


def same_site(request: web.Request) -> None:
    """Raise a 403 when a browser reports that the request comes from another site."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in {"none", "same-origin"}:
        raise RequestError(
            403,
            "Sec-Fetch-Site",
            "the request comes from a page of another site",
            "Send it from outside a browser.",
        )


def _check_token(request: web.Request, token: str) -> None:
    scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    given_bytes = given.strip().encode("utf-8", "surrogateescape")
    same = hmac.compare_digest(given_bytes, token.encode())
    if scheme.lower() != "bearer" or not same:
        raise RequestError(
            401,
            hdrs.AUTHORIZATION,
            "a token is needed" if not given else "the token is wrong",
            "Send 'Authorization: Bearer TOKEN' with the token of aggregator.token_file.",
        )
