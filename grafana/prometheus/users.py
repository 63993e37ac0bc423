"""Users and accounts: GPUs, power, energy and cost of each, and what they hold without use."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard, Entry
from grafana.panels import PanelRow, bars, lines, number, table
from grafana.prometheus.held import HOLDERS, INFO, ON, C, idle, summed
from grafana.prometheus.jobs import ACCOUNT, USER
from grafana.sources import PanelQuery

_U, _A, _UA = "cluster, user", "cluster, account", "cluster, user, account"
_KWH = "* 60 / 3.6e6"
"""A sum of watts, one a minute, as kWh."""


def _a_day(query: str) -> str:
    """Return the sum of a query's minutes in the last day."""
    return f"sum_over_time(({query})[24h:1m])"


DASHBOARD = Dashboard(
    uid="kilowatch-users",
    title="kilowatch / Users",
    text="Who uses the GPUs: a GPU counts for the user of the job that holds it alone. Energy here is that of the GPUs, from their power once a "
    "minute; `kilowatch report --by user --month` has the months, with shared GPUs and at the wall. Names are as the nodes send them: hashed or left out by `jobs.users`.",
    variables=(CLUSTER, ACCOUNT, USER),
    entries=(Entry("price", "Price of a kWh", "0.15"),),
    since="now-24h",
    refresh="1m",
    parts=(
        number("Users", "Users whose jobs hold a GPU now.", PanelQuery(f"count(count by ({_U}) ({INFO})) or vector(0)"), decimals=0),
        number("GPUs held", "GPUs that exactly one job holds.", PanelQuery(f"count({INFO}) or vector(0)"), decimals=0),
        number("Held and idle", "GPUs that a job holds and whose use is below 1 %.", PanelQuery(f"sum({idle(_U)}) or vector(0)"), decimals=0),
        number("Power of those", "What GPUs draw that a job holds and does not use.",
               PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}} and {ON} (kilowatch_gpu_utilization_ratio{{{C}}} < 0.01) and {ON} {INFO}) or vector(0)"), unit="watt"),
        number("Energy, last 24 h", "Of the GPUs while a job held them alone.", PanelQuery(f"sum({_a_day(summed('sum', 'gpu_power_watts', _U))}) {_KWH}"), unit="kwatth"),
        number("Cost, last 24 h", "Of that, at the price above; without what the machines draw beside their GPUs.", PanelQuery(f"sum({_a_day(summed('sum', 'gpu_power_watts', _U))}) {_KWH} * $price"), decimals=2),
        PanelRow("Users"),
        table("Users and accounts", "GPUs, power, mean use and idle GPUs now, and energy of the last 24 h.",
              PanelQuery(f"count by ({_UA}) ({INFO})", table=True),
              PanelQuery(summed("sum", "gpu_power_watts", _UA), table=True),
              PanelQuery(summed("avg", "gpu_utilization_ratio", _UA), table=True),
              PanelQuery(idle(_UA), table=True),
              PanelQuery(f"{_a_day(summed('sum', 'gpu_power_watts', _UA))} {_KWH}", table=True),
              names={"Value #A": "GPUs", "Value #B": "watts", "Value #C": "use (0 to 1)", "Value #D": "idle GPUs", "Value #E": "kWh, last 24 h"},
              sort="kWh, last 24 h", width=24, height=10),
        lines("GPUs by user", "GPUs that the jobs of each user hold.", PanelQuery(f"count by ({_U}) ({INFO})", "{{user}}"), low=0, decimals=0),
        lines("Power by user", "Of the GPUs that the jobs of each user hold.", PanelQuery(summed("sum", "gpu_power_watts", _U), "{{user}}"), unit="watt", low=0),
        lines("Use by user", "Mean over the GPUs that the jobs of each user hold.", PanelQuery(summed("avg", "gpu_utilization_ratio", _U), "{{user}}"), unit="percentunit", low=0, high=1),
        lines("Held and idle by user", "GPUs that the jobs of each user hold and whose use is below 1 %.", PanelQuery(idle(_U), "{{user}}"), low=0, decimals=0),
        bars("Energy by user, last 24 h", "The 20 highest; the GPUs alone.", PanelQuery(f"topk(20, {_a_day(summed('sum', 'gpu_power_watts', _U))} {_KWH})", "{{user}}"), unit="kwatth"),
        bars("GPU hours by user, last 24 h", "The 20 highest.", PanelQuery(f"topk(20, {_a_day(f'count by ({_U}) ({INFO})')} / 60)", "{{user}}"), decimals=1),
        PanelRow("Accounts"),
        lines("GPUs by account", "GPUs that the jobs of each account hold.", PanelQuery(f"count by ({_A}) ({INFO})", "{{account}}"), low=0, decimals=0),
        bars("Energy by account, last 24 h", "The 20 highest; the GPUs alone.", PanelQuery(f"topk(20, {_a_day(summed('sum', 'gpu_power_watts', _A))} {_KWH})", "{{account}}"), unit="kwatth"),
        PanelRow("Nobody"),
        lines("GPUs that no job holds", "By what their node says; GPUs whose node does not say it may be in use.",
              PanelQuery(f"count({HOLDERS} == 0) or vector(0)", "free"), PanelQuery(f"count(kilowatch_gpu_present{{{C}}} unless {ON} {HOLDERS}) or vector(0)", "not reported"), low=0, decimals=0),
        lines("Power that no job has", "Power of the GPUs that no job holds, and of those that several hold.",
              PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}} and {ON} ({HOLDERS} == 0)) or vector(0)", "free"), PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}} and {ON} ({HOLDERS} > 1)) or vector(0)", "shared"), unit="watt", low=0),
    ),
)  # fmt: skip
