"""Single requests to the aggregator, and the errors in their answers."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from api.decoding import decode
from api.errors import ErrorDetail, ErrorReply
from telemetry.runtime.http_outcome import HttpOutcome, outcome_of
from telemetry.text.connection_faults import connection_fault
from tui.feed.http import HttpConnection, HttpReply
from tui.feed.wants import DocumentRequest

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds without an answer or a message after which the connection counts as lost."""


class ActionError(Exception):
    """The aggregator refused or failed a user's action; the text has the reason."""


class ActionRefusedError(Exception):
    """The server answers, and a retry will not help."""


class ApiRequests:
    """Single requests to one aggregator."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self._http = HttpConnection(url, token)
        self._long: set[str] = set()
        """Paths of documents that this aggregator has in no short form."""

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    async def act(self, method: str, path: str, body: object) -> bytes:
        """Send a request that changes something. Raises `ActionError`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._http.request(method, path, msgspec.json.encode(body))
        except OSError as error:
            raise ActionError(why(error)) from error
        if answer.status >= 400:
            raise ActionError(refusal(answer.body) or f"it answers {answer.status}")
        return answer.body

    async def get(self, path: str, kind: type[T]) -> T:
        """Fetch what every aggregator has. Raises `OSError`, and `ActionRefusedError` where it is none."""
        answer = await self._answer(path)
        if answer.status != 200:
            raise ActionRefusedError(f"it answers {answer.status}: is this a kilowatch aggregator?")
        return decode(answer.body, kind)

    async def document(self, ask: DocumentRequest) -> object:
        """Fetch a document; returns an `ErrorDetail` where it is refused."""
        short = ask.short if ask.path not in self._long else None
        path = ask.path if short is None else f"{ask.path}?{short.query}"
        answer = await self._answer(path, part=True)
        if short is not None and answer.status == 400:
            self._long.add(ask.path)
            return await self.document(ask)
        if answer.status == 200 and short is not None:
            return short.whole(decode(answer.body, short.kind))
        if answer.status == 200:
            return decode(answer.body, ask.kind)
        return ErrorDetail(what=refusal(answer.body) or f"it answers {answer.status}")

    async def raw(self, path: str, within: float) -> HttpReply:
        """Fetch a path, whatever the status of the answer. Raises `OSError`."""
        async with asyncio.timeout(within):
            return await self._http.request("GET", path)

    async def _answer(self, path: str, *, part: bool = False) -> HttpReply:
        """Fetch a path. Raises for a failure of the aggregator, and where it refuses the dashboard; that of a
        `part` may be refused alone: who may see no persons may see no job, and yet all GPUs."""
        async with asyncio.timeout(TIMEOUT):
            answer = await self._http.request("GET", path)
        if outcome_of(answer.status) is HttpOutcome.RETRY:
            raise ConnectionError(refusal(answer.body) or f"it answers {answer.status}")
        if answer.status in {401, 403, 421} and not part:
            raise ActionRefusedError(f"it refuses us. {refusal(answer.body)}")
        return answer


def refusal(body: bytes) -> str:
    """Return the reason in the body of an answer of 400 and above; `` without one."""
    try:
        return str(decode(body, ErrorReply).error)
    except msgspec.DecodeError:
        return ""


def why(error: BaseException) -> str:
    """Return a network error as text; that of a timeout is empty."""
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} s"
    return connection_fault(error).what
