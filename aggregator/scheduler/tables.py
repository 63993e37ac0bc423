"""Jobs of a scheduler whose form is a table: which of its fields is which of ours, and what its words mean. Pure.

What a command prints is read as the JSON that it should be. Where it is none, as qstat's at times (an apostrophe after a
backslash, `005` and `inf` as bare words, a brace too many), each job's lines are read one by one, which takes longer. A job whose
text is that of the answer before is the same object.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from aggregator.scheduler.listed import SECOND, JobListing, ListedJob, owner_text
from api.jobs import JobAccount
from telemetry.notations.batch import array_task
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import Job, JobKey

Fields = Mapping[str, Any]
"""Fields of a job as its scheduler names them, those within another one as `Resource_List.ngpus`."""
Phase = Literal["waits", "holds", "over", "gone"]
"""Whether a job has not begun, has its GPUs, has ended, or is none that could have any."""
MOST_TEXT = 256
_LAST = 4_102_444_800
"""2100, seconds since 1970."""
_LINE = re.compile(r'\s*"((?:[^"\\]|\\.)+)"\s*:\s*(.*?)\s*,?\s*$')
_ESCAPED = re.compile(r'\\(["\\/])|\\')
_DAY = re.compile(r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})(?: [A-Z])?")
_CLOCK = re.compile(r"(\d{1,7}):(\d\d):(\d\d)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class StateWord(NamedTuple):
    """A scheduler's word for the state of a job."""

    phase: Phase
    word: str = ""
    """Slurm's, which is shown; empty where it tells nothing of how the job is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForm:
    """Form of a scheduler's jobs. The functions return what they say of a field's absence too: "", 0 or None."""

    scheduler: str
    command: str
    begins: re.Pattern[str]
    """First line of a job in its answer, with its name as group 1 where that stands there."""
    decode: Callable[[bytes], Iterable[tuple[str, bytes]]]
    """Returns names and texts of jobs. Raises `msgspec.DecodeError`."""
    fields: frozenset[str]
    """Names of the fields that are read; of a field within another one, that of the other one."""
    key: Callable[[str, Fields], JobKey]
    """Returns the identity of a job by its name. Raises `ValueError`."""
    state: str
    """Field with its state."""
    states: Mapping[str, StateWord]
    ended: Callable[[Fields], tuple[str, int | None]]
    """Returns state and exit code of a job that is over."""
    texts: Mapping[str, Callable[[Fields], str]]
    """By our names of `Job`."""
    numbers: Mapping[str, Callable[[Fields], int | None]]
    times: Mapping[str, Callable[[Fields], object]]
    """By our names; an end is that only of a job that is over."""
    gpus: Callable[[Fields], Mapping[str, tuple[int, ...]]] = lambda _: {}
    """Returns the numbers of the GPUs that it has, by node."""
    counts: Callable[[Fields], Mapping[str, int]] = lambda _: {}
    """Returns how many GPUs it has by node, where their numbers are not known."""
    task: Callable[[str, Fields], tuple[str, str]] = lambda name, _: array_task(name)
    """Returns the array and the task of it that a job is by its id; both empty where it is none."""
    word: Callable[[Fields], str] = lambda _: ""
    """Returns a word that tells more of a job than that of its state, which is not over."""
    opens: re.Pattern[bytes] = re.compile(rb"^\{", re.MULTILINE)
    """Begin of the JSON in an answer, with its brace at the end."""
    empty: re.Pattern[bytes] = re.compile(rb"\s*")
    """Whole answer without a job, where that is no JSON object."""


@dataclass(slots=True)
class TableReader:
    """Reader of what a command prints, again and again."""

    table: JobForm
    _known: dict[int, ListedJob | None] = field(default_factory=dict)
    """Jobs of the answer before by the hash of their text, as of `SqueueReader`."""

    def listing_of(self, output: bytes, at: int) -> JobListing:
        """Return the jobs that the command printed at a time. Raises `ValueError` for what is no such answer."""
        known, problems, table = dict[int, ListedJob | None](), list[str](), self.table
        jobs: dict[JobKey, ListedJob] = {}
        twice = set[JobKey]()
        undated = 0
        for name, text in _texts(table, output):
            mark = hash((name, text))
            try:
                listed = self._known[mark] if mark in self._known else _listed(table, name, fields_of(table, text), at)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"a job of {table.command} can't be read: {type(error).__name__} {error}")
                continue
            if listed is None or listed.job.begin or not listed.holds:
                known[mark] = listed  # a begin that is yet to come may be past next time
            else:
                undated += 1
            if listed is None:
                continue
            key = replace(listed.key, restart=0)
            if key in jobs:
                twice.add(key)
            jobs[key] = listed
        self._known = known
        for key in twice:  # one of them may be the text of a user
            del jobs[key]
            problems.append(f"{table.command} lists {key.id} twice: it is not believed")
        if undated:
            problems.append(f"{table.command} dates no begin of {undated} jobs that run")
        clusters = Counter(key.cluster for key in jobs).most_common(1)  # a job may come from another server
        cluster = clusters[0][0] if clusters else ""
        return JobListing(at=at, cluster=cluster, jobs=tuple(jobs.values()), problems=tuple(problems))


def accounts_of(table: JobForm, output: bytes, at: int, *, dated: bool = True) -> dict[JobKey, JobAccount]:
    """Return the account of each run that is over, of those that a command printed at a time. `dated`: whether one without an
    end is none, as it may not be over. Raises `ValueError`."""
    return {
        each.key: JobAccount(
            state=each.job.state,
            begin=each.job.begin or None,
            end=each.job.end or None,
            exit_code=each.job.exit_code,
            submitted=each.job.submitted or None,
            eligible=each.job.eligible or None,
            time_limit_seconds=each.job.time_limit if isinstance(each.job.time_limit, int) else None,
        )
        for each in TableReader(table).listing_of(output, at).jobs
        if (each.job.end or not dated) and not each.holds
    }


def _listed(table: JobForm, name: str, its: Fields, at: int) -> ListedJob | None:
    state = table.states.get(text(its, table.state))
    if state is None:
        raise ValueError(f"{table.state} {text(its, table.state)!r} is not known")
    if state.phase == "gone":
        return None
    key = table.key(name, its)
    past, over = state.phase != "waits", state.phase == "over"
    word, exit_code = table.ended(its) if over else (table.word(its) or state.word, None)
    times = {ours: _time(read(its), at) for ours, read in table.times.items()}
    numbers = {ours: read(its) for ours, read in table.numbers.items()}
    holds = state.phase == "holds"
    facts: dict[str, Any] = {ours: read(its) for ours, read in table.texts.items()}
    return ListedJob(
        job=Job(
            key=key,
            owner=owner_text(*table.task(key.id, its), "", ""),
            state=word,
            exit_code=exit_code,
            submitted=times["submitted"],
            eligible=times.get("eligible", 0),
            begin=times["begin"] if past else 0,
            end=times["end"] if over else 0,
            nodes=(numbers["nodes"] or 0) if past else 0,
            gpus=numbers["gpus"] or 0,
            time_limit=(numbers["time_limit"] or None) if past else None,
            **facts,
        ),
        holds=holds,
        gpus=table.gpus(its) if holds else {},
        counts=table.counts(its) if holds else {},
    )


def _texts(table: JobForm, output: bytes) -> Iterable[tuple[str, bytes]]:
    """Return names and texts of the jobs of an answer, whatever stands before and behind it."""
    if table.empty.fullmatch(output):
        return ()
    first = table.opens.search(output)
    if first is None:
        words = output.strip().partition(b"\n")[0][:80].decode("utf-8", "replace")
        raise ValueError(f"{table.command} prints no JSON: {words}")
    answer = output[first.end() - 1 : output.rfind(b"}") + 1]
    try:
        return list(table.decode(answer))
    except msgspec.DecodeError as error:
        found = list(_blocks(table, answer.decode("utf-8", "replace")))
        if not found:
            raise ValueError(f"{table.command} prints no JSON: {error}") from None
        return found


def _blocks(table: JobForm, answer: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and lines of the jobs of an answer that is no JSON."""
    heads = list(table.begins.finditer(answer))
    for head, end in zip(heads, [*(each.start() for each in heads), len(answer)][1:], strict=True):
        lines = answer[head.end() : end]
        yield (head[1] if head.groups() else ""), lines.encode()


