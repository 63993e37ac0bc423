"""A page as the parts that change by themselves."""

from __future__ import annotations

from aggregator.web.keyed_parts import changes, parts_of

PAGE = (
    '<main data-k="main"><h1>All</h1><section data-k="tiles"><p data-k="power">9 kW</p><p data-k="use">70%</p></section>'
    '<table><tbody data-k="rows"><tr data-k="a"><td>1</td></tr><tr data-k="b"><td>2</td></tr></tbody></table></main>'
)


def test_a_key_has_those_around_it_before_it_and_nothing_else_of_the_page_changes() -> None:
    whole = parts_of(PAGE).whole()
    assert '<tr data-k="main/rows/b"><td>2</td></tr>' in whole
    assert (
        whole.replace('data-k="main/tiles/', 'data-k="')
        .replace('data-k="main/rows/', 'data-k="')
        .replace('data-k="main/', 'data-k="')
        == PAGE
    )


def test_only_the_smallest_parts_that_differ_are_sent() -> None:
    before = parts_of(PAGE)
    assert changes(before, before) == {}
    now = parts_of(PAGE.replace("9 kW", "10 kW").replace("<td>2", "<td>3"))
    assert changes(now, before) == {
        "main/tiles/power": '<p data-k="main/tiles/power">10 kW</p>',
        "main/rows/b": '<tr data-k="main/rows/b"><td>3</td></tr>',
    }


def test_what_comes_goes_or_moves_is_sent_with_what_it_is_in() -> None:
    before = parts_of(PAGE)
    for other in (
        PAGE.replace('<tr data-k="a"><td>1</td></tr>', ""),
        PAGE.replace('"a"', '"c"'),
        PAGE.replace(
            '<tr data-k="a"><td>1</td></tr><tr data-k="b"><td>2</td></tr>',
            '<tr data-k="b"><td>2</td></tr><tr data-k="a"><td>1</td></tr>',
        ),
    ):
        assert list(changes(parts_of(other), before)) == ["main/rows"]
    assert list(changes(parts_of(PAGE.replace("All", "Some")), before)) == ["main"]
    assert list(changes(parts_of(f"{PAGE}<p>"), before)) == [""]


def test_of_two_with_one_key_the_second_changes_with_what_it_is_in() -> None:
    def of(second: str) -> str:
        return f'<ul data-k="list"><li data-k="n">1</li><li data-k="n">{second}</li></ul>'

    assert list(changes(parts_of(of("3")), parts_of(of("2")))) == ["list"]


def test_keys_are_sent_as_a_script_reads_them() -> None:
    before, now = (parts_of(f'<p data-k="R&amp;D">{each}</p>') for each in "12")
    assert list(changes(now, before)) == ["R&D"]
