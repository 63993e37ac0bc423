"""Generator of the pages in docs: `make docs`; `make check` fails when one is out of date."""

from __future__ import annotations

import sys
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from aggregator.folder.kinds import KINDS
from aggregator.http.operation import Operation
from aggregator.http.operations import OPERATIONS
from alerts.rules.events import Happens
from alerts.rules.rule import FOLDER, Rule, conditions_of, load, monitor_rules, read
from alerts.xid.event import event_data
from alerts.xid.sxids import Fatality, sxids
from api.alerts import Remediation
from docs.dcgm_names import dcgm_page
from docs.pages_at_night import pages_at_night
from docs.reference import commands_page, settings_page
from power.snapshot.quantities import QUANTITIES
from telemetry.catalogue import CATALOGUE
from telemetry.catalogue.amd import (
    AmdReader,
    BadPages,
    Binary,
    File,
    KfdProcesses,
    LibraryAnswer,
    Ras,
    Residency,
    Sensor,
)
from telemetry.catalogue.nvml import ALL_LINKS, EACH_LINK, Call, CounterRate, Field, Gpm, LinkGpm, NvmlReader, OfLinks
from telemetry.devices import Event
from telemetry.metric import Lane, Metric
from telemetry.notations.kernel_log import parse_line
from telemetry.statements.catalogue import Statement, statements
from telemetry.statements.node import HARMLESS, node_statements
from telemetry.text.field_texts import field_texts
from telemetry.wire import tables

DOCS = Path(__file__).parent

SOURCES = {"nvml": "NVML", "smi": "nvidia-smi -q", "amd": "amdgpu", "host": "the host"}
"""Title of each source's column in docs/metrics.md."""


def metrics_page() -> str:
    """Return docs/metrics.md: every row of the catalogue."""
    lines = [
        "# Metrics",
        "",
        "Generated from `telemetry/catalogue` by `make docs`; do not edit.",
        "",
        "On the metrics pages every name has the prefix `kilowatch_`. Units are base units. A value",
        "that could not be read is absent there, `null` in JSON and a gap with a reason on the bus;",
        "it is never 0. The *fast* lane is read every second, the *slow* one every 15 s, unless configured",
        "otherwise. `F` is a field of `nvmlDeviceGetFieldValues`, `GPM` a performance metric.",
        "For AMD: files below the PCI device of the GPU, `M` a field of its binary table `gpu_metrics`.",
    ]
    for table, kind in tables.KINDS.items():
        rows = [metric for metric in CATALOGUE if metric.table is table]
        lines += [
            "",
            f"## {table} ({len(rows)})",
            "",
            kind.help,
            "",
            f"| metric | unit | kind | lane | meaning | {' | '.join(SOURCES.values())} |",
            f"| --- | --- | --- | --- | --- |{' --- |' * len(SOURCES)}",
            *(_row(metric) for lane in Lane for metric in rows if metric.lane is lane),
        ]
    return "\n".join([*lines, *power_lines()]) + "\n"


def power_lines() -> list[str]:
    """Return the section on quantities of circuits, budgets, UPS and supplies."""
    lines = [
        "",
        f"## circuits and power ({len(QUANTITIES)})",
        "",
        "Computed by the aggregator (docs/power.md), one row each, labelled `cluster` and the subject;",
        "`kilowatch_circuit_pole_amps` has the poles under one name, with a label `pole`.",
    ]
    for kind in dict.fromkeys(quantity.snapshot_kind for quantity in QUANTITIES):
        rows = [quantity for quantity in QUANTITIES if quantity.snapshot_kind is kind]
        lines += ["", f"| {kind} | unit | kind | meaning |", "| --- | --- | --- | --- |"]
        lines += [f"| `{q.name}` | {q.unit} | {q.kind} | {q.help} |" for q in rows]
    return lines


def _row(metric: Metric) -> str:
    text = metric.help
    if metric.states:
        text += " " + ", ".join(f"{number} {word}" for number, word in metric.states) + "."
    cells = [_readers(metric, source) for source in SOURCES]
    cells[-1] = cells[-1] or metric.origin
    return f"| `{metric.name}` | {metric.unit} | {metric.kind} | {metric.lane} | {text} | {' | '.join(cells)} |"


def _readers(metric: Metric, source: str) -> str:
    readers = metric.readers(source)
    if source == "nvml":
        return " or ".join(_nvml(reader) for reader in readers)
    if source == "amd":
        return " or ".join(_amd(reader) for reader in readers)
    if source == "host":
        return " or ".join(f"`{reader.path}`" for reader in readers)
    return f"`{readers[0]}`" if readers else ""


