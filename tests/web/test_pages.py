"""What the server sends as pages: their content, who may see it, and what is not in them."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
import numpy as np
import pytest
from aiohttp import web

from aggregator.electrical.service import ElectricalService
from aggregator.http.config import HttpConfig
from aggregator.web import frame, overview_tiles
from aggregator.web.circuit_list import circuits_body
from aggregator.web.circuit_page import circuit_body
from aggregator.web.content import PageContent
from aggregator.web.device_pages import _of_each
from aggregator.web.fleet_map import MapForm, NodeCells, fleet_map
from aggregator.web.frame import CSP, MENU, PAGES
from aggregator.web.incident_page import incident_body
from aggregator.web.keyed_parts import PagePart, changes, parts_of
from aggregator.web.live_pages import LivePages
from aggregator.web.load_chart import LoadSeries, load_chart
from aggregator.web.node_list import NodeLine, nodes_body
from api.alerts import AlertState, Incident, IncidentNote, Severity
from api.fleet import NodeReply, NodeStatus
from api.node_register import ReleaseDrift
from api.power import CircuitReply, CircuitState, LoadState, PowerReply, TripSeconds
from bench.live_fleet import LiveFleet
from present.device.gpu import CLOCK_LIMITS
from telemetry.text import rfc3339
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import Door, bearer, door
from tests.aggregator.test_http_alerts import hot
from tests.aggregator.test_http_circuits import SITE, lab
from tests.alerts.notices import MINUTE, NOON, alert, incident
from tests.alerts.test_evidence import card, reply
from tests.kit.waiting import until

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
ANEW = {"Cache-Control": "max-age=0"}
"""As a browser sends it when a person loads a page again."""
VOID = {"meta", "link", "input", "base", "line", "rect", "path", "br"}


class Page(HTMLParser):
    """Parsed HTML: its links, texts, and what must not be there."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.base = ""
        self.words: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(body)
        self.faults += [f"<{tag}> stays open" for tag in self._open]

    @property
    def text(self) -> str:
        """Everything that is read."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, inline scripts and styles, and elements that take their files from elsewhere."""
        found = dict(attrs)
        self.faults += [f"{tag} has {name}" for name in found if name == "style" or name[:2] == "on"]
        if tag == "script" and not found.get("src"):
            self.faults.append("a script in the page")
        if tag == "base":
            self.base = found["href"] or ""
        for name in ("href", "src", "action"):
            if (way := found.get(name)) is not None and tag != "base":
                self.links.append(way)
                if urlsplit(way).netloc or way.startswith("/"):
                    self.faults.append(f"{tag} leads to {way}")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Note what is closed in the wrong order."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes another element")

    def handle_data(self, data: str) -> None:
        """Keep what is read."""
        self.words.append(data)


async def read(client: Door, path: str, headers: dict[str, str] | None = None) -> Page:
    """Return a page that must be there."""
    status, body, sent = await client.text(path, headers={**ANEW, **(headers or {})})
    assert status == 200, (path, status, body)
    assert sent["Content-Security-Policy"] == CSP
    assert "unsafe" not in CSP
    page = Page(body)
    assert page.faults == [], path
    return page


async def crawled(client: Door, first: str) -> dict[str, Page]:
    """Return every page that can be reached by links; each must be there."""
    found: dict[str, Page] = {}
    waiting = deque([first])
    while waiting:
        path = waiting.popleft()
        if path in found or (path.startswith("/runbook/") and len(found) > 60):
            continue
        page = found[path] = await read(client, path)
        for link in page.links:
            whole = urljoin(urljoin(f"http://x{path}", page.base), link)
            way = whole.removeprefix("http://x").partition("#")[0]
            if way.startswith("/static/"):
                assert (await client.text(way))[0] == 200, way
            elif way != path:
                waiting.append(way)
    return found


async def test_every_link_of_every_page_leads_somewhere() -> None:
    async with door(await lab()) as client:
        found = await crawled(client, "/")
    assert {f"/{way}" for way in MENU} - found.keys() == {"/jobs"}, "no node has said a word of jobs"
    assert "/circuits/lab%2F2" in found
    assert "/alerts?view=silences" in found
    assert any(path.startswith("/runbook/") for path in found)
    assert any(path.startswith("/gpus/") for path in found)


async def test_circuits_are_a_tree_with_the_most_urgent_first() -> None:
    async with door(await lab()) as client:
        page = await read(client, "/circuits")
        names = [link for link in page.links if link.startswith("circuits/")]
        assert names == ["circuits/main", "circuits/lab%2F2", "circuits/lab%2F1"]
        assert "may trip in" in page.text
        assert "E03" in page.text
        assert "measured" in page.text
        only = await read(client, "/circuits?q=N1")
        assert [link for link in only.links if link.startswith("circuits/")] == ["circuits/main", "circuits/lab%2F1"]
        one = await read(client, "/circuits/lab%2F2?lose=1")
        assert "Without power then: n2" in one.text
        assert "fed by main" in one.text
        assert (await client.text("/circuits/none"))[0] == 404
        assert (await client.text("/circuits?x=1"))[0] == 400


