"""What the commands make of answers that no aggregator gave."""

from __future__ import annotations

import pytest

from kilowatch.clients.api import ApiClient, ApiError
from tests.kit.stranger import stranger


def test_what_a_stranger_answers_is_cleaned() -> None:
    """A port that we were pointed at may send anything to the terminal."""
    says = b"\x00\x1b]0;PWNED\x07\x1b[31m 220 mail\xff\r\n"
    with stranger(says) as port:
        api = ApiClient(f"http://127.0.0.1:{port}")
        with pytest.raises(ApiError, match="no aggregator answers") as found:
            api.get("/api/v1/status", dict)
    assert str(found.value).isprintable()
