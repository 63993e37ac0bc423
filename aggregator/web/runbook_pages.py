"""Runbook pages: `/runbook/<rule>`, to which pages and tickets link, and the list of all rules.

The texts are those of the rules, in the package; every text is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from aiohttp import web

from aggregator.http.errors import unknown
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW
from aggregator.web.content import PageContent
from aggregator.web.markup import link, table, text
from alerts.rules.rule import Rule, monitor_rules
from api.alerts import Severity, Subject

_NOTIFIED = {
    Severity.PAGE: "a page: somebody is notified at once",
    Severity.TICKET: "a ticket: somebody is notified in working hours",
    Severity.INFO: "information: nobody is notified",
}
_FIELD = re.compile(r"\{(\w+)\}")


def _rules(request: web.Request) -> dict[str, Rule]:
    return {rule.name: rule for rule in (*monitor_rules(), *request.app[VIEW].pipeline.engine.rules)}


async def index(request: web.Request) -> PageContent:
    """Return the list of all rules."""
    query(request)
    found = sorted(_rules(request).values(), key=lambda rule: (rule.table.value, rule.name))
    places = {rule.runbook: rule.name for rule in reversed(found)}
    rows = [
        (_named(rule, places[rule.runbook]), text(rule.id), text(rule.table.value), text(rule.severity.value),
         text(rule.remediation.text), escaped(rule.summary))
        for rule in found
    ]  # fmt: skip
    heads = ("rule", "id", "about", "severity", "remedy", "what it says")
    return PageContent("Runbook", table(f"{len(rows)} rules", heads, rows))


def _named(rule: Rule, first: str) -> str:
    """Return the link to a rule; to the first one of a runbook's section `.../runbook#SECTION` leads."""
    name = link(rule.name, "runbook", rule.name)
    return f'<span id="{text(rule.runbook)}">{name}</span>' if rule.name == first else name


async def rule(request: web.Request) -> PageContent:
    """Return the page of one rule."""
    query(request)
    rules, name = _rules(request), request.match_info["rule"]
    if name not in rules:
        raise unknown("rule", name, rules)
    found = rules[name]
    title = f"{found.name}{f' ({found.id})' if found.id else ''}"
    return PageContent(title, "\n".join(html_of(found)))


def html_of(rule: Rule) -> Iterator[str]:
    """Yield the lines of the page of a rule."""
    yield f"<p><strong>{escaped(rule.summary)}</strong></p>"
    if rule.act:
        yield f"<p>{escaped(rule.act)}</p>"
    yield f"<h2>Meaning</h2>\n<p>{escaped(rule.description)}</p>"
    yield "<ul>"
    yield f"<li>It is {_NOTIFIED.get(rule.severity, escaped(rule.severity))}.</li>"
    after = f"when it has lasted {rule.hold:g} s" if rule.hold else "at once"
    ends = f"{rule.keep:g} s after the condition ends" if rule.keep else "when the condition ends"
    yield f"<li>It fires {after}, and resolves {ends}.</li>"
    yield f"<li>Remediation: {escaped(rule.remediation.text)}.</li>"
    for one in rule.inhibits:
        name = escaped(one.rule)
        yield (
            f'<li>While it fires, <a href="runbook/{name}">{name}</a> of the same {one.within} is its '
            f"consequence and notifies nobody: {escaped(one.why)}</li>"
        )
    yield "</ul>"
    if rule.causes:
        yield f"<h2>Usual causes</h2>\n<p>{escaped(rule.causes)}</p>"
    if rule.steps:
        yield "<h2>What to do</h2>\n<ol>"
        yield from (f"<li>{escaped(step)}</li>" for step in rule.steps)
        yield "</ol>"
    if rule.replace:
        yield f"<h2>When to replace the part</h2>\n<p>{escaped(rule.replace)}</p>"
    yield "<h2>Commands</h2>"
    yield '<pre tabindex="0">'
    yield from map(html.escape, commands(rule))
    yield "</pre>"


def commands(rule: Rule) -> Iterator[str]:
    """Yield the commands of a rule, with words in capitals for what an alert names."""
    yield "kilowatch alerts"
    yield "kilowatch alerts show KEY"
    yield "kilowatch ack KEY --why 'I am on it'"
    match rule.table:
        case Subject.GPU | Subject.LINK:
            where = "node=NODE uuid=UUID"
        case Subject.NODE:
            where = "node=NODE"
        case Subject.PORT:
            where = "node=NODE port=PORT"
        case Subject.INSTANCE:
            where = "node=NODE uuid=UUID"
        case _:
            where = "name=NAME"
    yield f"kilowatch silence rule={rule.name} {where} --for 2h --why '...'"


def escaped(text: str) -> str:
    """Return a text of a rule for HTML: with the names of fields in capitals, and code as code."""
    plain = html.escape(_FIELD.sub(lambda match: match[1].upper(), text))
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", plain)
