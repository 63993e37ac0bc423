"""Fields that callers without a token never see where `aggregator.anonymous_read` lets them read.

A row of the table hides a field of every document, a label of every alert and metric, and a key of every
event. Texts of the kernel's log lose what they say of processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

PRIVATE = {
    "account": "to whom a job is charged",
    "cmdline": "command line of a process",
    "comm": "name of a process",
    "command": "command line of a process",
    "job": "the job that runs on a node",
    "job_id": "the job that holds a GPU",
    "job_name": "name of a job",
    "line": "a line of the kernel's log, which names processes",
    "output": "what a hook of a recovery printed: jobs, users, processes",
    "owner": "whose alert it is, perhaps with a telephone number",
    "process": "the process that caused an error",
    "processes": "processes of a GPU",
    "purpose": "what the owner of a job wrote about it",
    "uid": "owner of a process",
    "user": "owner of a job or process",
    "username": "owner of a job or process",
    "who": "a person who acted",
    "why": "what a person wrote",
}
"""Fields, labels and keys by name, and what they tell of people."""
_QUOTED_NOWHERE = "owner"
"""Field whose texts no other text quotes: an owner may be called as anything is, `facility` or `lab`."""
_NAMED = re.compile(
    r"\b(pid|name|comm|cmd|exe|uid|user|job|account)=('[^']*'|\"[^\"]*\"|<[^>]*>|[^\s,;)]*)", re.IGNORECASE
)
"""Facts about processes in a line of the kernel's log: `pid=123, name=python`."""
_LABELLED = re.compile(rf'[\w:]+\{{(?:\w+="(?:[^"\\]|\\.)*",)*(?:pid|{"|".join(PRIVATE)})="[^"]')
"""A sample of a metrics page that has a private label, or is of a process of which nothing but its PID may be known."""
HIDDEN = "…"
_BEFORE = (
    r"\bjobs? |\busers? |\baccounts? |\b[Bb]y |\ballocation: |\bpid \d+\)? of "
    rf"|\bjob (?:\S+|{HIDDEN}) of |\bof (?:slurm|pbs|lsf|htcondor|kubernetes|ray|container|systemd|user) |\((?=[^()]*\))|[\"'`]"
)
"""Words after which our texts name a person, a job or a program: a name that is a number, or as short as other words,
is hidden there alone."""


def public_json(body: bytes) -> bytes:
    """Return a document without what is private."""
    tree = msgspec.json.decode(body)
    return msgspec.json.encode(_hide(tree, _quotes(set(_words(tree)))))


def _quotes(words: set[str]) -> list[re.Pattern[str]]:
    """Return where texts may quote some private words, in the order in which to look."""
    found = []
    names = [word for word in words if _identifies(word)]
    if names:
        found.append(re.compile(rf"()(?<!\w)(?:{_any(names)})(?!\w)"))
    if common := [word for word in words - set(names) if word.strip()]:
        # Twice: what a job's user follows is hidden first.
        found += [re.compile(rf"({_BEFORE})(?:{_any(common)})(?!\w)")] * 2
    return found


def _any(words: list[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


def public_page(page: bytes) -> bytes:
    """Return a metrics page without the samples that have a private label."""
    lines = page.decode().splitlines(keepends=True)
    return "".join(each for each in lines if not _LABELLED.match(each)).encode()


def _words(tree: object) -> Iterator[str]:
    """Yield the texts of all private fields: other texts may quote them."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if _is_private(tree, name):
                if _QUOTED_NOWHERE not in (name, tree.get("label")):
                    yield from _texts(value)
            else:
                yield from _words(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _words(value)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _identifies(word: str) -> bool:
    """Return whether a text may be hidden wherever it stands: no number, nor what is as short as other words."""
    return len(word) > 2 and not word.isdecimal()


def _is_private(tree: dict[str, Any], name: str) -> bool:
    """Whether a key of an object is in the table, or is the value of a matcher on such a label."""
    return name in PRIVATE or (name == "value" and str(tree.get("label")) in PRIVATE)


def _hide(tree: Any, quotes: list[re.Pattern[str]]) -> Any:
    if isinstance(tree, dict):
        return {
            name: _empty(value) if _is_private(tree, name) else _hide(value, quotes) for name, value in tree.items()
        }
    if isinstance(tree, list):
        return [_hide(value, quotes) for value in tree]
    if isinstance(tree, str):
        tree = _NAMED.sub(rf"\1={HIDDEN}", tree)
        for quote in quotes:
            tree = quote.sub(rf"\1{HIDDEN}", tree)
        return tree
    return tree


def _empty(value: object) -> object:
    """Return an empty value of the same type, which clients still understand."""
    return type(value)() if isinstance(value, str | list | dict) else None
