"""Client of NetBox's REST API: reads page by page, without redirects, everything bounded."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from kilowatch.clients.api import NoRedirect
from power.netbox.records import ENDPOINTS
from telemetry.errors import ConfigError, KilowattError

PAGE = 500
"""Objects per page; a NetBox may return fewer."""
MOST = 500_000
"""Bound on objects of one kind."""
LARGEST = 64 << 20
"""Bound on the bytes of one page."""


class NetBoxError(KilowattError):
    """NetBox can't be reached, refuses, or returns an invalid reply."""


class NetBox:
    """Client of one NetBox."""

    def __init__(
        self, url: str, token: str | None, *, ca_file: Path | None = None, verify: bool = True, timeout: float = 60.0
    ) -> None:
        """`url` as shown by a browser. Raises `ConfigError`."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
            raise ConfigError(url, "it is no address of a NetBox", "Write https://netbox.example.")
        self.base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/api')}"
        self._timeout = timeout
        self._headers = {"Accept": "application/json"}
        if token is not None:
            # Tokens of version 2 (since 4.5) have this prefix, and are bearer tokens.
            word = "Bearer" if token.startswith("nbt_") else "Token"
            self._headers["Authorization"] = f"{word} {token}"
        self._opener = urllib.request.build_opener(
            NoRedirect(), urllib.request.HTTPSHandler(context=_context(ca_file, verify=verify))
        )

    def pages(self, statuses: Sequence[str], site: str | None) -> dict[str, list[object]]:
        """Return all objects by kind, feeds of these statuses; `site` is a slug."""
        found = {}
        for kind in ENDPOINTS:
            asked: list[tuple[str, str]] = [("limit", str(PAGE))]
            if kind == "power-feeds":
                asked += [("status", status) for status in statuses]
            if site is not None:
                asked.append(("site", site))
            found[kind] = self._all(f"/api/dcim/{kind}/", asked)
        return found

    def _all(self, path: str, asked: list[tuple[str, str]]) -> list[object]:
        found: list[object] = []
        while True:
            page = self._page(path, asked)
            results, onward = page.get("results"), page.get("next")
            if not isinstance(results, list) or not isinstance(onward, str | None):
                raise NetBoxError(f"{self.base}{path}: this is no list of NetBox")
            found += results
            if onward is None:
                return found
            if not results or len(found) > MOST:
                raise NetBoxError(f"{self.base}{path}: its pages do not end")
            # Behind a proxy the link may name another host or scheme: only its query counts.
            asked = parse_qsl(urlsplit(onward).query)

    def _page(self, path: str, asked: list[tuple[str, str]]) -> Mapping[str, Any]:
        where = f"{self.base}{path}"
        request = urllib.request.Request(f"{where}?{urlencode(asked)}", headers=self._headers)  # noqa: S310 - http and https alone
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                body = answer.read(LARGEST + 1)
                promised = answer.headers.get("Content-Length")
        except urllib.error.HTTPError as error:
            with error:
                raise NetBoxError(f"{where}: {_refusal(error)}") from error
        except urllib.error.URLError as error:
            cure = " Set --ca-file, or --insecure." if isinstance(error.reason, ssl.SSLError) else ""
            raise NetBoxError(f"{where}: it can't be reached: {error.reason}.{cure}") from error
        except (OSError, ValueError) as error:  # a broken reply, a timeout
            raise NetBoxError(f"{where}: it does not answer: {error}") from error
        if len(body) > LARGEST:
            raise NetBoxError(f"{where}: the answer is too long")
        if promised is not None and promised != str(len(body)):
            raise NetBoxError(f"{where}: the answer ends in the middle")
        try:
            page = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NetBoxError(f"{where}: this is no NetBox: it answers no JSON") from error
        if not isinstance(page, dict):
            raise NetBoxError(f"{where}: this is no list of NetBox")
        return page


def _refusal(error: urllib.error.HTTPError) -> str:
    match error.code:
        case 401 | 403:
            return f"it refuses us ({error.code}). Give --token-file with a token that may view dcim."
        case 404:
            return "there is no such thing. Give the address as the browser shows it, with its path."
        case 301 | 302 | 307 | 308:
            return f"it leads elsewhere, to {error.headers.get('Location')}. Give that address."
        case _:
            return f"it answers {error.code}"


def _context(ca_file: Path | None, *, verify: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca-file {ca_file}", f"it can't be used: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
