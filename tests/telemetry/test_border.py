"""The border: what no peer of ours would send is refused by name, and what passes is clean."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.simulated.cluster import SimulatedCluster
from collector.simulated.inventory import inventory as simulated
from collector.simulated.scenario import KINDS, scenario
from telemetry.devices import Event, Gpu, Link, MemoryPool
from telemetry.errors import WireError
from telemetry.metric import Lane, Table
from telemetry.wire import border
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import (
    CollectorStatus,
    Command,
    CommandKind,
    CommandReply,
    FrameSpan,
    Inventory,
    NodeState,
)
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs, Precision, UserPrivacy
from telemetry.wire.schema import Block, Schema
from telemetry.wire.topics import Topic, shard_of, topic
from tests.telemetry.typed import typed

WALL = 1_790_000_000 * 10**9
GPUS = tuple(Gpu(uuid=f"GPU-{n}", index=n, name="NVIDIA Test") for n in range(2))
HONEST = Inventory(
    node="a",
    session=7,
    taken_at=WALL - 5,
    host={"kernel": "6.8"},
    gpus=GPUS,
    links=(Link(gpu="GPU-0", number=0, peer="GPU-1"), Link(gpu="GPU-1", number=0)),
    pools=(MemoryPool(gpus=("GPU-0", "GPU-1"), bytes=1 << 37, over="nvlink"),),
)


def inventory(body: dict[str, Any]) -> Inventory:
    """Pass an inventory through the border."""
    return border.decode_inventory(json.dumps(body).encode(), "a", WALL)


def honest() -> dict[str, Any]:
    """The honest inventory as a dictionary to spoil."""
    found: dict[str, Any] = json.loads(messages.encode(HONEST))
    return found


def refused(call: Callable[[], object]) -> str:
    """Return the text of the refusal."""
    with pytest.raises(WireError) as caught:
        call()
    return str(caught.value)


def texts(value: object) -> Iterator[str]:
    """Yield every text in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        yield from texts(msgspec.structs.asdict(value))
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from texts(name)
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Controls of terminals and of the direction of writing, surrogates, and separators of lines."""


def assert_clean(message: object) -> None:
    """Fail on a control character, or a long text, anywhere in a message."""
    for text in texts(message):
        assert len(text) <= border.MOST_TEXT
        assert not any(unicodedata.category(each) in CONTROLS for each in text), repr(text)


# -- Inventories ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_what_collectors_send_passes_as_it_is(name: str) -> None:
    cluster = SimulatedCluster(scenario(name, faults=""))
    for node in cluster.scenario.nodes[:3]:
        sent = simulated(cluster, cluster.node(node))
        assert border.decode_inventory(messages.encode(sent), sent.node, sent.taken_at) == sent


SPOILED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "B1: an index that int32 does not hold": (
        lambda body: body["gpus"][0].update(index=2**31), "gpus[0].index is 2147483648"),
    "an index below 0": (lambda body: body["gpus"][1].update(index=-1), "gpus[1].index is -1"),
    "an index of 300 digits": (
        lambda body: body["gpus"][0].update(index=10**300), "gpus[0].index is of more than 64 bits"),
    "B1: a link number that int32 does not hold": (
        lambda body: body["links"][1].update(number=2**31), "links[1].number is 2147483648"),
    "a link number below 0": (lambda body: body["links"][0].update(number=-1), "links[0].number"),
    "B2: a link of no GPU": (
        lambda body: body.update(gpus=[], pools=[]), "links[0] is of no GPU of the inventory"),
    "two links of one number": (
        lambda body: body["links"].append(body["links"][0]), "links: two of one name"),
    "two GPUs of one UUID": (
        lambda body: body["gpus"].append(body["gpus"][0]), "gpus: two of one name, or one without"),
    "two UUIDs that are one when they are clean": (
        lambda body: body["gpus"].append({**body["gpus"][0], "uuid": "GPU-\0000"}), "gpus: two"),
    "a GPU without a UUID": (lambda body: body["gpus"][0].update(uuid=""), "gpus: two"),
    "more GPUs than a node has": (
        lambda body: body.update(gpus=[
            {"uuid": f"G{n}", "index": n, "name": "x"} for n in range(border.MOST_GPUS + 1)]),
        "gpus: 1025; at most 1024"),
    "a minor number that is none": (lambda body: body["gpus"][0].update(minor=2**40), "minor"),
    "memory below 0": (lambda body: body["gpus"][0].update(memory_bytes=-1), "memory_bytes is -1"),
    "a power limit of a power station": (
        lambda body: body["gpus"][0].update(power_limit_watts=1e9), "power_limit_watts"),
    "a power limit below 0": (
        lambda body: body["gpus"][0].update(power_limit_watts=-1), "power_limit_watts is -1"),
    "a pool of a GPU elsewhere": (
        lambda body: body["pools"][0]["gpus"].append("GPU-9"), "pools: one has a GPU"),
    "a GPU in two pools": (lambda body: body["pools"].append(body["pools"][0]), "pools: two"),
    "a pool of too many bytes": (
        lambda body: body["pools"][0].update(bytes=2**62), "pools: bytes is 4611686018427387904"),
    "a session of 64 bits": (lambda body: body.update(session=2**63), "session is 9223372036854775808"),
    "a version below 0": (lambda body: body.update(version=-1), "version is -1"),
    "more facts than a host has": (
        lambda body: body.update(host={str(n): "" for n in range(257)}), "host: 257; at most 256"),
    "a block twice": (
        lambda body: body["schema"]["blocks"].append(body["schema"]["blocks"][0]), "schema.blocks"),
    "a column twice": (
        lambda body: body["schema"]["blocks"][0].update(gauges=["x", "x"]), "two of one name"),
    "more columns than a block has": (
        lambda body: body["schema"]["blocks"][0].update(gauges=[f"x{n}" for n in range(2049)]),
        "at most 2048"),
    "another node's": (lambda body: body.update(node="b"), "foreign: an inventory of 'b'"),
    "an index that is no whole number": (
        lambda body: body["gpus"][0].update(index=1.5), "Expected `int`, got `float`"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILED)
def test_an_inventory_that_no_node_has_is_refused_with_its_place(case: str) -> None:
    spoil, said = SPOILED[case]
    body = honest()
    inventory(body)
    spoil(body)
    assert said in refused(lambda: inventory(body))


def test_two_gpus_may_have_one_index() -> None:
    """A driver counts anew after one is lost, whose row remains."""
    body = honest()
    body["gpus"][1]["index"] = 0
    assert [gpu.index for gpu in inventory(body).gpus] == [0, 0]


def test_control_characters_are_removed_and_long_texts_are_cut() -> None:
    body = honest()
    body["gpus"][0] |= {"slot": "7\0\0\0", "serial": "\x1b[31m165\x07", "uuid": "GPU-\x000"}
    body["links"][0]["gpu"] = "GPU-\x000"
    body["host"] |= {"product": "\u202eevil\u2066", "x\ny": "a\tb\r\nc", "long": "x" * 5000}
    body["driver_message"] = "\x9b2J gone \x7f"
    found = inventory(body)
    assert_clean(found)
    assert (found.gpus[0].slot, found.gpus[0].serial) == ("7", "[31m165")
    assert (found.gpus[0].uuid, found.links[0].gpu) == ("GPU-0", "GPU-0")
    assert found.host == {"kernel": "6.8", "product": "evil", "x y": "a b  c", "long": "x" * border.MOST_TEXT}
    assert found.driver_message == "2J gone"


def test_the_time_of_an_inventory_that_can_not_be_is_none() -> None:
    for taken_at in (-5, 1, WALL + 2 * border.LIVE_WINDOW, 2**70):
        assert inventory(honest() | {"taken_at": taken_at}).taken_at == 0
    assert inventory(honest()).taken_at == WALL - 5


def test_another_release_may_send_more_fields_and_other_blocks() -> None:
    body = honest()
    body["new"] = {"deep": [1]}
    body["schema"] = msgspec.to_builtins(Schema((Block(Table.GPU, Lane.FAST, ("gpu_new_thing",), ()),)))
    assert inventory(body).schema.blocks[0].gauges == ("gpu_new_thing",)


def test_tables_and_lanes_of_a_newer_release_pass_and_keep_their_places() -> None:
    body = honest()
    known = {"table": "node", "lane": "fast", "gauges": ["node_load_1m"], "counters": []}
    switch = {"table": "switch", "lane": "slow", "gauges": ["switch_up"], "counters": []}
    rare = {"table": "gpu", "lane": "daily", "gauges": ["gpu_age"], "counters": []}
    body["schema"] = {"blocks": [switch, known, rare]}
    found = inventory(body).schema
    assert [(block.name, block.known) for block in found.blocks] == [
        ("switch_slow", False),
        ("node_fast", True),
        ("gpu_daily", False),
    ]
    assert json.loads(messages.encode(inventory(body)))["schema"] == body["schema"]
    body["schema"] = {"blocks": [known]}
    assert inventory(body).schema.id != found.id


def test_a_table_of_a_newer_release_is_bounded_as_ours_are() -> None:
    body = honest()
    names = [f"switch_{n}" for n in range(border.MOST_COLUMNS + 1)]
    block = {"table": "switch", "lane": "slow", "gauges": names, "counters": []}
    body["schema"] = {"blocks": [block]}
    assert "schema: switch_slow: 2049; at most 2048" in refused(lambda: inventory(body))
    body["schema"] = {"blocks": [{**block, "gauges": ["switch_up"]}] * 2}
    assert "schema.blocks: two" in refused(lambda: inventory(body))
    body["schema"] = {"blocks": [{**block, "table": 7}]}
    assert "table" in refused(lambda: inventory(body))


@given(st.text(max_size=30), st.text(max_size=30), st.text(min_size=1, max_size=30))
@example("\u2028", "\x85", "\ufeff")
def test_every_text_behind_the_border_is_clean(one: str, two: str, three: str) -> None:
    body = honest()
    body["gpus"][0] |= {"name": one, "slot": two, "capabilities": {two: one}}
    body["host"] = {one: three, three: two}
    body["driver_state"] = three
    assert_clean(inventory(body))
    event = {"id": "1", "node": "a", "at": 1, "kind": "k", "message": one,
             "data": {f"{two} of its own": [three, {one: two}], "line": one}}  # fmt: skip
    assert_clean(border.decode_event(json.dumps(event).encode(), "a"))


# -- Jobs ----------------------------------------------------------------------------------------

JOB = {"scheduler": "slurm", "cluster": "lab", "id": "4711"}
ALLOCATION = {"job": JOB, "gpu": "GPU-0", "begin": 5, "kind": "used"}
PROCESS = {"gpu": "GPU-0", "pid": 7}
JOBS: dict[str, Any] = {
    "session": 1, "version": 2, "at": WALL, "jobs": [{"key": JOB, "begin": 5}],
    "allocations": [ALLOCATION, {**ALLOCATION, "begin": 9}, {**ALLOCATION, "instance": 3}],
    "processes": [PROCESS, {**PROCESS, "gpu": "GPU-1", "sm_ratio": 1}],
    "sources": [{"name": "process"}, {"name": "slurm", "state": "a word of a later release"}],
}  # fmt: skip


def jobs(**change: object) -> NodeJobs:
    """Pass jobs through the border."""
    return border.decode_jobs(json.dumps(JOBS | change).encode())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"session": 2**63}, "session is 9223372036854775808"),
        ({"version": -1}, "version is -1"),
        ({"at": -1}, "at is -1"),
        ({"left_out": -1}, "left_out is -1"),
        ({"users": "some"}, "Invalid enum value"),
        ({"jobs": [{"key": JOB}] * 2}, "jobs: two of one name"),
        ({"jobs": [{"key": {**JOB, "id": ""}}]}, "without an id"),
        ({"jobs": [{"key": {**JOB, "id": "\u200b"}}]}, "without an id"),
        ({"jobs": [{"key": {**JOB, "scheduler": ""}}]}, "without a scheduler"),
        ({"jobs": [{"key": {**JOB, "restart": -1}}]}, "restart is -1"),
        ({"jobs": [{"key": JOB, "begin": 9, "end": 8}]}, "job 4711 ends before it begins"),
        ({"jobs": [{"key": JOB, "submitted": 2**63}]}, "submitted"),
        ({"jobs": [{"key": JOB, "eligible": -1}]}, "eligible"),
        ({"jobs": [{"key": JOB, "time_limit": -1}]}, "time_limit"),
        ({"jobs": [{"key": JOB, "time_limit": "for ever"}]}, "time_limit"),
        ({"jobs": [{"key": JOB, "gpus": -1}]}, "gpus is -1"),
        ({"jobs": [{"key": JOB, "nodes": 2**31}]}, "nodes is 2147483648"),
        ({"jobs": [{"key": JOB, "exit_code": 2**40}]}, "exit_code"),
        ({"allocations": [ALLOCATION] * 2}, "allocations: two of one name"),
        ({"allocations": [{**ALLOCATION, "begin": 0}]}, "without a begin"),
        ({"allocations": [{**ALLOCATION, "gpu": ""}]}, "without a GPU"),
        ({"allocations": [{**ALLOCATION, "end": 4}]}, "ends before it begins"),
        ({"allocations": [{**ALLOCATION, "instance": -1}]}, "instance is -1"),
        ({"allocations": [{**ALLOCATION, "kind": "borrowed"}]}, "Invalid enum value"),
        ({"processes": [PROCESS] * 2}, "processes: two of one name"),
        ({"processes": [{**PROCESS, "gpu": ""}]}, "process 7: without a GPU"),
        ({"processes": [{**PROCESS, "pid": -1}]}, "pid is -1"),
        ({"processes": [{**PROCESS, "memory_bytes": 2**60}]}, "memory_bytes"),
        ({"processes": [{**PROCESS, "sm_ratio": 80}]}, "sm_ratio is 80"),
        ({"processes": [{**PROCESS, "started": -1}]}, "started is -1"),
        ({"processes": [{**PROCESS, "job": {**JOB, "id": ""}}]}, "without an id"),
        ({"sources": [{"name": "process"}] * 2}, "sources: two of one name"),
        ({"sources": [{"name": f"s{n}"} for n in range(65)]}, "sources: 65; at most 64"),
        (
            {"sources": [{"name": "s", "unattributed": {f"r{n}": 1 for n in range(17)}}]},
            "source s: unattributed: 17; at most 16",
        ),
        ({"sources": [{"name": "s", "unattributed": {"r": -1}}]}, "source s: unattributed r"),
        ({"sources": [{"name": "process", "message": "x" * 70_000}]}, "at most 65536"),
    ],
)
def test_jobs_that_no_collector_sends_are_refused(change: dict[str, Any], said: str) -> None:
    assert [each.begin for each in jobs().allocations] == [5, 9, 5]
    assert said in refused(partial(jobs, **change))


def test_a_name_of_a_job_or_program_can_break_no_terminal() -> None:
    hostile = "\x1b[2J\u202eevil\n"
    found = jobs(
        jobs=[{"key": {**JOB, "id": hostile}, "name": hostile, "user": hostile}],
        processes=[{**PROCESS, "name": hostile, "job": {**JOB, "id": hostile}}],
    )
    assert_clean(found)
    assert found.jobs[0].user == "[2Jevil"


# -- Status, replies, commands -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ring": [[1, 0, 2**62]]}, "frames 0 to 4611686018427387904"),
        ({"ring": [[1, 0, 2**70]]}, "frames 0 to of more than 64 bits"),
        ({"ring": [[1, 5, 4]]}, "frames 5 to 4"),
        ({"ring": [[1, -1, 4]]}, "frames -1 to 4"),
        ({"ring": [[2**63, 0, 4]]}, "ring: the session"),
        ({"ring": [[1, 0, 1]] * 8193}, "ring: 8193; at most 8192"),
        ({"session": -1}, "session is -1"),
        ({"interval": 0}, "interval is 0"),
        ({"interval": 1e-300}, "interval is 1e-300"),
        ({"slow_interval": 1e9}, "slow_interval"),
        ({"state": "\x1b[2J"}, "Invalid enum value"),
    ],
)
def test_a_status_that_no_collector_sends_is_refused(change: dict[str, Any], said: str) -> None:
    status = CollectorStatus(state=NodeState.ONLINE, session=1, ring=(FrameSpan(1, 0, 9),))
    body = json.loads(messages.encode(status))
    assert border.decode_status(json.dumps(body).encode()) == status
    assert said in refused(lambda: border.decode_status(json.dumps(body | change).encode()))


@pytest.mark.parametrize(
    "change",
    [{"about": 2**63}, {"first": 5, "last": 4}, {"last": 2**62}, {"first": -1}, {"sent": -1},
     {"gone": [[1, 3, 2]]}, {"gone": [[1, 0, 2**62]]}, {"gone": [[1, 0, 1]] * 8193}],
)  # fmt: skip
def test_a_reply_that_no_collector_sends_is_refused(change: dict[str, Any]) -> None:
    reply = CommandReply(about=1, first=0, last=9, gone=(FrameSpan(1, 0, 3),))
    body = json.loads(messages.encode(reply))
    assert border.decode_reply(json.dumps(body).encode()) == reply
    refused(lambda: border.decode_reply(json.dumps(body | change).encode()))


@pytest.mark.parametrize("change", [{"kind": "burn"}, {"first": 5, "last": 4}, {"last": 2**31}, {"about": -1}])
def test_a_command_that_no_aggregator_sends_is_refused(change: dict[str, Any]) -> None:
    command = Command(kind=CommandKind.RESEND, about=1, first=0, last=9)
    body = json.loads(messages.encode(command))
    assert border.decode_command(json.dumps(body).encode()) == command
    refused(lambda: border.decode_command(json.dumps(body | change).encode()))


# -- Events --------------------------------------------------------------------------------------


def nested(depth: int) -> object:
    return {} if depth == 0 else {"x": nested(depth - 1)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": "b"}, "foreign: an event of 'b'"),
        ({"id": ""}, "without an id"),
        ({"kind": "\0"}, "without a kind"),
        ({"data": {"xid": "79"}}, "data.xid is no int"),
        ({"data": {"xid": True}}, "data.xid is no int"),
        ({"data": {"xid": 2**64}}, "more than 64 bits"),
        ({"data": {"pid": [7]}}, "data.pid is no int"),
        ({"data": {"process": {}}}, "data.process is no str"),
        ({"data": {"fatal": 1}}, "data.fatal is no bool"),
        ({"data": {"registers": "0x1"}}, "data.registers is no list"),
        ({"data": {"x": 2**63}}, "more than 64 bits"),
        ({"data": nested(9)}, "nested too deep"),
        ({"data": nested(600)}, "nested too deep"),
        ({"data": {"x": [0] * 300}}, "more than 256 values"),
        ({"message": "x" * 70_000}, "oversize"),
        ({"at": "now"}, "Expected `int`"),
    ],
)
def test_an_event_that_no_collector_sends_is_refused(change: dict[str, Any], said: str) -> None:
    event = Event(
        id="7-1", node="a", at=WALL, kind="xid", gpu="GPU-0",
        data={"xid": 74, "pid": None, "registers": [0, 16], "fatal": False, "line": "NVRM: Xid"},
    )  # fmt: skip
    body = json.loads(messages.encode(event))
    assert border.decode_event(json.dumps(body).encode(), "a") == event
    assert said in refused(lambda: border.decode_event(json.dumps(body | change).encode(), "a"))


# -- Frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        frames.Frame(1, 2**63, 0, WALL, ()),
        frames.Frame(1, 1, 2**31, WALL, ()),
        frames.Frame(1, 1, 2**62, WALL, ()),
        frames.Frame(1, -1, 0, WALL, ()),
        frames.Frame(1, 1, 0, 0, ()),
        frames.Frame(1, 1, 0, 2**63, ()),
        frames.Frame(1, 1, 0, WALL, (frames.PackedBlock(0, 0, b"", b""),) * 65),
        frames.Frame(1, 1, 0, WALL, (), (b"{}",) * 257),
    ],
)
def test_a_frame_that_no_collector_sends_is_refused(frame: frames.Frame) -> None:
    assert "malformed" in refused(lambda: border.decode_frame(frames.encode(frame)))


def test_the_windows_of_time() -> None:
    hour = 3600 * 10**9
    assert border.live(WALL - hour, WALL)
    assert border.live(WALL + hour, WALL)
    for off in (-hour - 1, hour + 1, -WALL, 2**62):
        assert not border.live(WALL + off, WALL)
    assert border.possible(WALL - 300 * 24 * hour, WALL)
    assert not border.possible(WALL - 500 * 24 * hour, WALL)
    assert not border.possible(WALL + 2 * hour, WALL)
    ours_is_wrong = 5 * hour  # of 1970: the times of others say more than it
    assert border.live(WALL, ours_is_wrong)
    assert border.possible(WALL, ours_is_wrong)


# -- Topics, and any bytes -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a b", "\x1b[2J", "", "-a", "a" * 129, "a\nb", "ä"])
def test_a_name_that_no_node_can_have_is_foreign(name: str) -> None:
    where = f"kilowatch/1/default/{shard_of(name)}/{name}/frame"
    assert refused(lambda: border.check_topic(where, "default")).startswith("foreign")


KEY = JobKey("slurm", "lab", "4711")
HONEST_JOBS = NodeJobs(
    session=1,
    at=WALL,
    users=UserPrivacy.HASHED,
    jobs=(Job(key=KEY, name="train", user="ada", state="RUNNING", exit_code=0),),
    allocations=(
        Allocation(job=KEY, gpu="GPU-0", begin=5, begin_from=Precision.HOOK, source="slurm-hook"),
        Allocation(job=KEY, gpu="GPU-1", begin=5, kind=AllocationKind.USED, instance=2),
    ),
    processes=(GpuProcess(gpu="GPU-0", pid=7, name="python3", job=KEY, sm_ratio=0.5),),
)
HONEST_EVENT = Event(id="1", node="a", at=WALL, kind="xid", message="m", data={"a": [1, "b", None], "c": 2.5})
MESSAGES: tuple[tuple[msgspec.Struct, Callable[[bytes], object]], ...] = (
    (HONEST, lambda payload: border.decode_inventory(payload, "a", WALL)),
    (HONEST_JOBS, border.decode_jobs),
    (HONEST_EVENT, lambda payload: border.decode_event(payload, "a")),
    (CollectorStatus(state=NodeState.OFFLINE, session=7, reason="lost"), border.decode_status),
)


@given(st.text(st.sampled_from('"\\\t\x1b\x7f\u202e\u2028é'), min_size=1, max_size=4))
@example('"')
@example("x" * (border.MOST_TEXT + 1))
def test_whatever_the_texts_all_else_is_as_it_was_sent(hostile: str) -> None:
    """A process may have any name: it must not turn the enumerations of the message into plain texts."""
    for honest_message, decode in MESSAGES:

        def spoiled(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: spoiled(item) for name, item in value.items()}
            if isinstance(value, list):
                return [spoiled(item) for item in value]
            return value + hostile if isinstance(value, str) and value not in WORDS else value

        sent = messages.encode(honest_message)
        body = spoiled(json.loads(sent))
        found = decode(json.dumps(body | {"node": "a"} if "node" in body else body).encode())
        assert_clean(found)
        assert typed(found, texts=False) == typed(decode(sent), texts=False)


WORDS = {str(word) for kind in (NodeState, Precision, AllocationKind, UserPrivacy, Table, Lane) for word in kind}
"""Texts that are members of enumerations."""


def test_the_address_of_a_topic_of_ours() -> None:
    address = border.check_topic(topic("default", "a", Topic.FRAME), "default")
    assert (address.node, address.kind) == ("a", Topic.FRAME)


def test_the_owner_of_a_retained_state() -> None:
    prefix = "kilowatch/1/lab/alerts/"
    assert border.decode_owner(f"{prefix}x/state", prefix, b'{"by":"all","more":1}') == "all"
    own = f"{prefix}x/state"
    for name in ("x/y/state", "/state", "state", "x/stat", "\x1b[2J/state", "x" * 2000 + "/state"):
        call = partial(border.decode_owner, prefix + name, prefix, b'{"by":"a"}')
        assert "foreign" in refused(call)
    for body in (b"", b"[]", b'{"by":1}', b"\xff", b'{"by":"a"' + b" " * 300_000 + b"}"):
        refused(partial(border.decode_owner, own, prefix, body))


DECODERS: tuple[Callable[[bytes], object], ...] = (
    border.decode_frame,
    border.decode_backfill,
    lambda payload: border.decode_inventory(payload, "a", WALL),
    border.decode_status,
    lambda payload: border.decode_event(payload, "a"),
    border.decode_reply,
    border.decode_command,
    border.decode_jobs,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@example(b'{"id":"1","node":"a","at":1,"kind":"x","data":' + b'{"a":' * 50_000)
@example(b"[" * 100_000)
@example(b'{"session": 1e999, "state": "online"}')
def test_any_bytes_are_a_message_or_a_wire_error(payload: bytes) -> None:
    for decode in DECODERS:
        try:
            assert_clean(decode(payload))
        except WireError:
            continue


@given(st.data())
def test_any_value_in_any_place_is_a_message_or_a_wire_error(data: st.DataObject) -> None:
    """The place is drawn among all of an honest message, the value among those that hurt."""
    body = honest()
    at: Any = body
    while True:
        place = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], dict | list) or not at[place] or data.draw(st.booleans()):
            break
        at = at[place]
    at[place] = data.draw(st.sampled_from(HURTFUL) | JSON)
    try:
        found = inventory(body)
    except WireError:
        return
    assert_clean(found)
    border.check_inventory(msgspec.json.decode(messages.encode(found), type=Inventory))


HURTFUL: tuple[object, ...] = (
    -1,
    2**31,
    2**62,
    2**63,
    2**64,
    10**400,
    0.0,
    1e308,
    -1e308,
    "",
    "\0",
    "x" * 5000,
    [],
    {},
    None,
)


MARKS = st.lists(
    st.one_of(
        st.just(b'"'),
        st.binary(max_size=3),
        st.integers(border.MOST_TEXT - 2, border.MOST_TEXT + 3).map(lambda size: b"x" * size),
    ),
    max_size=9,
).map(b"".join)
"""Quotation marks, and about as much between them as a text may have."""


@given(MARKS)
@example(b'"' + b"x" * border.MOST_TEXT)
@example(b'"' + b"x" * (border.MOST_TEXT + 1))
@example(b'"' + b"x" * border.MOST_TEXT + b'"')
@example(b'"' + b"x" * (border.MOST_TEXT + 1) + b'"')
def test_a_long_text_is_found_as_by_a_regular_expression(payload: bytes) -> None:
    wanted = re.search(rb'"[^"]{%d}' % (border.MOST_TEXT + 1), payload) is not None
    assert border._has_long(payload) == wanted


@given(st.text(max_size=20))
def test_a_message_is_plain_when_all_of_it_is_printable(text: str) -> None:
    assert border._all_plain(text.encode(errors="replace")) == (
        text.encode(errors="replace").decode().isprintable() and "\\" not in text
    )
