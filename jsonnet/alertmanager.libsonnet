// Alertmanager routing: one notification a job and team, by severity; what explains something silences it.
local duration = import 'lib/duration.libsonnet';

{
  teams:: ['operations', 'infrastructure', 'algorithm'],

  // base: URL that every webhook path is appended to, ending in a slash.
  // timing: groupWait, groupInterval, repeatInterval in seconds.
  new(base, timing)::
    local receiver(path) = {
      name: 'argus-' + std.strReplace(path, '/', '-'),
      webhook_configs: [{ url: base + path, send_resolved: true }],
    };
    local findings = 'Argus(Iteration|Straggler|Group|Collective|Kernel|Host).+';
    local byTeam = [
      { team: team, severity: severity }
      for team in self.teams
      for severity in ['page', 'ticket']
    ];
    {
      templates: ['templates/*.tmpl'],
      route: {
        // An alert without a known team: somebody must see it.
        receiver: 'argus-operations-ticket',
        group_by: ['training_job'],
        group_wait: duration.of(timing.groupWait),
        group_interval: duration.of(timing.groupInterval),
        repeat_interval: duration.of(timing.repeatInterval),
        routes: [
          // For dashboards and chat: nobody is woken, nothing waits.
          { matchers: ['severity="info"'], receiver: 'argus-info', group_wait: '0s' },
        ] + [
          {
            matchers: ['team="%s"' % to.team, 'severity="%s"' % to.severity],
            receiver: 'argus-%(team)s-%(severity)s' % to,
          }
          for to in byTeam
        ],
      },
      inhibit_rules: [
        {
          // A stalled job has no speed to judge. A lost rank or a dead channel may be why, and stays.
          source_matchers: ['alertname="ArgusTrainingStalled"'],
          target_matchers: ['alertname=~"%s"' % findings],
          equal: ['training_job'],
        },
        {
          // A named rank says more than "the job is slow" or "the work is uneven".
          source_matchers: [
            'alertname=~"Argus(StragglerRank|HostStall|CollectiveLateRank|CollectiveSlowLink|KernelDegraded)"',
            'severity=~"page|ticket"',
          ],
          target_matchers: ['alertname=~"ArgusIteration(Jitter|Regression)|ArgusGroupImbalance"'],
          equal: ['training_job'],
        },
        {
          // Whoever is slow by itself makes others late.
          source_matchers: ['alertname=~"Argus(StragglerRank|HostStall)"', 'severity="page"'],
          target_matchers: ['alertname="ArgusCollectiveLateRank"'],
          equal: ['training_job'],
        },
        {
          // What was news has become a finding. Not the health alerts: a dead channel says nothing about speed.
          source_matchers: ['severity=~"page|ticket"', 'alertname=~"%s"' % findings],
          target_matchers: ['severity="info"', 'alertname=~"%s"' % findings],
          equal: ['training_job', 'rank'],
        },
      ],
      receivers: [receiver('info')] + [receiver('%(team)s/%(severity)s' % to) for to in byTeam],
    },
}
