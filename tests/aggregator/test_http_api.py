"""The JSON of the fleet, its nodes and GPUs: numbers as they were put in, gaps with reasons."""

from __future__ import annotations

import pytest

from api.alerts import Alert, AlertState, Severity
from telemetry.catalogue import CATALOGUE
from telemetry.devices import Event
from telemetry.gap import DEVICE_LOST
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import FakeView, inventory, readings
from tests.aggregator.http_client import door, small_cluster


async def test_the_fleet_is_told_by_columns() -> None:
    """Rows say who, columns how much, in the same order."""
    async with door(await small_cluster()) as client:
        status, body = await client.json("/api/v1/fleet?columns=gpu_power_watts,gpu_energy_joules_total")
    assert status == 200
    assert body["rows"]["uuid"] == ["GPU-n1-0", "GPU-n1-1", "GPU-n2-0", "GPU-n2-1"]
    assert body["rows"]["node"] == ["n1", "n1", "n2", "n2"]
    assert body["rows"]["gpu"] == [0, 1, 0, 1]
    assert body["columns"] == {
        "gpu_power_watts": [300.25, 301.25, 300.25, 301.25],
        "gpu_energy_joules_total": [123456789.125] * 4,
    }
    assert (body["of"], body["reporting"], body["gaps"]) == (4, 4, {})
    assert (body["cluster"], body["table"]) == ("lab", "gpu")


async def test_a_null_has_a_reason() -> None:
    """`*` is the commonest of a column, and a row number an exception."""
    view = await small_cluster()
    blocks = readings(view.fleet.nodes["n2"].inventory, 1)
    blocks[GPU_FAST][1] = [DEVICE_LOST] * len(SCHEMA.blocks[GPU_FAST].names)
    view.put("n2", blocks, 1)
    async with door(view) as client:
        _, body = await client.json("/api/v1/fleet?columns=gpu_module_power_watts,gpu_temperature_celsius")
        assert body["columns"]["gpu_temperature_celsius"] == [60, 61, 60, None]
        assert body["columns"]["gpu_module_power_watts"] == [None] * 4
        assert body["gaps"] == {
            "gpu_module_power_watts": {"*": "not_supported", "3": "device_lost"},
            "gpu_temperature_celsius": {"*": "device_lost"},
        }
        assert (body["of"], body["reporting"]) == (4, 3)
        view.monotonic += 4
        _, body = await client.json("/api/v1/fleet?columns=gpu_power_watts")
        assert body["columns"]["gpu_power_watts"] == [None] * 4
        assert body["gaps"] == {"gpu_power_watts": {"*": "stale"}}
        assert body["reporting"] == 0


async def test_the_fleet_can_be_asked_for_other_tables_and_some_nodes() -> None:
    """Nodes, links, and one node's GPUs; a '*' for all columns."""
    async with door(await small_cluster()) as client:
        _, body = await client.json("/api/v1/fleet?table=node&columns=node_wall_power_watts")
        assert body["rows"] == {"node": ["n1", "n2"]}
        assert body["columns"] == {"node_wall_power_watts": [5123.5, 5123.5]}
        _, body = await client.json("/api/v1/fleet?table=link&node=n2")
        assert body["rows"]["uuid"] == ["GPU-n2-0"] * 2 + ["GPU-n2-1"] * 2
        assert body["rows"]["link"] == [0, 1, 0, 1]
        assert body["rows"]["gpu"] == [0, 0, 1, 1]
        assert body["rows"]["peer"] == ["GPU-n2-1"] * 2 + ["GPU-n2-0"] * 2
        assert body["columns"] == {"link_state": [1] * 4}
        _, body = await client.json("/api/v1/fleet?columns=*&node=n1")
        assert set(body["columns"]) == {m.name for m in CATALOGUE if m.table == "gpu"}


async def test_an_empty_fleet_is_an_answer() -> None:
    """A dashboard may come before the first node."""
    async with door(FakeView()) as client:
        status, body = await client.json("/api/v1/fleet")
        assert (status, body["of"], body["reporting"]) == (200, 0, 0)
        assert body["columns"]["gpu_power_watts"] == []
        assert (await client.json("/api/v1/nodes"))[1]["nodes"] == []


