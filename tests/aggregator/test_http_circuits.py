"""Circuits over HTTP, for Prometheus and on the bus: what is shown is what was computed."""

from __future__ import annotations

import asyncio
import copy
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from aggregator.http.circuit_metrics import circuit_families
from aggregator.mqtt.power_topics import PowerTopics, spoken
from alerts.rules.rule import load
from api.alerts import Alert, AlertState, Severity, Subject
from power.live import PowerSnapshots
from power.meters.sample import MeterSample
from power.snapshot.documents import circuit_states
from power.snapshot.quantities import QUANTITIES
from telemetry.runtime.isolation import Isolation, Parts
from telemetry.wire.exposition import render
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, door, small_cluster

# Each node's own meter says 5,123.5 W (`fake_view.value`).
SITE: dict[str, Any] = {
    "region": "US",
    "panels": {"main": {"volts": 240, "breaker": 200, "wiring": "split"}},
    "circuits": {
        "lab/1": {"panel": "main", "breaker": 40, "poles": 2, "pf": 1.0, "nodes": ["n1"]},
        "lab/2": {"panel": "main", "breaker": 20, "poles": 2, "pf": 1.0, "nodes": ["n2"]},
    },
    "nodes": {"n1": {"gpus": "2x H100 SXM"}, "n2": {"gpus": "2x H100 SXM"}},
    "budgets": {"all": {"circuits": ["lab/1", "lab/2"], "kw": 10}},
    "ups": {"u1": {"watts": 6000, "circuits": ["lab/1"]}},
}
AMPS = 5123.5 / 240
PARTS = Parts(Isolation(None), "page", 0.0)


async def lab(reread: Callable[[], dict[str, Any]] | None = None) -> FakeView:
    """Two nodes of two GPUs on two circuits of one panel, after a few ticks; an alert on one."""
    view = await small_cluster()
    view.electrical = ElectricalService(copy.deepcopy(SITE), Path("/nowhere"), reread)
    view.pipeline = AlertPipeline(load(), lambda *_: None, cluster="lab", now=0.0, wall=0)
    for seq in range(1, 6):
        await view.tick(seq)
        view.electrical.snapshots(view.fleet, view.now(), view.wall())
    view.raised = [
        Alert(
            key=f"E03/circuit/{name}",
            rule="circuit_overload",
            id="E03",
            state=state,
            name=name,
            severity=Severity.PAGE,
            node="",
            subject=Subject.CIRCUIT,
        )
        for name, state in (("lab/2", AlertState.FIRING), ("lab/1", AlertState.RESOLVED))
    ]
    return view


async def post(client: Door, path: str, body: object) -> tuple[int, Any]:
    """Send JSON."""
    async with client.session.post(client.url + path, json=body, headers=client.bearer) as answer:
        return answer.status, await answer.json()


async def test_the_tree_says_load_limits_and_when_it_trips() -> None:
    """21.3 A on both poles of 20 A: above the rating, so that there is a band; parents first."""
    async with door(await lab()) as client:
        _, body = await client.json("/api/v1/circuits")
    main, one, two = body["circuits"]
    assert [main["id"], one["id"], two["id"]] == ["main", "lab/1", "lab/2"]
    assert (main["kind"], one["parent"], main["watts"]) == ("panel", "main", pytest.approx(10_247))
    assert two["amps"] == {"L1": pytest.approx(AMPS, 0.01), "L2": pytest.approx(AMPS, 0.01)}
    assert (two["rated_amps"], two["continuous_amps"]) == (20, 16)
    assert two["headroom_amps"] == pytest.approx(16 - AMPS, abs=0.1)
    assert (two["source"], two["alerts"], one["alerts"]) == ("bmc", ["E03"], [])
    band = two["trip_seconds"]
    assert two["trip_known"]
    assert 0 < band["earliest"] < 3600
    assert band["latest"] is None  # 107 % may be carried for ever by the latest of breakers
    assert one["trip_seconds"] == {"earliest": None, "nominal": None, "latest": None}
    assert two["nodes"] == ["n2"]
    assert two["volts"] == 240


