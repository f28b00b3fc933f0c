// What `python -m tools.generate_rules` writes: paths in the repository to documents.
local alertmanager = import 'alertmanager.libsonnet';
local mixin = import 'mixin.libsonnet';
local test = mixin + (import 'profiles/test.libsonnet');

// Nothing listens on port 9 (discard): both files are complete, and one text replacement points them elsewhere.
local placeholder = 'http://127.0.0.1:9/';

{
  'rules/argus.rules.yaml': mixin.prometheusRules,
  'rules/argus.alerts.yaml': mixin.prometheusAlerts,
  'rules/test/argus.rules.yaml': test.prometheusRules,
  'rules/test/argus.alerts.yaml': test.prometheusAlerts,
  'alertmanager/alertmanager.yaml': alertmanager.new(
    placeholder, { groupWait: 10, groupInterval: 60, repeatInterval: 4 * 3600 }
  ),
  'alertmanager/alertmanager.test.yaml': alertmanager.new(
    placeholder, { groupWait: 1, groupInterval: 2, repeatInterval: 3600 }
  ),
}