async def test_devices_show_readings_and_the_reasons_of_gaps() -> None:
    view = await lab()
    view.raised = [alert(node="n2", gpu=1, severity=Severity.TICKET)]
    async with door(view) as client:
        listed = await read(client, "/nodes")
        assert [way for way in listed.links if way.startswith("nodes/")] == ["nodes/n2", "nodes/n1"]
        only = await read(client, "/nodes?q=N1")
        assert [way for way in only.links if way.startswith("nodes/")] == ["nodes/n1"]
        one = await read(client, "/nodes/n2")
        assert "GPU 1" in one.text
        assert "305 W" in one.text
        assert "lab simulated Overview" in one.text  # beside the name of the cluster, on every page
        gpu = await read(client, "/gpus/GPU-n1-0")
        assert "power 305 W" in gpu.text
        assert (await client.text("/nodes/none"))[0] == 404
        assert (await client.text("/gpus/none"))[0] == 404
        assert (await client.text("/nodes?sort=none"))[0] == 400
        assert (await client.text("/?map=none"))[0] == 400


def unknown(**more: object) -> CircuitState:
    """A circuit of which nothing is known by now."""
    known = CircuitState(
        id="office",
        watts=1234.5,
        load_ratio=0.617,
        sustained_ratio=0.617,
        rated_amps=20,
        continuous_amps=16,
        load_state=LoadState.UNKNOWN,
        load_state_seconds=300.0,
        assumed_watts=1234.5,
        amps={"L1": 12.34},
        trip_seconds=TripSeconds(41.0),
        source="committed",
    )
    return msgspec.structs.replace(known, **more)


@pytest.mark.parametrize("whole", [False, True], ids=["list", "page"])
def test_an_unknown_load_is_never_a_number(whole: bool) -> None:
    def drawn(circuit: CircuitState) -> str:
        if whole:
            return circuit_body(CircuitReply(at=1, circuit=circuit), 0, "", "")
        return circuits_body([circuit], {}, PowerReply(configured=True))

    text = Page(drawn(unknown())).text
    assert "unknown" in text
    assert "5 min" in text
    for number in ("1.2 kW", "1234", "62%", "12.3", "41 s"):
        assert number not in text, number
    known = Page(drawn(unknown(load_state=LoadState.ASSUMED))).text
    assert "~1.2 kW" in known
    assert "~62%" in known
    assert "assumed for 5 min" in known


def test_no_circuits_are_said_with_their_reason() -> None:
    assert "No circuits are configured" in circuits_body([], {}, PowerReply())
    assert "not computed yet" in circuits_body([], {}, PowerReply(configured=True))
    broken = circuits_body([], {}, PowerReply(configured=True, failure="division by zero"))
    assert "division by zero" in broken


def test_many_circuits_are_pages_the_most_urgent_first() -> None:
    """All of them is a page of fourteen thousand elements, which follows for a tenth of a second every two."""
    circuits = [unknown(id=f"c{number:03}") for number in range(230)]
    power = PowerReply(configured=True)
    first, last = (Page(circuits_body(circuits, {"c229": 2}, power, "c", page=number)) for number in (1, 9))
    shown = [link for link in first.links if link.startswith("circuits/")]
    assert (len(shown), shown[0]) == (50, "circuits/c229")
    assert "230 circuits of 230, page 1 of 5" in first.text
    assert "circuits?page=2&q=c" in first.links
    assert len([link for link in last.links if link.startswith("circuits/")]) == 30
    assert first.faults == []


def test_a_load_that_grows_a_little_changes_its_cells_alone() -> None:
    """No circuit changes its place for a percent, and no bar is drawn anew for a part of one."""

    def drawn(second: float) -> PagePart:
        loads = {"a": 0.52, "b": second, "c": 0.31}
        calm = {
            "load_state": LoadState.MEASURED,
            "load_state_seconds": 3600.0,
            "trip_seconds": TripSeconds(),
            "assumed_watts": None,
        }
        circuits = [
            unknown(
                id=name,
                watts=2000 * ratio,
                load_ratio=ratio,
                sustained_ratio=ratio,
                continuous_ratio=ratio / 0.8,
                **calm,
            )
            for name, ratio in loads.items()
        ]
        return parts_of(circuits_body(circuits, {}, PowerReply(configured=True)))

    before = drawn(0.512)
    little, more = changes(drawn(0.514), before), changes(drawn(0.535), before)
    assert list(little) == ["rows/circuits/b/headroom"]
    assert set(more) == {f"rows/circuits/b/{part}" for part in ("load", "share", "bar", "headroom")}
    assert list(changes(drawn(0.95), before)) == ["rows"], "one that comes near to its limit goes up"