async def test_circuits_that_can_not_be_computed_are_no_empty_list_alone() -> None:
    """The answer has the reason, by columns too."""
    view = await lab()
    view.electrical.latest, view.electrical.failure = None, "a fault of kilowatch's own, ValueError"
    async with door(view) as client:
        for asked in ("", "?columns=circuit_watts"):
            _, body = await client.json(f"/api/v1/circuits{asked}")
            assert (body["circuits"], body["failure"]) == ([], view.electrical.failure)


async def test_what_alone_can_not_be_computed_is_named_beside_the_others() -> None:
    """The circuits stand, by columns too; of the past nothing is said."""
    view = await lab()
    view.electrical._aside.fail("node/n2", ValueError("no such phase"), view.now())
    named = {"node/n2": "ValueError: no such phase"}
    async with door(view) as client:
        for asked in ("circuits", "circuits?columns=circuit_watts", "power"):
            _, body = await client.json(f"/api/v1/{asked}")
            assert body["set_aside"] == named
        _, body = await client.json("/api/v1/circuits")
    assert [one["id"] for one in body["circuits"]] == ["main", "lab/1", "lab/2"]


async def test_a_meter_that_sends_nothing_is_not_called_well() -> None:
    """Neither before its first reading, though its broker is there, nor once it is silent; with where it should send."""
    view = await lab()
    plug = {"type": "tasmota", "topic": "tele/plug/SENSOR", "on": "lab/1"}
    view.electrical = ElectricalService({**SITE, "meters": {"plug": plug}}, Path("/nowhere"))
    found = []
    async with door(view) as client:
        for reads, later in ((False, 0), (True, 1), (False, 60)):
            if reads:
                view.electrical.meters._hub._records["plug"].add([MeterSample(watts=900.0)], view.now())
            view.monotonic += later
            _, body = await client.json("/api/v1/power")
            _, page, _ = await client.text("/metrics")
            (meter,) = body["meters"]
            well = 'power_meter_ok{cluster="lab",meter="plug",type="tasmota"} 1' in page
            found.append((meter["ok"], well, meter["error"]))
    never, fine, silent = found
    assert never[:2] == silent[:2] == (False, False)
    assert "tele/plug/SENSOR yet" in never[2]
    assert fine == (True, True, None)
    assert silent[2] == "nothing has come for 61 s"


async def test_a_meter_whose_readings_are_not_used_is_not_called_well() -> None:
    """A plug in kW beside two GPUs: why, and well again once it agrees with them."""
    view = await lab()
    plug = {"type": "json", "topic": "plug", "on": "node:n1"}
    view.electrical = ElectricalService({**SITE, "meters": {"plug": plug}}, Path("/nowhere"))
    found = []
    async with door(view) as client:
        for watts in (0.7, 900.0):
            for seq in range(20):
                await view.tick(10 + seq)
                view.electrical.meters._hub._records["plug"].add([MeterSample(watts=watts)], view.now())
                view.electrical.snapshots(view.fleet, view.now(), view.wall())
            _, body = await client.json("/api/v1/power")
            found.append((body["meters"][0]["ok"], body["meters"][0]["error"]))
    (refused, why), well = found
    assert not refused
    assert why.startswith("reads 0.7 W where the GPUs behind it measure ")
    assert re.search(r"\(kW taken for W\?\), for [0-9.]+ s; it is not used$", why)
    assert well == (True, None)


