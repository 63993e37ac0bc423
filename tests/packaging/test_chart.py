"""The Helm chart: rendered by the real helm, checked by Kubernetes' schemas, its settings run by the real programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from kilowatch import settings
from kilowatch.__main__ import main
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import wait_until

CHART = Path(__file__).parents[2] / "deploy/helm/kilowatch"
HELM = Path(sys.executable).with_name("helm")
OLDEST, NEWEST = "1.25", "1.37.0"
ALL = ("serviceMonitor.enabled=true", "podMonitor.enabled=true", "collector.privileged=true",
       "aggregator.secretFiles=pagers", "collector.podLabels={team,app.kubernetes.io/name}", "image.pullSecrets[0].name=registry", "serviceMonitor.labels.release=prom")  # fmt: skip
LESS = ("broker.enabled=false", "broker.host=mqtt.example", "broker.tls=true", "collector.jobs=false",
        "collector.runtimeClassName=", "aggregator.storage.className=fast")  # fmt: skip
TOKEN, PASSWORD = "t" * 40, "broker-password"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, check=False)


def rendered(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the chart, by kind and name."""
    options = [word for value in values for word in ("--set", value)]
    ended = helm("template", "kw", str(CHART), "--namespace", "monitoring", *options)
    assert ended.returncode == 0, ended.stderr
    found = [each for each in yaml.safe_load_all(ended.stdout) if each is not None]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def chart() -> dict[tuple[str, str], dict[str, Any]]:
    return rendered()


