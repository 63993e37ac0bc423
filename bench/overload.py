"""The load that a machine carries, and twice that: `python -m bench.ingest --overload`.

The aggregator is held to `--cap` cores, so that neither broker nor generator is what saturates: whole
cores are its own (`bench.processes.own_cores`) and the rest is for the others; a share of one is a quota
(`bench.processes.CpuCap`). The load that is
*carried* is the highest of a ladder at which no frame is shed, dropped or lost and the p99 from sample
to store is at most three seconds. Then twice that is sent for `--seconds`, and half of what is carried
afterwards, while the rings refill what was shed. Messages that the broker itself dropped are its own
count (`$SYS/broker/publish/messages/dropped`).
"""

from __future__ import annotations

import http.client
import math
import os
import socket
import sys
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import duckdb

from aggregator.load.controller import SIGNALS
from aggregator.store.provisional import PREFIX
from bench import wire
from bench.processes import CpuCap, CpuMeter, MemoryTrend, own_cores
from bench.testbed import ScrapedPage, Testbed, wait_until
from telemetry.wire.schema import GPU_FAST, SCHEMA

GPUS = 8
LATEST = 3.0
"""Seconds: the p99 to the store of a load that is carried."""
STEP = 1.25
"""Each load of the ladder to the one before."""
GUESS = 64_000
"""GPUs that a core may carry: where the ladder begins."""
FEWEST_NODES = 16
PROBE_SECONDS, PROBE_WARM = 40, 10
HEALTH_EVERY, HEALTH_LATEST = 0.1, 0.1
"""Seconds between two requests for /healthz, and the longest that one may take."""
RULES_LATEST = 5.0
SAMPLE_SECONDS = 5.0
EASE_EVERY = 4
"""Seconds between two frames of a node afterwards: of twice the load that is half of what is carried."""
REFILL_PATIENCE = 1800.0
MISSING_SECONDS = 120.0
"""For which what is still missing at the end is waited for; then it is lost."""
STILL_SECONDS = 15.0
"""As long as a mean may be open, and half as long again."""
DROPPED = "$SYS/broker/publish/messages/dropped"
STEPS = ("nothing", "history of half", "history", "frames", "viewers slowed", "viewers", "device metrics")


class HealthProbe:
    """Requests /healthz ten times a second while the context is open."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds: list[float] = []
        """Duration of each request; infinite for one that failed."""

    def __enter__(self) -> HealthProbe:
        sys.setswitchinterval(5e-4)  # a request is not to wait for the other work of this process
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        while not self._over.wait(HEALTH_EVERY):
            began = time.monotonic()
            try:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.seconds.append(math.inf)
            else:
                self.seconds.append(time.monotonic() - began)
        connection.close()

    def figures(self) -> dict[str, float]:
        """Return p50, p99 and max, seconds."""
        found = sorted(self.seconds)
        return {
            "requests": len(found),
            "p50": found[len(found) // 2],
            "p99": found[int(0.99 * (len(found) - 1))],
            "max": found[-1],
        }


class BrokerDrops:
    """Messages that mosquitto has dropped, by its own count, which it publishes every second."""

    def __init__(self, port: int) -> None:
        self._connection = wire.connect("127.0.0.1", port, "bench-drops")
        self._connection.sendall(wire.subscribe(DROPPED))
        self._buffer = bytearray()
        self._count = 0

    def count(self) -> int:
        """Return the newest count."""
        self._connection.setblocking(False)
        try:
            while True:
                self._buffer += self._connection.recv(1 << 16)
        except BlockingIOError:
            pass
        self._connection.setblocking(True)
        self._connection.sendall(wire.PINGREQ)
        for _, payload in wire.messages(self._buffer):
            self._count = int(payload)
        return self._count

    def close(self) -> None:
        """Close the connection."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def probe(nodes: int, cap: float, settings: str, seconds: int = PROBE_SECONDS) -> dict[str, Any]:
    """Send a load for some seconds; return whether it is carried, and why not."""
    with ExitStack() as stack:
        testbed = stack.enter_context(Testbed("mosquitto", settings))
        drops = _begin(stack, testbed, cap, nodes=nodes, gpus=GPUS, seconds=seconds)
        warm = min(PROBE_WARM, seconds / 4)
        time.sleep(warm)
        before = testbed.awaited_page()
        meter = CpuMeter(**testbed.pids)
        meter.start()
        testbed.expect("done")
        costs, after = meter.stop(), testbed.awaited_page()
        testbed.wait_until_stored(nodes * seconds, 15.0)
        lag = testbed.awaited_page().lags("committed").since(before.lags("committed"))
        dropped = drops.count()
        sent = testbed.end_generator()
        testbed.end_aggregator()
        found = testbed.audit()
    shed = after.sum("kilowatch_shed_frames_total") + after.sum("kilowatch_shed_frames_skipped_total")
    p99 = lag.quantile(0.99) or 0.0
    lost = sent["sent"] - found["distinct"]
    return {
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "store_p99": p99,
        "frames_shed": int(shed),
        "frames_lost": lost,
        "broker_dropped": dropped,
        "aggregator_cpu_percent": costs["aggregator"].cpu_percent,
        "broker_cpu_percent": costs["broker"].cpu_percent,
        "generator_cpu_percent": costs["generator"].cpu_percent,
        "generator_latest_seconds": sent["latest_seconds"],
        "carried": not shed and not lost and not dropped and p99 <= LATEST,
    }


