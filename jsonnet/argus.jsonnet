// What `python -m tools.generate_rules` writes: paths in the repository to documents.
local alertmanager = import 'alertmanager.libsonnet';
local kubernetes = import 'kubernetes.libsonnet';
local mixin = import 'mixin.libsonnet';
local portable = mixin { _config+:: { flavour: 'portable' } };
local test = mixin + (import 'profiles/test.libsonnet');

// Nothing listens on port 9 (discard): both files are complete, and one text replacement points them elsewhere.
local placeholder = 'http://127.0.0.1:9/';

// One file a concern: a site takes what it needs, and a test evaluates what it is about.
local ruleFiles(folder, flavour) = {
  ['%s/argus.%s.rules.yaml' % [folder, file]]: { groups: flavour.prometheusRulesByFile[file] }
  for file in std.objectFields(flavour.prometheusRulesByFile)
} + {
  [folder + '/argus.alerts.yaml']: flavour.prometheusAlerts,
};

ruleFiles('rules', mixin) + ruleFiles('rules/test', test) + ruleFiles('rules/portable', portable) + {
  'rules/kubernetes/prometheusrule.yaml': kubernetes.new(mixin).rules,
  'rules/kubernetes/podmonitor.yaml': kubernetes.new(mixin).podMonitor,
  'alertmanager/alertmanager.yaml': alertmanager.new(
    placeholder, { groupWait: 10, groupInterval: 60, repeatInterval: 4 * 3600 }
  ),
  'alertmanager/alertmanager.test.yaml': alertmanager.new(
    placeholder, { groupWait: 1, groupInterval: 2, repeatInterval: 3600 }
  ),
}
