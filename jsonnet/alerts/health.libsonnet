// ARGUS itself and its coverage: what is not observed, what was lost, what observing costs.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),
  local health = duration.range(c, c.healthWindow),
  // The first of a job's lost ranks, each with its host where it said so.
  local lostRanks =
    local lost = 'rank:argus_rank:lost{training_job=%%q} + 1';
    local place = 'topk by (rank) (1, max by (rank, node) (argus_rank_info{training_job=%%q}))';
    ('{{ range $nth, $one := query (printf "topk(%d, (' + lost + ') * on (rank) group_left (node) ' + place
     + ' or on (rank) ' + lost + ')" $labels.training_job $labels.training_job $labels.training_job) }}'
     + '{{ if $nth }}, {{ end }}{{ $one.Labels.rank }}{{ with $one.Labels.node }} ({{ . }}){{ end }}{{ end }}'
     + '{{ if gt $value %d.0 }} and others{{ end }}') % [c.rankMissingNamed, c.rankMissingNamed],

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'health', [
        {
          alert: 'ArgusRankMissing',
          // One alert for all ranks that a job has lost, however many; some that never came are missing from their group.
          expr: |||
            count by (training_job) (rank:argus_rank:lost)
            or (
              group:argus_ranks:expected - group:argus_ranks:reporting > 0
              and on (training_job) job:argus_ranks:count
              unless on (training_job) rank:argus_rank:lost
            )
          |||,
          'for': duration.of(c.rankMissingFor),
          labels: { severity: 'ticket', team: 'operations', level: 'L1' },
          annotations: {
            summary: '{{ $value }} {{ if eq $value 1.0 }}rank{{ else }}ranks{{ end }} of {{ $labels.training_job }} '
                     + '{{ if eq $value 1.0 }}is{{ else }}are{{ end }} {{ with $labels.group }}missing from {{ . }}'
                     + '{{ else }}lost: ' + lostRanks + '{{ end }}.',
            description: '{{ if $labels.group }}The topology has more ranks than report. Verdicts abstain below %g %% '
                         % (c.minCoverage * 100)
                         + 'of a group.{{ else }}Their producers left without saying goodbye: the processes died, or '
                         + 'their exporters lost them.{{ end }}',
          },
        },
        {
          alert: 'ArgusJobNameClash',
          // The value is the number of ranks that are there twice. Whoever moved is there twice for as long as its old
          // exporter remembers it.
          expr: |||
            count by (training_job) (
              count by (training_job, rank) (
                max by (training_job, rank, cluster, node, gpu_uuid) (%s)
              ) > 1
            )
          ||| % series('argus_rank_info'),
          'for': duration.of(c.nameClashFor),
          labels: { severity: 'ticket', team: 'infrastructure', level: 'L1' },
          annotations: {
            summary: 'Two jobs are called {{ $labels.training_job }}: {{ $value }} ranks run in two places.',
            description: 'Their ranks are taken for one: neither is judged right, and if one of them hangs nobody is told. '
                         + 'Give each job a name of its own, such as one with its cluster.',
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
