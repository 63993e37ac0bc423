"""Input K of a kind: a pure function of the seed, the kind and K."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from collector.recording.file import RecordingHeader, RecordingWriter
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.topics import ROOT, Topic, shard_of, state_topic
from tests.fuzz import corpus
from tests.fuzz.corpus import HOSTILE
from tests.fuzz.mutation import TEXTS, as_json, as_msgpack, mutate, raw, text

UNCHANGED = 0.25
"""Part of the messages that are left valid: they bring a node into a state that others can break."""


class FuzzInput(NamedTuple):
    """An input."""

    kind: str
    number: int
    topic: str
    """Of a message; method and path of a request; empty for files."""
    body: bytes
    retain: bool = False


class FuzzRandom(random.Random):
    """Random numbers of one input, and the nodes that it may be of."""

    nodes: Sequence[str] = HOSTILE


def make(kind: str, seed: int, number: int, now: int, nodes: Sequence[str] = HOSTILE) -> FuzzInput:
    """Return an input of one of some nodes; `now` is the time that valid messages carry, ns since 1970."""
    rng = FuzzRandom(f"{seed}/{kind}/{number}")
    rng.nodes = nodes
    topic, body = KINDS[kind](rng, number, now)
    return FuzzInput(kind, number, topic, body, kind in {"status", "inventory"} and rng.random() < 0.1)


def _address(rng: random.Random, node: str, kind: Topic, cluster: str = "default") -> str:
    """Return the node's topic; seldom one of another cluster, shard or shape. Never one of a node that
    is not hostile: the broker's access list forbids that."""
    shard = shard_of(node)
    if rng.random() < 0.94:
        return f"{ROOT}/{cluster}/{shard}/{node}/{kind.value}"
    return rng.choice(
        (
            f"{ROOT}/other/{shard}/{node}/{kind.value}",
            f"{ROOT}/{cluster}/{rng.randrange(256):02x}/{node}/{kind.value}",
            f"{ROOT}/{cluster}/{shard}/{node}/later",
            f"{ROOT}/{cluster}/{shard}/{node}",
            f"kilowatch/2/{cluster}/{shard}/{node}/{kind.value}",
            f"{ROOT}/{cluster}/{shard}/{node}/{kind.value}/more",
            f"{ROOT}/{cluster}/{shard_of('m' * 120)}/{'m' * 120}/{kind.value}",
            f"{ROOT}/{cluster}/zz/\u202e{node}/{kind.value}",
            f"{ROOT}/{cluster}/{shard_of('x' + str(rng.randrange(5000)))}/x{rng.randrange(5000)}/{kind.value}",
        )
    )


def _json(rng: random.Random, message: Any) -> bytes:
    """Return the JSON of a message, changed as a tree, as bytes, or not."""
    if rng.random() < UNCHANGED:
        return messages.encode(message)
    if rng.random() < 0.15:
        return raw(messages.encode(message), rng)
    return as_json(mutate(corpus.tree(message), rng), rng)


def _frame_bytes(rng: random.Random, node: str, session: int, seq: int, now: int) -> bytes:
    late = rng.choice((0, 0, 0, 1, 86_400, -7200, 10**9))
    made = corpus.frame(node, session, seq, max(1, now - late * 10**9), slow=rng.random() < 0.1)
    encoded = frames.encode(made)
    if rng.random() < UNCHANGED:
        return encoded
    if rng.random() < 0.3:
        return raw(encoded, rng)
    return as_msgpack(mutate(msgspec.msgpack.decode(encoded), rng))


