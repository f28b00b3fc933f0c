// L3: what the worker found in the kernels. It has judged effect and persistence; here it gets a severity.
local alert = import '../lib/alert.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  // vmalert knows `keep_firing_for` from 1.92 on, and older ones refuse the file: there the worker's series and the cost
  // drawn from them are looked back for as long.
  local portable = c.flavour == 'portable',
  local kept(series) = if portable then 'last_over_time(%s[%s])' % [series, duration.range(c, c.l3KeepFiringFor)] else series,
  local keep = if portable then {} else { keep_firing_for: duration.of(c.l3KeepFiringFor) },
  local anomaly = 'max by (training_job, rank, kernel, stream, cause, team) (%s)'
                  % kept(labels.selector('argus_l3_anomaly', [c.argusSelector, 'verdict="culprit"'])),
  local cost = 'max by (training_job, rank, kernel, stream) (%s)'
               % kept('rank:argus_verdict:lost_ratio{level="L3", verdict="culprit"}'),
  local notStalled = 'unless on (training_job) job:argus_stalled:seconds',
  local degraded = keep {
    alert: 'ArgusKernelDegraded',
    labels: { level: 'L3' },
    annotations: {
      summary: 'Kernel {{ $labels.kernel }}{{ with $labels.rank }} on rank {{ . }}{{ end }} of {{ $labels.training_job }} is slow '
               + '({{ $labels.cause }}).',
      description: 'Kernel {{ $labels.kernel }} on stream {{ $labels.stream }} takes {{ $value | humanizePercentage }} '
                   + 'longer than on the ranks that do the same work.',
    },
  },
  local groupShift(matcher) = keep {
    alert: 'ArgusKernelGroupShift',
    expr: |||
      max by (training_job, role, kernel, stream, coordinate, value, cause, team) (%(shift)s) > %(ratio)g
      %(notStalled)s
    ||| % {
      shift: kept(labels.selector('argus_l3_group_shift', [matcher, c.argusSelector])),
      ratio: c.kernelShiftRatio,
      notStalled: notStalled,
    },
    'for': duration.of(c.persistence),
    labels: { level: 'L3' },
  },
  local pages = |||
    and on (training_job, rank, kernel, stream) (
      %(cost)s >= %(lost)g
      and on (training_job, rank, kernel, stream) (
        %(cost)s >= on (training_job) group_left ()
          %(share)g * max by (training_job) (
            %(culprits)s
          )
      )
    )
  ||| % {
    cost: cost,
    culprits: kept('rank:argus_verdict:lost_ratio{verdict="culprit", level!="L1", cause!="%s"}' % c.causes.workload.cause),
    lost: c.kernelPageLostRatio,
    share: c.pageCostliestShare,
  },

  prometheusAlerts+:: {
    groups+: [
      alert.group(c, 'kernels', [
        degraded {
          expr: '%s > %g\n%s' % [anomaly, c.kernelInfoShiftRatio, notStalled],
          labels+: { severity: 'info' },
        },
        degraded {
          expr: '(\n  %s > %g\n  %s\n)\nunless on (training_job, rank, kernel, stream) (\n  %s\n  %s)'
                % [anomaly, c.kernelShiftRatio, notStalled, anomaly, pages],
          'for': duration.of(c.persistence),
          labels+: { severity: 'ticket' },
        },
        degraded {
          expr: '%s > %g\n%s%s' % [anomaly, c.kernelShiftRatio, pages, notStalled],
          'for': duration.of(c.pageFor),
          labels+: { severity: 'page' },
        },
        groupShift('coordinate!="none"') {
          labels+: { severity: 'ticket' },
          annotations: {
            summary: 'Kernel {{ $labels.kernel }} of {{ $labels.training_job }} is slow on all ranks with '
                     + '{{ $labels.coordinate }} {{ $labels.value }} ({{ $labels.cause }}).',
            description: 'The ranks of role {{ $labels.role }} fall into two groups '
                         + '{{ $value | humanizePercentage }} apart, and {{ $labels.coordinate }} '
                         + '{{ $labels.value }} tells them apart: look for what those ranks share.',
          },
        },
        // Nobody can be sent anywhere by this.
        groupShift('coordinate="none"') {
          labels+: { severity: 'info' },
          annotations: {
            summary: 'Kernel {{ $labels.kernel }} of {{ $labels.training_job }} is slow on some of the ranks '
                     + '({{ $labels.cause }}), and nothing that is known of them says why these.',
            description: 'The ranks of role {{ $labels.role }} fall into two groups '
                         + '{{ $value | humanizePercentage }} apart, and no coordinate tells them apart: '
                         + 'compare their hardware, drivers and settings.',
          },
        },
      ]),
    ],
  },
}