def _nvml(source: NvmlReader) -> str:
    match source:
        case Field(id=number, scope=scope):
            scopes = {0: "", EACH_LINK: " of each link", ALL_LINKS: " of all links"}
            return f"F {number}{scopes.get(scope, f' scope {scope}')}"
        case Gpm(id=number):
            return f"GPM {number}"
        case LinkGpm():
            return "GPM of each link"
        case CounterRate(of=counter):
            return f"growth of {_nvml(counter)}"
        case OfLinks(bus=bus, fold=fold, parts=parts):
            read = ("GPM" if isinstance(part, LinkGpm) else f"F {part.id}" for part in parts)
            return f"{' + '.join(dict.fromkeys(read))} of each {bus}: {fold}"
        case Call(function=function, args=args, mask=mask):
            inside = ", ".join(str(argument) for argument in args)
            bits = f" & {mask:#x}" if mask else ""
            return f"`{function}({inside})`{bits}"


def _amd(reader: AmdReader) -> str:
    match reader:
        case File(path=path, minus=minus):
            return f"`{path}` - `{minus}`" if minus else f"`{path}`"
        case Sensor(name=name):
            return f"hwmon `{name}`"
        case Binary(field=field, fold=fold):
            return f"M `{field}`{f' ({fold})' if fold else ''}"
        case Ras(severity=severity, block=block):
            return f"`ras/{block or '*'}_err_count` {severity}"
        case Residency(throttlers=throttlers):
            return f"M {' or '.join(f'`{each}`' for each in throttlers)}"
        case BadPages(status=status):
            return f"`ras/gpu_vram_bad_pages` {status}"
        case LibraryAnswer(answer=answer):
            return f"`amdsmi_get_{answer}`"
        case KfdProcesses():
            return "KFD `proc/*/vram_*`"


_NOTIFIED = {"page": "notified at once", "ticket": "notified in working hours", "info": "not notified"}


_REMEDIATIONS = {
    Remediation.RESET: "a reset of the GPU",
    Remediation.REBOOT: "a reboot of the node",
    Remediation.COLD_START: "power off and hands at the machine (reseat, then start cold)",
    Remediation.REPLACE: "a part that the maker replaces",
    Remediation.FACILITY: "power, cooling or network of the site",
    Remediation.APPLICATION: "a program or job, or the person whose it is",
    Remediation.MONITOR: "kilowatch itself: its settings, collectors and machine",
}


def runbook_page() -> str:
    """Return docs/runbook.md: meaning and remedy of each shipped rule."""
    rules = load()
    lines = [
        "# Runbook",
        "",
        "Generated from `alerts/rules/*.toml` by `make docs`; do not edit. An alert links here by its",
        "`runbook`. An absent reading neither fires nor resolves an alert.",
        "",
        "A remediation says what it takes to end an alert: "
        + "; ".join(f"`{one}`: {_REMEDIATIONS[one]}" for one in Remediation)
        + ".",
        "",
        "| rule | severity | remediation | summary |",
        "| --- | --- | --- | --- |",
        *(
            f"| [{rule.name}](#{rule.runbook}) | {rule.severity} | {rule.remediation.text} | {rule.summary} |"
            for rule in rules
        ),
    ]
    for rule in rules:
        lines += [
            "",
            f"## {rule.runbook}",
            "",
            f"*{rule.summary}*",
            "",
            rule.act,
            "",
            rule.description,
            "",
            f"- Severity: `{rule.severity}`, {_NOTIFIED[rule.severity]}. Remediation: {rule.remediation.text}.",
            f"- Fires {f'after {rule.hold:g} s' if rule.hold else 'at once'}; resolves "
            f"{f'{rule.keep:g} s after the condition ends' if rule.keep else 'when the condition ends'}.",
            f"- Rule: `{rule.name}`, in `alerts/rules/{_files()[rule.name]}`, with example timelines.",
            *_consequences(rule),
        ]
    lines += own_lines()
    return "\n".join(lines) + "\n"


_WITHIN = {"gpu": "GPU", "node": "node", "circuit": "circuit", "domain": "NVLink domain"}


def _consequences(rule: Rule) -> list[str]:
    """Return the rules that a rule inhibits, with place and reason."""
    if not rule.inhibits:
        return []
    return [
        "- While it fires these are its consequence, shown below it and not notified:",
        *(f"  - `{one.rule}` of the same {_WITHIN[one.within]}. {one.why}" for one in rule.inhibits),
    ]


@cache
def _files() -> dict[str, str]:
    """Return the file of each shipped rule, by the rule's name."""
    paths = sorted(FOLDER.glob("*rules.toml"))
    return {rule.name: path.name for path in paths for rule in read(path)}