def test_what_alone_can_not_be_computed_is_said_above_the_circuits() -> None:
    power = PowerReply(configured=True, set_aside={"ups/u1": "KeyError: 'u1'", "circuits/trips": EVIL})
    page = Page(circuits_body([unknown(id="lab")], {}, power))
    assert "UPS u1 can't be computed, and the others go on: KeyError: 'u1'" in page.text
    assert "Trips of the circuits can't be computed" in page.text
    assert "lab" in page.text


async def test_an_incident_has_what_the_pager_links_to(tmp_path: Path) -> None:
    """By its whole key, and when it is over too; who acknowledged it, and what was sent when."""
    async with hot(tmp_path) as client:
        (found,) = (await client.get("/api/v1/incidents"))["incidents"]
        listed = await read(client.door, "/alerts")
        (way,) = [link for link in listed.links if link.startswith("incidents/")]
        page = await read(client.door, f"/{way}")
        assert found["title"] in page.text
        assert "not acknowledged" in page.text
        assert "notified (it is new)" in page.text
        assert "runbook/hot" in page.links
        await client.send("POST", f"/api/v1/incidents/{found['key']}/ack", {"why": "<b>mine</b>"})
        page = await read(client.door, f"/{way}")
        assert "acknowledged by ann" in page.text
        assert "<b>mine</b>" in page.text
        filtered = await read(client.door, "/alerts?rule=none")
        assert found["title"] not in filtered.text
        assert "None of these is open." in filtered.text, "a mistyped name is no clean bill"
        single = await read(client.door, "/alerts?view=alerts&severity=page")
        assert "93 °C" in single.text
        scene = client.stage.scene
        scene.set(60.0, 60.0)
        await until(lambda: "resolved" in client.stage.pager.state.values())
        await client.stage.delivery.saved(10)
        past = await read(client.door, "/alerts?view=past")
        assert way in past.links
        assert "over" in (await read(client.door, f"/{way}")).text
        assert (await client.door.text("/incidents/none"))[0] == 404
        assert (await client.door.text("/alerts?view=none"))[0] == 400


async def test_pages_are_read_only() -> None:
    """Changes are operations of the API, with their scope."""
    async with door(await lab()) as client:
        for route in PAGES:
            path = re.sub(r"\{.*\}", "n1", route)
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                status, _, headers = await client.text(path, method=method, headers=client.bearer)
                assert (status, headers.get("Allow")) == (405, "GET, HEAD, OPTIONS"), path


async def test_without_a_token_a_page_elsewhere_has_no_data(tmp_path: Path) -> None:
    """Not even the name of the cluster: only a form for the token."""
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=tmp_path / "t", anonymous_read=False)
    view = await lab()
    async with door(view, config) as client:
        for path in ("/", "/circuits", "/alerts", "/circuits/none"):
            status, body, headers = await client.text(path)
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            page = Page(body)
            assert page.faults == []
            assert "A token with the scope read is needed" in page.text
            assert view.cluster not in page.text
        page = await read(client, "/circuits", client.bearer)
        assert "lab/2" in page.text
        status, body, _ = await client.text("/circuits", headers=bearer("wrong"))
        assert status == 401
        assert "lab/2" not in body


async def test_who_reads_anonymously_sees_nothing_of_people(tmp_path: Path) -> None:
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t", anonymous_read=True)
    async with hot(tmp_path / "hot", config) as client:
        (found,) = (await client.get("/api/v1/incidents"))["incidents"]
        path = f"/api/v1/incidents/{found['key']}/ack"
        await client.send("POST", path, {"why": "dinner with berta"})
        page = await read(client.door, f"/incidents/{found['key']}")
        assert "acknowledged" in page.text
        assert "berta" not in page.text
        known = await read(client.door, f"/incidents/{found['key']}", client.door.bearer)
        assert "berta" in known.text


