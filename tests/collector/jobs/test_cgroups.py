"""From the text of `/proc/PID/cgroup` to an owner, and to what is only claimed."""

from __future__ import annotations

import random
import re

import pytest

from collector.jobs.cgroups import FORMS, CgroupOwner, CgroupReading, reading_of
from tests.collector.jobs.cgroup_texts import FORGED, ROWS, Forged, slurm


def _named(path: str, last: str) -> str:
    """Return the path to the last folder whose name root gave."""
    return path[: len(last)] if last and path.startswith(last) else path


@pytest.mark.parametrize(("text", "owner"), ROWS, ids=[row[0][:90] for row in ROWS])
def test_a_form_names_its_owner_and_claims_nothing(text: str, owner: CgroupOwner | None) -> None:
    assert reading_of(f"{text}\n" if text else text) == CgroupReading(owner)


@pytest.mark.parametrize("forged", FORGED, ids=lambda each: each.text[:90])
def test_a_job_is_believed_only_where_its_scheduler_makes_it(forged: Forged) -> None:
    found = reading_of(f"{forged.text}\n", lambda _, path: _named(path, forged.named))
    assert found == CgroupReading(forged.owner, forged.claim)


@pytest.mark.parametrize("forged", [each for each in FORGED if each.named], ids=lambda each: each.text[:90])
def test_the_same_is_believed_where_root_made_it(forged: Forged) -> None:
    assert reading_of(f"{forged.text}\n").owner == forged.claim


def test_each_hierarchy_has_owners_of_its_own() -> None:
    """The user owns a folder of systemd's hierarchy, not that of the freezer with the same name."""
    text = "9:freezer:/slurm/uid_1000/job_41\n1:name=systemd:/slurm/uid_1000/job_40\n"
    found = reading_of(text, lambda controllers, path: "/slurm" if controllers == "name=systemd" else path)
    assert found == CgroupReading(slurm("41", "", 1000), slurm("40", "", 1000))


def test_the_rows_are_of_different_shapes() -> None:
    """Not of other numbers; and each form has some."""
    shapes = {re.sub(r"[0-9a-f]{12,}|[0-9a-f]{8}([-_][0-9a-f]{4}){3}|\d+", "#", text) for text, _ in ROWS}
    assert len(shapes) >= 90
    assert len(FORGED) >= 25
    used = {form.name for text, _ in ROWS for form in FORMS if (form.claim or form.pattern).search(text)}
    assert used == {form.name for form in FORMS}


def test_a_damaged_line_names_an_owner_or_none_and_never_fails() -> None:
    """Ten thousand mutations of the rows: cut, doubled, with letters exchanged."""
    chance = random.Random(18)
    letters = "/-_.:\n 0af" + chr(0x2028) + "\\\x00é"
    for _ in range(10_000):
        text = chance.choice(ROWS)[0]
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            end = min(len(text), at + chance.randrange(12))
            middle = "".join(chance.choices(letters, k=chance.randrange(4)))
            text = text[:at] + middle + text[end if chance.random() < 0.5 else at :]
        for found in filter(None, reading_of(text)):
            assert found.scheduler in {"slurm", "pbs", "lsf", "htcondor", "kubernetes", "container", "systemd", "user"}
            assert found.id or found.scheduler == "user"
            assert "\n" not in found.id + found.step
            assert found.uid is None or 0 <= found.uid < 10**10
