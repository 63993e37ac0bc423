"""docs/dcgm.md: what the readings of dcgm-exporter and DCGM are called here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from telemetry.catalogue import BY_NAME
from telemetry.metric import Table
from telemetry.wire.dcgm import BESIDE, BY_CHOICE, LABELS, LISTED, NOT_GIVEN, XID, Counter


def _scale(scale: float) -> str:
    """Return what a metric is multiplied by."""
    if scale == 1:
        return ""
    return f"{scale:,g}" if scale > 1 else f"1 / {1 / scale:,.0f}"


def _metrics(counter: Counter) -> str:
    """Return what a counter equals."""
    if counter.name == XID:
        return '`kilowatch_event_timestamp_seconds{kind="xid"}`: every XID with its time, not the last alone'
    sums = [
        " + ".join(f"`{metric}`{_links(metric, counter)}" for metric, _ in terms)
        for terms in (counter.terms, counter.otherwise)
        if terms
    ]
    if len(counter.terms) > 2:
        sums = [f"the flags `{counter.terms[0][0]}` to `{counter.terms[-1][0]}`, a bit each"]
    instance = f", of a MIG instance `{counter.of_instance}`" if counter.of_instance else ""
    return f"{', else '.join(sums)}{instance}"


def _links(metric: str, counter: Counter) -> str:
    if BY_NAME[metric].table is not Table.LINK:
        return ""
    return " of all links" if counter.link is None else " of the link"


def _rows(counters: Iterable[Counter]) -> list[str]:
    return [
        "| dcgm-exporter | type | kilowatch | times | |",
        "| --- | --- | --- | ---: | --- |",
        *(
            f"| {name} | {each.kind} | {_metrics(each)} "
            f"| {_scale(each.terms[0][1]) if 0 < len(each.terms) < 3 else ''} | {each.note} |"
            for name, each in _named(counters)
        ),
    ]


def _named(counters: Iterable[Counter]) -> Iterator[tuple[str, Counter]]:
    """Yield counters with their names, those of each link as one."""
    for (link, _), run in groupby(
        counters, lambda each: (each.link is not None and each.terms, each.link is None and each.name)
    ):
        first, *others = run
        yield ((f"`{first.name}` to `{others[-1].name}`" if link and others else f"`{first.name}`"), first)


def dcgm_page() -> str:
    """Return docs/dcgm.md."""
    ports = sum(metric.table is Table.PORT for metric in BY_NAME.values())
    lines = [
        "# From dcgm-exporter",
        "",
        "Generated from `telemetry/wire/dcgm.py` by `make docs`; do not edit.",
        "",
        "Dashboards and rules that you have for dcgm-exporter go on working, unchanged: have Prometheus discover the targets of",
        "`/sd/dcgm`, which are the aggregator's pages `/metrics/dcgm/NODE`. Names, types, units and labels are the exporter's;",
        "`?host_label=hostname` writes the label as it does since release 4.8.2. AMD's GPUs are under the same names. No DCGM runs, and",
        "a reading that a GPU does not have is absent, never 0 or 9223372036854775794. Of a node that is not online the page is a 503, so that",
        "`up` is 0 for it, as it is where an exporter is gone: rules on `up` go on working too.",
        "",
        "    - job_name: dcgm",
        '      http_sd_configs: [{url: "http://127.0.0.1:9400/sd/dcgm"}]',
        "",
        "For new dashboards take the metrics of [the catalogue](metrics.md), on `/metrics/node/NODE`: base units, all there is, and",
        "`kilowatch_` before each name.",
        "",
        "## Pods and jobs",
        "",
        "Readings have `pod`, `namespace` and `container`, or `hpc_job`, of the only job that has their GPU or MIG instance",
        "([decision 121](decisions/0121-readings-of-dcgm-name-their-pod.md)). A scrape that may not see jobs has none: that of",
        "`aggregator.anonymous_read` without a token. Where several jobs share a GPU there are none either, for each reading is one series.",
        "`?job_labels=no` (in `params` of the scrape job) leaves them out: with them each job begins some dozen series a GPU. Labels that pods",
        "themselves carry are there where `jobs.kubernetes.pod_labels` of the collector names them, as the exporter writes them:",
        "`app.kubernetes.io/name` is `app_kubernetes_io_name`. One that is called like a label of the device or the job is left out.",
        "",
        "A collector serves its own node under the same names, at `/metrics/dcgm` of `collector.metrics_listen`, for a Prometheus that scrapes",
        "nodes, with the jobs where `collector.metrics_jobs` says so ([Kubernetes](kubernetes.md#in-place-of-dcgm-exporter)). Only the words of an XID",
        "(`err_msg`) are the aggregator's alone.",
        "",
        "## Choosing what is there",
        "",
        "`aggregator.dcgm_counters`, and `collector.dcgm_counters`, name a file of counters as the exporter reads it (its `-f` or `--collectors`): `FIELD, type, help`",
        "a line, `#` before a comment. Then the pages show what it names, with its types and helps, and its fields of the type `label` are labels of all",
        "series. A line that is none is an error with file and number; a name that can't be given is a warning in the log and in",
        "`kilowatch config check`, with the reason. Without the file the first two of these tables are there.",
        "",
        "## The exporter's lists",
        "",
        *_rows(LISTED),
        "",
        "## Beside them",
        "",
        *_rows(BESIDE),
        "",
        "## Only where a file asks for them",
        "",
        *_rows(BY_CHOICE),
        "",
        "## As labels",
        "",
        "`DCGM_FI_DRIVER_VERSION` is a label of all series. Others are where the file gives them the type `label`: "
        f"{', '.join(f'`{name}`' for name in LABELS if name != 'DCGM_FI_DRIVER_VERSION')}.",
        "",
        "## Not given",
        "",
        "dcgm-exporter serves GPUs, NVLinks, NVSwitches and CPUs. **Of network adapters it serves nothing**: DCGM itself has fields of a",
        "ConnectX beside an NVSwitch, which the exporter does not watch: no dashboard of its asks for them, and there are no",
        f"labels to keep to. Ports are here with {ports} metrics of their own ([metrics](metrics.md#port-{ports})), labelled `port`.",
        "",
        "| DCGM | why not | kilowatch |",
        "| --- | --- | --- |",
        *_not_given(),
    ]
    return "\n".join(lines) + "\n"


_FEW = 2


def _not_given() -> Iterator[str]:
    """Yield a row for each run of names that have the same reason."""
    for (reason, metrics), run in groupby(NOT_GIVEN, lambda each: (each.reason, each.metrics)):
        names = [f"`{each.name}`" for each in run]
        for name in names if len(names) <= _FEW else [f"{names[0]} to {names[-1]}"]:
            yield f"| {name} | {reason} | {', '.join(f'`{metric}`' for metric in metrics)} |"
