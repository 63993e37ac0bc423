"""The stream sends what a viewer looks at, and nothing holds it up."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from typing import Any

import aiohttp
import msgspec
import pytest

from aggregator.http.config import HttpConfig
from api.alerts import Alert, AlertState, Severity
from telemetry.devices import Event
from telemetry.gap import DEVICE_LOST
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import FakeView, inventory, readings
from tests.aggregator.http_client import Door, door, small_cluster

Socket = aiohttp.ClientWebSocketResponse
POWER = {"columns": ["gpu_power_watts"], "every": 0.5}


async def connect(client: Door) -> Socket:
    """Open the stream."""
    return await client.session.ws_connect(client.url + "/api/v1/stream", max_msg_size=0)


async def receive(socket: Socket) -> dict[str, Any]:
    """Return the next message; the bound is for a machine that is very busy."""
    message: dict[str, Any] = json.loads(await socket.receive_str(timeout=30))
    return message


async def receive_data(socket: Socket, tick: int) -> dict[str, Any]:
    """Return the first data of a tick or later; a second of silence brings some between."""
    while True:
        message = await receive(socket)
        assert message["type"] == "data"
        if message["tick"] >= tick:
            return message


async def test_a_viewer_gets_the_rows_and_then_the_columns_it_asked_for() -> None:
    """At once, and then with every tick."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json(POWER)
        rows = await receive(socket)
        assert rows["type"] == "rows"
        assert rows["rows"]["uuid"] == ["GPU-n1-0", "GPU-n1-1", "GPU-n2-0", "GPU-n2-1"]
        assert rows["columns"] == ["gpu_power_watts"]
        data = await receive(socket)
        assert data["type"] == "data"
        assert data["columns"] == {"gpu_power_watts": [300.25, 301.25, 300.25, 301.25]}
        assert (data["only"], data["version"], data["of"]) == (None, rows["version"], 4)
        await view.tick(1)
        data = await receive_data(socket, 2)
        assert data["columns"]["gpu_power_watts"][0] == 301.25


async def test_readings_bring_the_wall_of_their_instant() -> None:
    """The same as in the status: whoever shows both beside each other has them of one message."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        for packed in (False, True):
            await socket.send_json(POWER | {"packed": packed})
            while (message := await socket.receive(timeout=30)).type is aiohttp.WSMsgType.TEXT:
                if not packed and json.loads(message.data)["type"] == "data":
                    break
            found = msgspec.msgpack.decode(message.data) if packed else json.loads(message.data)
            _, status = await client.json("/api/v1/status")
            assert found["wall"]["watts"] == pytest.approx(status["wall_watts"])
            assert (found["wall"]["nodes"], status["wall_nodes"]) == (2, 2)


async def test_another_request_replaces_the_one_before() -> None:
    """A dashboard scrolls and sorts: rows and columns change at once."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json(POWER)
        await receive(socket)
        await receive(socket)
        await socket.send_json({"table": "node", "columns": ["node_wall_power_watts"], "rows": {"nodes": ["n2", "n9"]}})
        message = await receive(socket)
        while message["type"] != "rows":
            message = await receive(socket)
        assert message["rows"] == {"node": ["n2"]}
        assert (await receive(socket))["columns"] == {"node_wall_power_watts": [5123.5]}


async def test_rows_are_sent_again_when_the_fleet_changes() -> None:
    """A node comes, another gets a GPU more."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json(POWER)
        first = await receive(socket)
        await receive(socket)
        view.add(inventory("n3", gpus=1))
        await view.tick(1)
        message = await receive(socket)
        while message["type"] != "rows":
            message = await receive(socket)
        assert message["version"] > first["version"]
        assert message["rows"]["node"] == ["n1", "n1", "n2", "n2", "n3"]
        assert len((await receive(socket))["columns"]["gpu_power_watts"]) == 5


async def test_only_rows_that_changed_are_sent_if_asked_for() -> None:
    """A number that is the same, and a gap with the same reason, is no change."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json({"columns": ["gpu_temperature_celsius", "gpu_module_power_watts"], "changes": True})
        await receive(socket)
        assert (await receive(socket))["only"] is None
        blocks = readings(view.fleet.nodes["n2"].inventory, 0)
        column = SCHEMA.blocks[GPU_FAST].names.index("gpu_temperature_celsius")
        blocks[GPU_FAST][0][column] = 71.5
        blocks[GPU_FAST][1][column] = DEVICE_LOST
        view.monotonic += 1
        view.put("n2", blocks, 1)
        await view.flush()
        data = await receive(socket)
        assert data["only"] == [2, 3]
        assert data["columns"] == {"gpu_temperature_celsius": [71.5, None], "gpu_module_power_watts": [None, None]}
        assert data["gaps"]["gpu_temperature_celsius"] == {"*": "device_lost"}
        assert (data["of"], data["reporting"]) == (4, 3)


