"""The journal: what it is given comes back, from whatever the file has been through."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from alerts.engine.restore import AlertRecord
from alerts.incidents.manager import IncidentManager
from alerts.incidents.matchers import parse_all
from alerts.incidents.policy import RulePolicy
from alerts.incidents.state import IncidentChanges, RecordKey
from alerts.journal.file import JournalFile
from alerts.journal.journal import KEPT_NS, Journal
from alerts.journal.queue import DeliveryQueue
from alerts.notice import Notice
from api.alerts import Action, DeliveryOutcome, NotificationState
from telemetry.errors import StoreError
from tests.alerts.deliveries import NOON, POLICIES, SECOND, ManagerHarness, alert, described, over

LOST = alert("gpu_lost", gpu="GPU-a")
RECORD = AlertRecord(alert=LOST, device="GPU-a", good_since=NOON)


def everywhere(notice: Notice, wall_ns: int, told: Collection[str]) -> Mapping[str, int]:
    """Send triggers to two channels, and later notices to those that received the trigger."""
    due = ("pager", "chat") if notice.action is Action.TRIGGER else told
    return dict.fromkeys(due, wall_ns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "alerts.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, NOON)
    yield opened
    opened.close()


def begin(journal: Journal, policies: Mapping[str, RulePolicy] = POLICIES) -> IncidentManager:
    return IncidentManager(policies, journal.memory, now=0.0, wall_ns=NOON)


def page(journal: Journal, manager: IncidentManager, at: float = 1.0) -> IncidentChanges:
    """Lose a GPU; it is notified a second later."""
    assert journal.commit(manager.receive([LOST], at, NOON + round(at * SECOND)), everywhere, [RECORD])
    step = manager.receive([], at + 1, NOON + round((at + 1) * SECOND))
    assert described(step.notices) == ["trigger new"]
    return step


def test_all_that_is_committed_is_there_after_a_restart(path: Path) -> None:
    journal = Journal.open(path, NOON)
    assert journal.lost == ""
    manager = begin(journal)
    _, step = manager.silence(
        parse_all(["rule=thermal"]), who="ada", why="x", ends=NOON + SECOND * 9999, now=0.5, wall_ns=NOON
    )
    assert journal.commit(step, everywhere)
    assert journal.commit(page(journal, manager), everywhere)
    incident, step = manager.acknowledge(
        LOST.key, who="ada", why="mine", until=None, now=3.0, wall_ns=NOON + 3 * SECOND
    )
    assert journal.commit(step, everywhere)
    assert journal.store_channel_state("am", b'{"x": 1}')
    waiting = journal.waiting()
    assert [(one.channel, one.notice.action) for one in waiting] == [
        ("pager", Action.TRIGGER),
        ("chat", Action.TRIGGER),
        ("pager", Action.ACKNOWLEDGE),
        ("chat", Action.ACKNOWLEDGE),
    ]
    journal.close()

    again = Journal.open(path, NOON + 9 * SECOND)
    assert again.waiting() == waiting
    assert again.alert_records == [RECORD]
    assert again.channel_state("am") == b'{"x": 1}'
    assert again.channel_state("other") is None
    assert again.incidents() == [incident]
    returned = IncidentManager(POLICIES, again.memory, now=7.0, wall_ns=NOON + 9 * SECOND)
    assert returned.incidents() == [incident]
    assert returned.silences() == manager.silences()
    assert again.lost == ""
    again.close()


def test_lives_that_are_over_are_forgotten(path: Path) -> None:
    journal = Journal.open(path, NOON)
    page(journal, begin(journal))
    assert journal.commit(IncidentChanges(), everywhere, [])
    assert journal.commit(IncidentChanges(), everywhere)
    journal.close()
    again = Journal.open(path, NOON)
    assert again.alert_records == []
    again.close()


def test_deliveries_of_one_incident_are_given_out_one_by_one_and_pages_first(journal: Journal) -> None:
    manager = begin(journal)
    cold = alert("thermal", gpu="GPU-t")
    journal.commit(manager.receive([cold, LOST], 1.0, NOON + SECOND), everywhere)
    journal.commit(manager.receive([], 2.0, NOON + 2 * SECOND), everywhere)
    journal.commit(manager.receive([over(LOST)], 3.0, NOON + 3 * SECOND), everywhere)
    journal.commit(manager.receive([], 14.0, NOON + 14 * SECOND), everywhere)
    journal.commit(manager.receive([], 24.0, NOON + 24 * SECOND), everywhere)
    now = NOON + 25 * SECOND
    assert journal.due(NOON, 10, "pager") == []
    assert journal.next_due("pager") == NOON + 2 * SECOND
    assert journal.next_due("nobody") is None
    first, second = journal.due(now, 10, "pager")
    assert {first.notice.action, second.notice.action} == {Action.TRIGGER}
    assert journal.due(now, 1, "pager") == [first]
    lost = next(one for one in (first, second) if one.notice.incident.alerts[0].key == LOST.key)
    chain = journal.chain("pager", lost.notice.incident.key)
    assert [one.notice.action for one in chain] == [Action.TRIGGER, Action.RESOLVE]
    assert journal.backlog() == {"pager": (3, NOON + 2 * SECOND), "chat": (3, NOON + 2 * SECOND)}

    assert journal.retry(lost.id, now + 60 * SECOND, "500", [chain[1].id])
    assert lost.id not in {one.id for one in journal.due(now, 10, "pager")}
    [tried, rest] = journal.chain("pager", lost.notice.incident.key)
    assert (tried.tries, tried.error, tried.due) == (1, "500", now + 60 * SECOND)
    assert (rest.tries, rest.due) == (0, now + 60 * SECOND)
    assert journal.settle([rest.id], DeliveryOutcome.DELIVERED, "", [tried.id])
    assert journal.chain("pager", lost.notice.incident.key) == []
    assert journal.settle([first.id if first.id != lost.id else second.id], DeliveryOutcome.REFUSED, "404")
    assert journal.due(now, 10, "pager") == []
    chats = journal.due(now, 10, "chat")
    assert journal.settle([chats[0].id], DeliveryOutcome.EXPIRED, "late")
    outcomes = {one.id: one.outcome for one in journal.history()}
    assert outcomes[rest.id] is DeliveryOutcome.DELIVERED
    assert outcomes[tried.id] is DeliveryOutcome.SUPERSEDED
    assert outcomes[chats[0].id] is DeliveryOutcome.EXPIRED
    assert list(outcomes.values()).count(DeliveryOutcome.REFUSED) == 1
    assert len(journal.history(limit=2)) == 2
    assert journal.history(since=now) == []


def test_who_was_told_of_the_beginning_hears_of_the_end_after_a_restart_too(path: Path) -> None:
    journal = Journal.open(path, NOON)
    manager = begin(journal)
    journal.commit(page(journal, manager), everywhere)
    journal.close()
    again = Journal.open(path, NOON + 5 * SECOND)
    manager = IncidentManager(POLICIES, again.memory, now=0.0, wall_ns=NOON + 5 * SECOND)
    again.commit(manager.receive([over(LOST)], 1.0, NOON + 6 * SECOND), everywhere)
    again.commit(manager.receive([], 12.0, NOON + 18 * SECOND), everywhere)
    assert [one.channel for one in again.waiting()[2:]] == ["pager", "chat"]
    assert again.waiting()[-1].notice.action is Action.RESOLVE
    again.close()


def test_numbers_of_deliveries_are_not_used_twice(path: Path) -> None:
    journal = Journal.open(path, NOON)
    journal.commit(page(journal, begin(journal)), everywhere)
    for one in journal.waiting():
        journal.settle([one.id], DeliveryOutcome.DELIVERED)
    journal.prune(NOON + 2 * KEPT_NS)
    assert journal.history() == []
    journal.close()
    again = Journal.open(path, NOON)
    manager = IncidentManager({}, now=0.0, wall_ns=NOON)
    again.commit(page(again, manager), everywhere)
    assert [one.id for one in again.waiting()] == [3, 4]
    again.close()


def test_what_is_old_is_forgotten_but_not_what_is_open_or_waits(journal: Journal) -> None:
    manager = begin(journal)
    journal.commit(page(journal, manager), everywhere)
    first = journal.waiting()[0]
    journal.settle([first.id], DeliveryOutcome.DELIVERED)
    journal.prune(NOON + 2 * KEPT_NS)
    assert [one.id for one in journal.history()] == [first.id + 1]
    assert len(journal.incidents()) == 1
    journal.commit(manager.receive([over(LOST)], 10.0, NOON + 10 * SECOND), everywhere)
    journal.commit(manager.receive([], 21.0, NOON + 21 * SECOND), everywhere)
    assert len(journal.incidents()) == 1
    journal.prune(NOON + 2 * KEPT_NS)
    assert journal.incidents() == []


# -- Trouble --------------------------------------------------------------------------------------


class FullDisk(JournalFile):
    """A file on a disk that has no room left, until it has."""

    full = True

    def _write(self, connection: sqlite3.Connection, batch: object) -> None:
        connection.execute(f"pragma max_page_count = {1 if self.full else 1_000_000}")
        super()._write(connection, batch)  # type: ignore[arg-type]  # as it was given


def test_on_a_full_disk_nothing_is_lost_and_pages_go_out(path: Path) -> None:
    journal = Journal.open(path, NOON)
    assert journal._file._connection is not None
    full = FullDisk(path, journal._file._connection)
    journal._file = full
    manager = begin(journal)
    many = [alert("gpu_lost", f"n{number}", f"GPU-{number}") for number in range(19)]
    assert not journal.commit(manager.receive([LOST, *many], 1.0, NOON + SECOND), everywhere, [RECORD])
    assert "full" in journal.trouble
    # Pages of one rule on many nodes wait for what may become a storm.
    step = manager.receive([], 7.0, NOON + 7 * SECOND)
    assert not journal.commit(step, everywhere)
    sent = journal.due(NOON + 8 * SECOND, 100, "pager")
    assert len(sent) == 20
    for one in sent:
        assert not journal.settle([one.id], DeliveryOutcome.DELIVERED)
    assert journal.due(NOON + 8 * SECOND, 100, "pager") == []
    assert journal.trouble
    full.full = False
    assert journal.flush()
    assert journal.trouble == ""
    journal.close()
    again = Journal.open(path, NOON)
    assert [one.channel for one in again.waiting()] == ["chat"] * 20
    assert again.alert_records == [RECORD]
    assert IncidentManager(POLICIES, again.memory, now=0.0, wall_ns=NOON).incidents() == manager.incidents()
    again.close()


def test_a_fault_is_still_known_after_a_write_that_had_none(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal._file.put("counter", "beats", 1)
    with monkeypatch.context() as patch:
        patch.setattr(JournalFile, "_write", lambda *_: 1 / 0)
        assert not journal.flush()
    assert journal.flush()
    assert "ZeroDivisionError" in journal.recent_fault()
    assert journal.recent_fault() == ""


def test_a_real_full_disk_is_survived(tmp_path: Path) -> None:
    """A process whose files may not grow: the kernel refuses as a full disk does."""
    script = f"""
