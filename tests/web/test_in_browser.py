"""The pages in a real Chromium: they work at both sizes, act with a token, and call no other host."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from aggregator.http.config import HttpConfig
from aggregator.web.fleet_cells import rack_of
from aggregator.web.fleet_map import MapForm
from aggregator.web.overview_room import INSIDE, MapNode, map_height
from bench import live_fleet
from bench.live_fleet import LiveFleet
from telemetry.text import rfc3339
from tests.aggregator.fake_view import give_jobs
from tests.aggregator.http_client import Door, door
from tests.aggregator.test_http_alerts import hot
from tests.aggregator.test_http_circuits import lab
from tests.kit import night
from tests.kit.waiting import until
from tests.web import npm_packages
from tests.web.browser import SIZES, BrowserPage, browsing, needed
from tests.web.busy_lab import busy_lab
from tests.web.kept_pages import keep_pages

pytestmark = [needed, pytest.mark.systems]
PATHS = ("/", "/?map=power", "/nodes", "/nodes?sort=power&q=n", "/nodes/n1", "/gpus/GPU-n1-0", "/alerts", "/alerts?view=alerts", "/alerts?view=silences", "/circuits",
         "/circuits/lab%2F2?lose=1", "/energy", "/runbook", "/runbook/gpu_lost", "/jobs", "/jobs?user=ada&sort=use", "/jobs/4711", "/jobs/lab%2Ftrain-0",
         "/ports", "/ports?q=n1", "/ports/port:n1:0000:19:00.1%2F1", "/fitness", "/drift",
         "/design", "/find", "/find?q=n1", "/circuits/none")  # fmt: skip
LOOK = """(() => {
  const faults = [];
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 1) faults.push(`it is ${wide} px too wide`);
  for (const each of document.querySelectorAll(".wide")) {
    const over = each.scrollWidth - each.clientWidth;
    if (over > 0 && over < 3) faults.push(`a table scrolls by ${over} px: ${each.textContent.slice(0, 40)}`);
  }
  if (document.querySelectorAll("h1").length !== 1) faults.push("it has not one h1");
  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].map(each => Number(each.tagName[1]));
  levels.forEach((level, place) => {
    if (level > (levels[place - 1] ?? 0) + 1) faults.push(`h${level} after h${levels[place - 1] ?? 0}`);
  });
  if (!document.title) faults.push("it has no title");
  for (const each of document.querySelectorAll("input, select"))
    if (each.type !== "hidden" && !each.labels?.length) faults.push(`no label: ${each.name}`);
  for (const each of document.querySelectorAll("a, button"))
    if (!each.textContent.trim()) faults.push("a link or button without words");
  for (const each of document.querySelectorAll("table"))
    if (!each.caption || !each.querySelector("th[scope]")) faults.push("a table without caption or heads");
  for (const each of document.querySelectorAll("[aria-labelledby]"))
    if (!document.getElementById(each.getAttribute("aria-labelledby"))) faults.push("a label that is not there");
  const ids = [...document.querySelectorAll("[id]")].map(each => each.id);
  if (new Set(ids).size < ids.length) faults.push("an id is there twice");
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(part => {
      const value = part / 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const each of document.querySelectorAll("main *, header *")) {
    const words = [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!words || each.namespaceURI.endsWith("svg") || !each.checkVisibility()) continue;
    if (each.matches("button, option, select")) continue;
    const [a, b] = [light(getComputedStyle(each).color), light(ground(each))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`too little contrast: ${each.textContent.trim().slice(0, 40)}`);
  }
  return faults;
})()"""
"""Faults of a page: layout, labels, headings, contrast."""


def only_from(page: BrowserPage, client: Door) -> bool:
    """Whether all requests went to the aggregator."""
    own = urlsplit(client.url).netloc
    return all(urlsplit(url).netloc == own for url in page.requests)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "scheme"), night.size([("desktop", "light"), ("phone", "dark")], list(product(SIZES, ("light", "dark"))))
)
async def test_every_page_is_sound_at_every_size(tmp_path: Path, size: str, scheme: str) -> None:
    """No console error, no request to another host, no sideways scrolling, labels, contrast."""
    async with door(await busy_lab()) as client, browsing(tmp_path / "profile") as page:
        await page.size(size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        for path in PATHS:
            await page.open(client.url + path)
            assert await page.value(LOOK) == [], path
        assert only_from(page, client)
        page.errors = [each for each in page.errors if "/circuits/none" not in each]  # its 404
        assert page.errors == []


AXE = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(
  rule => rule.nodes.map(each => `${rule.impact} ${rule.id}: ${each.html.slice(0, 200)}`)))"""