def _frame(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    node, session, seq = corpus.pick(rng)
    seq = seq if rng.random() < 0.5 else number % 100_000
    return _address(rng, node, Topic.FRAME), _frame_bytes(rng, node, session, seq, now)


def _backfill(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number
    node, session, seq = corpus.pick(rng)
    many = [_frame_bytes(rng, node, session, seq + n, now) for n in range(rng.randrange(6))]
    body = frames.encode_many(many * rng.choice((1, 1, 1, 30)))
    if rng.random() < 0.3:
        body = raw(body, rng) if rng.random() < 0.5 else as_msgpack(mutate(msgspec.msgpack.decode(body), rng))
    return _address(rng, node, Topic.BACKFILL), body


def _inventory(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number
    node, session, seq = corpus.pick(rng)
    found = corpus.inventory(node, session, seq % 4)
    found = msgspec.structs.replace(found, taken_at=now)
    if rng.random() < 0.6:  # the schema is most of it: change only the rest
        tree = corpus.tree(found)
        schema = tree.pop("schema")
        changed = mutate(tree, rng)
        if isinstance(changed, dict):
            changed.setdefault("schema", schema)
        return _address(rng, node, Topic.INVENTORY), as_json(changed, rng)
    return _address(rng, node, Topic.INVENTORY), _json(rng, found)


def _status(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number
    node, session, seq = corpus.pick(rng)
    return _address(rng, node, Topic.STATUS), _json(rng, corpus.status(session, seq, now))


def _event(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    node, session, _ = corpus.pick(rng)
    event = corpus.event(node, session, number, now)
    if rng.random() < 0.05:
        event = msgspec.structs.replace(event, node="honest-1")
    return _address(rng, node, Topic.EVENT), _json(rng, event)


def _reply(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    node, session, seq = corpus.pick(rng)
    return _address(rng, node, Topic.REPLY), _json(rng, corpus.reply(session, seq))


def _jobs(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number
    node, session, seq = corpus.pick(rng)
    return _address(rng, node, Topic.JOBS), _json(rng, corpus.jobs(node, session, seq, now))


def _command(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    node, session, seq = corpus.pick(rng)
    return _address(rng, node, Topic.COMMAND), _json(rng, corpus.command(session, seq))


def _state(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    what = rng.choice(("circuits", "budgets", "ups", "alerts"))
    name = rng.choice(("lab", "gpu_lost/mallory-1", f"forged-{number}", rng.choice(TEXTS)))
    tree = {"by": "all", "at": now, "state": {"name": name, "load_watts": 1.0, "alerts": ["x"]}}
    body = as_json(mutate(tree, rng) if rng.random() < 0.7 else tree, rng)
    topic = state_topic("default", what, text(name, rng).encode("utf-8", "replace").decode()[:200])
    return topic.replace("\0", ""), raw(body, rng) if rng.random() < 0.1 else body


def _meter(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    topic, content = rng.choice(corpus.METER_MESSAGES)
    if rng.random() < 0.1:
        return topic, raw(json.dumps(content).encode(), rng)
    return topic, as_json(mutate(content, rng) if isinstance(content, dict) else mutate([content], rng), rng)


def _http(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    """A request as bytes on the wire; `topic` is its method and path, for reports."""
    del now
    method, path, query, body = corpus.request(number)
    headers = {"Host": "127.0.0.1", "Connection": "close", "Accept": "*/*"}
    content = b""
    if body is not None:
        changed = mutate(body, rng) if rng.random() < 0.7 else body
        content = as_json(changed, rng)
        if rng.random() < 0.1:
            content = raw(content, rng)
        headers["Content-Type"] = "application/json"
    for name in list(query):
        if rng.random() < 0.5:
            query[name] = text(query[name], rng) if rng.random() < 0.6 else rng.choice(TEXTS)
    if rng.random() < 0.2:
        query[rng.choice(("limit", "from", "to", "node", "nope", "", "step"))] = rng.choice(TEXTS)
    if rng.random() < 0.2:
        parts = path.split("/")
        parts[rng.randrange(len(parts))] = quote(rng.choice(TEXTS)[:3000].encode("utf-8", "replace"), safe="%/")
        path = "/".join(parts)
    if rng.random() < 0.3:
        headers[rng.choice(_HEADERS)] = rng.choice(_HEADER_WORDS)
    if rng.random() < 0.1:
        method = rng.choice(("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW", "get", "CONNECT"))
    length = str(len(content)) if rng.random() < 0.9 else rng.choice(("-1", "0", "99", "9" * 30, "x", ""))
    if content or rng.random() < 0.1:
        headers.setdefault("Content-Length", length)
    asked = urlencode({key: word.encode("utf-8", "replace") for key, word in query.items()})
    lines = [f"{method} {path}?{asked} HTTP/1.1"] + [f"{key}: {word}" for key, word in headers.items()]
    wire = "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + content
    if rng.random() < 0.05:
        wire = raw(wire, rng)
    return f"{method} {path[:80]}", wire


_HEADERS = (
    "Content-Encoding", "Transfer-Encoding", "Content-Type", "Accept-Encoding", "Authorization", "Host",
    "Origin", "If-None-Match", "Range", "Expect", "Upgrade", "Cookie", "X-Forwarded-For", "Accept",
    "Content-Length", "Sec-Fetch-Site",
)  # fmt: skip
_HEADER_WORDS = (
    "gzip", "deflate", "br", "zstd", "identity", "chunked", "gzip, chunked", "text/plain", "a/b; charset=x",
    "application/json; charset=utf-16", "Bearer x", "Bearer ", "Basic eDp5", "evil.example", "null",
    "https://evil.example", "bytes=0-1", "100-continue", "websocket", "*" * 9000, "\xff", "0", "-1", "99999999999",
    "application/openmetrics-text; version=1.0.0", "multipart/form-data; boundary=x", "cross-site",
)  # fmt: skip


def _websocket(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    body = as_json(mutate(corpus.STREAM, rng) if rng.random() < 0.8 else corpus.STREAM, rng)
    return rng.choice(("text", "text", "text", "binary", "ping")), raw(body, rng) if rng.random() < 0.1 else body


def _lines(rng: random.Random, source: str) -> str:
    """Return a text with changed lines: removed, doubled, swapped, changed within, cut off."""
    lines = source.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        match rng.randrange(7):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))] * rng.choice((1, 2, 200)))
            case 2:
                lines[at] = " " * rng.choice((1, 4, 300)) + lines[at]
            case 3:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 4:
                lines = lines[: at + 1]
            case _:
                lines[at] = text(lines[at], rng)
        lines = lines or ["\n"]
    return "".join(lines)


def _smi_text(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    return "", _lines(rng, corpus.SMI_TEXT).encode("utf-8", "surrogatepass")


def _smi_xml(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    source = corpus.SMI_XML if rng.random() < 0.5 else corpus.SMI_XML.replace("><", ">\n<")
    return "", _lines(rng, source).encode("utf-8", "surrogatepass")


def _kernel(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    line = text(rng.choice(corpus.KERNEL), rng)
    if rng.random() < 0.5:
        words = line.split(" ")
        words[rng.randrange(len(words))] = rng.choice((*TEXTS, "01", "0x1", "x", "154,", "NVRM:", "Xid", "from", "to"))
        line = " ".join(words)
    return "", line.encode("utf-8", "surrogatepass")


def _recording(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.kwrec"
        writer = RecordingWriter(path, RecordingHeader(made_at=now))
        for step in range(rng.randrange(1, 12)):
            kind = rng.choice((_inventory, _frame, _status, _event))
            topic, body = kind(rng, number, now)
            level = topic.split("/")
            if level[-1] in set(Topic) and len(level) == 6:
                at = now + step * 10**9 * rng.choice((0, 1, 1, 7200, -3))
                writer.write(at, Topic(level[-1]), level[4], body)
        writer.close()
        found = path.read_bytes()
    return "", raw(found, rng) if rng.random() < 0.6 else found


def _saved_log(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    parts = [rng.choice((_kernel, _kernel, _smi_text, _smi_xml))(rng, number, now)[1] for _ in range(4)]
    whole = b"\n".join(parts)
    pack = rng.choice((bytes, bytes, _gzip, bz2.compress, lzma.compress, _utf16))
    found = pack(whole)
    return "", raw(found, rng) if rng.random() < 0.5 else found


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _utf16(content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode("utf-16")


def _settings(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    found = corpus.toml(mutate(corpus.SETTINGS, rng))
    return "", raw(found, rng) if rng.random() < 0.15 else found


def _rules(rng: random.Random, number: int, now: int) -> tuple[str, bytes]:
    del number, now
    found = corpus.toml({"rule": mutate(list(corpus.RULES), rng)})
    return "", raw(found, rng) if rng.random() < 0.1 else found


Maker = Callable[[random.Random, int, int], tuple[str, bytes]]
KINDS: dict[str, Maker] = {
    "frame": _frame, "backfill": _backfill, "status": _status, "inventory": _inventory,
    "event": _event, "reply": _reply, "jobs": _jobs, "command": _command, "state": _state, "meter": _meter,
    "http": _http, "websocket": _websocket, "smi_text": _smi_text, "smi_xml": _smi_xml,
    "kernel": _kernel, "recording": _recording, "saved_log": _saved_log, "settings": _settings,
    "rules": _rules,
}  # fmt: skip
"""How each kind of input is made."""
BUS = ("frame", "backfill", "status", "inventory", "event", "reply", "jobs", "command", "state")
"""Kinds that come over the bus."""
SHARES = {
    "frame": 4400, "backfill": 500, "status": 1600, "inventory": 1600, "event": 1800, "reply": 600,
    "jobs": 400,
    "command": 300, "state": 800, "meter": 1400, "http": 900, "websocket": 400, "smi_text": 700,
    "smi_xml": 700, "kernel": 2100, "recording": 300, "saved_log": 500, "settings": 500, "rules": 500,
}  # fmt: skip
"""Inputs of each kind in `make test`: 20,000 in all."""