async def test_columns_say_the_same_in_a_tenth_of_the_words() -> None:
    """What a list of all circuits needs; never and not known are null."""
    names = ["circuit_watts", "circuit_load_ratio", "circuit_trip_earliest_seconds"]
    async with door(await lab()) as client:
        _, whole = await client.json("/api/v1/circuits")
        status, brief = await client.json(f"/api/v1/circuits?columns={','.join(names)}")
        _, all_ = await client.json("/api/v1/circuits?columns=*")
        unknown, fault = await client.json("/api/v1/circuits?columns=circuit_wats")
        twice, _ = await client.json("/api/v1/circuits?columns=circuit_watts,circuit_watts")
    assert (status, brief["circuits"], brief["version"]) == (200, [], whole["version"])
    assert "rows" not in whole
    circuits = whole["circuits"]
    for field in ("id", "kind", "parent", "nodes"):
        assert brief["rows"][field] == [each[field] for each in circuits]
    assert brief["columns"] == {
        "circuit_watts": [each["watts"] for each in circuits],
        "circuit_load_ratio": [each["load_ratio"] for each in circuits],
        "circuit_trip_earliest_seconds": [
            pytest.approx(each["trip_seconds"]["earliest"], abs=0.1) for each in circuits
        ],
    }
    assert brief["columns"]["circuit_trip_earliest_seconds"][:2] == [None, None]
    assert list(all_["columns"]) == [q.name for q in QUANTITIES if q.name.startswith("circuit_")]
    assert (unknown, twice) == (400, 400)
    assert "circuit_watts" in fault["error"]["cure"]


async def test_a_circuit_lists_the_alerts_that_speak_and_no_lesser_level_of_them() -> None:
    """As `/api/v1/alerts` distinguishes them: above its rating it is above nine tenths of it too."""
    view = await lab()
    view.pipeline = AlertPipeline(load([]), lambda *_: None, now=view.now(), wall=view.wall())
    states = PowerTopics("lab", ())
    for seq in range(6, 66):
        await view.tick(seq, seconds=5.0)
        snapshots = view.electrical.snapshots(view.fleet, view.now(), view.wall())
        assert snapshots is not None
        view.pipeline.evaluate(view.fleet, view.now(), view.wall(), (), listening=True, snapshots=snapshots.all())
    view.raised = list(view.pipeline.alerts())
    async with door(view) as client:
        _, said = await client.json("/api/v1/alerts?name=lab/2&state=firing&standing=told")
        _, hidden = await client.json("/api/v1/alerts?name=lab/2&state=firing&standing=inhibited")
        _, body = await client.json("/api/v1/circuits")
        _, own = await client.json("/api/v1/circuits/lab%2F2")
    assert "circuit_load" in {alert["rule"] for alert in hidden["alerts"]}
    wanted = sorted({alert["id"] for alert in said["alerts"]})
    assert wanted
    assert not {"E01"} & set(wanted)
    assert body["circuits"][2]["alerts"] == own["circuit"]["alerts"] == wanted
    states.show(view.electrical, spoken(view.alerts(), view.pipeline.manager.status), view.now())
    posted: dict[str, bytes] = {}

    def publish(topic: str, payload: bytes) -> bool:
        posted[topic] = payload
        return True

    states.send(publish, 1)
    (mine,) = (json.loads(one) for topic, one in posted.items() if "2/state" in topic)
    assert mine["state"]["alerts"] == wanted


async def test_one_circuit_is_asked_for_by_its_name() -> None:
    """A slash in it is written as %2F; a name that is none gets the nearest."""
    async with door(await lab()) as client:
        _, body = await client.json("/api/v1/circuits/lab%2F2")
        _, panel = await client.json("/api/v1/circuits/main")
        status, wrong = await client.json("/api/v1/circuits/lab%2F3")
    assert body["circuit"]["id"] == "lab/2"
    assert [row["id"] for row in body["supplies"]] == ["n2"]
    assert body["supplies"][0]["quantities"]["wall_watts"] == pytest.approx(5123.5)
    assert (panel["children"], len(panel["supplies"])) == (["lab/1", "lab/2"], 2)
    assert status == 404
    assert "lab/" in wrong["error"]["cure"]


