"""Jobs: which hold GPUs now, what they draw and how well they use them."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard, Variable
from grafana.panels import GREEN, ORANGE, YELLOW, PanelRow, cell, lines, number, table
from grafana.prometheus.held import HOLDERS, INFO, JOB, ON, C, held, idle, summed
from grafana.sources import PanelQuery

ACCOUNT = Variable("account", "Account", "kilowatch_gpu_job_info", "account")
USER = Variable("user", "User", "kilowatch_gpu_job_info", "user")
_J = "cluster, scheduler, job_id, user"
_WHO = "{{job_id}} {{user}}"
_WATTS = f"kilowatch_gpu_power_watts{{{C}}}"

DASHBOARD = Dashboard(
    uid="kilowatch-jobs",
    title="kilowatch / Jobs",
    text="The jobs that hold GPUs: power, use, memory and clock limits of each. A GPU that several jobs hold at once is in the "
    "figures of none of them; it is counted under shared.",
    variables=(CLUSTER, ACCOUNT, USER),
    parts=(
        number("Jobs", "Jobs that hold at least one GPU alone.", PanelQuery(f"count(count by ({_J}) ({INFO})) or vector(0)"), decimals=0),
        number("GPUs held", "GPUs that exactly one job holds.", PanelQuery(f"count({INFO}) or vector(0)"), decimals=0),
        number("GPUs shared", "GPUs that several jobs hold; they are in the figures of none of them.", PanelQuery(f"count({HOLDERS} > 1) or vector(0)"), decimals=0),
        number("GPUs free", "GPUs whose node says that no job holds them.", PanelQuery(f"count({HOLDERS} == 0) or vector(0)"), decimals=0),
        number("GPUs not reported", "GPUs whose node does not say who holds them: nobody knows whether they are free.",
               PanelQuery(f"count(kilowatch_gpu_present{{{C}}} unless {ON} {HOLDERS}) or vector(0)"), steps=((None, GREEN), (1, ORANGE)), decimals=0),
        number("Power of free GPUs", "What GPUs draw that no job holds.", PanelQuery(f"sum({_WATTS} and {ON} ({HOLDERS} == 0)) or vector(0)"), unit="watt"),
        PanelRow("Now"),
        table("Jobs", "GPUs, power, mean use, and GPUs below 1 % use of each job.",
              PanelQuery(f"count by ({JOB}) ({INFO})", table=True),
              PanelQuery(summed("sum", "gpu_power_watts", JOB), table=True),
              PanelQuery(summed("avg", "gpu_utilization_ratio", JOB), table=True),
              PanelQuery(idle(JOB), table=True),
              names={"job_id": "job", "Value #A": "GPUs", "Value #B": "power", "Value #C": "use", "Value #D": "idle GPUs"},
              sort="power", width=24, height=10,
              overrides=(cell("power", "watt"), cell("use", "percentunit", low=0, high=1, gauge=True, steps=((None, ORANGE), (0.15, YELLOW), (0.5, GREEN))),
                         cell("idle GPUs", "none", steps=((None, GREEN), (1, ORANGE))))),
        PanelRow("Over time"),
        lines("GPUs by job", "GPUs that each job holds; the 20 largest.", PanelQuery(f"topk(20, count by ({_J}) ({INFO}))", _WHO), low=0, decimals=0),
        lines("Power by job", "Sum over the GPUs of a job that report it; the 20 highest.", PanelQuery(f"topk(20, {summed('sum', 'gpu_power_watts', _J)})", _WHO), unit="watt", low=0),
        lines("Use by job", "Mean over the GPUs of a job; the 20 lowest.", PanelQuery(f"bottomk(20, {summed('avg', 'gpu_utilization_ratio', _J)})", _WHO), unit="percentunit", low=0, high=1),
        lines("Memory by job", "Memory in use on the fullest GPU of a job, as a part of all; the 20 highest.",
              PanelQuery(f"topk(20, max by ({_J}) (kilowatch_gpu_memory_used_bytes{{{C}}} / kilowatch_gpu_memory_total_bytes{{{C}}} * {ON} group_left (scheduler, job_id, user) {INFO}))", _WHO), unit="percentunit", low=0, high=1),
        lines("Slowest GPU of a job", "Lowest SM clock over the highest within a job: one slow GPU slows all of a job that waits for each step. The 20 lowest.",
              PanelQuery(f"bottomk(20, {summed('min', 'gpu_sm_clock_hertz', _J)} / {summed('max', 'gpu_sm_clock_hertz', _J)})", _WHO), unit="percentunit", low=0, high=1),
        lines("Clocks cut by heat or power brake", "GPUs of a job whose clocks are cut for another reason than the power limit.",
              PanelQuery(f"sum by ({_J}) ((kilowatch_gpu_clocks_event_hw_thermal_slowdown{{{C}}} + kilowatch_gpu_clocks_event_sw_thermal_slowdown{{{C}}} + kilowatch_gpu_clocks_event_hw_power_brake_slowdown{{{C}}} > bool 0) * {ON} group_left (scheduler, job_id, user) {INFO})", _WHO), low=0, decimals=0),
        lines("Use of the GPUs of a job", "Each GPU by itself; choose a user or an account above.",
              PanelQuery(held("gpu_utilization_ratio", "job_id, user"), "{{job_id}} {{node}} GPU {{gpu}}"), unit="percentunit", low=0, high=1, width=24),
    ),
)  # fmt: skip
