"""Rules on the fleet, once a tick: `row_index`, `rule_evaluator`, `state_machine`, `engine`.

`rule_tests` plays a rule's example timelines on the same engine; `restore` brings alerts back after a
restart.
"""