async def test_budgets_ups_and_the_whole() -> None:
    """Each with what counts against it."""
    async with door(await lab()) as client:
        _, budgets = await client.json("/api/v1/budgets")
        _, ups = await client.json("/api/v1/ups")
        _, power = await client.json("/api/v1/power")
        _, report = await client.json("/api/v1/report")
    (budget,) = budgets["rows"]
    assert budget["quantities"]["power_ratio"] == pytest.approx(1.0247, rel=0.01)
    assert [row["id"] for row in ups["rows"]] == ["u1"]
    assert (power["configured"], power["circuits"], power["nodes_mapped"]) == (True, 3, 2)
    assert power["wall_watts"] == pytest.approx(10_247)
    assert (power["nodes_unmapped"], power["configuration"]["error"]) == ([], None)
    assert report["source"] == "running"
    assert report["gpus"] == {"NVIDIA H100 80GB HBM3": 4}
    assert report["verdict"] == "cluster"  # the simulated links join them
    assert report["sustained_watts"] == pytest.approx(10_247, rel=0.01)
    assert report["measured"]["kwh"] == pytest.approx(10.247 * 4 / 3600, rel=0.01)


async def test_without_circuits_the_answers_are_empty() -> None:
    """And say so."""
    async with door(await small_cluster()) as client:
        for path in ("circuits", "budgets", "ups"):
            _, body = await client.json(f"/api/v1/{path}")
            assert (body.get("circuits") or body.get("rows") or []) == []
        _, power = await client.json("/api/v1/power")
        status, fault = await post(client, "/api/v1/power/plan", {})
    assert power["configured"] is False
    assert (status, "there is no circuit" in fault["error"]["what"]) == (400, True)


async def test_what_if_starts_from_what_flows_now() -> None:
    """A node that is not named draws what it draws; a move takes it along; a cap lowers it."""
    async with door(await lab()) as client:
        _, now = await post(client, "/api/v1/power/plan", {})
        _, moved = await post(client, "/api/v1/power/plan", {"move": {"n2": "lab/1"}})
        _, less = await post(client, "/api/v1/power/plan", {"watts": {"n2": 1000}})
        _, more = await post(client, "/api/v1/power/plan", {"add": [["rtx-5090:2", "lab/1"]]})
        _, capped = await post(client, "/api/v1/power/plan", {"cap": 250})
    assert by_id(now, "lab/2")["watts"] == pytest.approx(5123.5, abs=1)
    assert {"E02", "E03"} <= set(by_id(now, "lab/2")["alerts"])
    assert by_id(now, "lab/2")["trip_seconds"]["earliest"] > 0
    assert by_id(moved, "lab/1")["watts"] == pytest.approx(2 * 5123.5, abs=1)
    assert by_id(moved, "lab/2")["watts"] == 0
    assert by_id(less, "lab/2")["watts"] == 1000
    assert by_id(more, "lab/1")["watts"] > 5123.5 + 2 * 575
    saved = 5123.5 - by_id(capped, "lab/2")["watts"]
    assert 2 * (700 - 250) <= saved < 1.2 * 2 * (700 - 250)  # of its two GPUs; the rest is measured


async def test_room_is_found_in_the_running_site() -> None:
    """A node counts with the limits in force, and with what it draws where its meter reads more."""
    async with door(await lab()) as client:
        status, body = await post(client, "/api/v1/power/fit", {"what": "500W", "feeds": 1})
        _, wrong = await post(client, "/api/v1/power/fit", {"what": "dgx-h1000"})
    assert status == 200
    places = {place["feeds"][0]: place for place in body["places"]}
    assert set(places) == {"lab/1", "lab/2"}
    assert places["lab/2"]["normal"]["limit"] == "continuous limit"
    assert places["lab/2"]["normal"]["watts"] == pytest.approx(16 * 240 - 5123.5 - 500, abs=5)
    assert (places["lab/2"]["fits"], places["lab/2"]["lost_with"]) == (False, "lab/2")
    assert body["machine_watts"] == 500
    assert "Did you mean" in json.dumps(wrong)