async def test_no_page_quotes_a_person_to_who_reads_anonymously(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Titles and descriptions of incidents name jobs and users; what is hidden is not found either."""
    view = await lab()
    about = alert(node="n1", labels={"user": "berta", "job": "llama7"})
    about = msgspec.structs.replace(about, summary="job llama7 of berta stalls", description="Ask berta about llama7.")
    monkeypatch.setattr(view.pipeline.manager, "incidents", lambda: [incident(alerts=[about])])
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t", anonymous_read=True)
    async with door(view, config) as client:
        for path in ("/", "/alerts", "/find?q=stalls", "/find?q=berta", "/find?q=llama7"):
            page = await read(client, path)
            shown = (
                page.text.replace("'berta'", "")
                .replace("'llama7'", "")
                .replace("Find berta", "")
                .replace("Find llama7", "")
            )
            assert not re.search("berta|llama7", shown), path
            known = await read(client, path, client.bearer)
            assert "job llama7 of berta stalls" in known.text, path


def hostile() -> Iterator[str]:
    """Content made of hostile texts."""
    bad = alert(node=EVIL, labels={"job": EVIL, "rack": EVIL, "serial": EVIL})
    bad = msgspec.structs.replace(bad, summary=EVIL, description=EVIL, value_text=EVIL, rule="x")
    about = msgspec.structs.replace(
        incident(alerts=[bad]), title=EVIL, acknowledged=IncidentNote(who=EVIL, why=EVIL, at=NOON)
    )
    evidence = msgspec.structs.replace(card(), summary=EVIL, node=EVIL)
    yield incident_body(about, None, reply(evidence), NOON + MINUTE)
    yield incident_body(about, None, reply(problem=EVIL), NOON + MINUTE)
    circuit = unknown(id=EVIL, facts={"remedy": EVIL, "band": EVIL}, nodes=[EVIL], alerts=[EVIL])
    power = PowerReply(configured=True, failure=EVIL)
    yield circuits_body([circuit], {EVIL: 2}, power, EVIL)
    yield circuit_body(CircuitReply(at=1, circuit=circuit, children=[EVIL]), 2, "", "")


def test_hostile_names_are_text() -> None:
    for body in hostile():
        page = Page(body)
        assert page.faults == []
        assert "<script>alert(1)</script>" in page.text
        assert "<img" not in body


def test_a_card_shows_clock_times_readings_and_gaps() -> None:
    lead = msgspec.structs.replace(alert(), state=AlertState.FIRING)
    about: Incident = incident(alerts=[lead])
    body = incident_body(about, None, reply(card()), NOON + 5 * MINUTE)
    page = Page(body)
    assert page.faults == []
    assert "12:00:00Z" in page.text
    assert 'class="spark"' in body
    assert "temperature: 61 °C to 92 °C, last device lost" in page.text
    assert re.search(r'<path d="M[^"]*M', body), "the gap between two readings is drawn over"
    assert "device lost" in page.text
    assert about.severity is Severity.PAGE


async def test_behind_a_prefix_all_links_stay_below_it() -> None:
    """A proxy takes the prefix away: every page must find its way back by relative links."""
    async with door(await lab()) as client:
        for path in ("/", "/circuits", "/circuits/lab%2F2", "/runbook/gpu_lost"):
            page = await read(client, path)
            root = urljoin(f"https://proxy.example/gpu/kilowatch{path}", page.base)
            assert root == "https://proxy.example/gpu/kilowatch/"
            for link in page.links:
                assert urljoin(root, link).startswith(root), link


async def test_links_of_the_shipped_prometheus_rules_lead_to_a_place_of_the_runbook() -> None:
    """`kilowatch init` writes them as they are; they led to no machine."""
    shipped = "".join(one.read_text() for one in (Path(__file__).parents[2] / "deploy/prometheus").glob("*.rules.yml"))
    links = set(re.findall(r'runbook_url: "(.*)"', shipped))
    assert len(links) > 100
    assert {each.partition("#")[0] for each in links} == {"http://127.0.0.1:9400/runbook"}
    async with door(await lab()) as client:
        _, page, _ = await client.text("/runbook")
    places = re.findall(r'<span id="([\w-]+)"', page)
    assert {each.partition("#")[2] for each in links} <= set(places)
    assert len(places) == len(set(places))


async def test_pages_are_compressed_where_that_pays_and_files_are_kept() -> None:
    view: FakeView = await lab()
    async with door(view) as client:
        status, _, headers = await client.text("/runbook", headers={"Accept-Encoding": "gzip"})
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        status, _, headers = await client.text("/static/pages.js")
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/javascript")
        assert headers["Cache-Control"] == "max-age=86400", "its URL names no version"
        assert headers["Content-Encoding"] == "gzip", "the client accepts it"
        plain = await client.text("/static/pages.js", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain[2]
        page = await read(client, "/")
        (script,) = [link for link in page.links if link.startswith("static/pages.js")]
        _, _, headers = await client.text(f"/{script}")
        assert headers["Cache-Control"] == "max-age=86400, immutable"
        for path in ("/static/none", "/static/..%2Fframe.py", "/static/../frame.py"):
            assert (await client.text(path))[0] == 404


def test_a_chart_leaves_out_unknown_highs_and_stays_within_its_axes() -> None:
    step = 60 * 10**9
    at = [n * step for n in range(4)]
    series = LoadSeries(at, [10.0, 10.0, -5.0, 10.0], [12.0, None, -4.0, 12.0], "W", step)
    body = load_chart(series, 0, 4 * step, [], "load")
    (high,) = re.findall(r'class="high" d="([^"]*)"', body)
    assert (high.count("M"), high.count("L")) == (2, 1)
    (line_path,) = re.findall(r'class="line" d="([^"]*)"', body)
    heights = [float(one.split()[1]) for one in re.split("[ML]", f"{line_path} {high}") if one]
    assert max(heights) == 100.0, "the bottom of the plot"


def test_a_chart_hatches_what_is_not_known_and_stretches_no_word() -> None:
    """Hatches lie before the first reading, between two and after the last; a hole of one reading is none."""
    step = 60 * 10**9
    at = [n * step for n in (4, 5, 7, 14, 15)]
    series = LoadSeries(at, [10.0, 10.0, 12.0, 9.0, 9.0], [None] * 5, "W", step)
    body = load_chart(series, 0, 20 * step, [("limit", 15.0)], "load")
    found = re.findall(r'class="qx" x="([\d.]+)%" width="([\d.]+)%"', body)
    assert [(float(x), float(width)) for x, width in found] == [(0, 20), (40, 30), (80, 20)]
    assert body.count(">not known<") == 3
    outside, _, plot = body.partition("<svg y=")
    assert "viewBox" not in outside, "words stand where nothing is stretched"
    assert "<text" not in plot.partition("</svg>")[0]


def heights(body: str) -> list[float]:
    """How far down the points of a chart's line are, in units of the view box."""
    (line_path,) = re.findall(r'class="line" d="([^"]*)"', body)
    return [float(one.split()[1]) for one in re.split("[ML]", line_path) if one]


def ticks(body: str, unit: str) -> list[float]:
    """The numbers beside the axis of a chart."""
    return [float(one) for one in re.findall(rf'dy="-3">(-?[\d.]+) {unit}<', body)]


@pytest.mark.parametrize("caption", [None, "the same as the others"])
def test_a_chart_that_waits_for_its_first_reading_has_its_place(caption: str | None) -> None:
    """Else the charts below it move by a quarter of a screen when the store has its first readings."""
    step = 15_000_000_000
    body = load_chart(LoadSeries([], [], [], "°C", step), 0, 40 * step, [], "temperature", caption=caption, empty=True)
    filled = load_chart(LoadSeries([0], [50.0], [51.0], "°C", step), 0, 40 * step, [], "temperature", caption=caption)
    assert body[: body.index("<svg")] == filled[: filled.index("<svg")]
    assert "temperature: nothing of this time is stored" in body
    assert re.findall(r'<rect class="qx" x="([^"]+)" width="([^"]+)"', body) == [("0.00%", "100.00%")]
    assert "<path" not in body
    absent = load_chart(LoadSeries([], [], [], "°C", step), 0, 40 * step, [], "temperature", caption=caption)
    assert "<svg" not in absent, "a quantity that a device lacks"


def test_temperatures_and_clocks_fill_their_chart_and_power_begins_at_zero() -> None:
    step = 60 * 10**9
    at = [n * step for n in range(3)]
    heat = LoadSeries(at, [61.0, 66.0, 64.0], [None] * 3, "°C", step)
    near = load_chart(heat, 0, 3 * step, [], "temperature", from_zero=False)
    assert ticks(near, "°C") == [61.0, 62.0, 63.0, 64.0, 65.0, 66.0]
    assert max(heights(near)) - min(heights(near)) > 80, "five degrees fill the chart"
    watts = LoadSeries(at, [661.0, 666.0, 664.0], [None] * 3, "W", step)
    whole = load_chart(watts, 0, 3 * step, [], "power")
    assert ticks(whole, "W")[0] == 0.0
    assert max(heights(whole)) - min(heights(whole)) < 4, "one percent stays small"
    still = LoadSeries(at, [1980.0] * 3, [None] * 3, "MHz", step)
    found = ticks(load_chart(still, 0, 3 * step, [], "clock", from_zero=False), "MHz")
    assert (found[0], found[-1]) == (1980.0, 1985.0)
    cold = LoadSeries(at, [-3.0, -1.0, 4.0], [None] * 3, "°C", step)
    assert ticks(load_chart(cold, 0, 3 * step, [], "inlet", from_zero=False), "°C")[0] == -4.0


def points(body: str, label: str) -> dict[float, float]:
    """Readings of a chart by seconds since its start."""
    (found,) = re.findall(rf'aria-label="{label}: [^"]*"[^>]* data-points="([^"]*)"', body)
    pairs = (pair.split(":") for pair in found.split())
    return {float(at): float(value) for at, value in pairs}


async def test_the_power_of_a_node_is_the_sum_over_its_gpus_or_not_known() -> None:
    """Where one of them is not known there is no sum; what the node never reported has no chart."""
    view = await lab()
    now = view.wall()
    span = f"?from={rfc3339(now - 60 * 10**9)}&to={rfc3339(now)}"
    async with door(view) as client:
        _, body, _ = await client.text(f"/nodes/n1{span}")
        parts = [points((await client.text(f"/gpus/GPU-n1-{index}{span}"))[1], "power") for index in (0, 1)]
        shown = points(body, "GPU power")
        sums = {at: parts[0][at] + parts[1][at] for at in parts[0]}
        assert len(sums) >= 5
        assert shown == pytest.approx(sums, abs=0.2), "each is shown in tenths"
        assert "wall power" in body
        del view.memory.values["GPU-n1-1", "gpu_power_watts"][-2:]  # the last is after the chart's end
        view.memory.values.pop(("n1", "node_wall_power_watts"))
    async with door(view) as client:  # another: the past is shared for ten seconds
        _, later, _ = await client.text(f"/nodes/n1{span}")
        assert points(later, "GPU power") == dict(list(shown.items())[:-1])
        assert "wall power: up to" not in later


async def test_a_gpu_is_shown_beside_the_others_and_with_what_held_its_clocks() -> None:
    view = await lab()
    now = view.wall()
    second = 10**9
    for metric in CLOCK_LIMITS:
        view.memory.values["GPU-n1-0", metric] = [(now - n * 15 * second, 0.0) for n in range(1, 120)]
    hot = view.memory.values["GPU-n1-0", "gpu_clocks_event_sw_thermal_slowdown"]
    hot[:30] = [(at, 1.0) for at, _ in hot[:30]]
    async with door(view) as client:
        span = f"from={rfc3339(now - 3600 * second)}&to={rfc3339(now)}"
        _, body, _ = await client.text(f"/gpus/GPU-n1-0?{span}")
        page = Page(body)
    assert page.faults == []
    assert "sw thermal: 25% of the 49% of the time that is known" in page.text
    assert "power cap:" not in page.text
    (strip,) = re.findall(r'class="held">sw thermal.*?</p>(<svg.*?</svg>)', body)
    shapes = re.findall(r'class="([\w ]+)" x="([\d.]+)%" width="([\d.]+)%"', strip)
    assert [kind for kind, _, _ in shapes] == ["unknown", "fill ticket"]
    assert float(shapes[1][2]) == pytest.approx(12.5, abs=1)
    assert body.count('class="peers"') == 5, "the big chart and four small ones"
    assert "305 W; 1 other: 306 W" in page.text
    assert "slows at" in page.text


async def test_a_link_keeps_the_time_of_the_charts_for_who_opens_it_later() -> None:
    """A span such as the last hour moves on; the link names both ends, and its page stays as it is."""
    view = await lab()
    async with door(view) as client:
        for path in ("/gpus/GPU-n1-0", "/nodes/n1", "/circuits/lab%2F2"):
            page = await read(client, f"{path}?from=-6h")
            (way,) = [link for link in page.links if "from=20" in link and "to=20" in link]
            status, body, _ = await client.text(f"/{way.partition('#')[0]}")
            assert status == 200
            assert "data-live" not in body, "what is past does not follow the cluster"
            assert re.search(r"aria-current=page>link to this time", body)
            assert way.partition("#")[0] in {each.partition("#")[0] for each in Page(body).links}


def test_a_release_other_than_the_aggregators_is_marked_and_found() -> None:
    lines = [
        line("same"),
        line("behind", drift=ReleaseDrift.OLDER),
        line("ahead", drift=ReleaseDrift.NEWER),
        line("odd", drift=ReleaseDrift.UNKNOWN),
    ]
    body = nodes_body(lines, {}, 1)
    assert (body.count('badge ticket">older<'), body.count('badge ticket">newer<')) == (1, 1)
    assert nodes_of(nodes_body(lines, {"q": "older"}, 1)) == ["behind"]


async def test_the_first_page_counts_the_nodes_of_other_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(await lab()) as client:
        monkeypatch.setattr(overview_tiles, "release", lambda: "2026.2")
        page = await read(client, "/")
        assert "2 older than this aggregator's 2026.2" in page.text
        assert "nodes?q=older" in page.links
        monkeypatch.setattr(overview_tiles, "release", lambda: "2026.1")
        assert "than this aggregator's" not in (await read(client, "/")).text


async def test_circuits_have_their_places_before_they_are_computed() -> None:
    """With their limits, and no number in place of a load."""
    async with door(LiveFleet(1)) as client:
        body = (await client.text("/"))[1]
    page = Page(body)
    assert page.faults == []
    assert re.search(
        r"Nearest breaker not computed yet \? \S+ , load: continuous limit \d+ A, breaker \d+ A", page.text
    )
    assert {"circuits/PDU-001A", "circuits/PDU-001B", "nodes/node-0000"} <= set(page.links)
    assert set(re.findall(r'class="wire (\w+)"', body)) == {"unknown"}
    assert not re.search(r"\d% of \d+ A", page.text)


async def test_the_nodes_of_a_large_demo_run_the_release_of_their_aggregator() -> None:
    """Built from the same commit, or none of them from a known one."""
    view = LiveFleet(8)
    await view.beat()
    async with door(view) as client:
        assert "than this aggregator's" not in (await read(client, "/")).text
        assert nodes_of((await client.text("/nodes?q=older"))[1]) == []


async def test_the_cost_of_now_says_that_it_is_the_buildings() -> None:
    view = await lab()
    view.electrical = ElectricalService(SITE | {"site": {"pue": 1.25, "tariff": 0.2}}, Path("/nowhere"))
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    async with door(view) as client:
        page = await read(client, "/")
    watts = view.electrical.energy.ledger.watts
    assert watts is not None
    cost = 0.2 * 1.25 * watts / 1000
    assert f"Cost now ${cost:.2f} an hour at $0.2 a kWh and PUE 1.25; this month" in page.text


async def test_a_sum_says_what_is_not_in_it() -> None:
    """The cost of an hour too: it is of the power that is known."""
    view = LiveFleet(8, still=True)
    for _ in range(3):
        await view.beat()
    async with door(view) as client:
        page = await read(client, "/")
        assert "≥" not in page.text
        assert re.search(r"Cost now \$[0-9.]+ an hour at \$0.09 a kWh and PUE [0-9.]+; this month", page.text)
        for _ in range(11):  # node-0003 falls silent, and GPUs of others are lost
            await view.beat()
        page = await read(client, "/")
    assert re.search(r"At the wall ≥[0-9.]+ kW", page.text)
    assert re.search(r"GPU power ≥[0-9.]+ kW", page.text)
    assert re.search(
        r"Cost now ≥\$[0-9.]+ an hour at \$0.09 a kWh and PUE [0-9.]+, without 1 node whose power is not known;",
        page.text,
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/energy?month=x", "month: 'x' is no month. Write 2026-10."),
        ("/jobs?sort=rubbish", "sort: 'rubbish' is not known. Known: since, state, user, account, job, "),
        ("/incidents/none", "incident: no incident 'none'. `kilowatch alerts` lists those that are open. Those of 30 days"),
        ("/nodes/n1?from=2099-01-01T00:00:00Z", "from: 2099-01-01T00:00:00Z is in the future. Leave it out"),
    ],
)  # fmt: skip
async def test_a_mistake_in_an_address_is_named_once_and_has_a_cure(path: str, words: str) -> None:
    async with door(await lab()) as client:
        _, body, _ = await client.text(path)
    assert words in Page(body).text


