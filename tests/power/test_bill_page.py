"""docs/bill.md against the settings: its example works, and every setting stands in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from power.site.config import BillConfig
from power.site.decode import decode
from power.site.layout import lay_out
from telemetry.errors import ConfigError

PAGE = (Path(__file__).parents[2] / "docs/bill.md").read_text()


def test_the_example_is_a_configuration() -> None:
    """As it is printed."""
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    site = decode("bill.md", tomllib.loads(example))
    assert site.bill is not None
    assert (site.bill.contract_kw, site.site.tariffs[1].price) == (120, -0.02)


def test_every_setting_has_a_row() -> None:
    """With its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == set(BillConfig.__struct_fields__)
    bill = BillConfig()
    for name, default in rows.items():
        value = getattr(bill, name)
        if value not in {None, ()}:
            assert default == f"{value:g}" if not isinstance(value, bool) else str(value).lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ratchet = 1.5", "more than the whole"),
        ("power_factor = 92", "Write 0.9"),
        ("reactive_charge = 0.1", "power_factor: it is missing"),
        ("excess_charge = 3", "contract_kw: it is missing"),
        ("demand_minutes = 20", "demand_minutes"),
        ("demand_days = 0", "0 means nothing"),
        ("demand_charge = -1", "below 0"),
        ("ratchet_months = 0", "0 means nothing"),
        ("contract = 3", "contract_kw"),
    ],
)
def test_a_contract_that_can_not_be_is_refused(text: str, words: str) -> None:
    """With place and cure."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        decode("x", tomllib.loads(f"[bill]\n{text}"))


def test_a_name_that_is_taken_or_unknown_is_refused() -> None:
    """A budget called bill, and circuits that do not exist."""
    budget = '[bill]\n[circuits.a]\nbreaker = 16\n[budgets.bill]\ncircuits = ["a"]\nkw = 1\n'
    with pytest.raises(ConfigError, match="another name"):
        decode("x", tomllib.loads(budget))
    absent = decode("x", tomllib.loads('[bill]\ncircuits = ["b"]\n[circuits.a]\nbreaker = 16\n'))
    with pytest.raises(ConfigError, match=r"bill\.circuits"):
        lay_out("x", absent)
