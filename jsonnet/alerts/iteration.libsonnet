// L1: the job as a whole got slower, irregular, or stopped.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';
local regression = import '../lib/regression.libsonnet';

{
  local c = $._config,
  // A culprit says more than "the job is slow", if it costs as much; and a stalled job has no iteration time.
  local unexplained = 'unless on (training_job) %sunless on (training_job) job:argus_stalled:seconds\n'
                      % regression.byCulprit(c, regression.lost),
  // Single iterations are long by whatever a culprit of any cost does to them.
  local unnamed = 'unless on (training_job) rank:argus_verdict:active{verdict="culprit", cause!="%s"}\n'
                  % c.causes.history.unexplained.cause
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

  local regressed = |||
    max by (training_job) (
      job:argus_iteration:regression_ratio
      and on (training_job, window) (
        time() - job:argus_iteration:regression_split_timestamp_seconds >= %g
      )
    )
    unless on (training_job) (job:argus_train:seconds < %g)
  ||| % [c.regressionAge, c.meanWindows[0]],
  local changePoint = {
    alert: 'ArgusIterationRegression',
    'for': duration.of(c.persistence),
    labels: { severity: 'page', level: 'L1' },
    annotations: {
      summary: 'Iterations of {{ $labels.training_job }} take {{ $value | humanize }} times as long as before.',
      description: 'A change point: both sides are steady, the later one is {{ $value | humanize }} times the '
                   + 'earlier, and no rank is to blame.',
    },
  },

  local staying(cause) = alert.staying(
    c,
    regressed,
    function(range) 'max by (training_job) (max_over_time(job:argus_iteration:regression_ratio%s))' % range,
    'alertname="%s", cause="%s"' % [changePoint.alert, cause],
    'training_job'
  ),

  local againstHistory = {
    alert: 'ArgusIterationRegression',
    labels: { level: 'L1' },
    annotations: {
      summary: '{{ $labels.training_job }} is slower than earlier runs of its model ({{ $labels.cause }}).',
      description: 'Against the best healthy run of the same model, backend and size the job loses '
                   + '{{ $value | humanizePercentage }} of its time, on all ranks alike. '
                   + '{{ if eq $labels.cause "%s" }}Nothing else that ARGUS measures has changed' % c.causes.history.unexplained.cause
                   + '{{ else }}What else has changed speaks for {{ $labels.cause }}{{ end }}.',
    },
  },

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'iteration', [
        {
          alert: 'ArgusTrainingStalled',
          expr: |||
            job:argus_stalled:seconds
              * on (training_job) group_right () 
                rank:argus_verdict:active{verdict="culprit", cause=~"hang-.*"}
            or on (training_job) label_replace(job:argus_stalled:seconds, "team", "operations", "", "")
          |||,
          labels: { severity: 'page', level: 'L1' },
          annotations: {
            summary: '{{ $labels.training_job }} has finished no iteration for {{ $value | humanizeDuration }}'
                     + '{{ if $labels.rank }}: rank {{ $labels.rank }} hangs ({{ $labels.phase }})'
                     + '{{ else if $labels.phase }}: all ranks'
                     + '{{ if $labels.group }} of {{ $labels.group }}{{ end }} are in {{ $labels.phase }}{{ end }}.',
            description: 'The last iteration ended {{ $value | humanizeDuration }} ago, more than %g times the usual '
                         % c.stallFactor + 'duration. {{ if $labels.rank }}The others wait for rank {{ $labels.rank }}'
                         + '{{ if eq $labels.phase "none" }}, which is in no span.{{ else }}, which is in '
                         + '{{ $labels.phase }}.{{ end }}{{ else if $labels.phase }}Nobody is elsewhere, so it is the '
                         + 'collective itself.{{ else }}Find the rank that the others wait for.{{ end }}',
          },
        },
        changePoint {
          expr: staying('') + 'unless on (training_job) %s\n' % regression.byFabric(c) + unexplained,
          labels+: { team: c.causes.history.unexplained.team },
          annotations+: {
            description: super.description + ' Ask what changed for the whole job at '
                         + 'job:argus_iteration:regression_split_timestamp_seconds.',
          },
        },
        changePoint {
          expr: |||
            label_replace(
              %sand on (training_job) %s,
              "cause", "%s", "", ""
            )
            %s
          ||| % [staying(c.causes.fabric.cause), regression.byFabric(c), c.causes.fabric.cause, unexplained],
          labels+: { team: c.causes.fabric.team },
          annotations+: {
            description: super.description + ' Collectives take longer in most groups, and that is most of it: look at '
                         + 'the network that they share.',
          },
        },
        againstHistory {
          expr: 'max by (training_job, cause, team) (rank:argus_verdict:lost_ratio{%s})\n%s'
                % ['verdict="culprit", level="L1", cause!~"hang-.*"', 'unless on (training_job) job:argus_stalled:seconds'],
          'for': duration.of(c.persistence),
          labels+: { severity: 'ticket' },
        },
        againstHistory {
          // A precursor: the queue of launches is far shorter than it was, and nothing is slower yet.
          expr: |||
            label_replace(
              1 - max by (training_job) (job:argus_signature:history_ratio{signature="issue_latency"} <= %(ratio)g),
              "cause", "%(cause)s", "", ""
            )
            %(unnamed)s
          ||| % { ratio: c.historyLatencyRatio, cause: c.causes.history.hostSync.cause, unnamed: unnamed },
          'for': duration.of(c.persistence),
          labels+: { severity: 'info', team: c.causes.history.hostSync.team },
          annotations+: {
            summary: 'The host of {{ $labels.training_job }} runs less far ahead of the GPUs than in earlier runs.',
            description: 'Kernels wait {{ $value | humanizePercentage }} less between launch and start. Nothing is slower '
                         + 'yet, but any stall of the host now reaches the GPUs: look for synchronisations.',
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
