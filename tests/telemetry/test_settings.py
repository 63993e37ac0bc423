"""Values that people write: each fault with its place, what is wrong, and what to write."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from telemetry.errors import ConfigError
from telemetry.text.settings import Fault, convert, fault_of, read_toml
from tests.kit.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


class Plug(msgspec.Struct, forbid_unknown_fields=True, tag="plug", tag_field="type"):
    """A member of a union."""

    topic: str


class Ups(msgspec.Struct, forbid_unknown_fields=True, tag="ups", tag_field="type"):
    """Another."""

    host: str
    outlets: tuple[int, ...] = ()


class Season(StrEnum):
    """Words of a setting."""

    WINTER = "winter"
    SUMMER = "summer"


class House(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename={"kind": "type"}):
    """All shapes that settings have."""

    port: Annotated[int, msgspec.Meta(ge=1)] = 1
    folder: Path = Path()
    kind: str = ""
    """A key whose name in Python is another."""
    meters: tuple[Plug | Ups, ...] = ()
    rooms: dict[str, Ups] = {}
    counts: dict[int, int] = {}
    spare: Plug | None = None
    season: Season | None = None
    heated: dict[str, list[Literal["oil", "gas"]]] = {}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"port": "x"}, "house.toml: port: expected `int`, got `str`."),
        ({"port": 0}, "house.toml: port: expected `int` >= 1."),
        ({"prt": 1}, "house.toml: prt: there is no such key. Did you mean 'port'?"),
        ({"typ": "x"}, "house.toml: typ: there is no such key. Did you mean 'type'?"),
        ({"folder": 3}, "house.toml: folder: expected a path as text, got 3."),
        ({"meters": [{"type": "ups"}]}, "house.toml: meters[0]: object missing required field `host`."),
        (
            {"meters": [{"type": "plug", "topic": "t"}, {"type": "ups", "host": "h", "outlet": 1}]},
            "house.toml: meters[1].outlet: there is no such key. Did you mean 'outlets'?",
        ),
        (
            {"rooms": {"a - at `b": {"type": "ups", "host": "h", "outlet": []}}},
            "house.toml: rooms[...].outlet: there is no such key. Did you mean 'outlets'?",
        ),
        ({"spare": {"type": "plug", "topi": ""}}, "house.toml: spare.topi: there is no such key. Did you mean 'topic'?"),
        ({"counts": {"x": 1}}, "house.toml: counts: expected `int`, got `str`."),
        ([], "house.toml: expected `object`, got `array`."),
        ({"season": "wintr"}, "house.toml: season: invalid enum value 'wintr'. Did you mean 'winter'? Write winter or summer."),
        ({"heated": {"a": ["oil", "x'y"]}}, "house.toml: heated[...][1]: invalid enum value \"x'y\". Write oil or gas."),
        ({"meters": [{"type": "shelly"}]}, "house.toml: meters[0].type: invalid value 'shelly'. Write plug or ups."),
    ],
)  # fmt: skip
def test_a_fault_has_a_place_a_problem_and_a_hint(raw: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(House, raw, "house.toml:")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("where", "raw", "place"),
    [
        ("house.toml:", {"port": "x"}, "house.toml: port"),
        ("house.toml:", [], "house.toml"),
        ("alerts.channels.chat", {"port": "x"}, "alerts.channels.chat.port"),
        ("alerts.channels.chat", [], "alerts.channels.chat"),
    ],
)
def test_a_place_continues_the_one_that_the_caller_names(where: str, raw: object, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(House, raw, where)
    assert caught.value.where == place


def test_an_item_of_a_list_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match=r"^meters\[1\]: expected"):
        convert(tuple[Plug, ...], [{"type": "plug", "topic": "t"}, 3], "meters")


def test_the_caller_may_give_a_hint_of_its_own() -> None:
    def hint(fault: Fault) -> str:
        return f"See {fault.place}, {fault.missing}." if fault.missing else fault.hint

    with pytest.raises(ConfigError, match=r"See spare, topic\.$"):
        convert(House, {"spare": {"type": "plug"}}, "f", hint=hint)


def test_values_are_taken_as_text_only_when_not_strict() -> None:
    raw = {"port": "8", "folder": "~/x"}
    assert convert(House, raw, "f", strict=False) == House(port=8, folder=Path.home() / "x")


def test_a_fault_of_a_request_names_the_keys_that_are_known() -> None:
    """A body that is decoded straight from JSON."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"spare": {"type": "plug", "t": 1}}', type=House)
    found = fault_of(caught.value, House)
    assert (found.place, found.unknown, found.known) == ("spare", "t", ("topic",))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "k.toml"
    with pytest.raises(ConfigError, match="there is no such file"):
        read_toml(path)
    with pytest.raises(ConfigError, match="can't be read"):
        read_toml(tmp_path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="can't be read"):
        read_toml(path)
    path.write_text("[")
    with pytest.raises(ConfigError, match="not TOML"):
        read_toml(path)
    path.write_text("a = 1")
    assert read_toml(path) == {"a": 1}


def test_there_is_one_parser_of_what_msgspec_reports() -> None:
    """A second one would word places and hints in its own way."""
    tell_tales = ('" - at ', "- at `", "unknown field `", "required field `")
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if any(text in path.read_text(encoding="utf-8") for text in tell_tales)
    }
    assert found == {"telemetry/text/settings.py"}
