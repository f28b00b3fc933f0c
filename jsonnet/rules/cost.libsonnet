// What a fault costs: GPUs that produce nothing because the job waits. Dashboards integrate it to GPU-hours.
local duration = import '../lib/duration.libsonnet';
local regression = import '../lib/regression.libsonnet';

{
  local c = $._config,
  local culprits = 'rank:argus_verdict:lost_ratio{verdict="culprit"}',
  local lost(share) = |||
    clamp_max(%s, 1)
    * on (training_job) group_left () job:argus_ranks:count
  ||| % share,

  prometheusRules+:: {
    groups+: [
      {
        name: 'argus-cost',
        interval: duration.of(c.evaluationInterval),
        rules: [
          {
            // Culprits of one cause delay the same step, so the slowest counts, not the sum.
            record: 'job:argus_lost_gpus:current',
            expr: lost('max by (training_job, cause) (%s)' % culprits),
          },
        ] + [
          {
            record: 'job:argus_lost_gpus:current',
            labels: { cause: kind.cause },
            expr: lost(|||
              (
                %s
                unless on (training_job) %s
                unless on (training_job) %s
                %s on (training_job) %s
              )
            ||| % [
              regression.lost,
              regression.byCulprit(c, regression.lost),
              // Has the same name already.
              'rank:argus_verdict:lost_ratio{verdict="culprit", cause="%s"}' % c.causes.history.unexplained.cause,
              kind.operator,
              regression.byFabric(c),
            ]),
          }
          for kind in [
            c.causes.fabric { operator: 'and' },
            c.causes.history.unexplained { operator: 'unless' },
          ]
        ],
      },
    ],
  },
}