def carried(cap: float, settings: str, guess: int, seconds: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the most nodes that are carried, and all probes: up from a guess while it is carried,
    else down until it is."""
    nodes, tried = max(FEWEST_NODES, round(guess / GPUS)), list[dict[str, Any]]()
    while True:
        tried.append(probe(nodes, cap, settings, seconds))
        _print_line(**tried[-1])
        good = [one["nodes"] for one in tried if one["carried"]]
        bad = [one["nodes"] for one in tried if not one["carried"]]
        if good and bad:
            return max(good), tried
        if not good and nodes <= FEWEST_NODES:
            return nodes, tried
        nodes = max(FEWEST_NODES, round(nodes * STEP if good else nodes / STEP))


def overload(nodes: int, cap: float, settings: str, seconds: int, limit_mib: int) -> dict[str, Any]:
    """Send twice the load of `nodes` for `seconds`, then half of it until all is refilled."""
    with ExitStack() as stack:
        more = f"memory_limit_bytes = {limit_mib * 1024 * 1024}"
        testbed = stack.enter_context(Testbed("mosquitto", f"{more}\n{settings}"))
        drops = _begin(stack, testbed, cap, nodes=2 * nodes, gpus=GPUS, seconds=seconds, ease_every=EASE_EVERY)
        began, steps = time.monotonic(), list[tuple[int, int]]()
        trend = stack.enter_context(MemoryTrend(testbed.pids["aggregator"]))
        health = HealthProbe(testbed.http)

        def sample() -> ScrapedPage:
            page = testbed.page()
            if page:
                step = int(page.sum("kilowatch_shed_step"))
                if not steps or steps[-1][1] != step:
                    steps.append((round(time.monotonic() - began), step))
                _print_line(
                    second=round(time.monotonic() - began),
                    step=STEPS[step],
                    missing=int(page.own("holes_open")),
                    rules_max=page.own("rule_period_highest_seconds"),
                    health_late=sum(each > HEALTH_LATEST for each in health.seconds),
                    health_max=max(health.seconds, default=0.0),
                    dropped=drops.count(),
                    **_readings(page),
                )
            return page

        meter = CpuMeter(**testbed.pids)
        meter.start()
        with health:
            testbed.expect("eased", sample, SAMPLE_SECONDS)
            costs, during = meter.stop(), testbed.awaited_page()
        eased, recovered, refilled = time.monotonic(), math.inf, math.inf
        after_health = HealthProbe(testbed.http)
        with after_health:
            while time.monotonic() - eased < REFILL_PATIENCE and math.isinf(refilled):
                page = sample()
                if page and not page.sum("kilowatch_shed_step"):
                    recovered = min(recovered, time.monotonic() - eased)
                    if not page.own("holes_open"):
                        refilled = time.monotonic() - eased
                time.sleep(SAMPLE_SECONDS)
        testbed.proceed()
        testbed.expect("done", sample)
        wait_until_still(testbed)
        last, dropped = testbed.awaited_page(), drops.count()
        sent = testbed.end_generator()
        testbed.end_aggregator()
        found = testbed.audit()
        means = _provisional_rows(testbed)
    peak = max((mib for _, mib in trend.points), default=0.0)
    lost = sent["sent"] - found["distinct"]
    rules = last.own("rule_period_highest_seconds")
    figures = health.figures()
    return {
        "gpus": 2 * nodes * GPUS,
        "seconds": seconds,
        "frames_sent": sent["sent"],
        "frames_shed": int(during.sum("kilowatch_shed_frames_total")),
        "frames_not_decoded": int(during.sum("kilowatch_shed_frames_skipped_total")),
        "broker_dropped": dropped,
        "healthz": figures,
        "healthz_while_refilling": after_health.figures(),
        "rule_period_max_seconds": rules,
        "memory_peak_mib": peak,
        "memory_limit_mib": limit_mib,
        "steps": " ".join(f"{at}s:{STEPS[step]}" for at, step in steps),
        "highest_step": STEPS[max((step for _, step in steps), default=0)],
        "recovered_seconds": recovered,
        "refilled_seconds": refilled,
        "frames_resent": sent["resent"],
        "frames_lost": lost,
        "frames_duplicated": found["frames"] - found["distinct"],
        "provisional_rows_left": means,
        "cpu_percent": {name: cost.cpu_percent for name, cost in costs.items()},
        "holds": {
            "health_below_100_ms": figures["max"] < HEALTH_LATEST,
            "rules_every_5_s": rules <= RULES_LATEST,
            "memory_below_its_limit": peak < limit_mib,
            "recovered": math.isfinite(recovered),
            "nothing_lost": lost == 0 and means == 0,
        },
    }


def measure(cap: float, seconds: int, limit_mib: int, guess: int, probe_seconds: int, settings: str) -> dict[str, Any]:
    """Find the load that is carried, and send twice that."""
    nodes, tried = carried(cap, settings, guess or round(GUESS * cap), probe_seconds)
    best = next(one for one in reversed(tried) if one["nodes"] == nodes)
    found = overload(nodes, cap, settings, seconds, limit_mib)
    return {
        "cap_cores": cap,
        "carried_gpus": nodes * GPUS,
        "carried_values_per_second": nodes * GPUS * len(SCHEMA.blocks[GPU_FAST].names),
        "carried": best,
        "overload": found,
    }


def _begin(stack: ExitStack, testbed: Testbed, cap: float, **options: int) -> BrokerDrops:
    testbed.start_aggregator()
    testbed.start_generator(**options)
    drops = BrokerDrops(testbed.port)
    stack.callback(drops.close)
    wait_until("all inventories", lambda: testbed.page().sum("kilowatch_cluster_nodes") >= options["nodes"], 300)
    testbed.proceed()
    # The tables and names of a fleet are stored once: that is no part of its load.
    wait_until("the first commit", lambda: testbed.page().own("store_seconds_count") > 0)
    stack.enter_context(_held(testbed, cap))
    return drops


def _held(testbed: Testbed, cap: float) -> AbstractContextManager[object]:
    pid = testbed.pids["aggregator"]
    if cap != int(cap) or cap >= len(os.sched_getaffinity(0)):
        return CpuCap(pid, cap)
    others = [each for each in testbed.pids.values() if each != pid]
    return own_cores(pid, int(cap), [*others, os.getpid()])


def wait_until_still(testbed: Testbed) -> None:
    """Wait until nothing has been stored for a while and nothing is missing: what is in memory then is lost, if anything."""
    seen, moved = -1.0, time.monotonic()
    ends = moved + MISSING_SECONDS
    while time.monotonic() < min(ends, moved + STILL_SECONDS):
        page = testbed.page()
        stored = page.own("frames_stored_total")
        if not page or stored > seen or page.own("holes_open"):  # one that does not answer is not still
            seen, moved = max(seen, stored), time.monotonic()
        time.sleep(0.5)


def _provisional_rows(testbed: Testbed) -> int:
    file = str(testbed.folder / "data" / "hot.duckdb")
    with duckdb.connect(file, read_only=True) as store:
        tables = store.execute("select table_name from duckdb_tables()").fetchall()
        return sum(
            int(store.execute(f"select count(*) from {name}").fetchall()[0][0])
            for (name,) in tables
            if name.startswith(PREFIX)
        )


def _readings(page: ScrapedPage) -> dict[str, float]:
    name = "kilowatch_load_reading"
    return {each.name: page.sum(name, f'"{each.name}"') for each in SIGNALS}


def _print_line(**figures: object) -> None:
    shown = (f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items())
    print(time.strftime("%H:%M:%S"), *shown, file=sys.stderr, flush=True)
