"""Access to the server: tokens and their scopes, and protection from web pages of other sites.

Reading on a loopback listener needs no token, everything else does: `AccessScope` has the kinds, and each
operation names its own. A web page can still send a browser to a loopback listener: by a name that it
points at 127.0.0.1 (DNS rebinding; seen in the Host header), by a WebSocket, a form or a picture (seen
in the Origin header, and in `Sec-Fetch-Site`, which every browser sends). All are refused.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from aggregator.access.guests import WrongTokens, neighbourhood
from aggregator.access.tokens import AccessScope, AccessToken, TokenRegister
from aggregator.http.config import HttpConfig, is_loopback
from aggregator.http.errors import Handler, Middleware, RequestError

log = logging.getLogger(__name__)

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
"""Headers of proxies: who is behind one is not on this machine."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Requirement of an operation on its caller."""

    operation: str
    scope: AccessScope | None
    """None: anybody may call it, without a token."""
    most_bytes: int = 0
    """Bytes of a body at most."""
    own: bool = False
    """Whether a token of a user may call it too, and then sees its user's part alone."""


READING = AccessRule("", AccessScope.READ)
"""Of paths that are not there: routes can't be probed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request."""

    name: str
    """Of its token; empty without one."""
    token: AccessToken | None
    sees_private: bool
    """Whether fields of `aggregator.access.private_fields` are for it."""
    address: str

    @property
    def own(self) -> str:
        """The user whose jobs are all that it sees; empty for any other caller."""
        return "" if self.token is None else self.token.user

    def allows(self, scope: AccessScope) -> bool:
        """Whether it may do something."""
        if self.token is None:
            return scope is AccessScope.READ
        return self.token.allows(scope)


CALLER = web.RequestKey("caller", Caller)
RULE = web.RequestKey("rule", AccessRule)


