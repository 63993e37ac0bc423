"""Declarations of the owners of jobs."""

from __future__ import annotations

import pytest

from present.job import purpose_words
from telemetry.notations.purpose import MOST_PURPOSE, Purpose, declared, purpose_of


@pytest.mark.parametrize(
    ("comment", "purpose", "wrong", "words"),
    [
        ("", Purpose(), "", ""),
        ("six of them, for Ann", Purpose(), "", ""),
        ("kilowatch: gpus=6 checkpoint=15m idle=ok", Purpose(6, 900.0, True), "", "works with 6 GPUs, pauses for up to 15 min, may wait"),
        ("run 3; KILOWATCH:gpus=1;gpus=9", Purpose(1), "", "works with 1 GPU"),
        ("kilowatch: checkpoint=1h30m", Purpose(0, 5400.0), "", "pauses for up to 90 min"),
        ("kilowatch: idle=no", Purpose(), "", ""),
        ("kilowatch: gpus=0 gpu=6 checkpoint=2d checkpoint= idle=maybe six", Purpose(), "gpus=0 gpu=6 checkpoint=2d checkpoint= idle=maybe six", ""),
        ("kilowatch: gpus=6 nice=1", Purpose(6), "nice=1", "works with 6 GPUs"),
    ],
)  # fmt: skip
def test_a_declaration_is_read_and_what_says_nothing_is_told(
    comment: str, purpose: Purpose, wrong: str, words: str
) -> None:
    text = declared(comment)
    assert purpose_of(text) == (purpose, wrong)
    assert purpose_words(text) == words


def test_a_declaration_is_short_and_printable() -> None:
    text = declared("kilowatch: gpus=6\x1b[31m " + "x" * 10_000)
    assert len(text) == MOST_PURPOSE
    assert text.isprintable()
