// L1: the job as a whole got slower, irregular, or stopped.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';

{
  local c = $._config,
  // A culprit says more than "the job is slow", and a stalled job has no iteration time.
  local unnamed = 'unless on (training_job) rank:argus_verdict:active{verdict="culprit"}\n'
                  + 'unless on (training_job) job:argus_stalled:seconds',
  local jitter = {
    alert: 'ArgusIterationJitter',
    labels: { team: 'infrastructure', level: 'L1' },
    annotations: {
      summary: 'Iterations of {{ $labels.training_job }} take very different times.',
      description: 'The longest iteration of the trailing window takes {{ $value | humanize }} times the shortest, '
                   + 'and no rank is to blame for it.',
    },
  },

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'iteration', [
        {
          alert: 'ArgusTrainingStalled',
          expr: |||
            job:argus_stalled:seconds
              * on (training_job) group_right () rank:argus_verdict:active{verdict="culprit", level="L1"}
            or on (training_job) label_replace(job:argus_stalled:seconds, "team", "operations", "", "")
          |||,
          labels: { severity: 'page', level: 'L1' },
          annotations: {
            summary: '{{ $labels.training_job }} has finished no iteration for {{ $value | humanizeDuration }}'
                     + '{{ if $labels.rank }}: rank {{ $labels.rank }} hangs ({{ $labels.phase }})'
                     + '{{ else if $labels.phase }}: all ranks are in {{ $labels.phase }}{{ end }}.',
            description: 'The last iteration ended {{ $value | humanizeDuration }} ago, more than %g times the usual '
                         % c.stallFactor + 'duration. {{ if $labels.rank }}The others wait for rank {{ $labels.rank }}'
                         + '{{ if eq $labels.phase "none" }}, which is in no span.{{ else }}, which is in '
                         + '{{ $labels.phase }}.{{ end }}{{ else if $labels.phase }}Nobody is elsewhere, so it is the '
                         + 'collective itself.{{ else }}Find the rank that the others wait for.{{ end }}',
          },
        },
        {
          alert: 'ArgusIterationRegression',
          expr: 'max by (training_job) (job:argus_iteration:regression_ratio)\n'
                + 'unless on (training_job) (job:argus_train:seconds < %g)\n' % c.meanWindows[0] + unnamed,
          'for': duration.of(c.persistence),
          labels: { severity: 'page', team: 'infrastructure', level: 'L1' },
          annotations: {
            summary: 'Iterations of {{ $labels.training_job }} take {{ $value | humanize }} times as long as before.',
            description: 'A change point: both sides are steady, the later one is {{ $value | humanize }} times the '
                         + 'earlier, and no rank is to blame. Ask what changed for the whole job at '
                         + 'job:argus_iteration:regression_split_timestamp_seconds.',
          },
        },
        jitter {
          expr: 'job:argus_iteration:jitter_ratio > %g\n' % c.jitterRatio + unnamed,
          labels+: { severity: 'info' },
        },
        jitter {
          expr: |||
            job:argus_iteration:jitter_ratio > %(ratio)g
            and on (training_job) (
              sum_over_time((job:argus_iteration:jitter_ratio > bool %(ratio)g)[%(range)s:%(step)s])
              / count_over_time(job:argus_iteration_seconds:recent[%(range)s]) >= %(share)g
              and count_over_time(job:argus_iteration_seconds:recent[%(range)s]) >= %(full)d
            )
            %(unnamed)s
          ||| % {
            ratio: c.jitterRatio,
            range: duration.range(c, c.jitterTicketWindow),
            step: duration.of(c.evaluationInterval),
            share: c.jitterTicketShare,
            // Half a window of evaluations: a job that has just started has no share yet.
            full: c.jitterTicketWindow / c.evaluationInterval / 2,
            unnamed: unnamed,
          },
          'for': duration.of(c.persistence),
          labels+: { severity: 'ticket' },
        },
      ]),
    ],
  },
}