import resource, signal, sys
from pathlib import Path
from typing import Any
from tests.alerts.test_journal import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path({str(tmp_path)!r}) / "alerts.db"
journal = Journal.open(path, NOON)
manager = begin(journal)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
assert not journal.commit(manager.receive([LOST], 1.0, NOON + SECOND), everywhere, [RECORD])
assert not journal.commit(manager.receive([], 2.0, NOON + 2 * SECOND), everywhere)
assert journal.trouble, "it was written"
assert len(journal.due(NOON + 3 * SECOND, 10, "pager")) == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert journal.flush(), journal.trouble
journal.close()
again = Journal.open(path, NOON)
assert len(again.waiting()) == 2 and again.trouble == again.lost == ""
print("survived")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("survived\n", 0), done.stderr


def test_a_corrupt_file_is_set_aside_and_people_hear_of_it(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 1000)
    journal = Journal.open(path, NOON)
    assert "file is not a database" in journal.lost
    aside = path.with_name("alerts.db.damaged-1")
    assert aside.name in journal.lost
    assert aside.read_bytes().startswith(b"this is no database")
    assert journal.commit(page(journal, begin(journal)), everywhere)
    journal.close()


def filled(path: Path) -> bytes:
    """Return the bytes of a journal of forty alerts and incidents, in which no page is free."""
    journal = Journal.open(path, NOON)
    for number in range(40):
        one = alert("gpu_lost", gpu=f"GPU-{number}")
        assert journal.commit(IncidentChanges(), everywhere, [AlertRecord(alert=one, device="x" * 500)])
        manager = IncidentManager(POLICIES, now=0.0, wall_ns=NOON + number * 700 * SECOND)
        journal.commit(page(journal, manager), everywhere)
    journal.close()
    connection = sqlite3.connect(path)
    connection.execute("vacuum")
    assert connection.execute("pragma freelist_count").fetchone() == (0,)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path.read_bytes()


