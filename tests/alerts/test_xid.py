"""The catalogue of XIDs, and the sub-codes of NVLink on Blackwell."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.xid.catalogue import XidSeverity, catalogue, meaning_of
from alerts.xid.evaluate import evaluate_registers
from alerts.xid.nvlink5 import XIDS, decode

TABLES = Path(__file__).parents[2] / "../shared/data"
needs_tables = pytest.mark.skipif(not TABLES.is_dir(), reason="no ../shared/data")


@needs_tables
def test_names_and_actions_are_nvidias() -> None:
    """Every number of the published list, each with its name and official action."""
    with (TABLES / "xid.csv").open(encoding="utf-8") as file:
        rows = {int(row["xid"]): row for row in csv.DictReader(file)}
    assert set(catalogue()) == set(rows)
    for xid, row in rows.items():
        official = "" if row["nvidia_action"].startswith("(") else row["nvidia_action"]
        assert catalogue()[xid].name == row["name"].split(" / ")[0]
        assert catalogue()[xid].nvidia_action == official


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    """In whole sentences."""
    for known in catalogue().values():
        assert known.meaning.endswith("."), known
        assert known.remedy.endswith("."), known
        assert known.fault


@pytest.mark.parametrize(
    ("severity", "xids"),
    [
        (XidSeverity.PAGE, (48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 158, 173)),
        (XidSeverity.TICKET, (32, 63, 92, 94, 109, 137, 155, 156, 171, 172, 4242)),
        (XidSeverity.IGNORE, (13, 31, 43, 45, 106)),
    ],
)
def test_what_one_line_alone_is_worth(severity: XidSeverity, xids: tuple[int, ...]) -> None:
    """Program errors are never notified; an unknown number is a ticket."""
    assert {meaning_of(xid).severity for xid in xids} == {severity}


@needs_tables
def test_every_published_sub_code_decodes_to_its_own_action() -> None:
    """With V1 and V2 words made from the published patterns; the spare bits may be anything."""
    with (TABLES / "xid_nvlink5_decode.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    for row in rows:
        xid, unit, action = int(row[0]), row[1], row[5]
        status = int(row[4].split("/")[0], 16) if row[4] else 0x1234
        for layout, pattern in (("V1", row[2]), ("V2", row[3])):
            for spare in "01":
                word = int(pattern.strip().replace("-", spare), 2)
                if unit == "RLW_RXPIPE" and pattern.strip()[20 if layout == "V1" else 23] == "-":
                    word &= ~(1 << (10 if layout == "V1" else 7))  # that bit asks for more
                code = decode(xid, (word, status))
                assert code is not None
                assert code.action == action
                assert unit.split("_PIPE")[0] == code.unit.split("_PIPE")[0] or xid == 150
                assert code.layout == layout or xid == 150


def test_a_bit_of_rxpipe_asks_for_a_reset() -> None:
    """The second column of actions in NVIDIA's table."""
    assert decode(145, (0b00011000010, 1)).action == "IGNORE"  # type: ignore[union-attr]
    assert decode(145, (0b10011000010, 1)).action == "RESET_GPU"  # type: ignore[union-attr]


@given(st.integers(), st.lists(st.integers(0, 2**64 - 1), max_size=8))
def test_decoding_never_fails(xid: int, words: list[int]) -> None:
    """Cut off, too wide, unknown: None."""
    code = decode(xid, words)
    assert code is None or xid in XIDS


@pytest.mark.parametrize(
    ("registers", "detail", "severity"),
    [
        ((0, 0, 0x10000, 0, 0, 0, 0), "fatal error on link 14", XidSeverity.PAGE),
        ((1 << 4, 0, 0, 0, 0, 0, 0), "", XidSeverity.PAGE),
        ((1 | 1 << 23 | 1 << 30, 0, 0, 0, 0, 0, 0), "", XidSeverity.IGNORE),
        ((), "NVLink: fatal error detected", XidSeverity.PAGE),
        ((), "NVLink: non-fatal error", XidSeverity.TICKET),
        ((0, 0, 0, 0, 0, 0, 0), "", XidSeverity.TICKET),
    ],
)
def test_registers_of_xid_74(registers: tuple[int, ...], detail: str, severity: XidSeverity) -> None:
    """Three bits of the first may be passed over."""
    assert evaluate_registers(registers, detail)[1] is severity
