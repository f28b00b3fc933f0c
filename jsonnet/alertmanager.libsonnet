// Alertmanager: who is told, when, and what silences what. One notification a job, team and severity.
//
//   alertmanager.new({ receivers: alertmanager.receivers.webhook('https://hooks.example/'), ... })
local inhibition = import 'alertmanager/inhibition.libsonnet';
local receivers = import 'alertmanager/receivers.libsonnet';
local rules = import 'config.libsonnet';
local duration = import 'lib/duration.libsonnet';

{
  teams:: ['operations', 'infrastructure', 'algorithm'],
  receivers:: receivers,

  // Seconds. A page waits until what it makes superfluous has arrived too; tickets are read by the day.
  production:: {
    page: { wait: 10, interval: 60, repeat: 4 * 3600 },
    ticket: { wait: 60, interval: 600, repeat: 24 * 3600 },
    info: { wait: 0, interval: 300, repeat: 24 * 3600 },
  },
  quick:: {
    page: { wait: 1, interval: 2, repeat: 3600 },
    ticket: self.page,
    info: self.page { wait: 0 },
  },
  // Tickets wait for Monday to Friday, 8 to 18. `never`: nothing is muted until a site writes its own maintenance.
  workingHours:: [{
    weekdays: ['monday:friday'],
    times: [{ start_time: '08:00', end_time: '18:00' }],
    location: 'UTC',
  }],
  never:: [{ years: ['2000'] }],

  // receivers: function(team, severity) to the *_configs of one receiver; team is '' for info.
  // timing: as `production`.
  // workingHours: intervals in which tickets are sent; []: always.
  // maintenance: intervals in which nothing is sent at all; []: no such interval.
  // globals: Alertmanager's `global` section.
  // templates: where those of the messages are.
  // jobLabels: what makes a job one job, as in the rules.
  new(receivers, timing=self.production, workingHours=[], maintenance=[], globals={}, templates='templates/*.tmpl', jobLabels=rules._config.jobLabels)::
    local name(to) = 'argus-%(team)s-%(severity)s' % to;
    local byTeam = [
      { team: team, severity: severity }
      for team in self.teams
      for severity in ['page', 'ticket']
    ];
    local during(severity) = {
      [if maintenance != [] then 'mute_time_intervals']: ['maintenance'],
      [if severity == 'ticket' && workingHours != [] then 'active_time_intervals']: ['working-hours'],
    };
    local pace(severity) = {
      group_wait: duration.of(timing[severity].wait),
      group_interval: duration.of(timing[severity].interval),
      repeat_interval: duration.of(timing[severity].repeat),
    };
    {
      [if globals != {} then 'global']: globals,
      templates: [templates],
      [if workingHours + maintenance != [] then 'time_intervals']: [
        { name: interval.name, time_intervals: interval.when }
        for interval in [
          { name: 'maintenance', when: maintenance },
          { name: 'working-hours', when: workingHours },
        ]
        if interval.when != []
      ],
      route: pace('ticket') {
        // An alert without a known team: somebody must see it.
        receiver: 'argus-operations-ticket',
        group_by: jobLabels,
        routes: [
          // For chat: nobody is woken, nothing waits.
          { matchers: ['severity="info"'], receiver: 'argus-info' } + pace('info') + during('info'),
        ] + (
          // Of a job that is gone its series end in minutes: what waits for the morning would never be told.
          if workingHours == [] then []
          else [{ matchers: ['alertname="ArgusRankMissing"'], receiver: 'argus-operations-ticket' } + pace('ticket') + during('page')]
        ) + [
          {
            matchers: ['team="%s"' % to.team, 'severity="%s"' % to.severity],
            receiver: name(to),
          } + pace(to.severity) + during(to.severity)
          for to in byTeam
        ] + [
          // Of a team of the site's own, or by the severity that it calls pages: no page is left for the morning.
          { matchers: ['severity=~"page|critical"'], receiver: 'argus-operations-page' } + pace('page') + during('page'),
        ],
      },
      inhibit_rules: inhibition(jobLabels),
      receivers: [{ name: 'argus-info' } + receivers('', 'info')]
                 + [{ name: name(to) } + receivers(to.team, to.severity) for to in byTeam],
    },
}
