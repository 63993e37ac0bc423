"""`kilowatch tap` knows every topic that kilowatch publishes on."""

from __future__ import annotations

import json

import pytest

from kilowatch.clients.tap import TapReader
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import Block, Schema
from telemetry.wire.topics import Topic, state_topic, topic

ALERT = state_topic("hall", "alerts", "gpu_lost/n1")
PROBE = topic("hall", "doctor-1", Topic.FRAME).removesuffix("frame") + "doctor"


@pytest.mark.parametrize(
    ("where", "body", "line"),
    [
        (ALERT, b'{"severity":"page"}', 'alerts  gpu_lost/n1  {"severity":"page"}'),
        (state_topic("hall", "circuits", "A 1"), b"", "circuits  A 1  cleared"),
        (PROBE, b"", PROBE),
        ("zigbee2mqtt/lamp", b"on", "zigbee2mqtt/lamp  foreign, 2 bytes"),
    ],
)
def test_only_topics_of_other_programs_are_foreign(where: str, body: bytes, line: str) -> None:
    assert TapReader(as_json=False).lines(where, body) == [line]


def test_rows_of_a_table_of_a_newer_release_are_shown_by_their_names() -> None:
    schema = Schema((Block("switch", "slow", ("switch_up",), ()),))
    reader = TapReader(as_json=True)
    newer = messages.encode(Inventory(node="n1", schema=schema))
    reader.lines(topic("hall", "n1", Topic.INVENTORY), newer)
    sent = frames.Frame(schema.id, 1, 0, 10**18, (frames.pack(0, [[1.0]], schema),))
    (line,) = reader.lines(topic("hall", "n1", Topic.FRAME), frames.encode(sent))
    (row,) = json.loads(line)["content"]["rows"]
    assert row["table"] == "switch"
    assert row["device"] is None
    assert row["readings"] == {"switch_up": 1.0}


@pytest.mark.parametrize("body", [b'{"severity":"page"}', b"", b"no JSON", b"[" * 50_000])
def test_a_state_is_one_json_document_too(body: bytes) -> None:
    (line,) = TapReader(as_json=True).lines(ALERT, body)
    found = json.loads(line)
    assert (found["kind"], found["name"]) == ("alerts", "gpu_lost/n1")
    assert "content" in found