"""What axe-core finds in a page."""


@npm_packages.needed
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "scheme"), night.size([("desktop", "light")], list(product(SIZES, ("light", "dark"))))
)
async def test_the_accessibility_rules_of_axe_find_nothing(tmp_path: Path, size: str, scheme: str) -> None:
    """Injected by the protocol of the developer tools: the pages allow no script but their own."""
    rules = await asyncio.to_thread((npm_packages.node_modules() / "axe-core/axe.min.js").read_text)
    async with door(await busy_lab()) as client, browsing(tmp_path / "profile") as page:
        await page.size(size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[feature])
        for path in PATHS:
            await page.open(client.url + path)
            await page.do(rules)
            assert await page.value(AXE) == [], path


async def test_an_incident_is_acknowledged_and_silenced_with_a_token(tmp_path: Path) -> None:
    """Typed once, kept in the tab, gone with it; a wrong one is said and forgotten."""
    async with hot(tmp_path / "hot") as client, browsing(tmp_path / "profile") as page:
        (found,) = (await client.get("/api/v1/incidents"))["incidents"]
        await page.open(f"{client.door.url}/incidents/{quote(found['key'], safe='')}")
        await page.click("button[data-act=acknowledge]")
        await page.value("document.querySelector('dialog [name=token]').value = 'wrong'")
        await page.click("dialog form button:not([type])")
        await page.until("document.querySelector('.actions [role=alert]')?.textContent.includes('token is wrong')")
        assert await page.value("sessionStorage.length") == 0
        await page.click("button[data-act=acknowledge]")
        await page.value(f"document.querySelector('dialog [name=token]').value = {client.door.secret!r}")
        await page.value("document.querySelector('dialog [name=why]').value = 'on my way'")
        await page.click_until_reloaded("dialog form button:not([type])")
        await page.until("document.querySelector('main').textContent.includes('acknowledged by ann')")
        (taken,) = (await client.get("/api/v1/incidents"))["incidents"]
        assert (taken["acknowledged"]["who"], taken["acknowledged"]["why"]) == ("ann", "on my way")
        await page.click("button[data-act=silence]")
        assert await page.value("document.querySelector('dialog [name=token]')") is None
        await page.value("document.querySelector('dialog [name=why]').value = 'a new fan comes'")
        await page.click_until_reloaded("dialog form button:not([type])")
        await page.open(f"{client.door.url}/alerts?view=silences")
        await page.until("document.querySelector('main').textContent.includes('a new fan comes')")
        assert client.door.secret not in str(await page.value("document.documentElement.outerHTML"))
        assert await page.value("document.cookie + localStorage.length") == "0"
        await page.click("button[data-act=unsilence]")
        await page.click_until_reloaded("dialog form button:not([type])")
        await page.until("!document.querySelector('button[data-act=unsilence]')")
        (silence,) = (await client.get("/api/v1/silences"))["silences"]
        assert silence["who"] == "ann"
        assert only_from(page, client.door)


