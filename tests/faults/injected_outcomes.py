"""What a fault in a function may cost. A function that no pattern names may cost one message, node,
rule, circuit, alert or channel."""

from __future__ import annotations

MOST_WHOLE = 35
"""Functions whose fault may stop all rules, or all pages: about one in twenty."""

_FRAME = "one call serves all rules: without its result no row can be told from another"
_GATE = "the one way of all changes from the rules to the journal; they are kept and given again"

WHOLE = {
    r"alerts\.engine\.engine\.RuleEngine\.(evaluate|steps|_snapshot|_update_rows|_place_events|_is_due)": _FRAME,
    r"alerts\.engine\.engine\.RuleEngine\.(_guarded|_paused|_settle_texts|_remember)": _FRAME,
    r"alerts\.engine\.engine\.(outcome|_event_key)": _FRAME,
    r"alerts\.engine\.row_index\.(RowIndex\.(update|_change|_own)|_drivers|_devices_before)": _FRAME,
    r"alerts\.engine\.recent_events\.place_events": _FRAME,
    r"alerts\.engine\.state_machine\.AlertStateMachine\.phase": _FRAME,
    r"alerts\.engine\.rule_evaluator\.RuleEvaluator\.part": _FRAME,
    r"alerts\.rules\.input\.FleetSnapshot\.has": _FRAME,
    r"telemetry\.fleet\.Fleet\.(size|_names)": _FRAME,
    r"aggregator\.alerting\.pipeline\.AlertPipeline\.(evaluate|steps|_step|_receive|_keep|_report_faults|_end)": _GATE,
    r"aggregator\.alerting\.journal_writer\.JournalWriter\.(add|_written|_write)": _GATE,
    r"alerts\.journal\.journal\.Journal\.(commit|_write|_enqueue|trouble)": _GATE,
    r"alerts\.journal\.queue\.DeliveryQueue\.show": _GATE,
    r"alerts\.incidents\.state\.IncidentChanges\.(__bool__|then)": _GATE,
}  # fmt: skip
"""By pattern, with the reason."""

EXEMPT = {
    r"telemetry\.(set_aside|supervision|worker_threads|backoff)\..*": "the exception path itself",
    r"alerts\.engine\.isolation\..*": "the exception path itself",
    r"aggregator\.impairments\..*": "the exception path itself: where a fault is reported",
    r"aggregator\.alerting\.self_alerts\.(_named|aggregator_key)": "the names that it is reported under",
    r"power\.meters\..*": "called by the task of each meter, which is supervised by itself",
    r"aggregator\.load\..*": "measures real CPU time, which stands still in virtual time",
    r"aggregator\.store\.protocol\.Frames\.__len__": "called by len() of NumPy and of this test's audit too",
}  # fmt: skip
"""Not injected, with the reason."""

MOST_UNRAISED = {r"aggregator\.": 108, r"alerts\.": 120, r"(?!alerts\.|aggregator\.)": 42}
"""Functions of each part of the tree that are called, but never for the victim alone: loops and sums
over the whole cluster, and what only the nodes of the scene call. These numbers may only shrink."""
