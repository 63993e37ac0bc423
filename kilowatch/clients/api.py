"""HTTP client of a running aggregator, for commands; errors are one line."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from alerts.message.text import clean
from api.decoding import decode
from api.errors import ErrorReply
from telemetry.errors import ConfigError, KilowattError
from telemetry.files import local_token, secrets
from telemetry.text.connection_faults import connection_fault

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds for one reply."""


class ApiError(KilowattError):
    """The aggregator can't be reached, or refuses; `status` is that of its reply, if any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could send the token elsewhere."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""
        return None  # noqa: RET501 - as the one that it replaces


class ApiClient:
    """Client of one aggregator."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`url`: `http://127.0.0.1:9400`. Raises `ConfigError` for an invalid one."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError("--http", f"{url!r} is no address", "Write 127.0.0.1:9400.")
        self.url = url.rstrip("/")
        self.answered = False
        """Whether it has answered a request as this release understands it."""
        self._token = token
        # Never through a proxy: an aggregator is close by, and a proxy must not see its token.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect())

    def get(self, path: str, kind: type[T], /, **asked: object) -> T:
        """Return the reply of a GET; parameters that are None or empty are left out."""
        query = urlencode({name: value for name, value in asked.items() if value not in {None, ""}})
        return self._request("GET", f"{path}?{query}" if query else path, None, kind)

    def post(self, path: str, body: object, kind: type[T]) -> T:
        """Return the reply of a POST."""
        return self._request("POST", path, msgspec.json.encode(body), kind)

    def delete(self, path: str, kind: type[T], body: object) -> T:
        """Return the reply of a DELETE, whose body has `why`."""
        return self._request("DELETE", path, msgspec.json.encode(body), kind)

    def _authorization(self) -> dict[str, str]:
        """Return the header with the given token, else with that of an aggregator of this user."""
        token = self._token or local_token.find(self.url)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _request(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked above
            self.url + path,
            body,
            {**self._authorization(), "Content-Type": "application/json", "Accept": "application/json"},
            method=method,
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                found = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(self.url, error.code, error.read()) from error
        except (OSError, http.client.HTTPException) as error:
            # The text may come from any program that listens there.
            found = getattr(error, "reason", error)
            reason = clean(str(connection_fault(found).what if isinstance(found, OSError) else found))[:200]
            raise ApiError(
                f"{self.url}: no aggregator answers ({reason}).{_certificate(error)} Start one with `kilowatch"
                " aggregate`, or name its address with --http HOST:PORT."
            ) from error
        try:
            reply = decode(found, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(
                f"{self.url}{path}: the answer is not understood ({error}). Is it an aggregator of this release?"
            ) from error
        self.answered = True
        return reply


def _certificate(error: Exception) -> str:
    """Return what to do about a certificate that is not trusted."""
    reason = getattr(error, "reason", error)
    if type(reason).__name__ != "SSLCertVerificationError":
        return ""
    return " If its certificate is from an authority of your own, name that with --ca FILE."


def part(name: str) -> str:
    """Return a name as a segment of a path."""
    return quote(name, safe="")


def read_token(path: Path | None) -> str | None:
    """Return the token in the file of `--token-file`; None without one. Raises `ConfigError`."""
    return None if path is None else secrets.read_token("--token-file", path)


def _refusal(url: str, status: int, body: bytes) -> ApiError:
    try:
        fault = decode(body, ErrorReply).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiError(f"{url}: it answers {status}; is it an aggregator?", status)
    cure = fault.cure
    if status == 401:
        cure = "Name the file with the aggregator's token: --token-file FILE."
    return ApiError(clean(f"{fault.where}: {fault.what}. {cure}".rstrip()), status)
