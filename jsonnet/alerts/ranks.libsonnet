// L2: a rank, or the work of a group, is out of line.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';

{
  local c = $._config,
  local hostCauses = std.join('|', [kind.cause for kind in c.causes.host]),
  // The measured ratio beside the cost, which is the alert's value.
  local cost = 'The job loses {{ $value | humanizePercentage }} of its time to it.',

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
        c, 'ArgusHostStall', 'cause=~"%s"' % hostCauses, {
          summary: '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ $labels.training_job }} is held up by its host'
                   + '{{ else }}{{ $labels.training_job }} is held up by its hosts{{ end }} ({{ $labels.cause }}).',
          description: '{{ if $labels.rank }}Host phase {{ $labels.phase }} takes longer on rank {{ $labels.rank }} '
                       + 'than on its group.{{ else }}Every rank pauses for {{ $labels.phase }}, but not at the same '
                       + 'step, so each waits for all: collect on all ranks at the same step.{{ end }} ' + cost,
        }
      ) + [
        {
          alert: 'ArgusGroupImbalance',
          expr: |||
            max by (training_job, phase, group) (
              (
                (group:argus_phase_duration_seconds:max{kind!="comm"} - group:argus_phase_duration_seconds:mean{kind!="comm"})
                * group:argus_phase_spans:rate{kind!="comm"} >= %(lost)g
              )
              and group:argus_phase_duration_seconds:cv{kind!="comm"} >= %(cv)g
              and group:argus_phase_coverage:ratio >= %(coverage)g
            )
            unless on (training_job) rank:argus_verdict:active{verdict="culprit"}
            unless on (training_job) (job:argus_train:seconds < %(window)g)
            unless on (training_job) job:argus_stalled:seconds
          ||| % {
            lost: c.imbalanceLostRatio,
            cv: severity.cv,
            coverage: c.minCoverage,
            window: c.meanWindows[0],
          },
          'for': duration.of(c.imbalanceFor),
          labels: { severity: severity.name, team: 'algorithm', level: 'L2' },
          annotations: {
            summary: 'Work in phase {{ $labels.phase }} of {{ $labels.training_job }} is spread unevenly '
                     + 'over {{ $labels.group }}.',
            description: 'No single rank is to blame, but the longest takes {{ $value | humanizePercentage }} of the '
                         + 'wall time more than the average: uneven sequences, experts or stages.',
          },
        }
        for severity in [{ name: 'info', cv: c.cvMild }, { name: 'ticket', cv: c.cvSevere }]
      ]),
    ],
  },
}
