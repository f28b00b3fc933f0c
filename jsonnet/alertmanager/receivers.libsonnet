// The kinds of receivers: each is function(team, severity) to the *_configs of one receiver; `team` is '' for info.
// Secrets are named by file only. Add them up: function(team, severity) a(team, severity) + b(team, severity).
local title = '{{ template "argus.title" . }}';
local text = '{{ template "argus.text" . }}';
local of(team, severity) = std.join('-', std.filter(function(part) part != '', [team, severity]));

{
  // For automation: JSON with every label and annotation, POSTed to base + team/severity, or base + info.
  // credentialsFile: of an `Authorization: Bearer`; '': none. maxAlerts: in one request; 0: all.
  webhook(base, credentialsFile='', maxAlerts=0):: function(team, severity) {
    webhook_configs: [{
      url: base + std.strReplace(of(team, severity), '-', '/'),
      send_resolved: true,
      [if maxAlerts > 0 then 'max_alerts']: maxAlerts,
      [if credentialsFile != '' then 'http_config']: { authorization: { credentials_file: credentialsFile } },
    }],
  },

  // An incoming webhook of Slack (or what speaks like it) per team; the URL is the secret: slack-TEAM, slack-info.
  slack(secrets):: function(team, severity) {
    slack_configs: [{
      api_url_file: '%s/slack-%s' % [secrets, if team == '' then severity else team],
      send_resolved: true,
      title: '{{ template "argus.slack.title" . }}',
      title_link: '{{ template "argus.link" . }}',
      fallback: '{{ template "argus.slack.title" . }}',
      text: '{{ template "argus.slack.text" . }}',
      color: '{{ template "argus.slack.colour" . }}',
      mrkdwn_in: ['text'],
    }],
  },

  // Events API v2, one integration per team: pagerduty-TEAM holds its routing key.
  pagerduty(secrets):: function(team, severity) {
    pagerduty_configs: [{
      routing_key_file: '%s/pagerduty-%s' % [secrets, if team == '' then severity else team],
      send_resolved: true,
      description: title,
      severity: { page: 'critical', ticket: 'warning', info: 'info' }[severity],
      group: '{{ .GroupLabels.training_job }}',
      component: '{{ with .CommonLabels.rank }}rank {{ . }}{{ end }}',
      class: '{{ template "argus.class" . }}',
      client: 'ARGUS',
      client_url: '{{ template "argus.link" . }}',
      details: {
        firing: text,
        resolved: '{{ range .Alerts.Resolved }}{{ .Annotations.summary }}\n{{ end }}',
      },
      links: [
        { href: '{{ template "argus.link" . }}', text: 'Dashboard' },
        { href: '{{ template "argus.runbook" . }}', text: 'Runbook' },
        { href: '{{ template "argus.trace" . }}', text: 'Timeline' },
      ],
    }],
  },

  // address: 'argus-%s@example.com', %s is the team or `info`. Server and sender stand in `global`.
  email(address):: function(team, severity) {
    email_configs: [{
      to: address % (if team == '' then severity else team),
      send_resolved: true,
      headers: { Subject: title },
      text: text,
      html: '{{ template "argus.html" . }}',
    }],
  },
  // smarthost: HOST:PORT. secrets/smtp-password belongs to `user`; '': a server that asks for none.
  emailGlobals(secrets, smarthost, from, user=''):: {
    smtp_smarthost: smarthost,
    smtp_from: from,
    [if user != '' then 'smtp_auth_username']: user,
    [if user != '' then 'smtp_auth_password_file']: secrets + '/smtp-password',
  },

  // Where no file can be named (tenants of Mimir and Cortex): the secret itself, here as REPLACE-NAME-OF-THE-FILE.
  inline(receiver):: function(team, severity)
    local isFile(field) = std.endsWith(field, '_file');
    local plain(field) = if isFile(field) then std.strReplace(field, '_file', '') else field;
    local secret(file) = local parts = std.split(file, '/'); 'REPLACE-' + parts[std.length(parts) - 1];
    local value(field, given) =
      if !isFile(field) then given
      else if plain(field) == 'api_url' then 'https://hooks.example.com/' + secret(given)
      else secret(given);
    local filled(config) = { [plain(field)]: value(field, config[field]) for field in std.objectFields(config) };
    local made = receiver(team, severity);
    { [kind]: [filled(config) for config in made[kind]] for kind in std.objectFields(made) },
}