def own_lines() -> list[str]:
    """Return the section on alerts about kilowatch itself."""
    rules = monitor_rules()
    return [
        "",
        f"## {rules[0].runbook}",
        "",
        "*Alerts about kilowatch itself, by rules over its own state. The rules are in",
        "`alerts/rules/monitor.toml`, and are evaluated even when another rule fails.*",
        "",
        "| alert | severity | after | meaning and remedy (remediation `monitor`) |",
        "| --- | --- | --- | --- |",
        *(f"| `{one.name}` | {one.severity} | {one.hold:g} s | {one.advice} |" for one in rules),
        "",
        "`delivery_failing` fires for each channel that has delivered nothing for two minutes, or whose",
        "receiver refuses messages: see `kilowatch notify list`. While the journal of alerts can't be",
        "written, or was damaged and created anew, alerts and pages go on.",
        "",
        "What is lost where a file of `aggregator.data_dir` can't be used (`file_damaged`, `files_lost`):",
        "",
        "| file | what is lost |",
        "| --- | --- |",
        *(f"| `{one.pattern}` | {one.cost} |" for one in KINDS),
    ]


def statements_page() -> str:
    """Return docs/statements.md: every statement of the driver and every SXID that is known."""
    known, errors = statements().values(), sxids().values()
    lines = [
        "# What the driver states",
        "",
        "Generated from `telemetry/statements/catalogue.toml` and `alerts/xid/sxids.toml` by `make docs`; do not",
        "edit. XIDs have a catalogue of their own: `kilowatch xid N`.",
        "",
        "A line counts only where its speaker's prefix begins the message, so that a program's name can't forge one.",
        "Lines are built by the published formats with values of our own. The kernel's lines are read live and from",
        "saved logs; those of daemons (Fabric Manager, IMEX, nvidia-persistenced, systemd about them) are in syslog and",
        "the journal: `kilowatch diagnose` reads them there, and the collector where `kernel_log` names such a file.",
        "",
        f"## Statements ({len(known)})",
        "",
        "`page` and `ticket` are notified by the rule beside them, `info` is shown.",
    ]
    for fault in sorted({(one.severity, one.fault) for one in known}, key=_by_severity):
        rows = [one for one in known if (one.severity, one.fault) == fault]
        lines += ["", f"### {fault[1]} ({fault[0]})", ""]
        for text in dict.fromkeys(f"{one.meaning} {one.remedy}" for one in rows):
            lines += [text, ""]
        lines += ["| statement | line | rule | source, date |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {one.name} | `{_cell(one.example)}` | {rule_of(one)} | {_cell(one.source)}, {one.date} |"
            for one in rows
        ]
    lines += _node_statements()
    told = sum(one.fatal is not Fatality.UNKNOWN for one in errors)
    lines += [
        "",
        f"## SXIDs ({len(errors)})",
        "",
        f"The errors of NVSwitches. Of {told} a source says what they cost: all traffic of the `fabric`, that of a",
        "`port`, or `none`; of the others the line itself says whether they are fatal, and an undecided one is a ticket.",
        "A fatal one pages by `nvswitch_fault`, but 20034, a link that went down, which is a ticket.",
        "",
        "| SXID | name | costs | sources, date |",
        "| --- | --- | --- | --- |",
        *(f"| {one.sxid} | {one.name} | {one.fatal} | {_cell('; '.join(one.sources))}, {one.date} |" for one in errors),
    ]
    return "\n".join(lines) + "\n"


def _node_statements() -> list[str]:
    """Return the section of faults outside of the GPU drivers."""
    known = [one for one in node_statements().values() if one.severity != HARMLESS]
    lines = [
        "",
        f"## Faults of a node beside its GPUs ({len(known)})",
        "",
        "Generated from `telemetry/statements/node.toml`. `kilowatch diagnose` reads them in saved logs, where `info` becomes",
        "a ticket when it repeats. A running cluster has the rule beside them: by its readings for most, and by the line",
        "itself for `node_fault` and `node_oddity`.",
    ]
    for fault in sorted({(one.severity, one.fault) for one in known}, key=_by_severity):
        rows = [one for one in known if (one.severity, one.fault) == fault]
        lines += ["", f"### {fault[1]} of the node ({fault[0]})", ""]
        for text in dict.fromkeys(f"{one.meaning} {one.remedy}" for one in rows):
            lines += [text, ""]
        lines += ["| statement | line | rule | source, date |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {one.name} | `{_cell(' / '.join(one.example.splitlines()))}` | {one.rule or ''} | {_cell(one.source)}, {one.date} |"
            for one in rows
        ]
    return lines


def _by_severity(one: tuple[str, str]) -> tuple[int, str]:
    return ("page", "ticket", "info").index(one[0]), one[1]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def rule_of(statement: Statement) -> str:
    """Return the name of the rule that a statement rings, "" for one that is only shown."""
    record = parse_line(statement.example)
    if record is None:
        return ""
    kind, data = event_data(record, statement.example)
    said = Event(id="1-0", node="n", at=0, kind=kind, data=data)
    return next((name for name, part in _event_rules() if part.fits(said)), "")