async def test_a_page_asks_for_the_token_where_reading_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps its URL, and is followed with it; links and the back button work."""
    kept = keep_pages(monkeypatch)
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=tmp_path / "t", anonymous_read=False)
    async with door(await lab(), config) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/circuits?q=n2")
        assert "lab/2" not in await page.value("document.body.textContent")
        await page.value(f"document.querySelector('#sign-in [name=token]').value = {client.secret!r}")
        await page.click("#sign-in button")
        await page.until("document.querySelector('main').textContent.includes('lab/2')")
        assert await page.value("location.search") == "?q=n2"
        await until(lambda: kept[0].viewers.total == 1)
        stored = (
            "Object.values(sessionStorage).join() + '|' + Object.values(localStorage).join() + '|' + document.cookie"
        )
        assert await page.value(stored) == f"{client.secret}||"
        await page.click("a[href='circuits/lab%2F2']")
        await page.until("document.querySelector('h1').textContent === 'lab/2'")
        await page.do("history.back()")
        await page.until("document.querySelector('h1').textContent === 'Circuits'")
        await page.until("document.querySelector('main').textContent.includes('lab/2')")
        assert only_from(page, client)


async def test_signing_in_says_when_a_proxy_answers_in_place_of_the_aggregator(tmp_path: Path) -> None:
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=tmp_path / "t", anonymous_read=False)
    async with door(await lab(), config) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/circuits")
        await page.do("(fetch = async () => new Response('<title>502</title><h1>Bad Gateway</h1>', { status: 502 }))")
        await page.value(f"document.querySelector('#sign-in [name=token]').value = {client.secret!r}")
        await page.click("#sign-in button")
        words = "document.querySelector('#sign-in .status').textContent"
        await page.until(f"{words} === 'The aggregator does not answer.'")
        assert await page.value("document.title") == "Sign in - kilowatch"


async def test_a_live_page_follows_and_a_countdown_runs(tmp_path: Path) -> None:
    view = await lab()
    async with door(view) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/circuits")
        await page.until(r"/\d\d:\d\d/.test(document.querySelector('[data-countdown]').textContent)")
        first = await page.value("document.querySelector('[data-countdown]').textContent")
        await page.until(f"document.querySelector('[data-countdown]').textContent < {first!r}")
        view.raised = []
        await page.until("!document.querySelector('main').textContent.includes('E03')")
        assert page.errors == []


async def test_an_old_page_says_so_and_promises_no_time(tmp_path: Path) -> None:
    """Its countdown has stopped: who looks at the wall must not wait for it."""
    async with browsing(tmp_path / "profile") as page:
        async with door(await lab()) as client:
            await page.open(f"{client.url}/")
            await page.until(r"/\d\d:\d\d/.test(document.querySelector('[data-countdown]').textContent)")
            assert await page.value("document.querySelector('.old').checkVisibility()") is False
        await page.until("document.body.classList.contains('stale')")
        await page.until("[...document.querySelectorAll('[data-countdown]')].every(each => each.textContent === '?')")
        assert await page.value("document.querySelector('.old').checkVisibility()") is True
        assert "This page is old" in await page.value("document.querySelector('.old').innerText")


async def test_a_theme_is_chosen_and_a_key_leads_to_the_field_that_finds(tmp_path: Path) -> None:
    async with door(await lab()) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/")
        ground = "getComputedStyle(document.body).backgroundColor"
        for _ in range(2):
            await page.click("button.theme")
        dark = await page.value(ground)
        await page.open(f"{client.url}/circuits")
        assert await page.value("document.documentElement.dataset.theme") == "dark"
        assert await page.value(ground) == dark
        await page.click("button.theme")
        assert await page.value("localStorage.length") == 0, "the system's needs no memory"
        assert await page.value(ground) != dark
        await page.value("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
        assert await page.value("document.activeElement.name") == "q"
        await page.value("document.activeElement.value = 'n2'")
        await page.do("document.activeElement.form.requestSubmit()")
        await page.until("document.querySelector('main a[href=\"nodes/n2\"]') !== null")
        assert page.errors == []


async def test_a_chart_shows_its_readings_and_zooms_by_the_keyboard(tmp_path: Path) -> None:
    """An arrow key shows the reading with its unit; `+` puts a shorter time into the URL."""
    view = await lab()
    async with door(view) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/gpus/GPU-n1-0?to={rfc3339(view.wall())}")
        chart = "document.querySelector('figure.chart svg[data-points]')"
        await page.until(f"{chart} !== null")
        press = "{chart}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        shown = "document.querySelector('figure.chart output').textContent"
        await page.until(
            f"{press.format(chart=chart, key='ArrowLeft')}; /UTC: (\\d+\\.\\d °C|not known)$/.test({shown})"
        )
        before = await page.value(f"Number({chart}.dataset.seconds)")
        await page.value(press.format(chart=chart, key="+"))
        await page.until(f"location.search.includes('from=') && Number({chart}?.dataset.seconds) < {before}")
        assert page.errors == []


async def test_one_time_moves_over_all_charts_of_a_page_and_is_in_its_url(tmp_path: Path) -> None:
    """By the pointer and by arrow keys; what a chart says without it comes back; so does the time, by the back button."""
    view = await lab()
    span = f"from={rfc3339(view.wall() - 20 * 10**9)}&to={rfc3339(view.wall())}"
    said = "[...document.querySelectorAll('figure.chart output')].map(each => each.textContent)"
    times = f"[...new Set({said}.map(each => each.match(/[0-9:]+ UTC/)?.[0]))]"
    async with door(view) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/nodes/n1?{span}")
        before: list[str] = await page.value(said)
        assert len(before) > 2
        first = "document.querySelector('figure.chart svg[data-points]')"
        x, y = await page.value(f"""(() => {{
          {first}.scrollIntoView({{block: "center"}});
          const box = {first}.getBoundingClientRect();
          return [box.right - box.width / 4, box.y + box.height / 2];
        }})()""")
        button = {"x": x, "y": y, "button": "left", "clickCount": 1}
        await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        (at,) = await page.value(times)
        await page.call("Input.dispatchMouseEvent", type="mousePressed", **button)
        await page.call("Input.dispatchMouseEvent", type="mouseReleased", **button)
        assert at.removesuffix(" UTC") in await page.value("location.hash")
        for kind in ("keyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", type=kind, key="ArrowLeft")
        (earlier,) = await page.value(times)
        assert earlier < at
        for kind in ("keyDown", "keyUp"):
            await page.call("Input.dispatchKeyEvent", type=kind, key="Enter")
        await page.do("history.back()")
        await page.until(f"{times}[0] === {at!r}")
        await page.do("history.back()")
        await page.until(
            f"JSON.stringify({said}) === {json.dumps(json.dumps(before, ensure_ascii=False, separators=(',', ':')))}"
        )
        await page.open(f"{client.url}/nodes/n1?{span}#at={rfc3339(view.wall())}")
        assert len(await page.value(times)) == 1, "a link has the time"
        assert page.errors == []


FLEET_PATHS = ("/", "/?map=use", "/nodes", "/nodes?sort=power", "/nodes/node-0001", "/gpus/GPU-00000001-3", "/alerts", "/jobs",
               "/circuits", "/circuits/PDU-001A?lose=1", "/energy", "/runbook", "/runbook/gpu_lost", "/ports", "/fitness", "/drift")  # fmt: skip


async def fleet_of(nodes: int) -> LiveFleet:
    """A fleet of eight GPUs a node, with faults and incidents, whose clock only `beat` moves."""
    fleet = LiveFleet(nodes, still=True)
    for _ in range(5):
        await fleet.beat()
    return fleet


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("nodes", "rack"),
    night.size([(64, 4)], [*product((1, 3, 4, 6, 8, 9, 16, 32, 64, 96, 128, 192, 256, 384, 400), (4,)), (9, 1), (96, 1), (64, 8), (160, 8)]),
)  # fmt: skip
async def test_the_overview_of_any_size_is_one_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, rack: int
) -> None:
    """Of 1440x900, with incidents, circuits and six users; the map is as high as it was taken to be. `rack`: nodes of one."""
    monkeypatch.setattr(live_fleet, "A_RACK", rack)
    fleet = await fleet_of(nodes)
    names = list(fleet.fleet.nodes)
    give_jobs(fleet, *((names[n % nodes], f"88{n:02}", f"user-{n}", (n // nodes,)) for n in range(6)))
    on_map = [MapNode(rack_of(one), name, 8) for name, one in fleet.fleet.nodes.items()]
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.size("desktop")
        await page.open(f"{client.url}/")
        assert await page.value("document.documentElement.scrollHeight") <= SIZES["desktop"][1]
        assert await page.value("document.querySelector('#chain') !== null")
        assert "user-0" in await page.value("document.querySelector('[data-k=\"main/users\"]').textContent")
        if not await page.value("document.querySelector('.map.dense') !== null"):
            figures = await page.value("document.querySelector('.figures') !== null")
            form = MapForm.FIGURES if figures else MapForm.NAMED
            wide = await page.value("document.querySelector('.w16') !== null")
            high = "document.querySelector('#map').closest('section').offsetHeight"
            assert abs(await page.value(high) - map_height(on_map, form, INSIDE[wide])) < 5
        assert page.errors == []


@pytest.mark.nightly
@pytest.mark.parametrize(("nodes", "size"), night.size([(2, "wide"), (1250, "phone")], list(product((2, 1250), SIZES))))
async def test_the_pages_of_a_small_and_a_large_fleet_are_sound(tmp_path: Path, nodes: int, size: str) -> None:
    """As those of the laboratory: console, hosts, width, labels, contrast; and an incident with its evidence."""
    async with door(await fleet_of(nodes)) as client, browsing(tmp_path / "profile") as page:
        _, found = await client.json("/api/v1/incidents")
        incident = found["incidents"][0]["key"]
        await page.size(size)
        for path in (*FLEET_PATHS, f"/incidents/{quote(incident, safe='')}"):
            await page.open(client.url + path)
            assert await page.value(LOOK) == [], path
            status = await page.value("performance.getEntriesByType('navigation')[0].responseStatus")
            assert status == 200, path
        assert only_from(page, client)
        assert page.errors == []


async def test_the_nodes_of_ten_thousand_gpus_are_sorted_by_a_click(tmp_path: Path) -> None:
    """Over all pages of the table, not within the one that is shown; the back button leads to the worst."""
    watts = """[...document.querySelectorAll("tbody tr")].map(row => parseFloat(row.cells[4].textContent))"""
    async with door(await fleet_of(1250)) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/nodes")
        first = await page.value("document.querySelector('tbody a').textContent")
        await page.value("window.before = true")
        await page.value("void (performance.now = () => 1e4)")  # what is asked for ahead stays good
        await page.value("document.querySelector('thead a[href=\"nodes?sort=power\"]').focus()")
        asked = f"performance.getEntriesByName('{client.url}/nodes?sort=power').length"
        await page.until(f"{asked} === 1")
        await page.click("thead a[href='nodes?sort=power']")
        await page.until("document.querySelector('caption').textContent.includes('by GPU power')")
        assert await page.value(asked) == 1, "the answer to what was asked for ahead is shown"
        await page.value("delete performance.now")
        await page.until("document.querySelectorAll('tbody tr').length === 100")  # those below follow
        top: list[float] = await page.value(watts)
        assert len(set(top)) > 1
        assert top == sorted(top, reverse=True)
        assert await page.value("window.before"), "the page itself was not loaded again"
        assert await page.value("location.search") == "?sort=power"
        assert await page.value("document.activeElement.textContent") == "GPU power"
        assert "sort=power#main" in await page.value("document.querySelector('.skip').href")
        await page.click("thead a[href='nodes?sort=hottest']")
        await page.click("thead a[href='nodes?sort=rack']")
        await page.until("document.querySelector('caption').textContent.includes('by rack')")
        await page.do("history.go(-2)")
        await page.until("document.querySelector('caption').textContent.includes('by GPU power')")
        assert await page.value("window.before"), "nor by the back button"
        await page.click_until_reloaded("nav[aria-label='More nodes'] a")
        assert await page.value("location.search") == "?page=2&sort=power"
        assert (await page.value(watts))[0] <= top[-1]
        await page.do("history.go(-2)")
        await page.until(f"document.querySelector('tbody a')?.textContent === {first!r} && !location.search")
        assert page.errors == []


async def test_rows_stay_where_they_are_while_somebody_points_at_them(tmp_path: Path) -> None:
    """Numbers of held rows follow; so does the order, once the rows are left."""
    fleet = await fleet_of(8)
    names = "[...document.querySelectorAll('tbody tr')].map(row => row.querySelector('a').textContent).join()"
    watts = "document.querySelector('tbody').textContent"
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/nodes?sort=power")
        await page.value("document.querySelector('tbody a').focus()")
        before, shown = await page.value(names), await page.value(watts)
        while await served_names(page) == before:
            await fleet.beat()
        await page.until(f"{watts} !== {shown!r}")
        assert await page.value(names) == before, "the numbers alone have changed"
        assert await page.value("document.body.classList.contains('held')")
        noted = "getComputedStyle(document.querySelector('caption'), '::after').content"
        assert "the order has changed" in await page.value(noted)
        await page.value("document.activeElement.blur()")
        await page.until(f"{names} !== {before!r}")
        assert not await page.value("document.body.classList.contains('held')")
        assert page.errors == []


async def served_names(page: BrowserPage) -> str:
    """Return the nodes in the order of the page as it is served now."""
    found: str = await page.value(
        """fetch(location.href, {headers: {"Cache-Control": "no-cache"}}).then(answer => answer.text()).then(text =>
          [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("tbody tr")]
            .map(row => row.querySelector("a").textContent).join())"""
    )
    return found


async def test_a_renewed_page_is_the_served_one_and_keeps_what_has_not_changed(tmp_path: Path) -> None:
    fleet = await fleet_of(2)
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/nodes")
        await page.value("document.querySelector('tbody a').kept = true")
        await page.value("document.querySelector('thead a').focus()")
        before = await page.value("document.querySelector('tbody').textContent")
        await fleet.beat()
        await page.until(f"document.querySelector('tbody').textContent !== {before!r}")
        assert await page.value("document.querySelector('tbody a').kept === true")
        assert await page.value("document.activeElement === document.querySelector('thead a')")
        served = """fetch(location.href, {headers: {"Cache-Control": "no-cache"}}).then(answer => answer.text()).then(text =>
          new DOMParser().parseFromString(text, "text/html").querySelector("main").innerHTML)"""
        assert await page.value("document.querySelector('main').innerHTML") == await page.value(served)
        assert page.errors == []


_SHOWN = """document.querySelector('[data-k="main/GPU power"] .big').textContent"""
_PLACED = """new Promise(done => document.addEventListener("kilowatch:placed", () => done(), {once: true}))"""
_HIDE = """(hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
})"""


async def test_numbers_follow_in_place_and_a_tab_that_nobody_sees_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request for the page again, no layout shift; what is shown again is at once as it is now."""
    fleet, kept = await fleet_of(2), keep_pages(monkeypatch)
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/")
        await page.value("""void new PerformanceObserver(list => {
          for (const each of list.getEntries()) window.shift = (window.shift ?? 0) + each.value;
        }).observe({type: "layout-shift"})""")
        await page.value("document.querySelector('.chain path.dots').kept = true")
        before = await page.value(_SHOWN)
        await page.value(f"void (window.number = {_SHOWN.removesuffix('.textContent')}.firstChild)")
        while await page.value(_SHOWN) == before:
            await fleet.beat()
            await page.value(_PLACED)
        assert await page.value("window.number.isConnected"), "the number itself has changed"
        assert await page.value("document.querySelector('.chain path.dots').kept"), "lines go on"
        asked = [url for url in page.requests if url == f"{client.url}/"]
        assert len(asked) == 2, "the page, and what changes of it"
        assert await page.value("window.shift ?? 0") < 0.02
        await page.value(f"{_HIDE}(true)")
        shown = await page.value("document.querySelector('main').innerHTML")
        viewers = kept[0].viewers
        await fleet.beat()
        await until(lambda: viewers.total == 0)  # the server learns of it when it sends
        assert await page.value("document.querySelector('main').innerHTML") == shown
        await page.value(f"{_HIDE}(false)")
        await page.until(f"document.querySelector('main').innerHTML !== {json.dumps(shown)}")
        assert page.errors == []