def fields_of(table: JobForm, written: bytes) -> Fields:
    """Return the fields of a job that are read."""
    try:
        record = _decoder(table.fields).decode(written)
    except msgspec.DecodeError:
        found = _by_lines(table, written.decode())
    else:
        found = {name: getattr(record, name) for name in table.fields}
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": each for part, each in value.items()}
        elif value is not msgspec.UNSET:
            flat[name] = value
    return flat


@functools.cache
def _decoder(fields: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of these fields: the others, as the environment of a job, are skipped."""
    return of_json(msgspec.defstruct("_Record", [(name, Any, msgspec.UNSET) for name in sorted(fields)]))


def _by_lines(table: JobForm, written: str) -> dict[str, Any]:
    """Return the fields of a job by its lines. What stands in an object of others, as the environment of a job, is left out, and
    of a field that stands twice no word is taken."""
    found: dict[str, Any] = {}
    inside = list[str]()
    twice = set[tuple[str, ...]]()
    seen = set[tuple[str, ...]]()
    for line in written.splitlines():
        match = _LINE.match(line)
        if match is None:
            if line.strip().rstrip(",") == "}" and inside:
                inside.pop()
            continue
        name, value = match.groups()
        if value == "{":
            inside.append(name)
            continue
        path = (*inside, name)
        if path[0] not in table.fields or len(path) > 2:
            continue
        (twice if path in seen else seen).add(path)
        if len(path) == 1:
            found[name] = _bare(value)
        else:
            found.setdefault(path[0], {})[name] = _bare(value)
    if twice:
        raise ValueError(f"{'.'.join(min(twice))} stands twice")
    return found


def _bare(value: str) -> str:
    """Return a value of a line, whether it is quoted or not."""
    if value[:1] == '"' and value[-1:] == '"' and len(value) > 1:
        value = _ESCAPED.sub(lambda match: match[1] or "", value[1:-1])
    return value


# -- Fields, for tables ------------------------------------------------------------------------------


def text(its: Fields, *names: str) -> str:
    """Return the first of some fields that is there, as a text; "" and `-` are none."""
    for name in names:
        value = its.get(name)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            shown = "".join(filter(str.isprintable, str(value)[:MOST_TEXT])).strip()
            if shown not in {"", "-"}:
                return shown
    return ""


def texts(*names: str) -> Callable[[Fields], str]:
    """Return what reads the first of some fields that is there."""
    return lambda its: text(its, *names)


def whole(its: Fields, name: str, most: int = 1 << 31) -> int | None:
    """Return a field as a number of at least 0; None where it is none."""
    word = text(its, name)
    return int(word) if word.isascii() and word.isdecimal() and int(word) < most else None


def seconds(word: str) -> int | None:
    """Return a time as `48:00:00` or `172800` in seconds; None for another form."""
    if word.isascii() and word.isdecimal():
        return int(word)
    found = _CLOCK.fullmatch(word)
    return None if found is None else (int(found[1]) * 60 + int(found[2])) * 60 + int(found[3])


def _time(value: object, at: int) -> int:
    """Return a time in ns since 1970, of seconds since then or a date with its year in UTC; 0 where it is none of these, and
    for one that is yet to come: it was written by another clock, or for another time zone."""
    word = str(value)
    if word.isascii() and word.isdecimal():
        found = int(word)
    elif (date := _DAY.fullmatch(word)) is not None and date[1] in _MONTHS:
        day, hour, minute, second, year = map(int, date.groups()[1:])
        month = 1 + _MONTHS.index(date[1])
        try:
            found = int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp())
        except ValueError:
            return 0
    else:
        return 0
    return found * SECOND if 0 < found < _LAST and found * SECOND <= at + AHEAD_SECONDS * SECOND else 0


AHEAD_SECONDS = 60
"""Time by which the clock of a scheduler may be ahead of ours."""
