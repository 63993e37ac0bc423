// A monitoring mixin for jsonnet 0.18 or later: alerts, recording rules and dashboards as the usual
// hidden fields, from the generated files of this repository.
local files = [
  std.parseYaml(importstr 'kilowatch.rules.yml'),
  std.parseYaml(importstr 'kilowatch-power.rules.yml'),
];
local groups = std.flattenArrays([file.groups for file in files]);
local records(group) = group.name == 'kilowatch-records';

{
  _config+:: {
    // URL of the runbook: here the pages of an aggregator on the same machine; the fragment after the # is appended.
    runbookURL: 'http://127.0.0.1:9400/runbook',
  },

  local config = $._config,
  local own(rule) = rule + (
    if 'annotations' in rule then {
      annotations+: {
        runbook_url: config.runbookURL + '#' + std.split(rule.annotations.runbook_url, '#')[1],
      },
    } else {}
  ),

  prometheusAlerts+:: {
    groups+: [
      group { rules: [own(rule) for rule in group.rules] }
      for group in groups
      if !records(group)
    ],
  },
  prometheusRules+:: { groups+: [group for group in groups if records(group)] },
  grafanaDashboards+:: {
    'kilowatch-alerts.json': import '../../grafana/dashboards/kilowatch-alerts.json',
    'kilowatch-circuits.json': import '../../grafana/dashboards/kilowatch-circuits.json',
    'kilowatch-energy.json': import '../../grafana/dashboards/kilowatch-energy.json',
    'kilowatch-fleet.json': import '../../grafana/dashboards/kilowatch-fleet.json',
    'kilowatch-gpu.json': import '../../grafana/dashboards/kilowatch-gpu.json',
    'kilowatch-itself.json': import '../../grafana/dashboards/kilowatch-itself.json',
    'kilowatch-jobs.json': import '../../grafana/dashboards/kilowatch-jobs.json',
    'kilowatch-node.json': import '../../grafana/dashboards/kilowatch-node.json',
    'kilowatch-users.json': import '../../grafana/dashboards/kilowatch-users.json',
  },
}