class AccessGuard:
    """Accepts or refuses requests, and counts those that it refuses."""

    def __init__(self, config: HttpConfig, tokens: TokenRegister, rules: Mapping[tuple[str, str], AccessRule]) -> None:
        """`rules`: by the path of an operation and its method, in lower case."""
        self.refused: Counter[str] = Counter()
        """Requests by the reason of their refusal."""
        self.wrong = WrongTokens()
        self.tokens = tokens
        self._config = config
        self._rules = rules
        self._names = {name.lower() for name in config.names}
        self._own_names = self._names | {socket.gethostname().lower()}

    def called(self, host: str) -> bool:
        """Whether this listener may be called by a `Host` header's name."""
        return not self._config.loopback or _own(host_of(host), self._names)

    def middleware(self) -> Middleware:
        """Return the middleware that asks this guard."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            rule = self._rule(request)
            try:
                request[CALLER] = self.admit(request, rule)
            except RequestError as error:
                self.refused[error.fault.where.lower().replace("-", "_")] += 1
                raise
            request[RULE] = rule
            if request.method not in {hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS}:
                log.info(
                    "http action operation=%s token=%s address=%s",
                    rule.operation,
                    request[CALLER].name or "-",
                    request[CALLER].address,
                )
            return await handler(request)

        return check

    def _rule(self, request: web.Request) -> AccessRule:
        resource = request.match_info.route.resource
        method = "get" if request.method == hdrs.METH_HEAD else request.method.lower()
        if resource is None:
            return READING
        return self._rules.get((resource.canonical, method), READING)

    def admit(self, request: web.Request, rule: AccessRule) -> Caller:
        """Return who sends a request. Raises the `RequestError` of a caller who may not."""
        if self._config.loopback:
            _check_host(request, self._names)
        _check_origin(request)
        _check_site(request)
        _check_encoding(request)
        if rule.scope is None:
            return Caller("", None, sees_private=False, address=_peer(request))
        caller = self._caller(request)
        if caller.own and rule.own:
            return caller
        if not caller.allows(rule.scope):
            if caller.own:
                raise RequestError(
                    403,
                    "scope",
                    f"the token {caller.name!r} sees the jobs of the user {caller.own!r} alone",
                    "Ask for /api/v1/jobs, or use a token with the scope "
                    f"{str(rule.scope)!r}: kilowatch token add NAME --scope {rule.scope}",
                )
            if caller.token is None:
                raise no_token(rule.scope)
            has = ", ".join(caller.token.scopes) or "none"
            raise RequestError(
                403,
                "scope",
                f"the token {caller.name!r} does not have the scope {str(rule.scope)!r}, it has: {has}",
                f"Use a token that has it: kilowatch token add NAME --scope {rule.scope}",
            )
        return caller

    def _caller(self, request: web.Request) -> Caller:
        peer = _peer(request)
        scheme, _, secret = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() == "bearer":  # another may be for a proxy before this
            token = self._token(secret.strip(), peer)
            return Caller(token.name, token, sees_private=True, address=neighbourhood(peer))
        if self._config.open_here and self._is_here(request):
            return Caller("", None, sees_private=True, address=neighbourhood(peer))
        if self._config.anonymous_read:
            _check_host(request, self._own_names, any_address=True)
            return Caller("", None, sees_private=False, address=neighbourhood(peer))
        raise no_token(AccessScope.READ)

    def _token(self, secret: str, peer: str) -> AccessToken:
        token = self.tokens.find(secret)
        if token is not None and (token.expires is None or time.time_ns() < token.expires):
            # An address may have many users (a proxy, a NAT): one who guesses keeps out none of them.
            return token
        now, address = time.monotonic(), neighbourhood(peer)
        wait = self.wrong.wait(address, now)
        if self.wrong.add(address, now):
            log.warning("http: a wrong token was shown from %s", address)
        if wait:
            raise _too_many(wait)
        if token is not None:
            problem = f"the token {token.name!r} has expired"
            raise RequestError(401, hdrs.AUTHORIZATION, problem, "Make another: kilowatch token add")
        raise RequestError(401, hdrs.AUTHORIZATION, "the token is wrong", _CURE)

    def _is_here(self, request: web.Request) -> bool:
        """Whether a request comes from this machine, and not through a proxy on it."""
        return is_loopback(host_of(request.headers.get(hdrs.HOST, ""))) and not any(
            name in request.headers for name in _FORWARDED
        )


GUARD = web.AppKey("guard", AccessGuard)
_CURE = "Send 'Authorization: Bearer TOKEN'; `kilowatch token add NAME` on the aggregator's machine makes one."


def no_token(scope: AccessScope) -> RequestError:
    """Return the refusal of a caller who shows no token."""
    return RequestError(401, hdrs.AUTHORIZATION, f"a token is needed, with the scope {str(scope)!r}", _CURE)


def _too_many(wait: float) -> RequestError:
    return RequestError(
        429,
        hdrs.AUTHORIZATION,
        "too many wrong tokens came from this address",
        f"Try again in {wait:.0f} s.",
        {hdrs.RETRY_AFTER: f"{wait:.0f}"},
    )


async def harden(_: web.Request, response: web.StreamResponse) -> None:
    """Add modest security headers to every answer, errors too."""
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)


def signed(request: web.Request, note: str) -> str:
    """Return who does something: the name of the token, and in parentheses another that the caller notes.

    A token's name has no parentheses, so that a note can't be taken for it.
    """
    name, note = request[CALLER].name, " ".join(note.split())[:64]
    return name if note in {"", name} else f"{name} ({note})"


def host_of(address: str) -> str:
    """Return the host of `host`, `host:port` or `[::1]:port`, in lower case; "" when it is none."""
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def _peer(request: web.Request) -> str:
    """Return the address of the peer."""
    transport = request.transport
    end = None if transport is None else transport.get_extra_info("peername")
    return str(end[0]) if isinstance(end, tuple) else ""


def _check_host(request: web.Request, names: set[str], *, any_address: bool = False) -> None:
    host = host_of(request.headers.get(hdrs.HOST, ""))
    if _own(host, names) or (any_address and _is_address(host)):
        return
    raise RequestError(
        421,
        hdrs.HOST,
        f"this listener is not called {host!r}",
        "Use 127.0.0.1 or localhost, or add the name to aggregator.names.",
    )


def _own(host: str, names: set[str]) -> bool:
    return is_loopback(host) or host in names


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
            403, hdrs.ORIGIN, "the request comes from a page of another site", "Send it from outside a browser."
        )


def _check_site(request: web.Request) -> None:
    """Raise a 403 when a browser reports that another site sends the request, but for a link that a
    person follows: its page can't read the answer."""
    headers = request.headers
    if headers.get("Sec-Fetch-Site", "none") in {"none", "same-origin"}:
        return
    if (
        request.method in {hdrs.METH_GET, hdrs.METH_HEAD}
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    ):
        return
    raise RequestError(
        403, "Sec-Fetch-Site", "the request comes from a page of another site", "Send it from outside a browser."
    )


def _check_encoding(request: web.Request) -> None:
    """Raise a 400 for a compressed body: none is accepted, so that none can be a bomb."""
    coding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower()
    if coding not in {"identity", ""}:
        raise RequestError(
            400,
            hdrs.CONTENT_ENCODING,
            f"a body of coding {coding[:32]!r} is not accepted",
            "Send it plain, without Content-Encoding.",
        )
