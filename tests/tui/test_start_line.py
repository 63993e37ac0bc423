"""The first line of a dashboard whose own command has started the aggregator."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from rich.cells import cell_len

from tests.kit.waiting import until
from tests.tui.cluster import text_of
from tui.app import Top
from tui.feed.connection import ConnectionState
from tui.frame.start_line import start_line, with_address

URL = "http://127.0.0.1:9400"


@dataclass
class Own:
    """An aggregator that starts."""

    waits: str = "12 of 1,250 nodes report"
    serving: bool = False
    ended: bool = False
    address: str = URL


def text(line: object) -> str:
    """A line without its colours."""
    return "".join(words for words, _ in line)  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 300])
def test_a_start_has_the_whole_first_line(width: int) -> None:
    shown = text(start_line(Own(), width))
    assert cell_len(shown) == width
    assert shown.startswith(" 12 of 1,250 nodes report")
    assert shown.endswith(f"web pages {URL} ")


def test_what_is_too_long_is_cut_and_the_address_stays() -> None:
    shown = text(start_line(Own("x" * 200), 60))
    assert cell_len(shown) == 60
    assert "…" in shown
    assert URL in shown


def test_the_header_has_the_address_where_there_is_room() -> None:
    own, header = Own(waits=""), [[("LIVE" + 8 * " ", "good")], [("GPUs", "")]]
    wide, less, narrow = (with_address(header, own, width) for width in (60, 30, 20))
    assert [text(line) for line in wide] == [f"LIVE{URL:>55} ", "GPUs"]
    assert [text(line) for line in less] == [text(header[0]), f"GPUs{URL:>25} "]
    assert narrow == header
    assert with_address(header, None, 60) == header
    assert with_address(header, Own(), 60) == header, "the line above has it"


async def test_a_dashboard_is_drawn_before_its_aggregator_answers_and_ends_with_it() -> None:
    """Nothing is connected to, and no word of a lost connection, before it serves."""
    own = Own("the broker is starting")
    app = Top("http://127.0.0.1:1", own=own, colour=False)
    async with app.run_test(size=(100, 30)):
        await until(lambda: "the broker is starting" in text_of(app))
        assert URL in text_of(app)
        own.waits = "0 of 3 nodes report"
        await until(lambda: "0 of 3 nodes report" in text_of(app))
        assert "DISCONNECTED" not in text_of(app)
        assert app.feed.connection.state is ConnectionState.CONNECTING
        own.ended = True
        await until(lambda: not app.is_running)
