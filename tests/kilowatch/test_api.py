"""What the commands make of answers that no aggregator gave."""

from __future__ import annotations

import socket
import threading

import pytest

from kilowatch.clients.api import ApiClient, ApiError


def test_what_a_stranger_answers_is_cleaned() -> None:
    """A port that we were pointed at may send anything to the terminal."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def answer() -> None:
            line, _ = stranger.accept()
            with line:
                line.recv(4096)
                line.sendall(b"\x00\x1b]0;PWNED\x07\x1b[31m 220 mail\xff\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        api = ApiClient(f"http://127.0.0.1:{stranger.getsockname()[1]}")
        with pytest.raises(ApiError, match="no aggregator answers") as found:
            api.get("/api/v1/status", dict)
        thread.join(10)
    assert str(found.value).isprintable()
