"""Packets as they are read: what gmqtt finds in the same bytes, wherever they are cut."""

from __future__ import annotations

import itertools

import pytest
from gmqtt.mqtt.package import Package
from gmqtt.mqtt.protocol import MQTTProtocol
from hypothesis import given
from hypothesis import strategies as st

from aggregator.mqtt.packets import LongPublish, PacketReader, read_packets

Found = list[tuple[str, bytes] | bytes]
"""Topic and payload of each message at QoS 0; each other packet whole."""


def packet(first: int, body: bytes) -> bytes:
    """A packet with its length."""
    length, left = bytearray(), len(body)
    while True:
        left, low = divmod(left, 128)
        length.append(low | (0x80 if left else 0))
        if not left:
            return bytes([first, *length]) + body


def publish(topic: str, payload: bytes, flags: int = 0) -> bytes:
    """A PUBLISH at QoS 0."""
    name = topic.encode()
    return packet(0x30 | flags, len(name).to_bytes(2, "big") + name + payload)


class Reader:
    """Ours, and what it found."""

    def __init__(self) -> None:
        self.found: Found = []

    def read(self, data: bytes) -> int:
        return read_packets(data, self._receive, self._other)

    def _receive(self, topic: str, payload: bytes) -> None:
        self.found.append((topic, payload))

    def _other(self, whole: bytes) -> int:
        self.found.append(whole)
        return 0


MOST = 4000
"""Bytes of a packet beyond which `Bounded` passes it over."""


class Bounded(Reader):
    """Ours, as a connection has it, with a low bound."""

    def __init__(self) -> None:
        super().__init__()
        self.long: list[LongPublish] = []
        self.reader = PacketReader(self._receive, self._other, self.long.append, MOST)

    def read(self, data: bytes) -> int:
        return self.reader.read(data)


class GmqttReader:
    """gmqtt's own, and what it found: of each packet the first byte, and what follows its length."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self._connection = self

    def put_package(self, one: Package) -> None:
        self.found.append(bytes([one.cmd]) + one.data)

    def read(self, data: bytes) -> int:
        size: int = MQTTProtocol._read_packet(self, data)
        return size


def rest(reader: Reader | GmqttReader, pieces: list[bytes]) -> bytes:
    """Read the pieces of a stream; return what is left."""
    left = b""
    for piece in pieces:
        left += piece
        size = reader.read(left)
        assert size >= 0
        left = left[size:]
    return left


def plain(found: Found) -> list[bytes]:
    """Return what was found as gmqtt gives it: without lengths, and flags that do not matter."""
    packets = []
    for each in found:
        whole = publish(*each) if isinstance(each, tuple) else each
        first, start = whole[0], 1
        while whole[start] & 0x80:
            start += 1
        packets.append(bytes([first]) + whole[start + 1 :])
    return packets


TOPICS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
PACKETS = st.one_of(
    st.builds(publish, TOPICS, st.binary(max_size=300)),
    st.builds(publish, TOPICS, st.binary(max_size=20_000)),
    st.builds(packet, st.sampled_from([0x32, 0x40, 0x90, 0xD0]), st.binary(max_size=200)),
    st.builds(packet, st.just(0x30), st.binary(max_size=5)),  # most have no topic
)


@given(st.lists(PACKETS, max_size=8), st.lists(st.integers(0, 3000), max_size=6))
def test_gmqtt_finds_the_same_wherever_the_stream_is_cut(packets: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(packets)
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[first:last] for first, last in itertools.pairwise(edges)]
    ours, its = Reader(), GmqttReader()
    assert rest(ours, pieces) == rest(its, pieces) == b""
    assert plain(ours.found) == its.found


@given(st.binary(max_size=60))
def test_gmqtt_finds_the_same_in_any_bytes(data: bytes) -> None:
    ours, its = Reader(), GmqttReader()
    size = ours.read(data)
    assert size in {its.read(data), -1}, "it may wait for a further byte of a length that is none"
    assert [each[1:] for each in plain(ours.found)] == [each[1:] for each in its.found]


def test_messages_are_in_their_order_among_the_others() -> None:
    acknowledged, ping = packet(0x40, b"\0\1"), packet(0xD0, b"")
    retained = publish("b/c", b"two", flags=1)
    reader, cut = Reader(), publish("d", b"3")[:3]
    assert rest(reader, [publish("a", b"") + acknowledged + retained + ping + cut]) == cut
    assert reader.found == [("a", b""), acknowledged, ("b/c", b"two"), ping]


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"\0\0", b"\0\0payload", b"\0\5abcd", b"\0\2\xff\xfe"],
    ids=["empty", "half a length", "no topic", "payload without a topic", "cut off", "no text"],
)
def test_a_message_without_a_topic_is_left_to_the_client(body: bytes) -> None:
    bad = packet(0x30, body)
    reader = Reader()
    assert rest(reader, [bad + publish("a", b"x")]) == b""
    assert reader.found == [bad, ("a", b"x")]


def long_publish(topic: str, size: int, qos: int) -> bytes:
    """A PUBLISH of more bytes than there may be; its number is 7."""
    number = b"\0\7" if qos else b""
    name = topic.encode()
    return packet(0x30 | qos << 1, len(name).to_bytes(2, "big") + name + number + bytes(MOST + size))


@given(
    st.lists(
        st.one_of(
            st.builds(publish, TOPICS, st.binary(max_size=300)),
            st.builds(long_publish, TOPICS, st.integers(0, 20_000), st.sampled_from([0, 1])),
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 60_000), max_size=20),
)
def test_a_message_that_is_too_long_is_never_gathered_and_hides_no_other(packets: list[bytes], cuts: list[int]) -> None:
    """Wherever the stream is cut: the others come in order, and what waits stays below the bound and one read."""
    stream = b"".join(packets)
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {*range(0, len(stream), 1000), len(stream)})
    reader, left = Bounded(), b""
    for first, last in itertools.pairwise(edges):
        left += stream[first:last]
        assert len(left) <= MOST + 1000
        size = reader.read(left)
        assert 0 <= size <= len(left)
        left = left[size:]
    assert left == b""
    wanted = Reader()
    rest(wanted, [each for each in packets if len(each) <= MOST])
    assert reader.found == wanted.found
    long = [each for each in packets if len(each) > MOST]
    assert [(one.size, one.qos, one.message_id) for one in reader.long] == [
        (len(each), (each[0] & 6) >> 1, 7 if each[0] & 6 else 0) for each in long
    ]
    for one, each in zip(reader.long, long, strict=True):
        assert each.find(one.topic.encode()[:50], 1, 200) > 0  # the first byte is no text


def test_a_packet_that_is_too_long_and_no_message_ends_the_connection() -> None:
    assert Bounded().read(packet(0x90, bytes(MOST))[:100]) == -1


def test_what_is_no_mqtt_ends_the_connection() -> None:
    def refuse(_: bytes) -> int:
        return -1

    def unwanted(*_: object) -> None:
        pytest.fail("nothing of it is a message")

    assert read_packets(b"\x30\xff\xff\xff\xff\x01", unwanted, refuse) == -1
    assert read_packets(packet(0x40, b"\0\1"), unwanted, refuse) == -1
