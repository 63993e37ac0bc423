"""Questions between members. An answer longer than a message comes in parts.

Who does not answer in time is missing, and whoever asked says so: nothing is made up for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import msgspec

from aggregator.cluster.port import Coordination, CoordinationError
from telemetry.text.decoders import of_msgpack

_T = TypeVar("_T")

PART_BYTES = 700_000
"""Bytes of one message: a server takes 1 MiB."""
KEPT_SECONDS = 10.0
"""Seconds for which the parts of an answer can be fetched."""
MOST_ANSWERS = 32
"""Answers of several parts that are kept at a time; the oldest goes first."""
QuestionHandler = Callable[[bytes], Awaitable[bytes]]


class Question(msgspec.Struct, frozen=True):
    """A question, or the request for a further part of its answer."""

    body: bytes = b""
    answer: str = ""
    """Id of an answer that has begun."""
    part: int = 0


class AnswerPart(msgspec.Struct, frozen=True):
    """A part of an answer."""

    body: bytes
    answer: str = ""
    parts: int = 1
    problem: str = ""
    """Why there is no answer; "" where there is one."""


class AskError(CoordinationError):
    """A member does not answer a question, or can't."""


class MemberAnswers:
    """Answers to the questions that this member is asked, and its questions to others."""

    def __init__(self, coordination: Coordination, name: str) -> None:
        self._coordination = coordination
        self._name = name
        self._kept: dict[str, list[bytes]] = {}

    @asynccontextmanager
    async def serving(self, handlers: Mapping[str, QuestionHandler]) -> AsyncIterator[None]:
        """Answer questions, by their subject, while the block runs."""
        async with AsyncExitStack() as stack:
            for subject, handler in handlers.items():
                await stack.enter_async_context(
                    self._coordination.serve(f"ask.{subject}.{self._name}", self._handler(handler), beside=True)
                )
            yield

    def _handler(self, handler: QuestionHandler) -> Callable[[bytes], Awaitable[bytes | None]]:
        async def handle(payload: bytes) -> bytes | None:
            question = of_msgpack(Question).decode(payload)
            if question.answer:
                parts = self._kept.get(question.answer, [])
                if question.part >= len(parts):
                    return _encoded(AnswerPart(b"", problem="the answer is gone"))
                return _encoded(AnswerPart(parts[question.part], question.answer, len(parts)))
            try:
                body = await handler(question.body)
            except Exception as error:  # noqa: BLE001 - said to who asked
                return _encoded(AnswerPart(b"", problem=f"{type(error).__name__}: {error}"))
            return _encoded(self._first(await asyncio.to_thread(zlib.compress, body, 1)))

        return handle

    def _first(self, body: bytes) -> AnswerPart:
        if len(body) <= PART_BYTES:
            return AnswerPart(body)
        parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
        answer = secrets.token_hex(8)
        while len(self._kept) >= MOST_ANSWERS:
            del self._kept[next(iter(self._kept))]
        self._kept[answer] = parts
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._kept.pop, answer, None)
        return AnswerPart(parts[0], answer, len(parts))

    async def ask(self, member: str, subject: str, body: bytes, seconds: float) -> bytes:
        """Return the answer of a member. Raises `CoordinationError` where there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                first = await self._part(member, subject, Question(body), seconds)
                found = [first.body]
                for number in range(1, first.parts):
                    more = Question(answer=first.answer, part=number)
                    found.append((await self._part(member, subject, more, seconds)).body)
        except TimeoutError as error:
            raise AskError(f"{member} does not answer in {seconds} s") from error
        return await asyncio.to_thread(zlib.decompress, b"".join(found))

    async def _part(self, member: str, subject: str, question: Question, seconds: float) -> AnswerPart:
        payload = await self._coordination.request(f"ask.{subject}.{member}", msgspec.msgpack.encode(question), seconds)
        part = of_msgpack(AnswerPart).decode(payload)
        if part.problem:
            raise AskError(f"{member}: {part.problem}")
        return part

    async def ask_all(
        self, members: Iterable[str], subject: str, bodies: Callable[[str], bytes], seconds: float
    ) -> dict[str, bytes]:
        """Return the answers of those members that give one in time."""
        found: dict[str, bytes] = {}

        async def one(member: str) -> None:
            with contextlib.suppress(CoordinationError, msgspec.DecodeError, zlib.error):
                found[member] = await self.ask(member, subject, bodies(member), seconds)

        await asyncio.gather(*map(one, members))
        return found


def decoded(bodies: Mapping[str, bytes], kind: type[_T]) -> dict[str, _T]:
    """Return the answers of members; one that can't be read, of another release, is none."""
    found: dict[str, _T] = {}
    for name, body in bodies.items():
        with contextlib.suppress(msgspec.DecodeError):
            found[name] = of_msgpack(kind).decode(body)
    return found


def _encoded(part: AnswerPart) -> bytes:
    return msgspec.msgpack.encode(part)
