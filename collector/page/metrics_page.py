"""The node's own HTTP page: `/metrics` for a Prometheus that scrapes nodes, `/metrics/dcgm` the same under dcgm-exporter's
names, `/healthz` for probes.

A very small HTTP/1.1 server: GET of three paths, one reply per connection, everything bounded. A web
framework would take more memory than all the rest of a collector.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from collector.assembly import STALE_INTERVALS, CollectorAssembly, CollectorSummary
from collector.config import CollectorConfig, listen_address
from collector.sampling.sampler import Newest
from collector.source import Rows
from telemetry.catalogue import BY_NAME
from telemetry.errors import ConfigError
from telemetry.gap import STALE
from telemetry.metric import Lane, Table
from telemetry.wire import exposition
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, Family
from telemetry.wire.schema import SCHEMA

if TYPE_CHECKING:
    from telemetry.wire.dcgm import CounterList
    from telemetry.wire.jobs import NodeJobs

log = logging.getLogger(__name__)

MOST_CLIENTS = 16
MOST_REQUEST_BYTES = 8 * 1024
ASKING, ANSWERING = 5.0, 10.0
"""Seconds that a client may take to send its request, and to receive the reply."""

_PAGES = b"here are /metrics, /metrics/dcgm and /healthz\n"
_COUNTERS = {
    "frames": "Frames sampled.",
    "frames_published": "Frames handed to the network live.",
    "frames_unsent": "Live frames dropped because the network was slow; the ring has them.",
    "frames_unkept": "Frames that the ring on disk could not keep.",
    "frames_resent": "Frames sent again on request.",
    "frames_gone": "Requested frames that the ring no longer had.",
    "source_errors": "Ticks at which the source raised, overran or returned misshapen rows.",
    "events": "Events, such as XIDs.",
    "events_dropped": "Events beyond what frames can carry.",
    "connects": "Connections to the broker.",
    "commands": "Commands received.",
    "commands_malformed": "Commands that could not be decoded.",
    "commands_refused": "Commands not obeyed: not in accept_commands, or beyond the rate limit.",
}
"""Fields of `CollectorSummary` on the page, with their help."""


class PageReply(NamedTuple):
    """Reply to a request."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"


def own_families(summary: CollectorSummary, pairs: dict[str, str | None]) -> list[Family]:
    """Return the collector's own counters as families of the page."""
    values = asdict(summary)
    label = exposition.labels(pairs)
    return [
        Family(f"{PREFIX}collector_{name}_total", text, COUNTER, [(label, float(values[name]))])
        for name, text in _COUNTERS.items()
    ]


def task_families(parts: CollectorAssembly, pairs: dict[str, str | None]) -> list[Family]:
    """Return the states of tasks and threads, and the ages of their progress."""
    tasks = parts.supervisor.states.values()
    failing = parts.failing()
    names = sorted(failing.keys() | {task.name for task in tasks})
    ages = parts.marks.ages()

    def label(**more: str) -> str:
        return exposition.labels({**pairs, **more})

    return [
        Family(
            f"{PREFIX}collector_task_failing",
            "1 for a task or thread that failed and has not worked for a while since.",
            GAUGE,
            [(label(task=name), float(name in failing)) for name in names],
        ),
        Family(
            f"{PREFIX}collector_task_restarts_total",
            "Restarts of tasks and threads.",
            COUNTER,
            [(label(task=task.name), float(task.restarts)) for task in tasks],
        ),
        Family(
            f"{PREFIX}collector_progress_age_seconds",
            "Time since a sample, or since a frame was sent or stored.",
            GAUGE,
            [(label(part=part), round(age, 3)) for part, age in ages.items()],
        ),
    ]