async def test_packed_columns_are_the_same_readings_bit_for_bit() -> None:
    """Gauges in four bytes and counters in eight, and the reasons of the gaps beside them."""
    view = await small_cluster()
    columns = ["gpu_power_watts", "gpu_energy_joules_total", "gpu_fan_speed_ratio"]
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json({"columns": columns})
        await receive(socket)
        plain = await receive(socket)
        await socket.send_json({"columns": columns, "packed": True})
        message = await receive(socket)
        while message["type"] != "rows":
            message = await receive(socket)
        data = msgspec.msgpack.decode(await socket.receive_bytes(timeout=30))
        assert {key: data[key] for key in ("type", "version", "of", "only", "gaps")} == {
            key: plain[key] for key in ("type", "version", "of", "only", "gaps")
        }
        power, energy, fan = (data["columns"][name] for name in columns)
        assert list(struct.unpack("<4f", power)) == plain["columns"]["gpu_power_watts"]
        assert list(struct.unpack("<4d", energy)) == plain["columns"]["gpu_energy_joules_total"]
        assert [None if math.isnan(v) else v for v in struct.unpack("<4f", fan)] == (
            plain["columns"]["gpu_fan_speed_ratio"]
        )
        await socket.send_json({"columns": columns, "packed": True, "changes": True})
        await receive(socket)
        await socket.receive_bytes(timeout=30)
        await view.tick(1)
        few = msgspec.msgpack.decode(await socket.receive_bytes(timeout=30))
        assert len(few["columns"]["gpu_power_watts"]) == 4 * len(few["only"])


async def test_values_grow_stale_though_no_tick_comes() -> None:
    """A dead bus must be seen: silence is sent too."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json(POWER)
        await receive(socket)
        await receive(socket)
        view.monotonic += 10
        data = await receive(socket)
        assert data["columns"]["gpu_power_watts"] == [None] * 4
        assert data["gaps"] == {"gpu_power_watts": {"*": "stale"}}


async def test_ticks_between_are_left_out() -> None:
    """`every` 2 s of a cluster that ticks each second is every other tick."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json({**POWER, "every": 2})
        await receive(socket)
        ticks = [(await receive(socket))["tick"]]
        for number in range(1, 7):
            await view.tick(number)
            if number % 2 == 0:
                ticks.append((await receive(socket))["tick"])
    assert ticks == [1, 3, 5, 7]


async def test_alerts_and_events_come_if_asked_for_and_only_when_new() -> None:
    """Alerts as a whole when they change; events once each."""
    view = await small_cluster()
    view.happened = [Event(id="7-1", node="n1", at=1, kind="xid", data={"xid": 79})]
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json({**POWER, "alerts": True, "events": True})
        kinds = [await receive(socket) for _ in range(4)]
        assert [each["type"] for each in kinds] == ["rows", "data", "alerts", "events"]
        assert kinds[2]["alerts"] == []
        assert [each["id"] for each in kinds[3]["events"]] == ["7-1"]
        view.happened.insert(0, Event(id="7-2", node="n1", at=2, kind="gpu_lost"))
        view.raised = [Alert(key="a/n1/", rule="a", state=AlertState.FIRING, severity=Severity.PAGE, node="n1")]
        await view.tick(1)
        kinds = [await receive(socket) for _ in range(3)]
        assert [each["type"] for each in kinds] == ["data", "alerts", "events"]
        assert [each["id"] for each in kinds[2]["events"]] == ["7-2"]
        for tick in (2, 3):
            await view.tick(tick)
            assert (await receive(socket))["type"] == "data"