async def test_caps_are_planned_from_the_limits_in_force() -> None:
    """For each GPU of the inventory; a loss that was not measured is null."""
    async with door(await lab()) as client:
        status, body = await post(client, "/api/v1/power/cap", {"circuit": "lab/2", "below_watts": 5000})
        _, wrong = await post(client, "/api/v1/power/cap", {"circuit": "lab/9", "below_watts": 5000})
    assert status == 200
    assert body["from_watts"] >= 5123  # what its meter reads, and what its GPUs may draw beyond
    assert {cap["node"] for cap in body["caps"]} == {"n2"}
    assert [cap["index"] for cap in body["caps"]] == [0, 1]
    assert body["to_watts"] <= 5000 or body["met"] is False
    added = abs(body["to_watts"] - 5123.5)
    assert body["sigma_watts"] == pytest.approx(0.04 * 5123.5 + 0.12 * added, rel=0.01)
    assert body["verdict"].startswith("Yes, met with")
    assert {cap["throughput_loss"] for cap in body["caps"]} <= {None, 0.0}
    assert len(body["commands"]) == 2
    assert "lab/" in json.dumps(wrong)


async def test_caps_by_job_name_who_holds_each_gpu() -> None:
    """The free one first; without any list of jobs it is refused."""
    view = await lab()
    gpus = [gpu.uuid for gpu in view.fleet.nodes["n2"].inventory.gpus]
    key = JobKey("slurm", "lab", "4711")
    message = NodeJobs(
        session=7,
        version=1,
        at=view.wall(),
        jobs=(Job(key=key, user="ada"),),
        allocations=(Allocation(job=key, gpu=gpus[0], begin=1),),
    )
    asked = {"circuit": "lab/2", "below_watts": 4900, "by": "job"}
    async with door(view) as client:
        status, refused = await post(client, "/api/v1/power/cap", asked)
        assert (status, "who holds which GPU is not known" in json.dumps(refused)) == (400, True)
        view.jobs.receive("n2", msgspec.json.encode(message), set(gpus), view.wall())
        status, body = await post(client, "/api/v1/power/cap", asked)
    assert status == 200
    assert (body["caps"][0]["index"], body["caps"][0]["job"]) == (1, "")
    assert {cap["job"] for cap in body["caps"]} <= {"", "slurm 4711 of ada"}


async def test_what_only_the_meter_of_a_panel_sees_counts_in_plans_fits_and_caps() -> None:
    """30 kW beside its circuits: nothing fits below it, and a cap begins from the whole."""
    view = await lab()
    snapshots = view.electrical.latest
    assert snapshots is not None
    circuit = snapshots.circuit
    unknown = np.where(np.array(circuit.names) == "main", 30_000.0, 0.0)
    columns = {**circuit.columns, "circuit_unknown_watts": unknown}
    view.electrical.latest = replace(snapshots, circuit=replace(circuit, columns=columns))
    async with door(view) as client:
        _, plan = await post(client, "/api/v1/power/plan", {})
        _, cap = await post(client, "/api/v1/power/cap", {"circuit": "main", "below_watts": 20_000})
        _, fits = await post(client, "/api/v1/power/fit", {"what": "9kW", "feeds": 1})
    (main,) = [one for one in plan["panels"] if one["id"] == "main"]
    assert main["watts"] == pytest.approx(40_247, rel=0.01)
    assert cap["from_watts"] >= 40_000
    assert cap["met"] is False
    assert not any(one["fits"] for one in fits["places"])


async def test_caps_begin_from_the_feeds_that_are_there() -> None:
    """A feed that is lost carries nothing; it was planned with."""
    view = await lab()
    snapshots = view.electrical.latest
    assert snapshots is not None
    circuit = snapshots.circuit
    gone = np.where(np.array(circuit.names) == "lab/2", 1.0, 0.0)
    columns = {**circuit.columns, "circuit_feed_lost": gone}
    view.electrical.latest = replace(snapshots, circuit=replace(circuit, columns=columns))
    async with door(view) as client:
        _, one = await post(client, "/api/v1/power/cap", {"circuit": "lab/1", "below_watts": 5000})
        _, two = await post(client, "/api/v1/power/cap", {"circuit": "lab/2", "below_watts": 5000})
    assert one["from_watts"] > 5000
    assert two["from_watts"] == 0