def metrics_page(
    newest: Newest,
    summary: CollectorSummary,
    now: float,
    interval: float,
    slow_interval: float,
    tasks: Sequence[Family] = (),
) -> bytes:
    """Return the page at `now` (monotonic seconds), without stale readings."""
    families = exposition.node_families(
        newest.inventory,
        _fresh(newest, now, interval, slow_interval),
        up=now - newest.at <= STALE_INTERVALS * interval,
        last_frame=newest.sampled_at / 1e9,
    )
    own = own_families(summary, exposition.node_pairs(newest.inventory))
    return exposition.render([*families, *own, *tasks])


def _fresh(newest: Newest, now: float, interval: float, slow_interval: float) -> Rows:
    """Return the newest rows by block, without stale ones."""
    ages = {Lane.FAST: STALE_INTERVALS * interval, Lane.SLOW: STALE_INTERVALS * slow_interval}
    return {
        number: block
        for number, block in newest.rows.items()
        if now - newest.taken[number] <= ages[SCHEMA.blocks[number].lane]
    }


def dcgm_page(newest: Newest, rows: Rows, jobs: NodeJobs | None, wanted: CounterList | None, host_label: str) -> bytes:
    """Return the page with dcgm-exporter's names: the readings of `rows`, and who has the GPUs where `jobs` says it.
    `wanted`: None for the exporter's own lists."""
    from telemetry.wire import dcgm  # noqa: PLC0415 - its tables are of use to who asks for them alone

    sizes = {table: len(exposition.fragments(newest.inventory, table)) for table in Table}

    def column(name: str) -> list[float]:
        metric = BY_NAME[name]
        number = SCHEMA.index(metric.table, metric.lane)
        at = SCHEMA.blocks[number].names.index(name)
        return [row[at] for row in rows.get(number, ())] or [STALE] * sizes[metric.table]

    xids = {gpu: dcgm.LastXid(number, f"XID {number}") for gpu, number in newest.xids.items()}
    return exposition.render(
        dcgm.families(
            newest.inventory, column, jobs=jobs, xids=xids, wanted=wanted or dcgm.DEFAULT, host_label=host_label
        )
    )