@pytest.mark.parametrize(
    ("request_text", "where", "cure"),
    [
        ('{"columns": ["gpu_powr_watts"]}', "columns", "Did you mean 'gpu_power_watts'?"),
        ('{"colums": []}', "request", "Did you mean 'columns'?"),
        ('{"every": 0.01}', "every", "Use 0.2 to 3600 seconds."),
        ('{"every": "fast"}', "every", "Send one JSON object."),
        ('{"table": "gpus"}', "table", "Did you mean 'gpu'? Write gpu, link, node, port or instance."),
        ('{"rows": {"nodes": [1]}}', "rows.nodes[0]", "Send one JSON object."),
        ("[" * 100_000, None, None),  # longer than a request may be: the socket is closed
        ("hello", "request", "Send one JSON object."),
    ],
)
async def test_a_bad_request_is_answered_and_the_one_before_goes_on(
    request_text: str, where: str | None, cure: str
) -> None:
    """With the key at fault, and the connection stays."""
    view = await small_cluster()
    async with door(view) as client, await connect(client) as socket:
        await socket.send_json(POWER)
        await receive(socket)
        await receive(socket)
        await socket.send_str(request_text)
        if where is None:
            message = await socket.receive(timeout=30)
            while message.type is aiohttp.WSMsgType.TEXT:
                message = await socket.receive(timeout=30)
            assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
            return
        answer = await receive(socket)
        while answer["type"] == "data":
            answer = await receive(socket)
        assert answer["type"] == "error"
        assert (answer["error"]["where"], answer["error"]["cure"]) == (where, cure)
        await view.tick(1)
        await receive_data(socket, 2)


async def test_binary_is_refused_with_words() -> None:
    """JSON is text."""
    async with door(await small_cluster()) as client, await connect(client) as socket:
        await socket.send_bytes(b"{}")
        assert (await receive(socket))["error"]["cure"] == "Send JSON as text."


async def test_who_does_not_speak_websocket_is_told_so() -> None:
    """426, not a hanging request."""
    async with door(await small_cluster()) as client:
        status, body, headers = await client.text("/api/v1/stream")
    assert (status, headers["Upgrade"]) == (426, "websocket")
    assert "ws://" in body


async def test_many_viewers_of_the_same_columns_share_one_message() -> None:
    """It is made once: the tick that all of them get is the very same text."""
    view = await small_cluster()
    async with door(view) as client:
        sockets = [await connect(client) for _ in range(5)]
        for socket in sockets:
            await socket.send_json(POWER)
            await receive(socket)
            await receive(socket)
        assert "stream_viewers 5\n" in (await client.text("/metrics"))[1]
        await view.tick(1)
        texts = {json.dumps(await receive_data(socket, 2)) for socket in sockets}
        assert len(texts) == 1
        for socket in sockets:
            await socket.close()


async def test_a_viewer_that_does_not_read_is_cut_off_and_holds_up_nobody() -> None:
    """Nothing is queued for it; the others go on; it is counted."""
    view = FakeView()
    view.add(inventory("n1"))
    view.fleet.place(inventory("wide", gpus=4000, links=0))
    config = HttpConfig(listen="127.0.0.1:0", slow_viewer_seconds=0.5)
    async with door(view, config) as client:
        slow, quick = await connect(client), await connect(client)
        await slow.send_json({"columns": ["*"], "every": 0.2})
        await quick.send_json({**POWER, "rows": {"nodes": ["n1"]}})
        assert (await receive(quick))["type"] == "rows"
        for tick in range(1, 400):
            await view.tick(tick)
            await receive_data(quick, tick)
            if "stream_viewers_dropped_total 1\n" in (await client.text("/metrics"))[1]:
                break
        else:
            pytest.fail("the slow viewer is still there")
        assert "stream_viewers 1\n" in (await client.text("/metrics"))[1]
        await slow.close()
        await quick.close()


async def test_viewers_are_told_when_the_server_goes() -> None:
    """Close code 1001: come again."""
    view = await small_cluster()
    async with aiohttp.ClientSession() as session:
        async with door(view) as client:
            client.session, own = session, client.session
            socket = await connect(client)
            client.session = own
            await socket.send_json(POWER)
            await receive(socket)
            reading = asyncio.create_task(_closing_code(socket))
        assert await reading == aiohttp.WSCloseCode.GOING_AWAY


async def _closing_code(socket: Socket) -> int | None:
    async for _ in socket:
        pass
    return socket.close_code