@pytest.mark.parametrize(
    ("query", "status", "where", "cure"),
    [
        ("columns=gpu_powr_watts", 400, "columns", "Did you mean 'gpu_power_watts'?"),
        ("columns=node_load_1m", 400, "columns", "/api/v1/catalogue"),
        ("columns=gpu_power_watts,gpu_power_watts", 400, "columns", "each once"),
        ("table=gpus", 400, "table", "Did you mean 'gpu'?"),
        ("colums=gpu_power_watts", 400, "query colums", "Did you mean 'columns'?"),
        ("node=n1&node=n2", 400, "node", "commas"),
        ("node=n9", 404, "node", "Known: n1, n2."),
        ("node=n11", 404, "node", "Did you mean 'n1'?"),
    ],
)
async def test_a_wrong_question_is_answered_with_the_right_one(query: str, status: int, where: str, cure: str) -> None:
    """Where, what, and the nearest that exists."""
    async with door(await small_cluster()) as client:
        got, body = await client.json(f"/api/v1/fleet?{query}")
    assert got == status
    assert body["error"]["where"] == where
    assert cure in body["error"]["cure"]


async def test_a_wrong_uuid_in_a_large_fleet_is_answered_at_once_with_the_nearest() -> None:
    """Only names that are alike are compared: 20,000 would take a second."""
    view = FakeView()
    for number in range(400):
        view.add(inventory(f"n{number:03}", gpus=8, links=0))
    async with door(view) as client:
        status, body = await client.json("/api/v1/gpus/GPU-n399-x7")
        assert (status, body["error"]["cure"]) == (404, "Did you mean 'GPU-n399-7'?")
        _, body = await client.json("/api/v1/gpus/xyzzy")
        assert body["error"]["cure"] == ""


async def test_nodes_are_listed_with_their_standing() -> None:
    """Online, stale or offline, and since when."""
    view = await small_cluster()
    view.add(inventory("n3"))
    view.fleet.nodes["n2"].online = False
    view.monotonic += 1.5
    async with door(view) as client:
        _, body = await client.json("/api/v1/nodes")
    found = {node["node"]: node for node in body["nodes"]}
    assert {name: node["state"] for name, node in found.items()} == {"n1": "online", "n2": "offline", "n3": "stale"}
    assert {name: node["age_seconds"] for name, node in found.items()} == {"n1": 1.5, "n2": 1.5, "n3": None}
    assert found["n3"]["sampled_at"] is None
    assert (found["n1"]["gpus"], found["n1"]["driver_version"]) == (2, "595.10")


async def test_a_node_is_told_with_all_its_gpus() -> None:
    """Readings by name in base units, gaps by reason; together they are the catalogue."""
    view = await small_cluster()
    alert = Alert(
        key="hot/n1/GPU-n1-0", rule="hot", state=AlertState.FIRING, severity=Severity.PAGE, node="n1", gpu="GPU-n1-0"
    )
    view.raised = [alert]
    async with door(view) as client:
        _, body = await client.json("/api/v1/nodes/n1")
        _, other = await client.json("/api/v1/nodes/n2")
        status, fault = await client.json("/api/v1/nodes/m1")
    assert body["node"]["state"] == "online"
    assert body["readings"]["node_wall_power_watts"] == 5123.5
    first = body["gpus"][0]
    assert first["gpu"]["uuid"] == "GPU-n1-0"
    assert first["readings"]["gpu_utilization_ratio"] == 0.67
    assert first["gaps"] == {"gpu_fan_speed_ratio": "not_supported", "gpu_module_power_watts": "not_supported"}
    known = set(first["readings"]) | set(first["gaps"])
    assert known == {metric.name for metric in CATALOGUE if metric.table == "gpu"}
    assert [each["key"] for each in body["alerts"]] == ["hot/n1/GPU-n1-0"]
    assert other["alerts"] == []
    assert (status, fault["error"]["where"]) == (404, "node")


async def test_a_gpu_is_told_with_its_links_events_and_alerts() -> None:
    """Only its own."""
    view = await small_cluster()
    view.happened = [
        Event(id="7-2", node="n1", at=2, kind="xid", gpu="GPU-n1-1", data={"xid": 79}),
        Event(id="7-1", node="n1", at=1, kind="xid", gpu="GPU-n1-0", data={"xid": 31}),
    ]
    async with door(view) as client:
        _, body = await client.json("/api/v1/gpus/GPU-n1-1")
        status, fault = await client.json("/api/v1/gpus/GPU-n1-2")
    assert body["node"]["node"] == "n1"
    assert body["gpu"]["index"] == 1
    assert body["readings"]["gpu_power_watts"] == 301.25
    assert [each["link"]["number"] for each in body["links"]] == [0, 1]
    assert body["links"][0]["readings"]["link_state"] == 1
    assert [each["id"] for each in body["events"]] == ["7-2"]
    assert (status, fault["error"]["where"]) == (404, "uuid")