async def test_the_overview_stands_still_when_its_circuits_are_computed_for_the_first_time(tmp_path: Path) -> None:
    """In the first second after a start: tiles, power chain and map have the heights that they get."""
    fleet = LiveFleet(2, still=True)
    places = """[...document.querySelectorAll(".verdict:not(.old), .tiles, #chain, #map")]
      .map(each => Math.round((each.id ? each.closest("section") : each).getBoundingClientRect().bottom)).join()"""
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.size("desktop")
        await page.open(f"{client.url}/")
        assert "not computed yet" in await page.value("document.body.textContent")
        before = await page.value(places)
        await fleet.beat()
        await page.until("!document.body.textContent.includes('not computed yet')")
        assert len(before.split(",")) == 4
        assert await page.value(places) == before
        assert page.errors == []


async def test_a_long_table_is_not_shown_before_its_widths_are_known(tmp_path: Path) -> None:
    """A browser that has little of a processor painted its first rows, and moved them as the others came."""
    fleet = await fleet_of(2)
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.call("Emulation.setCPUThrottlingRate", rate=20)
        for path in ("/runbook", "/nodes/n1", "/runbook", "/nodes?sort=power&q=n", "/runbook", "/runbook"):
            await page.open(f"{client.url}{path}")
            await page.value("""void new PerformanceObserver(list => {
              for (const each of list.getEntries()) window.shift = (window.shift ?? 0) + each.value;
            }).observe({type: "layout-shift", buffered: true})""")
            await page.until("performance.getEntriesByName('first-contentful-paint').length > 0")
            await page.value("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
            assert await page.value("window.shift ?? 0") < 0.02, path
            assert await page.value("document.querySelector('link[rel=expect]').href.split('#')[0] === location.href")


async def test_the_picture_of_a_rack_is_changed_and_not_replaced(tmp_path: Path) -> None:
    """A rack that were replaced would have the map around it laid out anew."""
    fleet = await fleet_of(20)
    drawn = "[...document.querySelectorAll('a.rack path')].map(each => each.getAttribute('d')).join()"
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/")
        await page.value("document.querySelectorAll('a.rack svg').forEach(each => each.kept = true)")
        before = await page.value(drawn)
        while await page.value(drawn) == before:
            await fleet.beat()
            await page.value(_PLACED)
        kept = "[...document.querySelectorAll('a.rack > svg')].every(each => each.kept)"
        assert await page.value(kept)
        assert page.errors == []


async def test_an_update_walks_the_page_once_and_repaints_only_the_parts_it_is_in(tmp_path: Path) -> None:
    """Work that grows with the page, not with what has changed of it: 24 of 31 ms at 10,000 GPUs."""
    fleet = await fleet_of(2)
    async with door(fleet) as client, browsing(tmp_path / "profile") as page:
        await page.open(f"{client.url}/")
        await page.value(_PLACED)  # the first event may have nothing
        await page.value("""void (() => {
          let walks = 0;
          window.walked = [];
          for (const name of ["querySelector", "querySelectorAll"]) {
            const real = document[name].bind(document);
            document[name] = (...given) => { walks += given[0].includes("data-k"); return real(...given); };
          }
          document.addEventListener("kilowatch:placed", () => { window.walked.push(walks); walks = 0; });
          window.parts = new Set();
          new MutationObserver(all => all.forEach(({target}) => {
            const its = (target instanceof Element ? target : target.parentElement)?.closest("[data-k]");
            if (its) window.parts.add(its.dataset.k);
          })).observe(document.querySelector("main"), {subtree: true, childList: true, characterData: true, attributes: true});
        })()""")
        while await page.value("window.parts.size") < 2:
            await fleet.beat()
            await page.value(_PLACED)
        assert await page.value("Math.max(...window.walked)") == 1
        mixed = """[...document.querySelectorAll("main > *, .stack > *, .tile")]
          .filter(each => getComputedStyle(each).isolation !== "isolate").length"""
        assert await page.value(mixed) == 0
        assert page.errors == []
