// What `python -m tools.generate_rules` writes: paths in the repository to documents.
local alertmanager = import 'alertmanager.libsonnet';
local mixin = import 'mixin.libsonnet';
// For the demo and the lab: ten times as fast. Steps are so short that observing them takes a larger share of the time.
local test = mixin { _config+:: { second: 0.1, health+: { overhead: 0.05 } } };

// Nothing listens on port 9 (discard): the file is complete, and one text replacement points it elsewhere.
local placeholder = 'http://127.0.0.1:9/';

local receive = alertmanager.receivers;
local secrets = '/etc/alertmanager/secrets';
local slack = receive.slack(secrets);
local pagerduty = receive.pagerduty(secrets);
local email = receive.email('argus-%s@example.com');
local mailServer = receive.emailGlobals(secrets, 'smtp.example.com:587', 'argus@example.com', user='argus');

// One file a concern: a site takes what it needs, and a test evaluates what it is about.
local ruleFiles(folder, flavour) =
  // jsonnet evaluates a field anew at each use.
  local byFile = flavour.prometheusRulesByFile;
  { ['%s/argus.%s.rules.yaml' % [folder, file]]: { groups: byFile[file] } for file in std.objectFields(byFile) };

// Rules may say what they are for (`about`) and that they read their own past (`memory`), in hidden fields: a mixin that is
// rendered as it is has none of it. Our renderer writes them as comments, and checks by them.
local notes(files) = {
  [file]: {
    [group.name]: [
      { [field]: rule[field] for field in ['about', 'memory'] if std.objectHasAll(rule, field) }
      for rule in group.rules
    ]
    for group in files[file].groups
  }
  for file in std.objectFields(files)
};

local rules = ruleFiles('rules', mixin) + ruleFiles('rules/test', test);

rules {
  // No file: by file and group, what each of its rules says of itself, in order.
  notes: notes(rules),
  // Pages to the pager, tickets to mail, all of it to chat.
  'alertmanager/alertmanager.yaml': alertmanager.new(
    function(team, severity)
      slack(team, severity)
      + { page: pagerduty, ticket: email, info: function(team, severity) {} }[severity](team, severity),
    workingHours=alertmanager.workingHours,
    maintenance=alertmanager.never,
    globals=mailServer,
  ),
  // One kind each, complete.
  'alertmanager/alertmanager.webhook.yaml': alertmanager.new(
    receive.webhook('https://hooks.example.com/argus/', credentialsFile=secrets + '/webhook-token'),
  ),
  'alertmanager/alertmanager.slack.yaml': alertmanager.new(slack),
  'alertmanager/alertmanager.pagerduty.yaml': alertmanager.new(pagerduty),
  'alertmanager/alertmanager.email.yaml': alertmanager.new(email, globals=mailServer),
  // For a tenant of Mimir or Cortex, whose Alertmanager reads no file and knows templates by their bare name.
  'deploy/scale-out/alertmanager-tenant.yaml': alertmanager.new(
    function(team, severity)
      receive.inline(slack)(team, severity)
      + (if severity == 'page' then receive.inline(pagerduty)(team, severity) else {}),
    templates='argus.tmpl',
  ),
  'alertmanager/alertmanager.test.yaml': alertmanager.new(receive.webhook(placeholder), timing=alertmanager.quick),
}