def by_id(plan: dict[str, Any], name: str) -> dict[str, Any]:
    """One circuit of a plan."""
    found: dict[str, Any] = next(c for c in plan["circuits"] if c["id"] == name)
    return found


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"lose": ["lab/9"]}, "lab/9"),
        ({"wats": {}}, "wats"),
        ({"add": [["rtx-6090", "lab/1"]]}, "there is no GPU"),
        ({"cap": "low"}, "cap"),
    ],
)
async def test_a_wrong_supposition_is_a_400_with_its_place(body: object, words: str) -> None:
    """Never a traceback."""
    async with door(await lab()) as client:
        status, fault = await post(client, "/api/v1/power/plan", body)
    assert status == 400
    assert words in json.dumps(fault)


async def test_a_reload_is_told_what_is_wrong_and_health_warns() -> None:
    """200: the question was understood; the last good configuration is in force."""
    tree = copy.deepcopy(SITE)
    view = await lab(lambda: tree)
    tree = copy.deepcopy(SITE)
    tree["circuits"]["lab/2"]["panel"] = "mian"
    async with door(view) as client:
        status, body = await post(client, "/api/v1/power/reload", {})
        _, circuits = await client.json("/api/v1/circuits")
        _, health = await client.json("/healthz")
        _, page, _ = await client.text("/metrics")
        form = await client.session.post(f"{client.url}/api/v1/power/reload", data={"a": "b"}, headers=client.bearer)
        tree["circuits"]["lab/2"]["panel"] = "main"
        tree["circuits"]["lab/2"]["breaker"] = 30
        _, good = await post(client, "/api/v1/power/reload", {})
    assert status == 200
    assert "circuits.lab/2.panel" in body["error"]
    assert "Did you mean 'main'" in body["error"]
    assert len(circuits["circuits"]) == 3
    assert health["ok"]
    assert health["warnings"]
    assert 'kilowatch_power_configuration_ok{cluster="lab"} 0\n' in page
    assert form.status == 415
    assert (good["error"], good["version"]) == (None, 2)


async def test_every_quantity_is_a_metric_and_promtool_finds_nothing_to_say() -> None:
    """Poles are a label; what never comes is +Inf; what is not known is absent."""
    view = await lab()
    async with door(view) as client:
        _, page, _ = await client.text("/metrics")
    assert await asyncio.to_thread(promtool, page) == (0, "")
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("kilowatch_"))
    its = '{cluster="lab",circuit="lab/2"}'
    assert float(lines[f"kilowatch_circuit_watts{its}"]) == pytest.approx(5123.5)
    pole = '{cluster="lab",circuit="lab/2",pole="L2"}'
    assert float(lines[f"kilowatch_circuit_pole_amps{pole}"]) == pytest.approx(AMPS, 0.01)
    assert lines[f"kilowatch_circuit_trip_latest_seconds{its}"] == "+Inf"
    assert f"kilowatch_circuit_survivor_rated_ratio{its}" not in lines
    assert float(lines['kilowatch_supply_wall_watts{cluster="lab",node="n1"}']) > 0
    assert float(lines['kilowatch_budget_watts{cluster="lab",budget="all"}']) > 0
    names = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    counters = {f"kilowatch_{q.name}_total" for q in QUANTITIES if q.kind == "counter"}
    assert counters <= names


def promtool(page: str) -> tuple[int, str]:
    """What the linter of metric names has to say."""
    found = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True, check=False)
    return found.returncode, found.stdout + found.stderr


