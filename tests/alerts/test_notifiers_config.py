"""What an operator may write in `[alerts]`, and the one clear error for what can't be meant."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import msgspec
import pytest

from alerts.notifiers import KINDS
from alerts.notifiers.channel import Channel
from kilowatch.settings import load, shown
from telemetry.errors import ConfigError

WHOLE = """
[alerts]
timezone = "Europe/Berlin"
working_hours = ["mon-fri 09:00-17:00"]
external_url = "https://kilowatch.example"
dashboard_url = "https://grafana.example/d/gpu?var-node={node}&from={from}"
repeat_hours = { page = 2 }
heartbeat = { url = "https://watch.example/ping", every = 30 }

[alerts.channels.oncall]
type = "pagerduty"
key_file = "KEY"
region = "eu"

[alerts.channels.chat]
type = "slack"
url_env = "CHAT_URL"

[[alerts.routes]]
channels = ["oncall"]
severity = ["page"]
match = ['node=~"dgx-.*"', "rule!=driver_mismatch"]
times = ["mon-fri 18:00-08:00", "sat,sun"]
continue = true

[[alerts.routes]]
channels = ["chat"]
"""


def written(folder: Path, text: str) -> Path:
    """A settings file."""
    file = folder / "kilowatch.toml"
    (folder / "key").write_text("0123456789abcdef0123456789abcdef")
    file.write_text(text.replace("KEY", str(folder / "key")))
    return file


def test_all_that_can_be_said_is_understood_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_URL", "https://hooks.example/T0/B0/s3cret")
    settings = load(written(tmp_path, WHOLE), environment={})
    alerts = settings.aggregator.alerts
    assert list(alerts.notifiers()) == ["oncall", "chat"]
    assert [route.goes_on for route in alerts.routes] == [True, False]
    alerts.open()
    tree = str(shown(settings))
    assert "0123456789abcdef" not in tree
    assert "s3cret" not in tree


def test_nothing_need_be_said() -> None:
    settings = load(None, environment={})
    assert settings.aggregator.alerts.notifiers() == {}


CHANNEL = '[alerts.channels.c]\ntype = "{}"\n{}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alerts]\nchanels = {}", "Did you mean 'channels'?"),
        ('[alerts.channels.c]\nurl = "http://h/"', "alerts.channels.c.type: it has no type"),
        (CHANNEL.format("pagerdty", ""), "Did you mean 'pagerduty'?"),
        (CHANNEL.format("pagerduty", ""), "there is no integration key. Give one of key_file"),
        (CHANNEL.format("pagerduty", 'routing_key = "abc"'), "Secrets are in a file"),
        (CHANNEL.format("pagerduty", 'key = "abc"'), "name it in key_file"),
        (CHANNEL.format("pagerduty", 'key_env = "K"\nregion = "mars"'), "alerts.channels.c.region"),
        (CHANNEL.format("pagerduty", 'key_env = "K"\nat_once = 0'), "it must be 1 to 64"),
        (CHANNEL.format("webhook", 'url = "ftp://h/"'), "is no URL. Write it as https://host/path"),
        (CHANNEL.format("webhook", 'url = "https://u:p@h/"'), "a URL may hold no password"),
        (CHANNEL.format("webhook", 'url = "http://h/"\nurl_env = "U"'), "there are url and url_env"),
        (CHANNEL.format("webhook", 'url = "http://h/ö"'), "only ASCII"),
        (CHANNEL.format("slack", 'url = "https://h/x"'), "anyone with this URL can post"),
        (CHANNEL.format("ntfy", 'url = "https://h"'), "it names no topic"),
        (CHANNEL.format("alertmanager", "urls = []"), "there is none. Write urls ="),
        (CHANNEL.format("alertmanager", 'urls = ["http://h/api/v2/alerts"]'), "Leave /api"),
        (CHANNEL.format("alertmanager", ""), "missing required field `urls`"),
        (CHANNEL.format("apprise", ""), "there are no URLs"),
        ('[alerts.channels."Bad Name"]\ntype = "webhook"', "it is no name"),
        ('[[alerts.routes]]\nchannels = ["gone"]', "there is no channel 'gone'"),
        ('[[alerts.routes]]\nchannel = ["gone"]', "alerts.routes[0].channel: there is no such key"),
        ('[[alerts.routes]]\nchannels = []\nmatch = ["node"]', "is no condition on a label"),
        ('[[alerts.routes]]\nchannels = []\nmatch = ["node=~("]', "is no regular expression"),
        ('[[alerts.routes]]\nchannels = []\ntimes = ["weekdays"]', "are no hours"),
        ('[[alerts.routes]]\nchannels = []\ntimes = ["mon 25:00-26:00"]', "are no hours"),
        ('[[alerts.routes]]\nchannels = []\ntimezone = "Berlin"', "is no time zone here"),
        ('[[alerts.routes]]\nchannels = []\nseverity = ["fatal"]', "alerts.routes[0].severity"),
        ('[alerts]\ntimezone = "Mars/Olympus"', "alerts.timezone: 'Mars/Olympus' is no time zone"),
        ('[alerts]\ndashboard_url = "https://h/{host}"', "{host} has no meaning"),
        ('[alerts]\ndashboard_url = "https://h/{node"', "its braces don't match"),
        ('[alerts]\nrunbook_url = "docs"', "alerts.runbook_url: 'docs' is no URL"),
        ("[alerts]\npage_expiry_hours = 3", "longer than repeat_hours.page (4)"),
        ("[alerts]\ngroup_wait_seconds = -1", "it can't be negative"),
        ("[alerts]\nheartbeat = {}", "it needs one URL"),
        ('[alerts]\nheartbeat = {url = "http://h/", every = 0}', "alerts.heartbeat.every"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_place_and_cure(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, text), environment={})
    assert said in str(error.value)


def test_a_secret_that_is_not_there_is_said_when_the_settings_are_opened(tmp_path: Path) -> None:
    text = CHANNEL.format("pagerduty", 'key_env = "NO_SUCH_VARIABLE_HERE"')
    settings = load(written(tmp_path, text), environment={})
    with pytest.raises(ConfigError, match=r"alerts\.channels\.c: the environment has no NO_SUCH"):
        settings.aggregator.alerts.open()


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    settings = load(written(tmp_path, CHANNEL.format("pagerduty", 'key_file = "KEY"')), environment={})
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        settings.aggregator.alerts.open()


DOCS = Path(__file__).resolve().parents[2] / "docs" / "alerts.md"


def _examples() -> list[str]:
    """The settings that docs/alerts.md shows: its indented blocks."""
    blocks = re.findall(r"(?:^(?:    .*|)\n)+", DOCS.read_text(), re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks if "    [" in block]


@pytest.mark.parametrize("example", _examples())
def test_what_the_documentation_shows_is_understood(tmp_path: Path, example: str) -> None:
    settings = load(written(tmp_path, example), environment={})
    assert settings != load(written(tmp_path, ""), environment={})


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_documentation_names_every_type_with_what_it_takes_at_most(kind: type[Channel]) -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    (row,) = [line for line in DOCS.read_text().splitlines() if line.startswith(f"| `{kind.kind}`")]
    assert f"{defaults['per_minute']:g}" in row
