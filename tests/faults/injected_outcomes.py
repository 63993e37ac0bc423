"""What a fault in a function may cost. A function that no pattern names may cost one message, node,
rule, circuit, alert or channel."""

from __future__ import annotations

MOST_WHOLE = 45
"""Functions whose fault may stop all rules, or all pages: fewer than one in ten."""

_FRAME = "one call serves all rules: without its result no row can be told from another"
_GATE = "the one way of all changes from the rules to the journal; they are kept and given again"

WHOLE = {
    r"alerts\.engine\.engine\.RuleEngine\.(evaluate|steps|_snapshot|_update_rows|_place_events|_is_due)": _FRAME,
    r"alerts\.engine\.engine\.(outcome|_event_key)": _FRAME,
    r"alerts\.engine\.row_index\.RowIndex\.(update|_change|_own)": _FRAME,
    r"alerts\.engine\.row_index\._drivers": _FRAME,
    r"alerts\.engine\.recent_events\.place_events": _FRAME,
    r"alerts\.engine\.state_machine\.AlertStateMachine\.phase": _FRAME,
    r"alerts\.engine\.rule_evaluator\.RuleEvaluator\.part": _FRAME,
    r"aggregator\.alerting\.pipeline\.AlertPipeline\.(evaluate|steps|_step|_receive|_keep|_report_faults|_end)": _GATE,
    r"aggregator\.alerting\.journal_writer\.JournalWriter\.(add|_written|_write)": _GATE,
    r"aggregator\.alerting\.self_alerts\.aggregator_key": "the name of the part that it would be reported under",
    r"alerts\.journal\.journal\.Journal\.(commit|_write|_enqueue)": _GATE,
    r"alerts\.incidents\.state\.IncidentChanges\.(__bool__|then)": _GATE,
}  # fmt: skip
"""By pattern, with the reason."""

EXEMPT = {
    r"telemetry\.(set_aside|supervision|worker_threads|backoff)\..*": "the exception path itself",
    r"alerts\.engine\.isolation\..*": "the exception path itself",
    r"aggregator\.impairments\..*": "the exception path itself: where a fault is reported",
    r"aggregator\.alerting\.self_alerts\._named": "the exception path itself",
    r"aggregator\.load\..*": "measures real CPU time, which stands still in virtual time",
}
"""Not injected, with the reason."""
