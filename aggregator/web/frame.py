"""The frame of the pages: their routes, the head and the menu, who may see them, and their errors.

A page is a function that returns its content. Pages are read-only, and need the same as the API: a token with
the scope `read` except on loopback. A browser sends no token when a link is followed, so that the
answer is a page without data then, whose script asks for the token and loads the page with it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

from aiohttp import hdrs, web

from aggregator.http.auth import CALLER, GUARD, READING, AccessRule
from aggregator.http.errors import Handler, RequestError, printable
from aggregator.http.reply import VIEW, accepts_gzip, gzipped
from aggregator.web import (
    alert_pages,
    design_page,
    device_pages,
    electrical_pages,
    find_page,
    fleet_pages,
    job_pages,
    overview_page,
    port_pages,
    runbook_pages,
)
from aggregator.web.content import PageContent
from aggregator.web.gpu_holders import jobs_on
from aggregator.web.headline_part import OLD
from aggregator.web.icons import HATCHES
from aggregator.web.live_pages import EVENTS, ID, LivePages, Page
from aggregator.web.made_once import MadeOnce
from aggregator.web.markup import clock_time, path, text
from aggregator.web.past_readings import MOST_PASTS, PAST_SECONDS, SHARED_PAST
from api.alerts import Incident, Severity

PAGES: dict[str, Page] = {
    "/": overview_page.overview,
    "/alerts": alert_pages.alerts,
    "/incidents/{key:.+}": alert_pages.incident,
    "/nodes": device_pages.nodes,
    "/nodes/{node}": device_pages.node,
    "/gpus/{uuid}": device_pages.gpu,
    "/ports": port_pages.ports,
    "/ports/{id:.+}": port_pages.port,
    "/fitness": fleet_pages.fitness,
    "/drift": fleet_pages.drift,
    "/jobs": job_pages.jobs,
    "/jobs/{id:.+}": job_pages.job,
    "/circuits": electrical_pages.circuits,
    "/circuits/{circuit:.+}": electrical_pages.circuit,
    "/energy": electrical_pages.energy,
    "/design": design_page.design,
    "/find": find_page.find,
    "/runbook": runbook_pages.index,
    "/runbook/{rule}": runbook_pages.rule,
}
"""Pages by path."""
MENU = {
    "": "Overview",
    "circuits": "Circuits",
    "nodes": "Nodes",
    "jobs": "Jobs",
    "energy": "Energy",
    "alerts": "Alerts",
    "ports": "Ports",
    "fitness": "Fitness",
    "drift": "Drift",
    "runbook": "Runbook",
}
"""Links of the menu, by path; "jobs" where a node says who holds its GPUs."""
HTML = "text/html; charset=utf-8"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
)
_STATIC = Path(__file__).with_name("static")
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
SHEETS, SCRIPTS = (
    ("tokens.css", "frame.css", "parts.css", "map.css", "chain.css"),
    ("pages.js", "actions.js", "countdown.js", "chart.js"),
)
THEME = "theme.js"
"""Script that a page waits for: the theme is chosen before anything is painted."""
ICON = "icon.svg"
_BRAND = '<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M4 2v16M4 10h5M9 10L15 4M13 10h3M16 2v16"/></svg>'
_FIND = (
    '<form class="find" action="find" method="get" role="search" aria-label="Find"><label><span class="hidden">Find</span>'
    '<input name="q" autocomplete="off" placeholder="Find node, GPU, circuit, job"></label><kbd>/</kbd></form>'
)
_OPEN = AccessRule("page", None)
"""Of the frame itself, which has no data."""


LIVE = web.AppKey("live_pages", LivePages)


@functools.cache
def static_files() -> dict[str, tuple[bytes, str, str]]:
    """Return the files beside the pages by name: body, type, and a version that changes with the body."""
    return {
        name: (body, _TYPES[Path(name).suffix], hashlib.sha256(body).hexdigest()[:12])
        for name in (*SHEETS, *SCRIPTS, THEME, ICON)
        for body in [(_STATIC / name).read_bytes()]
    }


_packed = functools.cache(gzipped)
"""Each of these files compressed once."""


def add_pages(app: web.Application, expect: Callable[[web.Request], Awaitable[None]]) -> None:
    """Add the routes of the pages to an application. `expect` answers `Expect: 100-continue`."""
    app[LIVE] = LivePages(_html)
    app.on_shutdown.append(app[LIVE].close)
    app[SHARED_PAST] = MadeOnce(PAST_SECONDS, MOST_PASTS)
    for route, page in PAGES.items():
        app.router.add_get(route, functools.partial(_answer, page), expect_handler=expect)
    app.router.add_get("/static/{name}", _static, expect_handler=expect)


def page_rules() -> dict[tuple[str, str], AccessRule]:
    """Return what the guard asks of a caller of the frame: nothing; `_answer` asks for what is in it."""
    routes = [route.replace(":.+}", "}") for route in PAGES]
    return {(route, "get"): _OPEN for route in (*routes, "/static/{name}")}


async def _static(request: web.Request) -> web.Response:
    found = static_files().get(request.match_info["name"])
    if found is None:
        raise RequestError(404, "path", "there is no such file")
    body, kind, version = found
    kept = "max-age=86400"
    if request.query_string == version:  # another body has another URL
        kept += ", immutable"
    headers = {hdrs.CONTENT_TYPE: kind, hdrs.CACHE_CONTROL: kept, hdrs.VARY: hdrs.ACCEPT_ENCODING}
    packed = False
    if accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        body, packed = _packed(body)
    if packed:
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(body=body, headers=headers)


@web.middleware
async def missing_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a browser with a page where there is nothing; the API and its callers get JSON."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        wants_page = "text/html" in request.headers.get(hdrs.ACCEPT, "")
        if request.method != hdrs.METH_GET or not wants_page or request.path.startswith("/api/"):
            raise
        return await _answer(_missing, request)


async def _missing(request: web.Request) -> PageContent:
    cure = f"There are: {', '.join(_menu(request, 404).values())}; the menu leads to them."
    raise RequestError(404, "path", f"there is nothing at {request.path}", cure)


async def _answer(page: Page, request: web.Request) -> web.StreamResponse:
    """Answer with a page in its frame; a fault is a page too."""
    try:
        request[CALLER] = request.app[GUARD].admit(request, READING)
        if EVENTS in request.headers.get(hdrs.ACCEPT, ""):
            return await request.app[LIVE].follow(page, request)
        return _reply(*await request.app[LIVE].body(page, request))
    except RequestError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return _framed(request, _sign_in(), error.status, {"WWW-Authenticate": "Bearer", **error.headers})
        fault = printable(error.fault)
        words = f"<p>{text(fault.where)}: {text(fault.what)}.</p><p>{text(fault.cure)}</p>"
        content = PageContent(HTTPStatus(error.status).phrase, words)
        return _framed(request, content, error.status, error.headers)


def _sign_in() -> PageContent:
    body = (
        '<form id="sign-in"><p>A token with the scope read is needed: <code>kilowatch token add NAME</code> on the '
        "aggregator's machine makes one. It stays in this tab.</p>"
        '<label>Token <input type="password" name="token" required autocomplete="off"></label> '
        '<button>Sign in</button><p role="alert" class="status"></p></form>'
        "<noscript><p>It can only be sent by the script of this page.</p></noscript>"
    )
    return PageContent("Sign in", body)


def _framed(request: web.Request, content: PageContent, status: int, headers: Mapping[str, str]) -> web.Response:
    """Answer with a page that nobody shares."""
    html = "".join(_html(request, content, status)).encode()
    zipped = accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    return _reply(*(gzipped(html) if zipped else (html, False)), status, headers)


def _reply(body: bytes, packed: bool, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    made = {hdrs.CONTENT_TYPE: HTML, "Content-Security-Policy": CSP, hdrs.VARY: f"{hdrs.ACCEPT}, {hdrs.ACCEPT_ENCODING}", **(headers or {})}  # fmt: skip
    if packed:
        made[hdrs.CONTENT_ENCODING] = "gzip"
    return web.Response(status=status, body=body, headers=made)


def _menu(request: web.Request, status: int) -> Mapping[str, str]:
    """Return the links of the menu; who may see nothing does not learn whether there are jobs."""
    if status != HTTPStatus.UNAUTHORIZED and jobs_on(request.app[VIEW].jobs):
        return MENU
    return {way: words for way, words in MENU.items() if way != "jobs"}


def _open(found: Sequence[Incident]) -> str:
    """Return how many incidents are open, for the menu. `found`: those, the worst first."""
    if not found:
        return ""
    worst = " page" if found[0].severity is Severity.PAGE else ""
    return f' <span class="n{worst}">{len(found):,}<span class="hidden"> open</span></span>'


def _html(request: web.Request, content: PageContent, status: int = 200) -> tuple[str, str]:
    """Return a page in its frame: the HTML up to its body, and from there on."""
    route = request.match_info.route.resource
    way = request.rel_url.raw_path if route is None else route.canonical
    depth = max(0, way.count("/") - 1)
    here = (
        f"{request.rel_url.raw_path.lstrip('/')}{'?' if request.query_string else ''}{request.rel_url.raw_query_string}"
    )
    root, first = "../" * depth or "./", request.path.split("/")[1]
    files = static_files()
    sheets = "".join(f'<link rel="stylesheet" href="static/{name}?{files[name][2]}">' for name in SHEETS)
    scripts = "".join(f'<script type="module" src="static/{name}?{files[name][2]}"></script>' for name in SCRIPTS)
    scripts = f'<script src="static/{THEME}?{files[THEME][2]}"></script>{scripts}'
    icon = f'<link rel="icon" href="static/{ICON}?{files[ICON][2]}">'
    numbers = (
        {} if status == HTTPStatus.UNAUTHORIZED else {"alerts": _open(request.app[VIEW].pipeline.manager.incidents())}
    )
    menu = "".join(
        f'<li><a href="{path(way) or "./"}"{" aria-current=page" if way == first else ""}>{words}{numbers.get(way, "")}</a></li>'
        for way, words in _menu(request, status).items()
    )
    cluster, kind, live = "", "", ""
    if status != HTTPStatus.UNAUTHORIZED:
        view = request.app[VIEW]
        cluster, at = text(view.cluster), view.wall()
        live = (
            f'<span data-k="live" class="live">live, {clock_time(at, at)}</span>'
            if content.live
            else f'<span class="live still">of {clock_time(at, at)}</span>'
        )
        if any(node.inventory.source.startswith("simulated") for node in view.fleet.nodes.values()):
            kind = '<strong class="badge simulated">simulated</strong> '
        if view.missing:
            kind += f'<strong class="badge unheard" role="status">no answer: {text("; ".join(view.missing))}</strong> '
    # A long table that is painted before its end has other widths then, and moves.
    whole = f'<link rel="expect" blocking="render" href="{text(here)}#end">'
    title = f"<h1{'' if content.titled else ' class=hidden'}>{text(content.title)}</h1>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<base href="{root}"><title>{text(content.title)} - kilowatch {cluster}</title>{icon}{sheets}{scripts}{whole}</head>',
        f'<body><a class="skip" href="{text(here)}#main">To the content</a>'
        f'{HATCHES}<header data-k="top" class="top"><a class="brand" href="./">{_BRAND}kilowatch</a> <span class="site">{cluster}</span> {kind}'
        f'<nav aria-label="Pages"><ul data-k="menu">{menu}</ul></nav>{_FIND}{live}<button type="button" class="theme">Theme</button></header>'
        f'<main data-k="main" id="main" tabindex="-1"{f" {ID}" if content.live else ""}>{OLD}{title}{content.body}</main><span id="end"></span></body></html>',
    )