def test_wherever_the_file_is_damaged_it_opens_and_says_so(path: Path) -> None:
    whole = filled(path)
    told = 0
    for offset in range(0, len(whole), 4096 // 3):
        broken = bytearray(whole)
        broken[offset : offset + 64] = bytes(byte ^ 0x5A for byte in whole[offset : offset + 64])
        path.write_bytes(broken)
        again = Journal.open(path, NOON)
        told += bool(again.lost)
        assert again.commit(page(again, IncidentManager({}, now=0.0, wall_ns=NOON)), everywhere)
        again.close()
        for left in path.parent.iterdir():
            left.unlink()
    assert told > 10


def test_a_file_without_its_end_is_kept_aside_and_another_begins(path: Path) -> None:
    """Whole pages, part of one, or the one byte that ends the state of a delivery."""
    whole = filled(path)
    pages = len(whole) // 4096
    assert pages > 20
    for length in (100, 5000, len(whole) - 64, len(whole) - 1, *(4096 * left for left in range(1, pages))):
        path.write_bytes(whole[:length])
        again = Journal.open(path, NOON)
        (aside,) = path.parent.glob("*.damaged-1")
        assert aside.name in again.lost
        assert aside.read_bytes() == whole[:length]
        assert not again.alert_records
        assert again.commit(page(again, IncidentManager({}, now=0.0, wall_ns=NOON)), everywhere)
        again.close()
        once_more = Journal.open(path, NOON)
        assert (once_more.lost, len(once_more.waiting())) == ("", 2)
        once_more.close()
        for left in path.parent.iterdir():
            left.unlink()


def test_a_log_that_is_not_read_whole_is_kept_and_said(path: Path, tmp_path: Path) -> None:
    """SQLite goes on silently before the first byte that flipped; only a log that ends there looks like a kill's."""
    journal = Journal.open(path, NOON)
    for number in range(10):
        manager = IncidentManager(POLICIES, now=0.0, wall_ns=NOON + number * 700 * SECOND)
        journal.commit(page(journal, manager), everywhere)
    killed = shutil.copytree(path.parent, tmp_path / "killed")
    journal.close()
    log = killed / f"{path.name}-wal"
    whole, file = log.read_bytes(), (killed / path.name).read_bytes()
    lost = 0
    for at in [*range(32), *range(32, len(whole), len(whole) // 50), len(whole) - 1]:
        for left in killed.iterdir():
            left.unlink()
        (killed / path.name).write_bytes(file)
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        again = Journal.open(killed / path.name, NOON)
        waiting = len(again.waiting())
        again.close()
        kept = list(killed.glob("*-wal.damaged-1"))
        assert bool(kept) is (waiting < 20), (at, waiting)
        assert not kept or len(kept[0].read_bytes()) == len(whole)
        lost += bool(kept)
    assert lost > 20


def test_a_record_that_says_nothing_is_left_out_and_the_rest_stays(path: Path) -> None:
    journal = Journal.open(path, NOON)
    journal.commit(page(journal, begin(journal)), everywhere)
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update record set body = x'00ff' where kind = 'case'")
    connection.close()
    again = Journal.open(path, NOON)
    assert "1 records of" in again.lost
    assert len(again.waiting()) == 2
    IncidentManager(POLICIES, again.memory, now=0.0, wall_ns=NOON).receive([LOST], 1.0, NOON)
    assert again.flush()
    again.close()
    once_more = Journal.open(path, NOON)
    assert once_more.lost == ""
    once_more.close()


@pytest.mark.parametrize("kind", ["pulse", "case", "dossier", "window"])
def test_a_desk_that_lost_a_part_of_its_memory_still_tells_what_fires(kind: str) -> None:
    """Records of one kind are lost; firing alerts are still notified, perhaps twice."""
    harness = ManagerHarness(now=1e6)
    harness.wait(7200, every=30)
    hot, node = alert("thermal", gpu="GPU-h"), alert("node_silent", "n2")
    _, step = harness.manager.silence(
        parse_all(["rule=thermal"]),
        who="ada",
        why="x",
        ends=harness.wall + 3600 * SECOND,
        now=harness.now,
        wall_ns=harness.wall,
    )
    harness.keep(step)
    harness.tick(hot, node, LOST, alert("gpu_lost", "n2", "GPU-n2"))
    harness.wait(60)
    harness.records = {key: body for key, body in harness.records.items() if key.kind != kind}
    harness.restart()
    if kind == "case":
        harness.keep(harness.manager.reconcile([hot, node, LOST], harness.now, harness.wall))
    harness.wait(60)
    held = harness.manager.status(LOST.key)
    assert held is not None
    assert held.incident in {one.key for one in harness.manager.incidents()}
    assert held.incident in {one.incident.key for one in harness.sent}
    assert harness.state(hot) is (NotificationState.NOTIFIED if kind == "window" else NotificationState.SILENCED)
    new = alert("gpu_lost", "n7", "GPU-n7")
    harness.tick(new)
    assert described(harness.tick()) == ["trigger new"]


def opened_anew(path: Path) -> str:
    """Return what a journal says of the file that it found; it pages all the same."""
    journal = Journal.open(path, NOON)
    assert journal.commit(page(journal, IncidentManager({}, now=0.0, wall_ns=NOON)), everywhere)
    journal.close()
    return journal.lost


def test_files_that_are_not_ours_or_newer_are_kept_whole(path: Path, tmp_path: Path) -> None:
    """A bit that flips in the header makes them so: no reason to page nobody."""
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("create table shopping (what text)")
    connection.close()
    assert "another program's database" in opened_anew(path)
    with sqlite3.connect(path.with_name("alerts.db.damaged-1")) as connection:
        assert connection.execute("select count(*) from shopping").fetchone() == (0,)
    connection.close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    assert "of version 99" in opened_anew(path)
    with sqlite3.connect(path.with_name("alerts.db.newer-1")) as connection:
        assert connection.execute("select count(*) from notice").fetchone() == (1,)
    connection.close()
    path.unlink()
    path.mkdir()
    assert "it is kept as alerts.db.damaged-2" in opened_anew(path)
    path.write_bytes(b"")
    assert "it is empty" in opened_anew(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="The journal needs a folder"):
        Journal.open(tmp_path / "file" / "alerts.db", NOON)


def test_two_processes_cannot_have_one_journal(path: Path, journal: Journal) -> None:
    assert journal.commit(page(journal, begin(journal)), everywhere)
    with pytest.raises(StoreError, match="another kilowatch has it open"):
        Journal.open(path, NOON)


def test_two_steps_make_one() -> None:
    manager = IncidentManager(POLICIES, now=0.0, wall_ns=NOON)
    one, two = manager.receive([LOST], 1.0, NOON), manager.receive([], 2.0, NOON + 5)
    both = one.then(two)
    assert both.notices == two.notices
    assert [incident.key for incident in both.incidents] == [manager.incidents()[0].key]
    assert both.incidents == tuple(manager.incidents())
    assert both.records.keys() == one.records.keys() | two.records.keys()
    assert both.records[RecordKey("pulse", "")] == two.records[RecordKey("pulse", "")]
    assert both.wall_ns == NOON + 5
    assert not IncidentChanges()
    assert both


def test_an_exception_for_one_channel_costs_the_delivery_to_that_channel(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other channel has the page, and the next notice goes to both."""
    add = DeliveryQueue.add

    def failing(queue: DeliveryQueue, notice: Notice, due: Mapping[str, int], first: int) -> Any:
        if "chat" in due:
            raise RuntimeError("put in by the test")
        return add(queue, notice, due, first)

    manager = begin(journal)
    with monkeypatch.context() as patch:
        patch.setattr(DeliveryQueue, "add", failing)
        step = page(journal, manager)
        assert journal.commit(step, everywhere)
    assert [one.channel for one in journal.waiting()] == ["pager"]
    assert list(journal.faults) == [f"notice/{step.notices[0].incident.key}/chat"]
    assert journal.due(NOON + 2 * SECOND, 10, "pager")
    journal.commit(page_of_another(manager), everywhere)
    assert sorted(one.channel for one in journal.waiting()) == ["chat", "pager", "pager"]
    assert journal.faults == {}


def page_of_another(manager: IncidentManager) -> IncidentChanges:
    """Lose a GPU of another node, and wait until it is notified."""
    other = alert("gpu_lost", "n2", "GPU-b")
    manager.receive([other], 60.0, NOON + 60 * SECOND)
    return manager.receive([], 62.0, NOON + 62 * SECOND)
