// L2: a rank, or the work of a group, is out of line.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';
local regression = import '../lib/regression.libsonnet';

{
  local c = $._config,
  local hostCauses = std.join('|', [kind.cause for kind in c.causes.host + c.codeFrames]),
  // The measured ratio beside the cost, which is the alert's value.
  local cost = 'The job loses {{ $value | humanizePercentage }} of its time to it.',

  // A culprit says more, and nothing is said of a job that does something else.
  local quiet = 'unless on (training_job) rank:argus_verdict:active{verdict="culprit"}\n' + atWork,
  local atWork = std.join('\n', [
    'unless on (training_job) (job:argus_train:seconds < %g)' % c.meanWindows[0],
    'unless on (training_job) job:argus_stalled:seconds',
  ]),

  // What the longest of a group costs beyond the mean.
  local uneven(cv) = |||
    max by (training_job, phase, group) (
      (
        (group:argus_phase_duration_seconds:max{kind!="comm"} - group:argus_phase_duration_seconds:mean{kind!="comm"})
        * group:argus_phase_spans:rate{kind!="comm"} >= %(lost)g
      )
      and group:argus_phase_duration_seconds:cv{kind!="comm"} >= %(cv)g
      and group:argus_phase_coverage:ratio{kind!="comm"} >= %(coverage)g
    )
  ||| % { lost: c.imbalanceLostRatio, cv: cv, coverage: c.minCoverage },

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'ranks', alert.severities(
        c, 'ArgusStragglerRank', 'cause=~"%s|%s"' % [c.causes.compute.cause, c.causes.hostCpu.cause], {
          summary: 'Rank {{ $labels.rank }} of {{ $labels.training_job }} is slow ({{ $labels.cause }}, '
                   + 'phase {{ $labels.phase }}).',
          description: 'Rank {{ $labels.rank }} takes longer than its group in phase {{ $labels.phase }}, and the '
                       + 'others wait for it. ' + cost,
        }
      ) + alert.severities(
        c,
        'ArgusHostStall',
        'cause=~"%s"' % hostCauses,
        {
          summary: '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ $labels.training_job }} is held up by its host'
                   + '{{ else }}{{ $labels.training_job }} is held up by {{ if eq $labels.cause "host-gc" }}its hosts'
                   + '{{ else }}its own code{{ end }}{{ end }} ({{ $labels.cause }}).',
          description: '{{ if $labels.rank }}Host phase {{ $labels.phase }} takes longer on rank {{ $labels.rank }} '
                       + 'than on its group.{{ else if eq $labels.cause "host-gc" }}Every rank pauses for '
                       + '{{ $labels.phase }}, but not at the same step, so each waits for all: collect on all ranks at '
                       + 'the same step.{{ else }}The stacks of the ranks that are held up in {{ $labels.phase }} stand '
                       + "in the job's own code, now of one rank and now of another: no host is to blame.{{ end }} " + cost,
        },
        isPause=true
      ) + [
        {
          alert: 'ArgusGroupImbalance',
          expr: |||
            max by (training_job, rank, phase, group, cause) (
              rank:argus_verdict:lost_ratio{verdict="culprit", cause="%(workload)s"} >= %(worth)g
            )
            or %(uneven)sunless on (training_job, phase, group) %(explained)s%(atWork)s
          ||| % {
            workload: c.causes.workload.cause,
            worth: severity.worth,
            uneven: uneven(severity.cv),
            explained: regression.byCulprit(c, uneven(severity.cv)),
            atWork: atWork,
          },
          'for': duration.of(c.imbalanceFor),
          labels: { severity: severity.name, team: 'algorithm', level: 'L2' },
          annotations: {
            summary: '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ $labels.training_job }} has more to do than its '
                     + 'group in {{ $labels.phase }}.{{ else }}Work in phase {{ $labels.phase }} of '
                     + '{{ $labels.training_job }} is spread unevenly over {{ $labels.group }}.{{ end }}',
            description: '{{ if $labels.rank }}By its work (argus_work_units_total) the rank is no slower than the '
                         + 'others; waiting for it costs {{ $value | humanizePercentage }} of the time. Balance the '
                         + 'sequences, images or experts.{{ else }}No single rank is to blame, but the longest takes {{ $value | humanizePercentage }} of the '
                         + 'wall time more than the average: uneven sequences, experts or stages.{{ end }}',
          },
        }
        for severity in [
          { name: 'info', cv: c.cvMild, worth: c.minLostRatio },
          { name: 'ticket', cv: c.cvSevere, worth: c.imbalanceLostRatio },
        ]
      ] + [
        {
          alert: 'ArgusGroupImbalance',
          // Drawn anew for each step: no rank has more than another for long, yet every step waits for its longest.
          expr: |||
            max by (training_job, unit) (avg_over_time(job:argus_work:fast_cv[%(range)s]) >= %(cv)g)
            and on (training_job) job:argus_work:fast_cv
            %(quiet)s
          ||| % { range: duration.range(c, c.imbalanceFor), cv: c.cvMild, quiet: quiet },
          'for': duration.of(c.persistence),
          labels: { severity: 'info', level: 'L2' } + c.causes.workload,
          annotations: {
            summary: 'Work of {{ $labels.training_job }} ({{ $labels.unit }}) is spread unevenly over its ranks.',
            description: "The ranks' {{ $labels.unit }} of the same steps deviate by {{ $value | humanizePercentage }}. "
                         + 'Nothing is wrong with any rank.',
          },
        },
        {
          alert: 'ArgusGroupImbalance',
          expr: 'job:argus_stage_imbalance:ratio\n' + quiet,
          'for': duration.of(c.imbalanceFor),
          labels: { severity: 'info', level: 'L2' } + c.causes.stages,
          annotations: {
            summary: 'Pipeline stage {{ $labels.stage }} of {{ $labels.training_job }} works longer than the others.',
            description: 'It computes {{ $value | humanize }} times as long as the median stage: move layers, or live '
                         + 'with it. Ranks are compared within a stage only.',
          },
        },
      ]),
    ],
  },
}