async def test_a_stale_gpu_has_gaps_and_no_numbers() -> None:
    """Fast readings are stale after three intervals, slow ones after three of theirs."""
    view = await small_cluster()
    view.monotonic += 5
    async with door(view) as client:
        _, body = await client.json("/api/v1/gpus/GPU-n1-0")
    assert body["gaps"]["gpu_power_watts"] == "stale"
    assert "gpu_power_watts" not in body["readings"]
    assert body["readings"]["gpu_power_limit_watts"] == 700


async def test_alerts_are_told_and_can_be_chosen() -> None:
    """By state, severity, node and GPU."""
    view = await small_cluster()
    view.raised = [
        Alert(key="a/n1/", rule="a", state=AlertState.FIRING, severity=Severity.PAGE, node="n1"),
        Alert(key="b/n2/", rule="b", state=AlertState.PENDING, severity=Severity.INFO, node="n2", value=1.5),
    ]
    async with door(view) as client:
        assert len((await client.json("/api/v1/alerts"))[1]["alerts"]) == 2
        _, body = await client.json("/api/v1/alerts?state=firing&severity=page&node=n1")
        assert [each["rule"] for each in body["alerts"]] == ["a"]
        assert (await client.json("/api/v1/alerts?node=n1&state=pending"))[1]["alerts"] == []
        status, body = await client.json("/api/v1/alerts?state=fireing")
    assert (status, body["error"]["cure"]) == (400, "Did you mean 'firing'?")


async def test_status_is_what_a_dashboard_heads_with() -> None:
    """Release, cluster, counts, ages, sums, counters."""
    view = await small_cluster()
    view.monotonic += 2
    async with door(view) as client:
        _, body = await client.json("/api/v1/status")
    assert (body["cluster"], body["nodes"], body["gpus"]) == ("lab", 2, 4)
    assert body["newest_frame_age_seconds"] == 2
    assert body["summary"]["nodes"] == {"online": 2, "stale": 0, "offline": 0, "unheard": 0}
    assert body["summary"]["gpu_power_watts"] == 1203
    assert body["summary"]["wall_power_watts"] == 10247
    assert body["stats"]["frames_stored"] == 2
    assert body["alerts"] == {"pending": 0, "firing": 0, "resolved": 0}


async def test_an_answer_says_which_members_it_lacks() -> None:
    """In its body and its head; what this aggregator says of itself lacks nobody."""
    view = await small_cluster()
    async with door(view) as client:
        for path in ("status", "nodes", "fleet", "events"):
            assert (await client.json(f"/api/v1/{path}"))[1]["missing"] == []
        view.missing = ["agg-2: 25 groups"]
        view.fleet.nodes["n2"].unheard = True
        for path in ("status", "nodes", "fleet", "events"):
            assert (await client.json(f"/api/v1/{path}"))[1]["missing"] == ["agg-2: 25 groups"]
        _, body = await client.json("/api/v1/nodes")
        assert [each["state"] for each in body["nodes"]] == ["online", "unheard"]
        heads = [(await client.text(path))[2].get("Kilowatch-Missing") for path in ("/metrics", "/nodes", "/healthz")]
        assert heads == ["agg-2: 25 groups", "agg-2: 25 groups", None]
        page = (await client.text("/nodes"))[1]
    assert "no answer: agg-2: 25 groups" in page
    assert "unheard" in page


async def test_the_catalogue_is_told_whole() -> None:
    """Every metric with unit, help, span and the words of its numbers."""
    async with door(FakeView()) as client:
        _, body = await client.json("/api/v1/catalogue")
    found = {metric["name"]: metric for metric in body["metrics"]}
    assert list(found) == [metric.name for metric in CATALOGUE]
    assert found["gpu_power_watts"]["unit"] == "watts"
    assert found["gpu_power_watts"]["span"] == [0, 1200]
    assert found["link_state"]["states"]["1"] == "active"
