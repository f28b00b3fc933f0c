// ARGUS itself and its coverage: what is not observed, what was lost, what observing costs.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),
  local health = duration.range(c, c.healthWindow),

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'health', [
        {
          alert: 'ArgusRankMissing',
          // A rank that was lost is named; one that never came is a number missing from its group.
          expr: |||
            rank:argus_rank:lost
            or (
              group:argus_ranks:expected - group:argus_ranks:reporting > 0
              and on (training_job) job:argus_ranks:count
              unless on (training_job) rank:argus_rank:lost
            )
          |||,
          'for': duration.of(c.rankMissingFor),
          labels: { severity: 'ticket', team: 'operations', level: 'L1' },
          annotations: {
            summary: '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ $labels.training_job }} is lost.'
                     + '{{ else }}{{ $value }} ranks of {{ $labels.training_job }} are missing from '
                     + '{{ $labels.group }}.{{ end }}',
            description: '{{ if $labels.rank }}Its producer left without saying goodbye: the process died, or its '
                         + 'exporter lost it.{{ else }}The topology has more ranks than report. Verdicts abstain '
                         + 'below %g %% of a group.{{ end }}' % (c.minCoverage * 100),
          },
        },
        {
          alert: 'ArgusChannelDown',
          expr: |||
            count by (training_job, channel, reason) (
              (
                max by (training_job, rank, channel, reason) (%(reason)s)
                and on (training_job, rank, channel) %(up)s == 0
              )
              or (
                max by (training_job, rank, channel) (%(up)s) == 0
                unless on (training_job, rank, channel) %(info)s
              )
            )
          ||| % {
            up: series('argus_channel_up'),
            info: series('argus_channel_info'),
            reason: series('argus_channel_info', ['reason!~"%s"' % c.channelIgnoredReasons]),
          },
          'for': duration.of(c.channelDownFor),
          labels: { severity: 'ticket', team: 'infrastructure', level: 'L1' },
          annotations: {
            summary: 'Channel {{ $labels.channel }} of {{ $labels.training_job }} is down on {{ $value }} ranks.',
            description: 'Reason: {{ or $labels.reason "not given" }}. The other channels go on.',
          },
        },
        {
          alert: 'ArgusRecordsDropped',
          expr: |||
            sum by (training_job, channel, reason) (rate(%(dropped)s[%(range)s]))
              > on (training_job, channel) group_left ()
              %(ratio)g * sum by (training_job, channel) (rate(%(all)s[%(range)s]))
          ||| % {
            dropped: series('argus_records_dropped_total'),
            all: series('argus_records_total'),
            range: health,
            ratio: c.droppedRatio,
          },
          'for': duration.of(c.droppedFor),
          labels: { severity: 'ticket', team: 'infrastructure', level: 'L1' },
          annotations: {
            summary: 'Channel {{ $labels.channel }} of {{ $labels.training_job }} loses records '
                     + '({{ $labels.reason }}).',
            description: '{{ $value | humanize }} records a second are lost, more than %g %% of those that arrive.'
                         % (c.droppedRatio * 100),
          },
        },
        {
          alert: 'ArgusOverheadBudget',
          expr: |||
            max by (training_job) (
              sum by (training_job, rank) (max by (training_job, rank, channel) (rate(%(cpu)s[%(range)s])))
            ) > %(ratio)g
          ||| % { cpu: series('argus_producer_cpu_seconds_total'), range: health, ratio: c.overheadRatio },
          'for': duration.of(c.overheadFor),
          labels: { severity: 'ticket', team: 'infrastructure', level: 'L1' },
          annotations: {
            summary: 'ARGUS takes more than its share of {{ $labels.training_job }}.',
            description: 'On one rank it uses {{ $value | humanizePercentage }} of a core inside the training '
                         + 'process; the budget is %g %%.' % (c.overheadRatio * 100),
          },
        },
        {
          alert: 'ArgusL3WorkerBehind',
          // Remote-written series vanish minutes after the last sample, so the last success is looked up.
          expr: |||
            time() - max(max_over_time(%(last)s[%(range)s])) > %(limit)g
            and on () count(job:argus_ranks:count) > 0
          ||| % {
            last: series('argus_l3_last_success_timestamp_seconds'),
            range: duration.range(c, c.l3LookbackSeconds),
            limit: c.l3BehindSeconds,
          },
          labels: { severity: 'ticket', team: 'infrastructure', level: 'L3' },
          annotations: {
            summary: 'The L3 worker is behind: last success {{ $value | humanizeDuration }} ago.',
            description: 'Kernel verdicts are missing or old. Phase verdicts and job alerts go on.',
          },
        },
      ]),
    ],
  },
}