def answer(
    parts: CollectorAssembly, path: str, now: float, query: str = "", wanted: CounterList | None = None
) -> PageReply:
    """Return the reply to a GET. `wanted`: counters under dcgm-exporter's names."""
    newest, config = parts.sampler.newest, parts.config
    match path:
        case "/metrics/dcgm" if newest is not None:
            asked = dict(parse_qsl(query))
            up = now - newest.at <= STALE_INTERVALS * config.interval
            named = config.metrics_jobs and parts.jobs is not None and asked.get("job_labels") != "no"
            page = dcgm_page(
                newest,
                _fresh(newest, now, config.interval, config.slow_interval),
                parts.jobs.newest if named and parts.jobs is not None else None,
                wanted,
                "hostname" if asked.get("host_label") == "hostname" else "Hostname",
            )
            return PageReply(HTTPStatus.OK, page if up else b"", exposition.CONTENT_TYPE)
        case "/metrics" if newest is not None:
            pairs = exposition.node_pairs(newest.inventory)
            tasks = task_families(parts, pairs)
            if parts.jobs is not None:
                missed = exposition.unattributed_samples(pairs, parts.jobs.newest)
                tasks.append(exposition.unattributed_family(missed))
            page = metrics_page(newest, parts.summary(), now, config.interval, config.slow_interval, tasks)
            return PageReply(HTTPStatus.OK, page, exposition.CONTENT_TYPE)
        case "/healthz" if newest is not None:
            age = now - newest.at
            unsent = parts.marks.blocked().get("frame sent")
            if unsent is not None:
                text = f"frames wait and none was sent for {unsent:.0f} s\n"
            elif age > STALE_INTERVALS * config.interval:
                text = f"the newest frame is {age:.1f} s old\n"
            else:
                failing = "".join(f"{name}: {why}\n" for name, why in parts.failing().items())
                return PageReply(HTTPStatus.OK, f"ok\n{failing}".encode())
            return PageReply(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        case "/metrics" | "/metrics/dcgm" | "/healthz":
            return PageReply(HTTPStatus.SERVICE_UNAVAILABLE, b"no frame yet\n")
        case _:
            return PageReply(HTTPStatus.NOT_FOUND, _PAGES)


def names_of(parts: CollectorAssembly) -> frozenset[str]:
    """Return the host names by which the page may be asked for, beside addresses: a web page elsewhere whose name was
    made to point here has another."""
    config = parts.config
    names = ("localhost", config.node, socket.gethostname(), socket.getfqdn(), *config.names)
    return frozenset(name.lower() for name in names)


def is_called(host: str, names: Collection[str]) -> bool:
    """Return whether a `Host` header names this page; one without it is of no browser."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return not host or name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def counters(config: CollectorConfig) -> CounterList | None:
    """Load what the page with dcgm-exporter's names shows, and log what of it can't be given; None without a file.
    Raises `ConfigError`."""
    if config.dcgm_counters is None:
        return None
    from telemetry.wire.dcgm import load_list  # noqa: PLC0415 - as in `dcgm_page`

    found = load_list("collector.dcgm_counters", config.dcgm_counters)
    for each in found.missing:
        log.warning("node=%s %s", config.node, each)
    return found


async def serve(listen: str, parts: CollectorAssembly) -> None:
    """Serve until cancelled. Raises `ConfigError` when the address can't be bound, or the file of counters is none."""
    host, port = listen_address("collector.metrics_listen", listen)
    names = await asyncio.to_thread(names_of, parts)  # a name server may be slow
    wanted = counters(parts.config)
    clients = _Clients(lambda path, query: answer(parts, path, time.monotonic(), query, wanted), names)
    try:
        server = await asyncio.start_server(clients.serve, host, port, limit=MOST_REQUEST_BYTES)
    except OSError as error:
        raise ConfigError(
            "collector.metrics_listen",
            f"{listen} can't be listened on: {error.strerror or error}",
            "Choose an address of this machine and a free port.",
        ) from error
    async with server:
        parts.begun("page")
        log.info("node=%s metrics page at http://%s:%d/metrics", parts.config.node, host, port)
        await server.serve_forever()


class _Clients:
    """Connected clients, a bounded number."""

    def __init__(self, answer_to: Callable[[str, str], PageReply], names: Collection[str]) -> None:
        self._answer_to = answer_to
        self._names = names
        self._count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= MOST_CLIENTS:
                async with asyncio.timeout(ASKING):
                    request = await reader.readuntil(b"\r\n\r\n")
                async with asyncio.timeout(ANSWERING):
                    writer.write(self._response(request))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # too slow, too long, or gone
        finally:
            self._count -= 1
            writer.close()

    def _response(self, request: bytes) -> bytes:
        line, *fields = request.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        pairs = [(name.lower(), value.strip()) for name, _, value in (field.partition(":") for field in fields)]
        hosts = [value for name, value in pairs if name == "host"]
        origins = [value.partition("://")[2].lower() for name, value in pairs if name == "origin"]
        if len(hosts) > 1 or not is_called("".join(hosts), self._names):
            text = b"this page has another name; add this one to collector.names\n"
            found = PageReply(HTTPStatus.MISDIRECTED_REQUEST, text)
        elif any(origin != "".join(hosts).lower() for origin in origins):
            found = PageReply(HTTPStatus.FORBIDDEN, b"the request comes from a page of another site\n")
        elif method in {"GET", "HEAD"}:
            try:
                found = self._answer_to(path, query)
            except Exception:  # what fails on one page must reach its reader
                log.exception("the page %s could not be made", path)
                text = b"the page could not be made; the collector's log says why\n"
                found = PageReply(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        else:
            found = PageReply(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
        head = (
            f"HTTP/1.1 {found.status.value} {found.status.phrase}\r\n"
            f"Content-Type: {found.kind}\r\nContent-Length: {len(found.body)}\r\n"
            "Connection: close\r\n\r\n"
        ).encode()
        return head if method == "HEAD" else head + found.body