def container(each: dict[str, Any]) -> dict[str, Any]:
    """The only container of a workload."""
    (found,) = each["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_helm_finds_nothing_to_complain_of() -> None:
    ended = helm("lint", "--strict", str(CHART))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    version = re.search(r'^version = "(.+)"$', (CHART.parents[2] / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f'appVersion: "{version[1]}"' in (CHART / "Chart.yaml").read_text()


@pytest.mark.parametrize("values", [(), ALL, LESS], ids=["defaults", "all", "less"])
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_one_of_kubernetes(values: tuple[str, ...], version: str) -> None:
    objects = rendered(*values)
    assert {"DaemonSet", "StatefulSet", "Service", "ConfigMap"} <= {kind for kind, _ in objects}
    for (kind, _), each in objects.items():
        if not kind.endswith("Monitor"):  # kinds of the Prometheus operator
            kubernetes_validate.validate(each, version, strict=True)
    monitors = {kind for kind, _ in objects if kind.endswith("Monitor")}
    assert monitors == ({"ServiceMonitor", "PodMonitor"} if values is ALL else set())


@pytest.mark.parametrize("dcgm", [False, True])
def test_collectors_stand_in_for_dcgm_exporter_where_asked_for(dcgm: bool) -> None:
    """With the exporter's `pod`, which is not that of the collector: so labels are honoured."""
    objects = rendered("podMonitor.enabled=true", *["podMonitor.dcgm=true"] * dcgm)
    (endpoint,) = objects["PodMonitor", "kw-collector"]["spec"]["podMetricsEndpoints"]
    path = "/metrics/dcgm" if dcgm else "/metrics"
    assert (endpoint["path"], endpoint["honorLabels"]) == (path, dcgm)
    assert f"metrics_jobs = {str(dcgm).lower()}" in objects["ConfigMap", "kw"]["data"]["collector.toml"]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("broker.prot=1", "prot"),
        ("broker.port=0", "broker.port"),
        ("collector.jobs=3", "collector.jobs"),
        ("image.pullPolicy=Soon", "pullPolicy"),
        ("broker.enabled=false", "name your broker"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(value: str, complaint: str) -> None:
    ended = helm("template", "kw", str(CHART), "--set", value)
    assert ended.returncode != 0
    assert complaint in ended.stderr


def test_nothing_is_privileged_unless_asked_for(chart: dict[tuple[str, str], Any]) -> None:
    for key in (("DaemonSet", "kw-collector"), ("StatefulSet", "kw-aggregator"), ("Deployment", "kw-broker")):
        pod = chart[key]["spec"]["template"]["spec"]
        for each in (*pod["containers"], *pod.get("initContainers", [])):
            context = each["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, key
            assert context["allowPrivilegeEscalation"] is False, key
            assert context["capabilities"] == {"drop": ["ALL"]}, key
            assert "privileged" not in context, key
        names = {volume["name"] for volume in pod["volumes"]} | {
            claim["metadata"]["name"] for claim in chart[key]["spec"].get("volumeClaimTemplates", [])
        }
        mounted = [
            mount["name"]
            for each in (*pod["containers"], *pod.get("initContainers", []))
            for mount in each["volumeMounts"]
        ]
        assert set(mounted) == names, key
    asked = rendered(*ALL)[("DaemonSet", "kw-collector")]
    assert container(asked)["securityContext"]["privileged"] is True


def test_the_collector_may_list_pods_and_resource_slices_and_nothing_else() -> None:
    """And has no token at all where it is not to ask the API server."""
    objects = rendered()
    roles = [each for (kind, _), each in objects.items() if kind in {"ClusterRole", "Role"}]
    assert [each["rules"] for each in roles] == [
        [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
        ]
    ]
    without = rendered("collector.api=false")
    assert not {kind for kind, _ in without} & {"ClusterRole", "Role", "ClusterRoleBinding"}
    pod = without[("DaemonSet", "kw-collector")]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False


def test_services_and_monitors_find_their_pods_and_ports() -> None:
    objects = rendered(*ALL)
    for kind, name, workload in (
        ("Service", "kw", ("StatefulSet", "kw-aggregator")),
        ("Service", "kw-broker", ("Deployment", "kw-broker")),
        ("PodMonitor", "kw-collector", ("DaemonSet", "kw-collector")),
    ):
        labels = objects[workload]["spec"]["template"]["metadata"]["labels"].items()
        ports = {port["name"] for port in container(objects[workload])["ports"]}
        spec = objects[kind, name]["spec"]
        chosen = spec["selector"] if kind == "Service" else spec["selector"]["matchLabels"]
        assert chosen.items() <= labels, name
        wanted = (
            [port["targetPort"] for port in spec["ports"]]
            if kind == "Service"
            else [each["port"] for each in spec["podMetricsEndpoints"]]
        )
        assert set(wanted) <= ports, name
    monitor = objects["ServiceMonitor", "kw"]
    service = objects["Service", "kw"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == {service["spec"]["ports"][0]["name"]}


class Pods:
    """What stands for the pods of the chart on this machine: their files below a folder, with other paths."""

    def __init__(self, folder: Path, *values: str) -> None:
        self.folder = folder
        self.chart = rendered(*values)
        secret = folder / "etc/kilowatch/secret"
        secret.mkdir(parents=True)
        for name, text in (("password", PASSWORD), ("token", TOKEN)):
            (secret / name).write_text(text)
            (secret / name).chmod(0o600)
        for name, text in self.chart["ConfigMap", "kw"]["data"].items():
            (folder / "etc/kilowatch" / name).write_text(self.here(text))

    def here(self, text: str) -> str:
        """A text with the paths of pods moved below the folder."""
        return re.sub(
            r'(?<=["\s])(/etc/kilowatch|/var/lib/kilowatch|/run/mosquitto|/secret)(?=[/"\s])',
            lambda match: f"{self.folder}{match[1]}",
            text,
        )

    def command(self, kind: str, name: str) -> list[str]:
        """The command of a container of ours."""
        arguments = [self.here(f" {word} ").strip() for word in container(self.chart[kind, name])["args"]]
        return [sys.executable, "-m", "kilowatch", *arguments]


@pytest.mark.parametrize("values", [(), ALL, LESS], ids=["defaults", "all", "less"])
@pytest.mark.parametrize("name", ["collector", "aggregator"])
def test_the_settings_of_the_chart_are_those_of_the_program(tmp_path: Path, values: tuple[str, ...], name: str) -> None:
    pods = Pods(tmp_path, *values)
    file = tmp_path / f"etc/kilowatch/{name}.toml"
    ended = CliRunner().invoke(main, ["config", "check", "--config", str(file)])
    assert ended.exit_code == 0, ended.output
    loaded = settings.load(file, {})
    assert loaded.broker.tls is (values is LESS)
    collector = pods.chart["DaemonSet", "kw-collector"]
    ports = [port["containerPort"] for port in container(collector)["ports"]]
    if name == "collector":
        assert loaded.jobs.enabled is (values is not LESS)
        named = ("team", "app.kubernetes.io/name") if values is ALL else ()
        assert loaded.jobs.kubernetes.pod_labels == named
        assert (loaded.collector.kernel_log is None) is (values is not ALL)
        assert loaded.collector.metrics_listen == f"0.0.0.0:{ports[0]}"
        known = {f"{settings.PREFIX}COLLECTOR__{field.upper()}" for field in loaded.collector.__struct_fields__}
        ours = {one["name"] for one in container(collector)["env"] if one["name"].startswith(settings.PREFIX)}
        assert ours <= known
    else:
        http = container(pods.chart["StatefulSet", "kw-aggregator"])["ports"]
        assert loaded.aggregator.listen == f"0.0.0.0:{http[0]['containerPort']}"


def test_more_settings_reach_the_aggregator(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(
        yaml.safe_dump({"aggregator": {"settings": '[power]\nregion = "DE"\n[power.circuits.a]\nbreaker = 16\n'}})
    )
    ended = helm("template", "kw", str(CHART), "-f", str(tmp_path / "more.yaml"))
    (data,) = (
        each["data"]
        for each in yaml.safe_load_all(ended.stdout)
        if each and each["kind"] == "ConfigMap" and each["metadata"]["name"] == "kw"
    )
    (tmp_path / "kilowatch.toml").write_text(data["aggregator.toml"])
    loaded = settings.load(tmp_path / "kilowatch.toml", {})
    assert loaded.aggregator.power["circuits"]["a"]["breaker"] == 16


@contextlib.contextmanager
def running(command: list[str], folder: Path, **environment: str) -> Iterator[None]:
    """A program while the block runs."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    with (folder / f"{Path(command[-1]).stem}.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, "PATH": path, **environment}, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def status(url: str, token: str = "") -> tuple[int, str]:
    """Status and text of a reply; 0 while nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0, ""


@pytest.mark.systems
@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="apt-get install mosquitto")
def test_what_the_chart_starts_works_together(tmp_path: Path) -> None:
    """Broker, collector and aggregator with the chart's commands and settings, on this machine: with its password
    and no other, and its token and no other."""
    ports = {"broker.port": free_port(), "aggregator.port": free_port(), "collector.metricsPort": free_port()}
    pods = Pods(
        tmp_path,
        "broker.enabled=false",
        "broker.host=127.0.0.1",
        "collector.jobs=false",
        *(f"{name}={port}" for name, port in ports.items()),
    )
    inside = rendered(f"broker.port={ports['broker.port']}")
    (tmp_path / "run/mosquitto").mkdir(parents=True)
    shutil.copytree(tmp_path / "etc/kilowatch/secret", tmp_path / "secret")
    conf = tmp_path / "etc/kilowatch/mosquitto.conf"
    text = inside["ConfigMap", "kw-broker"]["data"]["mosquitto.conf"]
    user = "user root\n" if os.geteuid() == 0 else ""  # in the pod it is a number
    conf.write_text(pods.here(text) + user)
    (init,) = inside["Deployment", "kw-broker"]["spec"]["template"]["spec"]["initContainers"]
    (named,) = init["env"]
    shell = pods.here(init["command"][2])
    subprocess.run(["sh", "-c", shell], env={**os.environ, named["name"]: named["value"]}, check=True)
    (tmp_path / "run/mosquitto/users").chmod(0o600)
    started = [pods.here(f" {word} ").strip() for word in container(inside["Deployment", "kw-broker"])["command"]]
    base = f"http://127.0.0.1:{ports['aggregator.port']}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(running(started, tmp_path))
        wait_for_port(ports["broker.port"])
        stack.enter_context(running(pods.command("StatefulSet", "kw-aggregator"), tmp_path))
        stack.enter_context(
            running(
                pods.command("DaemonSet", "kw-collector"),
                tmp_path,
                KILOWATCH__COLLECTOR__NODE="gpu-worker-7",
                KILOWATCH__COLLECTOR__SOURCE="simulated:two-dgx-h100/dgx-01",
            )
        )
        probe = container(pods.chart["StatefulSet", "kw-aggregator"])["readinessProbe"]
        assert probe["httpGet"]["path"] == "/readyz"
        wait_until(lambda: status(f"{base}/readyz")[0] == 200, "a reply that it is ready", seconds=120)
        monitors = rendered(*ALL)["ServiceMonitor", "kw"]["spec"]["endpoints"]
        wait_until(
            lambda: 'node="gpu-worker-7"' in status(base + "/metrics/nodes", TOKEN)[1],
            "readings of the node",
            seconds=120,
        )
        for each in monitors:
            assert status(base + each["path"], TOKEN)[0] == 200
            assert status(base + each["path"])[0] == 401
        page = f"http://127.0.0.1:{ports['collector.metricsPort']}/metrics"
        wait_until(lambda: "kilowatch_gpu_power_watts" in status(page)[1], "the collector's own page")
