"""The table of docs/benchmarks.md, each figure beside its command."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import flat, text

FILE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- written by make bench -->", "<!-- end -->"
LIBRARIES = ("duckdb", "gmqtt", "gpustat", "influxdb-client", "msgspec", "numpy", "nvidia-ml-py",
             "nvitop", "prometheus-client", "aiomqtt")  # fmt: skip
PROGRAMS = {
    "mosquitto": ["mosquitto", "-h"],
    "influxd": ["influxd", "version"],
    "victoria-metrics": ["victoria-metrics", "-version"],
}
_VERSION = re.compile(r"\d+\.\d+\.\d+")

Figures = Mapping[str, Any]
Ratio = Callable[[Figures], tuple[float, float] | None]


class TableRow(NamedTuple):
    """Row of the table, as text."""

    what: str
    ours: str
    against: str
    ratio: str
    command: str


class Line(NamedTuple):
    """Figure of a measurement by its dotted name, and the figure that it is compared with."""

    bench: str
    what: str
    figure: str
    unit: str = ""
    against: str = ""
    other: str = ""
    """Dotted name of the compared figure of the same run."""


_GPU_HOUR = "one GPU, one metric, one hour, sealed"
LINES = (
    Line("frames", "decode and store a value", "frame_decode_and_store_ns", "ns", "JSON decode",
         "json_decode_ns"),
    Line("frames", "bytes of a value on the wire", "frame_bytes", "B", "JSON", "json_bytes"),
    *(Line("collector", f"collector, {words}: CPU a reading", f"{run}.kilowatch.us_per_reading",
           "us", peer, f"{run}.{peer}.us_per_reading")
      for run, words in (("at_once", "driver at once"), ("with_latency", "30 us a call"))
      for peer in ("gpustat", "nvitop", "pynvml")),
    *(Line("collector", f"collector, {words}: CPU, both processes", f"{run}.kilowatch.cpu_percent",
           "% of a core", peer, f"{run}.{peer}.cpu_percent")
      for run, words in (("at_once", "driver at once"), ("with_latency", "30 us a call"))
      for peer in ("gpustat", "nvitop", "pynvml")),
    Line("collector", "collector: memory (PSS), both processes", "at_once.kilowatch.pss_mib", "MiB",
         "gpustat", "at_once.gpustat.pss_mib"),
    Line("collector", "collector: start to first frame", "at_once.kilowatch.first_reading_seconds",
         "s", "gpustat", "at_once.gpustat.first_reading_seconds"),
    Line("collector", "collector: driver calls a tick, 8 GPUs", "at_once.kilowatch.calls_per_tick",
         "", "gpustat", "at_once.gpustat.calls_per_tick"),
    Line("node", "readings of a node with ten ports beside its GPUs: added CPU", "cpu_percent_more", "% of a core",
         "the collector without", "none.cpu_percent"),
    Line("node", "readings of a node: added memory (PSS)", "pss_mib_more", "MiB"),
    *(Line("check", f"kilowatch check --quick, {words}", f"{kind}_seconds", "s") for kind, words in (
        ("dgx_h100", "DGX H100"), ("hgx_roce", "HGX with RoCE"), ("gb200_tray", "tray of an NVL72"),
        ("desktop", "desktop"), ("storage", "storage node"), ("head", "head node"))),
    Line("jobs", "jobs and processes, 64 on 8 GPUs: added CPU", "added_cpu_percent", "% of a core",
         "the collector without", "without.cpu_percent"),
    Line("jobs", "jobs and processes: added memory (PSS)", "added_pss_mib", "MiB"),
    Line("jobs", "jobs and processes: driver calls a second more", "added_calls_a_second"),
    *(Line("job_turnover", f"aggregator, 10,000 GPUs all held, 500 jobs a minute, 100,000 stored: {what}", f"{part}_percent", "% of a core")
      for what, part in (("CPU", "cpu"), ("lists of nodes", "lists"), ("counting", "steps"), ("writing", "writes"))),
    Line("asker", "asking Slurm about 5,000 jobs each 15 s, 500 a minute new: CPU", "cpu_percent", "% of a core"),
    Line("asker", "asking Slurm: CPU a question, squeue's 15 MB and sacct's 125 jobs", "cpu_seconds_a_question", "s"),
    Line("job_year", "a year of 50,000 jobs in the store", "megabytes", "MB", "of them Parquet", "parquet_megabytes"),
    Line("job_year", "a month of one of 40 users among them", "month_of_a_user_seconds", "s"),
    *(line for bench, words in (("ingest", "10,000 GPUs"), ("ingest_large", "100,000 GPUs"),
                                ("ingest_embedded", "10,000 GPUs, embedded broker"))
      for line in (
          Line(bench, f"{words}: values a second", "values_per_second"),
          Line(bench, f"{words}: frames lost", "frames_lost", "", "sent", "frames_sent"),
          Line(bench, f"{words}: frames stored twice", "frames_duplicated"),
          Line(bench, f"{words}: frames requested again", "frames_resent"),
          Line(bench, f"{words}: aggregator CPU", "processes.aggregator.cpu_percent", "% of a core",
               "broker", "processes.broker.cpu_percent"),
          Line(bench, f"{words}: generator CPU", "processes.generator.cpu_percent", "% of a core"),
          Line(bench, f"{words}: aggregator memory, peak", "processes.aggregator.peak_rss_mib",
               "MiB"),
          Line(bench, f"{words}: sample to fleet, p50", "lags.shown.p50", "s"),
          Line(bench, f"{words}: sample to fleet, p99", "lags.shown.p99", "s"),
          Line(bench, f"{words}: sample to fleet, max", "lags.shown.max", "s"),
          Line(bench, f"{words}: sample to rules, p50", "lags.judged.p50", "s"),
          Line(bench, f"{words}: sample to rules, p99", "lags.judged.p99", "s"),
          Line(bench, f"{words}: sample to rules, max", "lags.judged.max", "s"),
          Line(bench, f"{words}: sample to store, p50", "lags.committed.p50", "s"),
          Line(bench, f"{words}: sample to store, p99", "lags.committed.p99", "s"),
          Line(bench, f"{words}: sample to store, max", "lags.committed.max", "s"),
          Line(bench, f"{words}: bytes a value on disk, not sealed", "hot_bytes_per_value", "B"),
      )),
    Line("ingest", "aggregator CPU a million values", "aggregator_cpu_seconds_per_million_values",
         "s", "the common way", "common_way.cpu_seconds_per_million_values"),
    Line("ingest", "the common way carries", "common_way.carries_gpus", "GPUs", "breaks at",
         "common_way.breaks_at_gpus"),
    Line("overload", "carried by one core, nothing shed or lost", "carried_gpus", "GPUs", "sent then",
         "overload.gpus"),
    Line("overload", "carried: sample to store, p99", "carried.store_p99", "s"),
    *(Line("overload", f"twice that: {what}", f"overload.{figure}", unit) for what, figure, unit in (
        ("/healthz, p50", "healthz.p50", "s"),
        ("/healthz, p99", "healthz.p99", "s"),
        ("/healthz, max", "healthz.max", "s"),
        ("longest time between two runs of the rules", "rule_period_max_seconds", "s"),
        ("memory, peak", "memory_peak_mib", "MiB"),
        ("what was shed at most", "highest_step", ""),
        ("frames shed", "frames_shed", ""),
        ("messages that the broker dropped", "broker_dropped", ""),
        ("until nothing was shed", "recovered_seconds", "s"),
        ("until the rings had refilled all", "refilled_seconds", "s"),
        ("frames lost in the end", "frames_lost", ""),
        ("means left in the end", "provisional_rows_left", ""),
    )),
    Line("exposition", "/metrics of 100,000 series", "milliseconds", "ms", "prometheus_client",
         "prometheus_client_milliseconds"),
    *(line for peer in ("influxdb", "victoria_metrics") for line in (
        Line("store", "store: insert a value, a fleet's tick", "insert.ns_per_value", "ns", peer,
             f"{peer}.insert_ns_per_value"),
        Line("store", "store: bytes a value, sealed", "history.sealed_bytes_per_value", "B", peer,
             f"{peer}.bytes_per_value"),
        Line("store", f"store: {_GPU_HOUR}", "history.one_gpu_one_metric_sealed_milliseconds", "ms",
             peer, f"{peer}.one_gpu_one_metric_milliseconds"),
        Line("store", "store: 50 highest of 10,000 GPUs now", "top_50.milliseconds", "ms", peer,
             f"{peer}.top_50_milliseconds"),
    )),
    Line("store", "store: bytes a value, sealed, lively load", "lively.sealed_bytes_per_value", "B",
         "a steady job", "history.sealed_bytes_per_value"),
    Line("store", "store: seal a value", "history.sealing_ns_per_value", "ns", "insert",
         "insert.ns_per_value"),
    Line("backfill", "backfill: drain", "drain_seconds", "s"),
    Line("backfill", "backfill: frames a second", "frames_per_second"),
    Line("backfill", "backfill: frames lost", "frames_lost", "", "backlog", "backlog_frames"),
    Line("backfill", "backfill: live lag meanwhile, max", "live_lag.max", "s"),
    Line("circuits", "2,000 circuits, 100,000 GPUs: one evaluation, median",
         "tick_median_milliseconds", "ms", "a plain loop", "plain_loop_milliseconds"),
    Line("circuits", "2,000 circuits, 100,000 GPUs: one evaluation, max",
         "tick_max_milliseconds", "ms"),
    Line("circuits", "2,000 circuits, 100,000 GPUs: one evaluation, CPU, max",
         "tick_cpu_max_milliseconds", "ms"),
    Line("circuits", "2,000 circuits, all overloaded: one evaluation, max",
         "overloaded_tick_max_milliseconds", "ms"),
    Line("circuits", "the same with one budget over all circuits, over that without: CPU, median",
         "budget_tick_cpu_median_ratio", "x"),
    Line("circuits", "the same, max", "budget_tick_cpu_max_ratio", "x"),
    Line("circuits", "all losses of 2,000 circuits: a tick with over one without, CPU, median",
         "losses_tick_cpu_median_ratio", "x", "the losses alone, ms", "losses_cpu_median_milliseconds"),
    Line("circuits", "memory of a month of 2,000 circuits", "budget_month_megabytes", "MB"),
    Line("circuits", "kilowatch fit over 2,000 circuits in pairs, 12,500 nodes", "fit_milliseconds", "ms"),
    Line("circuits", "the same over all pairs of circuits without a group", "fit_undeclared_milliseconds",
         "ms"),
    *(line for bench, words in (("rules", "100,000 GPUs, 2,000 circuits"),
                                ("rules_links", "the same with 1,800,000 NVLinks")) for line in (
        Line(bench, f"all rules once, {words}: median", "milliseconds.median", "ms",
             "one comparison a rule", "floor_milliseconds"),
        Line(bench, f"all rules once, {words}: p99", "milliseconds.p99", "ms"),
        Line(bench, f"all rules, {words}: memory of a GPU", "bytes_per_gpu", "B"),
    )),
    *(Line("rules_peers", f"rules of rates and peers, 100,000 GPUs, 1,800,000 NVLinks: {what}", *rest)
      for what, *rest in (
        ("median", "milliseconds.median", "ms"),
        ("p99", "milliseconds.p99", "ms"),
        ("worst", "milliseconds.worst", "ms"),
        ("memory of a GPU", "bytes_per_gpu", "B"),
    )),
    *(Line("stragglers", f"64 nodes, 100 jobs at a time, a simulated day: {what}", *rest) for what, *rest in (
        ("slow nodes found within five minutes", "slow_nodes.found_within_five_minutes", "", "planted",
         "slow_nodes.planted"),
        ("time to find one, median", "slow_nodes.seconds_median", "s", "worst", "slow_nodes.seconds_worst"),
        ("jobs that stand still found", "stall.found", "", "planted", "stall.planted"),
        ("idle allocations found", "idle.found", "", "planted", "idle.planted"),
        ("false alarms", "false_alarms.all"),
    )),
    Line("paging", "10,000 GPUs: sample or XID to page received, p50", "page_seconds.p50", "s"),
    Line("paging", "10,000 GPUs: sample or XID to page received, p99", "page_seconds.p99", "s"),
    Line("paging", "10,000 GPUs: faults that were paged", "paged", "", "faults", "faults"),
    Line("paging", "10,000 GPUs: pages sent", "pages"),
    *(Line("dashboard", f"dashboard, 10,000 GPUs at 160x50: {what}", *rest) for what, *rest in (
        ("CPU a tick", "cpu_ms_per_second", "ms"),
        ("the loop's lag, worst", "lag_ms_worst", "ms", "of it its own", "own_ms_worst"),
        ("key to first byte, worst", "key_ms_worst", "ms", "median", "key_ms_median"),
        ("to the terminal a tick", "kilobytes_per_second", "kB"),
        ("start to live picture", "first_paint_seconds", "s", "CPU", "first_paint_cpu_seconds"),
        ("memory", "rss_megabytes", "MB"),
    )),
    *(Line("web", f"web pages in Chromium, {words} GPUs: {what}", f"gpus_{count}.{figure}", *rest)
      for words, count in (("16", 16), ("10,000", 10_000)) for what, figure, *rest in (
        ("first paint of the overview", "pages.overview.first_paint_ms", "ms"),
        ("first paint of the slowest page", "first_paint_slowest_ms", "ms"),
        ("bytes of the overview, nothing cached", "pages.overview.kilobytes", "kB"),
        ("key to its picture, worst", "interaction.key_worst_ms", "ms"),
        ("press on a column to the sorted page", "interaction.sort_median_ms", "ms", "a script's click",
         f"gpus_{count}.interaction.sort_unannounced_median_ms"),
        ("an update keeps the page busy, median", "interaction.update_ms.overview.median", "ms"),
        ("memory of the tab (PSS)", "renderer_pss_mib", "MiB"),
        ("100 viewers: CPU", "crowd.cpu_percent", "% of a core", "without", f"gpus_{count}.crowd.cpu_percent_without"),
        ("100 viewers: memory of the one process, with the fleet", "crowd.rss_mib", "MiB"),
        ("bytes of an update, median", "crowd.update_kilobytes", "kB"),
    )),
)  # fmt: skip


def rows(commands: Mapping[str, str], found: Mapping[str, Figures]) -> list[TableRow]:
    """Return the lines of the measurements that were made."""
    made = []
    for line in LINES:
        if line.bench not in found:
            continue
        figures = flat(found[line.bench])
        ours = figures.get(line.figure)
        other = figures.get(line.other) if line.other else None
        against = f"{line.against} {text(other)}" if other is not None else ""
        if line.other and other is None:
            against = f"{line.against}: not here"
        ratio = ""
        if isinstance(ours, int | float) and isinstance(other, int | float) and ours and other:
            ratio = text(float(other / ours))
        shown = f"{text(ours)} {line.unit}".strip()
        made.append(TableRow(line.what, shown, against, ratio, f"python -m {commands[line.bench]}"))
    return made


def table(found: list[TableRow]) -> str:
    """Return the rows as Markdown."""
    lines = ["| what | here | against, in the same run | ratio | command |", "| --- | ---: | --- | ---: | --- |"]
    lines += [f"| {row.what} | {row.ours} | {row.against} | {row.ratio} | `{row.command}` |" for row in found]
    return "\n".join(lines)


def machine() -> str:
    """Return the machine, and the versions of libraries and programs."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}"]
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not here")
    versions += [f"{name} {_version(command)}" for name, command in PROGRAMS.items()]
    return (
        f"{os.cpu_count()} cores of {model[1] if model else platform.machine()}, "
        f"{memory:.0f} GiB, Linux {platform.release().split('-')[0]}; {', '.join(versions)}."
    )


def _version(command: list[str]) -> str:
    program = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        return "not here"
    done = subprocess.run([program, *command[1:]], check=False, capture_output=True, text=True)
    match = _VERSION.search(done.stdout + done.stderr)
    return match[0] if match else "of unknown version"


def write(found: list[TableRow], seconds: float) -> None:
    """Replace the text between the marks of the page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    body = (
        f"Measured {today}, in {seconds / 60:.0f} minutes, on {machine()}\n"
        f"Load average over 15 minutes at its end, all processes: {os.getloadavg()[2]:.1f}.\n\n"
        f"{table(found)}"
    )
    page = FILE.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    FILE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