@cache
def _event_rules() -> list[tuple[str, Happens]]:
    return [(rule.name, part) for rule in load() for part in conditions_of(rule.when) if isinstance(part, Happens)]


def api_page() -> str:
    """Return docs/api.md: every route of the aggregator."""
    lines = [
        "# HTTP API",
        "",
        "Generated from the OpenAPI document by `make docs`; do not edit. The document itself, with the",
        "schema of every reply, is at `/api/v1/openapi.json`. Routes without a method are GET. An absent",
        "value is `null`, with its reason under `gaps`; errors are JSON with place and remedy.",
        "",
        "A caller shows a token, `Authorization: Bearer TOKEN`; each operation below names the **scope** that",
        "it must have: `read`, `ack`, `silence` or `admin`, which permits everything. On a loopback",
        "listener `read` needs no token. `kilowatch token add NAME --scope SCOPE` makes one, `list` and",
        "`revoke` do the rest, and the aggregator follows at once; commands and the dashboard of the user who",
        "runs the aggregator need none. `kilowatch token add NAME --user USER` makes the token of a user: it has",
        "no scope, and sees the jobs of that user alone. An unknown token is answered 401, a lacking scope 403, too many",
        "tries 429. `who` of an action is the name of the token; a `who` in the body is noted in parentheses.",
        "A body is plain JSON, declared in `Content-Type`; a page of another site can send nothing.",
    ]
    for operation in sorted(OPERATIONS, key=lambda one: one.method != "get"):
        method = "" if operation.method == "get" else f"{operation.method.upper()} "
        lines += ["", f"## `{method}{operation.path}`", *_operation(operation)]
    return "\n".join(lines) + "\n"


def _operation(operation: Operation) -> list[str]:
    lines = ["", operation.summary, "", f"Scope: {_scope(operation)}."]
    body = operation.body
    fields = [] if body is None else msgspec.structs.fields(body)
    if operation.parameters or fields:
        lines += ["", "| parameter | meaning | example |", "| --- | --- | --- |"]
    lines += [
        f"| `{one.name}`{' (required)' if one.required else ''} | {one.text} | `{one.example}` |"
        for one in operation.parameters
    ]
    texts = field_texts(body) if fields else {}
    return lines + [
        f"| `{one.encode_name}` in the body{' (required)' if one.required else ''} | {texts.get(one.name, '')} | |"
        for one in fields
    ]


def _scope(operation: Operation) -> str:
    if operation.scope is None:
        return "none, no token is needed"
    own = "; the token of a user sees what is its own" if operation.own else ""
    return f"`{operation.scope}`{own}"


def glossary_page() -> str:
    """Return docs/glossary.md: the words in use, and the words that were retired."""
    glossary = tomllib.loads((DOCS / "glossary.toml").read_text(encoding="utf-8"))
    lines = [
        "# Glossary",
        "",
        "Generated from `docs/glossary.toml` by `make docs`; do not edit. Each word has one meaning, in",
        "code, settings, metrics, rules, documentation and on the screen.",
        "",
        "| word | meaning | from |",
        "| --- | --- | --- |",
    ]
    words = sorted(glossary["words"].items(), key=lambda item: item[0].lower())
    lines += [f"| **{word}** | {row['is']} | {row['from']} |" for word, row in words]
    lines += [
        "",
        "## Retired words",
        "",
        "Up to 2026.1 the code had words of its own. `tests/test_vocabulary.py` keeps them out of",
        "identifiers and file names.",
        "",
        "| not | but |",
        "| --- | --- |",
    ]
    lines += [f"| {word} | {instead} |" for word, instead in sorted(glossary["retired"].items())]
    return "\n".join(lines) + "\n"


PAGES = {
    "glossary.md": glossary_page,
    "metrics.md": metrics_page,
    "dcgm.md": dcgm_page,
    "runbook.md": runbook_page,
    "statements.md": statements_page,
    "api.md": api_page,
    "settings.md": settings_page,
    "commands.md": commands_page,
    "pages_at_night.md": pages_at_night,
}


def main(arguments: list[str]) -> int:
    """Write the pages; with --check report which are out of date."""
    drifted = []
    for name, page in PAGES.items():
        path = DOCS / name
        text = page()
        if path.exists() and path.read_text() == text:
            continue
        drifted.append(name)
        if "--check" not in arguments:
            path.write_text(text)
            print(f"wrote docs/{name}")  # noqa: T201 - it is a command
    if drifted and "--check" in arguments:
        print(f"not up to date: {', '.join(drifted)}; run `make docs`", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
