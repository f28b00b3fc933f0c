// L2: collectives, where the duration is inverted: the last to arrive has the shortest span.
local alert = import '../lib/alert.libsonnet';

{
  local c = $._config,

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'collectives', alert.severities(
        c,
        'ArgusCollectiveLateRank',
        'cause="%s"' % c.causes.late.cause,
        {
          summary: 'Rank {{ $labels.rank }} of {{ $labels.training_job }} is late in {{ $labels.phase }}.',
          description: 'The other ranks of {{ $labels.group }} wait for rank {{ $labels.rank }}, and none of its own '
                       + 'phases explains it. The job loses {{ $value | humanizePercentage }} of its time to it.',
        },
        infoFor=c.collectiveFor,
        persistence=c.collectiveFor,
        ticketFor=c.lateExplainFor
      ) + [
        // A whole group is judged against its peers: no rank ratio makes an `info`.
        rule {
          alert: 'ArgusCollectiveSlowLink',
          labels+: { level: 'L2' },
        }
        for rule in alert.severities(
          c,
          'ArgusCollectiveSlowLink',
          'cause="%s"' % c.causes.link.cause,
          {
            summary: 'Group {{ $labels.group }} of {{ $labels.training_job }} has a slow link ({{ $labels.phase }}).',
            description: 'Nobody is late in {{ $labels.phase }}, yet even the shortest transfer of {{ $labels.group }} '
                         + 'is far above that of its peer groups. '
                         + 'The job loses {{ $value | humanizePercentage }} of its time to it.',
          },
          persistence=c.collectiveFor
        )
        if rule.labels.severity != 'info'
      ]),
    ],
  },
}
