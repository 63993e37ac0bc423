"""Settings: files, environment and flags in that order; every mistake has a place and a cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilowatch.settings import load, shown
from telemetry.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    path = folder / "k.toml"
    path.write_text(text)
    return path


def test_flags_beat_the_environment_and_that_beats_the_file(tmp_path: Path) -> None:
    """The later wins, key by key."""
    path = written(tmp_path, 'cluster = "hall"\n[broker]\nhost = "file"\nport = 1\n[collector]\ninterval = 2.0\n')
    settings = load(
        path,
        {"KILOWATCH__BROKER__PORT": "2", "KILOWATCH__COLLECTOR__SLOW_INTERVAL": "30", "HOME": "/"},
        {"broker.port": 3, "collector.node": "n1", "collector.source": None},
    )
    assert settings.collector.broker.host == "file"
    assert settings.collector.broker.port == settings.aggregator.broker.port == 3
    assert (settings.collector.interval, settings.collector.slow_interval) == (2.0, 30.0)
    assert settings.collector.cluster == settings.aggregator.cluster == "hall"
    assert (settings.collector.node, settings.collector.source) == ("n1", "auto")


def test_the_section_jobs_is_the_collectors(tmp_path: Path) -> None:
    """One section for those who write, one place for the collector that reads."""
    settings = load(written(tmp_path, '[jobs]\nusers = "off"\ninterval = 2\n'), {})
    assert settings.collector.jobs == settings.jobs
    assert (settings.jobs.users, settings.jobs.interval, settings.jobs.enabled) == ("off", 2.0, True)


def test_one_side_may_have_a_broker_of_its_own(tmp_path: Path) -> None:
    """A side's own setting holds for that side alone."""
    path = written(tmp_path, '[broker]\nhost = "a"\n[aggregator.broker]\nhost = "b"\n')
    settings = load(path, {})
    assert (settings.collector.broker.host, settings.aggregator.broker.host) == ("a", "b")


def test_folders_are_paths_and_a_tilde_is_home(tmp_path: Path) -> None:
    """Paths may begin with a tilde."""
    path = written(
        tmp_path, '[aggregator]\ndata_dir = "/srv/d"\nrules = ["~/r.toml"]\n[collector]\nstate_dir = "~/s"\n'
    )
    settings = load(path, {})
    assert settings.aggregator.data_dir == Path("/srv/d")
    assert settings.aggregator.rules == (Path.home() / "r.toml",)
    assert settings.collector.state_dir == Path.home() / "s"


def test_without_a_file_the_defaults_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings file is needed."""
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert settings.aggregator.listen == "127.0.0.1:9400"
    assert shown(settings)["collector"]["interval"] == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[collector]\nintreval = 1\n", r"collector\.intreval: there is no such key.*'interval'"),
        ("[colector]\n", r"colector: there is no such key.*'collector'"),
        ("broker = 3\n", r"broker: it is a section.*Write \[broker\]"),
        ('[collector]\ninterval = "soon"\n', r"collector\.interval: expected `float`"),
        ("[collector]\ninterval = 0\n", r"collector\.interval: 0.* out of range"),
        ('[collector]\nnode = "a/b"\n', r"collector\.node: 'a/b' can't be part of an MQTT topic"),
        ('cluster = ""\n', r"can't be part of an MQTT topic"),
        ("[jobs]\ninterval = 0.5\n", r"jobs\.interval: 0.5 s is out of range.*1 to 60"),
        ('[jobs]\nusers = "hashed"\n', r"jobs\.secret_file: .*needs a secret.*the same on all nodes"),
        ('[jobs]\nusers = "some"\n', r"jobs\.users: invalid enum value"),
        ("[aggregator.store]\nseal_seconds = 0\n", r"aggregator\.store\.seal_seconds"),
        ("[aggregator.store]\nseal = 0\n", r"aggregator\.store\.seal: there is no such key"),
        ("[", r"not TOML"),
        ("[aggregator]\ndata_dir = 3\n", r"aggregator\.data_dir: expected a path"),
    ],
)
def test_a_mistake_is_an_error_with_place_and_remedy(tmp_path: Path, text: str, expected: str) -> None:
    """The error names file, key and problem."""
    with pytest.raises(ConfigError, match=expected):
        load(written(tmp_path, text), {})


@pytest.mark.parametrize(
    ("shards", "circuits", "refused"), [(["00-7f"], True, True), (["00-ff"], True, False), (["00-7f"], False, True)]
)
def test_a_part_of_the_cluster_by_hand_is_refused(
    tmp_path: Path, shards: list[str], circuits: bool, refused: bool
) -> None:
    """Two aggregators took each other's nodes for silent: 18 kW on a breaker of 40 A paged nobody."""
    file = tmp_path / "kilowatch.toml"
    site = '[power.circuits.a]\nbreaker = 40\nnodes = ["n1", "n2"]\n' if circuits else ""
    file.write_text(f"[aggregator]\nshards = {shards}\n{site}")
    if not refused:
        assert list(load(file, {}).aggregator.shards) == shards
        return
    with pytest.raises(
        ConfigError, match=r"aggregator\.shards.*breaker of two parts could trip.*\n?.*\[cluster\] nats"
    ):
        load(file, {})


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    """The error names the environment variable."""
    with pytest.raises(ConfigError, match=r"KILOWATCH__COLLECTOR__NOD: .*'node'"):
        load(None, {"KILOWATCH__COLLECTOR__NOD": "x"})


def test_a_file_that_is_not_there_is_an_error_when_named(tmp_path: Path) -> None:
    """Only the default places may be empty."""
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path, {})


def test_the_table_cluster_names_the_cluster_and_its_nats_servers(tmp_path: Path) -> None:
    """`cluster = "hall"` and `[cluster] name = "hall"` say the same."""
    file = tmp_path / "kilowatch.toml"
    file.write_text('[cluster]\nname = "hall"\nnats = ["nats://a:4222"]\nmember = "agg-1"\n')
    settings = load(file, {})
    assert (settings.cluster, settings.collector.cluster) == ("hall", "hall")
    assert settings.aggregator.cluster == "hall"
    assert settings.aggregator.members.nats == ("nats://a:4222",)
    assert settings.aggregator.members.name == "agg-1"
    assert load(None, {}).aggregator.members.nats == ()
    for text in ('storage = "/mnt/shared"\n', '[cluster.storage]\nurl = "/mnt/shared"\n'):
        file.write_text(f'[cluster]\nname = "hall"\nnats = ["nats://a:4222"]\n{text}')
        assert load(file, {}).aggregator.members.storage.url == "/mnt/shared"
    file.write_text('[cluster]\nnats = ["nats://a:4222"]\nstorage = "mnt"\n')
    with pytest.raises(ConfigError, match=r"cluster\.storage\.url.*absolute path"):
        load(file, {}).aggregator.check()
