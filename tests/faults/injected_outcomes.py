"""Costs that a fault in a function may have. A function that no pattern names may cost one message, node,
rule, circuit, alert or channel."""

from __future__ import annotations

MOST_WHOLE = 39
"""Functions whose fault may stop all rules, or all pages: one in thirty."""

_FRAME = "one call serves all rules: without its result no row can be told from another"
_GATE = "the one way of all changes from the rules to the journal; they are kept and given again"

_CLOCK = "the clock of all deliveries, which are none's in particular"

WHOLE = {
    r"alerts\.engine\.engine\.RuleEngine\.(evaluate|steps|_snapshot|_update_rows)": _FRAME,
    r"alerts\.engine\.engine\.RuleEngine\.(_run|_paused|_settle_texts|_remember)": _FRAME,
    r"alerts\.engine\.engine\.outcome": _FRAME,
    r"alerts\.engine\.pending_events\.PendingEvents\.(add|place|_is_due)": _FRAME,
    r"alerts\.engine\.row_index\.(RowIndex\.(update|_change|_own)|_drivers|_devices_before)": _FRAME,
    r"alerts\.engine\.recent_events\.place_events": _FRAME,
    r"alerts\.engine\.state_machine\.AlertStateMachine\.phase": _FRAME,
    r"alerts\.engine\.rule_evaluator\.RuleEvaluator\.part": _FRAME,
    r"alerts\.rules\.input\.FleetSnapshot\.has": _FRAME,
    r"telemetry\.fleet\.Fleet\.(size|_names)": _FRAME,
    r"aggregator\.alerting\.pipeline\.AlertPipeline\.(evaluate|steps|_step|_receive|_keep|_report_faults|_end)": _GATE,
    r"aggregator\.alerting\.journal_writer\.JournalWriter\.(add|_written|_write)": _GATE,
    r"alerts\.journal\.journal\.(_costing|Journal\.(commit|_write|_enqueue|trouble))": _GATE,
    r"alerts\.journal\.queue\.DeliveryQueue\.show": _GATE,
    r"alerts\.delivery\.clock\.DeliveryClock\.monotonic": _CLOCK,
    r"alerts\.incidents\.state\.IncidentChanges\.(__bool__|then)": _GATE,
}
"""By pattern, with the reason."""

EXEMPT = {
    r"telemetry\.runtime\.(isolation|supervision|worker_threads|backoff)\..*": "the exception path itself",
    r"alerts\.engine\.isolation\..*": "the exception path itself",
    r"aggregator\.impairments\..*": "the exception path itself: where a fault is reported",
    r"aggregator\.alerting\.self_alerts\.(_named|aggregator_key)": "the names that it is reported under",
    r"power\.meters\..*": "called by the task of each meter, which is supervised by itself",
    r"aggregator\.load\..*": "measures real CPU time, which stands still in virtual time",
    r"aggregator\.store\.protocol\.Frames\.__len__": "called by len() of NumPy and of this test's audit too",
}
"""Not injected, with the reason."""

_BEGUN = "the loop of a task, entered once at the start; a task that ends is started again"
_NODES = "called by the nodes of the scene alone"
_ROOM = "makes room for rows, which the first nodes have made already"

UNRAISED = {
    r"aggregator\.service\.(_every|Aggregator\._(flush|store|upkeep|expiry|jobs|drift)_loop|Aggregator\._publish_circuits)": _BEGUN,
    r"aggregator\.service\.Aggregator\.delivery": "called by the check of the metrics pages, which rests between two rounds",
    r"aggregator\.alerting\.(journal_writer\.JournalWriter\.run|service\.AlertingService\.(_keep_memory|_evaluate_when_due))": _BEGUN,
    r"aggregator\.electrical\.service\.ElectricalService\._save_regularly": _BEGUN,
    r"alerts\.delivery\.worker\.ChannelWorker\.run": _BEGUN,
    r"telemetry\.runtime\.tasks\.unending": _BEGUN,
    r"telemetry\.wire\.frame\.(build|encode|encode_many|pack|pack_rows)": _NODES,
    r"telemetry\.wire\.(inventory\.encode|topics\.topic)": _NODES,
    r"telemetry\.fleet\.Matrix\.grow": _ROOM,
    r"alerts\.rules\.of_jobs\.SlowInJob\._forget": "called every five seconds, where a GPU has changed hands since",
    r"telemetry\.files\.private_file\.(make_folder|write)": "called every five minutes, where the past of the fitness has grown",
    r"power\.report\.load_profile\.LoadProfile\.__init__": "called when a month begins",
}
"""Functions that run in the scene but that no fault can be raised in once it is under way, with the reason.
Any other function that is never raised fails the test."""
