"""Alert quality: what the ledger records of real rules, incidents and people, and what it makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.alerting.pipeline import AlertPipeline
from alerts.engine.restore import AlertRecord
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.quality_ledger import DAY_NS, KEPT_RECORDS, QualityLedger
from alerts.incidents.quality_record import QualityMemory, QualityRecord, SentAlert
from alerts.incidents.quality_summary import overall, quality
from alerts.incidents.state import IncidentChanges
from alerts.journal.journal import KEPT_NS, Journal
from api.alerts import IncidentNote, Matcher, Severity
from api.quality import QualityReply, RuleQuality
from api.report import Report
from kilowatch.text.quality import overall_line, quality_lines
from kilowatch.text.report import report_lines
from telemetry.errors import IncidentError
from telemetry.fleet import Fleet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.alerting_scene import rules
from tests.aggregator.fake_view import inventory

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
_BLOCK = SCHEMA.blocks[GPU_FAST]
_TEMPERATURE = _BLOCK.names.index("gpu_temperature_celsius")


class Stage:
    """Stage of one node with two GPUs under two rules, in a time that the test sets; the journal is real."""

    page_wait = 0.0
    """Seconds before the first page of an incident."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.second = 0
        self.reasons: list[str] = []
        """Reasons of the notices that were given to the journal."""
        self.journal = Journal.open(folder / "alerts.sqlite", START)
        self.fleet = Fleet()
        self.node = self.fleet.place(inventory("n1"))
        self.pipeline = self._new()
        self.set(40, 40)

    def _new(self) -> AlertPipeline:
        return AlertPipeline(
            rules(self.folder),
            self._store,
            memory=self.journal.memory,
            records=self.journal.alert_records,
            now=self.now,
            timings=NotificationTimings(page_wait=self.page_wait, settle=1),
            wall=self.wall,
        )

    def _store(self, step: IncidentChanges, records: Sequence[AlertRecord] | None) -> None:
        self.reasons += (one.reason for one in step.notices)
        self.journal.commit(step, lambda *_: {}, records)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return 100.0 + self.second

    @property
    def wall(self) -> int:
        """ns since 1970."""
        return START + self.second * SECOND

    def set(self, *temperatures: float, after: int = 1) -> None:
        """Read the GPUs so many seconds later, and evaluate the rules."""
        self.second += after
        gauges = np.full((2, len(_BLOCK.gauges)), 1.0, np.float32)
        gauges[:, _TEMPERATURE] = temperatures
        counters = np.zeros((2, len(_BLOCK.counters)))
        self.fleet.store(GPU_FAST, self.node.rows[_BLOCK.table], gauges, counters, self.now)
        self.fleet.set_intervals(self.node, 1e6, 1e6)
        self.node.seen = self.now
        self.pipeline.evaluate(self.fleet, self.now, self.wall, (), listening=True, snapshots=())
        self.pipeline.advance(self.now + 0.5, self.wall + SECOND // 2)

    def restart(self) -> None:
        """Stop, and continue from the journal."""
        self.journal.close()
        self.journal = Journal.open(self.folder / "alerts.sqlite", self.wall)
        self.pipeline = self._new()

    def ack(self, key: str = "") -> None:
        """Acknowledge the open incident."""
        [incident] = self.pipeline.manager.incidents()
        self.pipeline.commit(
            self.pipeline.manager.acknowledge(
                key or incident.key, who="ann", why="", until=None, now=self.now, wall_ns=self.wall
            )
        )

    def false(self, key: str) -> Any:
        """Mark an incident as false."""
        return self.pipeline.mark_false(key, who="ann", why="a sensor", until=None, now=self.now, wall=self.wall)

    def reply(self, since: int = 0) -> QualityReply:
        """Return the quality of all rules."""
        names = [rule.name for rule in self.pipeline.engine.rules]
        return quality(self.pipeline.quality, names, since, self.wall)

    def hot(self) -> RuleQuality:
        """Return the quality of the rule `hot`."""
        [found] = [one for one in self.reply().rules if one.rule == "hot"]
        return found

    def key(self) -> str:
        """Return the key of the incident that was notified last."""
        return self.pipeline.quality.sent(0)[-1].incident


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_rule_without_a_page_is_neither_good_nor_bad(stage: Stage) -> None:
    reply = stage.reply()
    assert reply.rules == []
    assert "hot" in reply.quiet
    lines = quality_lines(reply)
    assert "no page and no ticket in this time" in lines
    assert not any("%" in line for line in lines)
    assert overall_line(overall(stage.pipeline.quality, 0, stage.wall)) == ("no page and no ticket in this time")


@pytest.mark.parametrize(("method", "part"), [("_count", "hot"), ("apply", "all rules")])
def test_a_count_that_can_t_be_made_costs_no_page_and_is_reported(
    stage: Stage, method: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `/healthz` at once; it is over when the next is counted."""

    def broken(*_: object) -> None:
        raise RuntimeError("put in by the test")

    with monkeypatch.context() as patch:
        patch.setattr(QualityLedger, method, broken)
        stage.set(90, 40)
    assert stage.reasons == ["new"]
    [found] = stage.pipeline.impairments.current()
    assert (found.rule, found.part) == ("alerting_impaired", f"quality/{part}")
    assert "put in by the test" in found.reason
    stage.set(40, 40)
    stage.set(40, 40)
    stage.set(90, 40, after=4000)
    assert stage.hot().pages
    assert not any(one.until is None for one in stage.pipeline.impairments.current())


def test_a_page_counts_once_whatever_follows_it(stage: Stage) -> None:
    stage.set(90, 40)
    stage.set(91, 40, after=5 * 3600)  # the reminder
    stage.set(40, 40)
    found = stage.hot()
    assert (found.pages, found.tickets, found.acknowledged) == (1, 0, 0)
    assert found.acknowledged_median_seconds is None
    assert found.precision is None
    assert found.self_resolved == 0


def test_how_fast_pages_were_acknowledged(stage: Stage) -> None:
    for wait in (60, 120, 600):
        stage.set(90, 40)
        stage.second += wait
        stage.ack()
        stage.set(40, 40, after=400)
        stage.set(40, 40, after=4000)
    found = stage.hot()
    assert (found.pages, found.acknowledged) == (3, 3)
    assert found.acknowledged_median_seconds == pytest.approx(120, abs=1)
    assert found.acknowledged_p90_seconds == pytest.approx(600, abs=1)
    assert found.precision is None, "nobody has said that any of them was right"


def test_a_page_that_is_over_within_five_minutes_resolved_by_itself(stage: Stage) -> None:
    stage.set(90, 40)
    stage.set(40, 40, after=290)
    stage.set(40, 40, after=10)
    assert stage.hot().self_resolved == 1
    stage.set(90, 40, after=4000)
    stage.set(40, 40, after=310)
    stage.set(40, 40, after=10)
    assert stage.hot().self_resolved == 1, "the second lasted longer"
    stage.set(90, 40, after=4000)
    stage.ack()
    stage.set(40, 40, after=100)
    stage.set(40, 40, after=10)
    assert stage.hot().self_resolved == 1, "a person was at the third"


def test_a_silenced_alert_is_counted_and_is_no_page(stage: Stage) -> None:
    stage.pipeline.commit(
        stage.pipeline.manager.silence(
            [Matcher("rule", "hot")],
            who="ann",
            why="fans",
            ends=stage.wall + 3600 * SECOND,
            now=stage.now,
            wall_ns=stage.wall,
        )
    )
    stage.set(90, 40)
    stage.set(91, 40)
    found = stage.hot()
    assert (found.pages, found.silenced) == (0, 1)
    stage.restart()
    stage.set(92, 40)
    assert stage.hot().silenced == 1, "it is the same alert after a restart"
    [line] = [line for line in quality_lines(stage.reply()) if line.startswith("hot")]
    assert line.split()[1:4] == ["-", "-", "-"]
    assert line.endswith("no page in this time")


def test_precision_comes_from_marks_and_a_mark_can_be_removed(stage: Stage) -> None:
    for _ in range(3):
        stage.set(90, 40)
        stage.ack()
        stage.set(40, 40, after=400)
        stage.set(40, 40, after=4000)
    key = stage.key()
    marked = stage.false(key)
    assert marked.false.who == "ann"
    assert marked.false.why == "a sensor"
    found = stage.hot()
    assert (found.marked_false, found.reviewed) == (1, 3)
    assert found.precision == pytest.approx(2 / 3)
    [line] = [line for line in quality_lines(stage.reply()) if line.startswith("hot")]
    assert line.endswith("67% of 3")
    stage.restart()
    assert stage.hot().marked_false == 1, "the journal has the mark"
    assert stage.pipeline.quality.mark_of(key) == marked.false
    stage.pipeline.unmark_false(key, who="bob", why="it was real", now=stage.now, wall=stage.wall)
    assert stage.hot().precision is None
    stage.restart()
    assert stage.hot().marked_false == 0
    with pytest.raises(IncidentError, match="no mark to remove"):
        stage.pipeline.unmark_false(key, who="bob", why="", now=stage.now, wall=stage.wall)


def test_a_mark_on_an_open_incident_acknowledges_it_and_is_in_its_timeline(stage: Stage) -> None:
    stage.set(90, 40)
    [incident] = stage.pipeline.manager.incidents()
    stage.false(incident.key)
    [incident] = stage.pipeline.manager.incidents()
    assert incident.acknowledged is not None
    events = stage.pipeline.manager.timeline(incident.key)
    assert [one.what for one in events][-2:] == ["acknowledged", "marked_false"]
    assert events[-1].why == "a sensor"


def test_a_mark_that_is_refused_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.set(90, 40)
    [incident] = stage.pipeline.manager.incidents()
    with pytest.raises(IncidentError, match="its end has passed"):
        stage.pipeline.mark_false(
            incident.key, who="ann", why="a sensor", until=stage.wall, now=stage.now, wall=stage.wall
        )

    def gone(*_: object, **__: object) -> None:
        raise IncidentError("it is gone")

    def nothing_is_marked() -> bool:
        found = stage.hot()
        total = stage.pipeline.quality.totals["hot"]["marked_false"]
        return (found.marked_false, total, stage.pipeline.quality.mark_of(incident.key)) == (0, 0, None)

    assert nothing_is_marked()
    with monkeypatch.context() as patched:
        patched.setattr(stage.pipeline.manager, "annotate", gone)
        with pytest.raises(IncidentError, match="it is gone"):
            stage.false(incident.key)
    assert nothing_is_marked()
    stage.false(incident.key)
    stage.restart()
    found = stage.hot()
    assert (found.marked_false, found.acknowledged) == (1, 1), "the journal has both"


def test_an_incident_of_which_nothing_was_sent_is_not_acknowledged_by_a_mark(stage: Stage) -> None:
    stage.page_wait = 3600
    stage.restart()
    stage.set(90, 40)
    [incident] = stage.pipeline.manager.incidents()
    with pytest.raises(IncidentError, match="nothing to mark"):
        stage.false(incident.key)
    [incident] = stage.pipeline.manager.incidents()
    assert incident.acknowledged is None


def test_an_incident_of_long_ago_can_be_marked_though_the_journal_has_deleted_it(stage: Stage) -> None:
    stage.set(90, 40)
    stage.set(40, 40)
    stage.set(40, 40, after=10)
    key = stage.key()
    stage.second += KEPT_NS // SECOND + 86_400
    stage.set(40, 40)
    stage.restart()
    assert stage.journal.incidents() == []
    assert stage.false(key[:12]).key == key
    assert stage.hot().marked_false == 1


def test_what_was_never_sent_can_not_be_marked(stage: Stage) -> None:
    with pytest.raises(IncidentError, match="was notified"):
        stage.false("nothing-of-this-kind")
    with pytest.raises(IncidentError, match="why is missing"):
        stage.pipeline.mark_false("x", who="ann", why=" ", until=None, now=stage.now, wall=stage.wall)


def test_the_time_limits_what_counts_and_the_start_is_told(stage: Stage) -> None:
    stage.set(90, 40)
    late = stage.reply(since=stage.wall + SECOND)
    assert late.rules == []
    assert "hot" in late.quiet
    early = stage.reply(since=0)
    assert early.recorded_since == START
    assert quality_lines(early)[0].startswith("recorded since ")


def test_flapping_pages_are_counted_once(stage: Stage) -> None:
    for _ in range(12):
        stage.set(90, 40, after=20)
        stage.set(40, 40, after=20)
    assert stage.hot().flapping == 1


def test_records_are_bounded_in_number_and_age() -> None:
    records = [
        QualityRecord(
            id=f"{number}",
            incident=f"i{number}",
            rule="hot",
            severity=Severity.PAGE,
            title="",
            at=START + number,
            alerts=(SentAlert(key="hot/n/g", rule="hot", since=0, fired=0),),
        )
        for number in range(KEPT_RECORDS + 10)
    ]
    ledger = QualityLedger(QualityMemory(sent=records), (), START)
    step = IncidentChanges(wall_ns=START + DAY_NS)
    assert sum(body is None for body in ledger.apply(step, lambda _: None).values()) == 10
    assert len(ledger.sent(0)) == KEPT_RECORDS
    ledger.apply(IncidentChanges(wall_ns=START + 500 * DAY_NS), lambda _: None)
    assert ledger.sent(0) == []


def test_a_record_crosses_the_journal_unchanged() -> None:
    record = QualityRecord(
        id="1",
        incident="i",
        rule="hot",
        severity=Severity.TICKET,
        title="hot",
        at=START,
        acknowledged=START + 1,
        ended=START + 2,
        end="resolved",
        flapping=True,
        false=IncidentNote(who="ann", why="a sensor", at=START),
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=QualityRecord) == record


def test_the_report_of_a_cluster_has_the_quality_of_its_alerts() -> None:
    found = RuleQuality(
        rule="all",
        pages=4,
        tickets=1,
        acknowledged=3,
        acknowledged_median_seconds=240.0,
        acknowledged_p90_seconds=1200.0,
        self_resolved=1,
        marked_false=1,
        reviewed=4,
        precision=0.75,
    )
    text = " ".join(" ".join(report_lines({"here": Report(alerts=found)})).split())
    assert "alerts 4 pages and 1 ticket; 3 acknowledged after 4 min (median)" in text
    assert "1 marked as false, precision 75%" in text
    assert not any(line.startswith("alerts") for line in report_lines({"planned": Report(alerts=None)}))
