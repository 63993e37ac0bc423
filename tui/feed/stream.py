"""The stream of readings: what is asked of it, and its messages."""

from __future__ import annotations

import msgspec

from tui.feed.http import Http
from tui.feed.requests import RefusedError, refusal
from tui.feed.socket import Socket
from tui.feed.wants import Wants
from tui.messages.stream import ErrorMessage, Message, PackedMessage

PATH = "api/v1/stream"
_texts = msgspec.json.Decoder(Message)
_packed = msgspec.msgpack.Decoder(PackedMessage)


class Stream:
    """One, open."""

    def __init__(self, socket: Socket, every: float) -> None:
        self._socket, self._every = socket, every
        self._pack = True
        """Whether readings come packed; an older aggregator knows no such thing."""
        self.asked = Wants()
        """For what, last."""

    @classmethod
    async def open(cls, http: Http, every: float) -> Stream:
        """Connect. Raises `OSError`, and `RefusedError` where nothing else would help."""
        found = await http.socket(PATH)
        if isinstance(found, Socket):
            return cls(found, every)
        said = refusal(found.body) or f"the stream answers {found.status}"
        raise RefusedError(said) if found.status in {401, 403} else ConnectionError(said)

    def ask(self, wants: Wants) -> None:
        """Say what to send from now on."""
        self.asked = wants
        request: dict[str, object] = {
            "table": "gpu", "columns": wants.columns, "every": self._every, "alerts": True,
            "rows": None if wants.nodes is None else {"nodes": wants.nodes},
        }  # fmt: skip
        if self._pack:
            request["packed"] = True
        self._socket.send(msgspec.json.encode(request).decode())

    async def next(self) -> Message | PackedMessage:
        """Wait for a message. Raises `OSError` and `msgspec.DecodeError`."""
        while True:
            text, body = await self._socket.receive()
            if not text:
                return _packed.decode(body)
            message: Message = _texts.decode(body)
            if self._pack and isinstance(message, ErrorMessage) and "packed" in str(message.error):
                self._pack = False
                self.ask(self.asked)
            else:
                return message

    def close(self) -> None:
        """End it."""
        self._socket.close()