async def test_a_browser_gets_a_page_where_there_is_nothing() -> None:
    browser = {"Accept": "text/html,*/*;q=0.8"}
    async with door(await lab()) as client:
        for path in ("/nosuch", "/no/such/page"):
            status, body, headers = await client.text(path, headers=browser)
            assert (status, headers["Content-Type"]) == (404, frame.HTML)
            page = Page(body)
            assert page.faults == []
            assert f"there is nothing at {path}" in page.text
            assert urljoin(f"http://x{path}", page.base) == "http://x/"
            assert "circuits" in page.links
        for path, sent in (("/api/v1/nosuch", browser), ("/nosuch", {"Accept": "*/*"})):
            status, _, headers = await client.text(path, headers=sent)
            assert (status, headers["Content-Type"].partition(";")[0]) == (404, "application/json")


async def test_a_hundred_viewers_cost_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """But who loads a page again after an action sees what it did."""
    calls: list[str] = []
    page = frame.PAGES["/circuits"]

    async def counted(request: web.Request) -> PageContent:
        calls.append(request.path_qs)
        return await page(request)

    monkeypatch.setitem(frame.PAGES, "/circuits", counted)
    monkeypatch.setattr(LivePages, "SECONDS", 3600.0)
    async with door(await lab()) as client:
        answers = await asyncio.gather(*(client.text("/circuits") for _ in range(100)))
        assert {status for status, _, _ in answers} == {200}
        assert calls == ["/circuits"]
        await client.text("/circuits?q=n1")
        assert calls == ["/circuits", "/circuits?q=n1"]
        await client.text("/circuits", headers=ANEW)
        assert len(calls) == 3
        plain = await client.text("/circuits", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain[2], "the compressed page is not sent to who can't read it"


def test_every_page_of_the_menu_is_served() -> None:
    assert {f"/{way}" for way in MENU} <= set(PAGES)


def line(name: str, **more: object) -> NodeLine:
    """A healthy node."""
    node = NodeReply(name, NodeStatus.ONLINE, age_seconds=1.0, gpus=8, gpus_present=8, release="2026.2")
    known = NodeLine(node, 4000.0, 60.0, 0, 0, ReleaseDrift.SAME)
    own = ("watts", "hottest", "pages", "tickets", "drift")
    fields = {key: more.pop(key) for key in own if key in more}
    return replace(known, node=msgspec.structs.replace(node, **more), **fields)  # type: ignore[arg-type]


def nodes_of(body: str) -> list[str]:
    """Names of the rows of a table of nodes."""
    return [each.removeprefix("nodes/") for each in Page(body).links if each.startswith("nodes/")]


def test_nodes_are_listed_worst_first_or_by_a_column() -> None:
    lines = [
        line("calm"),
        line("hot", hottest=90.0),
        line("gone", state=NodeStatus.OFFLINE, watts=None, hottest=None),
        line("lacking", gpus_present=7),
        line("paged", pages=1, watts=9000.0),
        line("ticket", tickets=1),
    ]
    worst = nodes_body(lines, {}, 1)
    assert nodes_of(worst) == ["paged", "gone", "lacking", "ticket", "hot", "calm"]
    by_power = nodes_of(nodes_body(lines, {"sort": "power"}, 1))
    assert (by_power[0], by_power[-1]) == ("paged", "gone")
    assert nodes_of(nodes_body(lines, {"sort": "node"}, 1)) == sorted(nodes_of(worst))
    assert nodes_of(nodes_body(lines, {"q": "OFFLINE"}, 1)) == ["gone"]
    assert "7 of 8" in Page(worst).text
    row = Page(nodes_body([lines[2]], {}, 1)).text
    assert "offline" in row
    assert "0 W" not in row, "what is not known is no number"


def test_ten_thousand_gpus_are_pages_of_nodes() -> None:
    lines = [line(f"node-{number:04}") for number in range(1250)]
    first, last = nodes_body(lines, {"sort": "node"}, 1), nodes_body(lines, {"sort": "node"}, 13)
    assert (len(nodes_of(first)), len(nodes_of(last))) == (100, 50)
    assert nodes_of(last)[-1] == "node-1249"
    assert "nodes?page=2&sort=node" in Page(first).links
    assert Page(nodes_body(lines, {}, 99)).text.count("page 13 of 13") == 1


def mapped(rack: str, node: str, values: list[float], **more: Any) -> NodeCells:
    """A node of the map whose GPUs are numbered."""
    return NodeCells(rack, node, values, [f"GPU-{node}-{place}" for place in range(len(values))], **more)


def test_the_map_of_a_few_gpus_has_their_figures_as_links() -> None:
    """An unknown figure is `?`, hatched or framed, never a number."""
    cells = [mapped("r1", "b", [20.4, float("nan")], mark="page", marks={"GPU-b-1": "page"}), mapped("", EVIL, [94.6])]
    body = fleet_map(cells, "temperature")
    page = Page(body)
    assert page.faults == []
    assert "3 GPUs, 1 not known (hatched)" in page.text
    assert page.text.split(" b ")[1].startswith("r1 20 ?")
    assert "gpus/GPU-b-1" in page.links
    assert '<a class="qx page"' in body
    assert page.text.endswith("95")
    assert "<script>" not in body


def test_the_map_of_many_gpus_is_a_picture_of_each_rack() -> None:
    nan = float("nan")
    cells = [
        mapped("r2", "b", [20.0, nan], mark="ticket", marks={"GPU-b-0": "ticket"}),
        mapped("r1", "a", [95.0] * 80),
        mapped(EVIL, "c", [50.0]),
    ]
    body = fleet_map(cells, "temperature", MapForm.NAMED)
    page = Page(body)
    assert page.faults == []
    assert page.text.index("r1") < page.text.index("r2")
    assert "83 GPUs, 1 not known (hatched)" in page.text
    assert "nodes?q=r2" in page.links
    found = {
        name: sum((int(end) - int(begin) + 1) // 6 for begin, end in re.findall(r"M(\d+) \d+H(\d+)", way))
        for name, way in re.findall(r'<path class="(\w+)" d="([^"]+)"', body)
    }
    assert found == {"q5": 80, "qx": 1, "ticket": 1, "q2": 1}, "a cell for each GPU"
    assert 'title="r2, 1 node, ticket"' in body
    assert "<script>" not in body


def test_the_map_of_ten_thousand_gpus_is_small_on_the_wire() -> None:
    cells = [mapped(f"r{n // 8}", f"node-{n:04}", [40.0 + (n * 7 + k) % 50 for k in range(8)]) for n in range(1250)]
    body = fleet_map(cells, "temperature", MapForm.NAMED).encode()
    assert body.count(b"<") < 3000, "cells of one colour of a rack are one shape"
    assert len(gzip.compress(body, 6)) < 60_000


def test_figures_of_nodes_are_reduced_over_their_own_gpus_alone() -> None:
    """In whatever order their rows lie; a sum with a gap is not known, nor is anything of no GPU."""
    values = np.array([1.0, np.nan, 3.0, 4.0, np.nan, np.nan])
    rows = [slice(4, 6), slice(0, 2), slice(2, 4), slice(3, 3), slice(6, 6)]
    assert np.isnan(_of_each(np.add, values, rows)).tolist() == [True, True, False, True, True]
    assert _of_each(np.add, values, rows)[2] == 7.0
    assert _of_each(np.fmax, values, rows)[1:3] == [1.0, 4.0]
    assert np.isnan(_of_each(np.fmax, values, rows)).tolist() == [True, False, False, True, True]
    assert _of_each(np.add, values, []) == []
