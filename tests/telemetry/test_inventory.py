"""The JSON messages: tolerant of what is newer, clear about what is wrong."""

from __future__ import annotations

import json

import pytest

from telemetry.devices import Event, Gpu
from telemetry.errors import WireError
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, FrameSpan, Inventory
from telemetry.wire.schema import SCHEMA


def test_an_inventory_comes_back_with_its_schema() -> None:
    """The names of a frame's columns travel in it."""
    sent = Inventory(node="n", gpus=(Gpu(uuid="u", index=0, name="x"),))
    got = messages.decode(messages.encode(sent), Inventory)
    assert got == sent
    assert got.schema.id == SCHEMA.id


def test_unknown_fields_of_a_newer_release_are_ignored() -> None:
    """Fields are only ever added."""
    text = json.dumps({"state": "online", "session": 3, "ring": [[1, 0, 9]], "mood": "fine"})
    status = messages.decode(text.encode(), CollectorStatus)
    assert status.ring == (FrameSpan(1, 0, 9),)


@pytest.mark.parametrize(
    ("payload", "place"), [(b'{"state": "up", "session": 1}', "state"), (b"{", "truncated"), (b"\xff", "malformed")]
)
def test_what_is_wrong_is_said_with_its_place(payload: bytes, place: str) -> None:
    """`malformed: ... at $.state`."""
    with pytest.raises(WireError, match=place):
        messages.decode(payload, CollectorStatus)


def test_an_event_keeps_its_data() -> None:
    """Whatever JSON stands in it."""
    event = Event(id="a-1", node="n", at=1, kind="xid", data={"xid": 79, "line": "NVRM: ..."})
    assert messages.decode(messages.encode(event), Event) == event
