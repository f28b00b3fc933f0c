// What `python -m tools.generate_rules` writes: paths in the repository to documents.
local mixin = import 'mixin.libsonnet';
local test = mixin + (import 'profiles/test.libsonnet');

{
  'rules/argus.rules.yaml': mixin.prometheusRules,
  'rules/argus.alerts.yaml': mixin.prometheusAlerts,
  'rules/test/argus.rules.yaml': test.prometheusRules,
  'rules/test/argus.alerts.yaml': test.prometheusAlerts,
}