async def test_a_large_site_renders_while_others_are_served() -> None:
    """The page is made from power snapshots that no tick changes."""
    view = await lab()
    before = view.electrical.latest
    assert before is not None
    page = render(circuit_families(view.electrical, "lab", view.now(), PARTS))
    await view.tick(9)
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    assert view.electrical.latest is not before
    first = render(circuit_families(with_snapshots(view.electrical, before), "lab", view.now(), PARTS))
    own = [line for line in page.splitlines() if b"circuit_" in line]
    assert own == [line for line in first.splitlines() if b"circuit_" in line]


def with_snapshots(electrical: ElectricalService, snapshots: PowerSnapshots) -> ElectricalService:
    """The same, as it stood with these power snapshots."""
    found = copy.copy(electrical)
    found.latest = snapshots
    return found


async def test_never_and_not_known_are_null_in_json_and_told_apart() -> None:
    """`trip_known` says which."""
    view = await lab()
    snapshots, layout = view.electrical.latest, view.electrical.site.layout
    assert snapshots is not None
    assert layout is not None
    columns = dict(snapshots.circuit.columns)
    for edge in ("earliest", "nominal", "latest"):
        columns[f"circuit_trip_{edge}_seconds"] = np.array([np.nan, np.inf, 5.0])
    states = circuit_states(layout, replace(snapshots.circuit, columns=columns), {})
    assert [s.trip_known for s in states] == [False, True, True]
    assert [s.trip_seconds.earliest for s in states] == [None, None, 5.0]


async def test_states_stand_on_the_bus_and_are_said_again_when_they_change() -> None:
    """At first, at changes that a person would see, and every ten seconds."""
    view = await lab()
    states = PowerTopics("lab", ())
    standing: dict[str, bytes] = {}
    sent: list[str] = []

    def publish(topic: str, payload: bytes) -> bool:
        sent.append(topic)
        standing[topic] = payload
        return True

    def turn(now: float) -> list[str]:
        sent.clear()
        states.show(view.electrical, view.raised, now)
        states.send(publish, 1)
        return list(sent)

    topic = "kilowatch/1/lab/circuits/lab%2F2/state"
    assert len(turn(0)) == 5
    body = json.loads(standing[topic])
    assert (body["state"]["id"], body["state"]["alerts"]) == ("lab/2", ["E03"])
    assert (body["by"], body["at"]) == ("all", view.electrical.latest_at)
    assert turn(1) == []
    view.raised = []
    assert turn(2) == [topic]
    assert json.loads(standing[topic])["state"]["alerts"] == []
    view.electrical.latest_at += 1
    assert len(turn(11)) == 4  # all but the one that was said at 2 s


async def test_a_circuit_that_is_gone_is_cleared_from_the_bus() -> None:
    """Also what an earlier life left there, but nothing of another aggregator's."""
    tree = copy.deepcopy(SITE)
    view = await lab(lambda: tree)
    states = PowerTopics("lab", ())
    cleared: list[str] = []

    def publish(topic: str, payload: bytes) -> bool:
        cleared.extend([] if payload else [topic])
        return True

    states.receive("kilowatch/1/lab/circuits/old/state", b'{"by":"all","at":1}')
    states.receive("kilowatch/1/lab/circuits/theirs/state", b'{"by":"00-7f","at":1}')
    assert not states.receive("kilowatch/1/lab/1f/n1/frame", b"x")
    states.show(view.electrical, (), 0)
    states.send(publish, 1)
    assert cleared == ["kilowatch/1/lab/circuits/old/state"]
    del tree["circuits"]["lab/1"], tree["budgets"], tree["ups"]
    view.electrical.reload()
    await view.tick(9)
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    states.show(view.electrical, (), 1)
    states.send(publish, 1)
    assert set(cleared[1:]) == {
        "kilowatch/1/lab/circuits/lab%2F1/state",
        "kilowatch/1/lab/budgets/all/state",
        "kilowatch/1/lab/ups/u1/state",
    }
