"""A gap keeps its reason through every cast that a frame goes through."""

from __future__ import annotations

import array
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.fleet import gaps32, gaps64, gaps_of
from telemetry.gap import GAP, Gap, bits32, gap, reason_of


@pytest.mark.parametrize("reason", list(Gap))
def test_the_reason_survives_float32_and_back(reason: Gap) -> None:
    """struct, array and NumPy all keep the payload."""
    narrow = struct.unpack("<f", struct.pack("<f", gap(reason)))[0]
    assert reason_of(narrow) is reason
    packed = array.array("f", [gap(reason)]).tobytes()
    assert int.from_bytes(packed, "little") == bits32(reason)
    wide = np.frombuffer(packed, "<f4").astype(np.float64)
    assert reason_of(float(wide[0])) is reason


@pytest.mark.parametrize("reason", list(Gap))
def test_numpy_reads_the_same_reasons(reason: Gap) -> None:
    """The vectorised form and the plain one agree, at both widths."""
    assert gaps_of(gaps32((2,), reason)).tolist() == [reason, reason]
    assert gaps_of(gaps64((2,), reason)).tolist() == [reason, reason]


@given(st.floats(allow_nan=False))
def test_a_number_is_never_a_gap(value: float) -> None:
    """Infinity and zero included."""
    assert reason_of(value) is None
    assert gaps_of(np.array([value], np.float64)).tolist() == [255]


def test_a_foreign_nan_is_a_gap_of_unknown_reason() -> None:
    """A computed NaN is no number either."""
    assert reason_of(float("nan")) is Gap.UNKNOWN
    assert reason_of(struct.unpack("<d", struct.pack("<Q", 0x7FF8_001F_E000_0000))[0]) is (Gap.UNKNOWN)


def test_words_are_for_json() -> None:
    """The words of the JSON documents are the names in lower case."""
    assert Gap.NOT_SUPPORTED.word == "not_supported"
    assert set(GAP) == set(Gap)
