"""A socket in the place of systemd's, which receives what services notify."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType


class NotifySocket:
    """Notices that were received, as dictionaries, in order."""

    def __init__(self, address: str) -> None:
        """`address`: a path, or a name behind @ for an abstract socket."""
        self.address = address
        self.all: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> NotifySocket:
        self._socket.bind(f"\0{self.address[1:]}" if self.address[0] == "@" else self.address)
        self._socket.settimeout(60)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def environment(self, watchdog: float | None = None) -> dict[str, str]:
        """The variables that systemd sets; `watchdog` in seconds."""
        found = {"NOTIFY_SOCKET": self.address}
        if watchdog is not None:
            found["WATCHDOG_USEC"] = str(round(watchdog * 1e6))
        return found

    def receive(self) -> dict[str, str]:
        """Wait for a notice."""
        text = self._socket.recv(4096).decode()
        notice = dict(line.partition("=")[::2] for line in text.splitlines())
        self.all.append(notice)
        return notice

    def waiting(self) -> list[dict[str, str]]:
        """Receive what has come, without waiting."""
        found = []
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.receive())
        self._socket.settimeout(60)
        return found

    def read(self) -> int:
        """Receive what has come; return the number of all notices."""
        self.waiting()
        return len(self.all)

    def count(self, name: str) -> int:
        """Receive what has come; return the number of notices with a name."""
        self.waiting()
        return sum(name in notice for notice in self.all)

    def statuses(self) -> list[str]:
        """Receive what has come; return all statuses."""
        self.waiting()
        return [notice["STATUS"] for notice in self.all if "STATUS" in notice]
