// L1: does the job's iteration time jitter, has it regressed?
local job = import '../lib/canonical.libsonnet';
local changepoint = import '../lib/changepoint.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

{
  local c = $._config,
  local S = 'job:argus_iteration_duration_seconds:sum',
  local N = 'job:argus_iteration_duration_seconds:count',
  local training = 'unless on (training_job) (job:argus_train:seconds < %g)' % c.meanWindows[0],

  // What the scan reads is recorded by the scan's own group, whose rules run one after another: of totals recorded by
  // another group, which may be in the middle of an evaluation, some would be of this evaluation and some of the last.
  local total(what) = 'job:argus_iteration_scan:' + what,
  local totals = [
    { record: total('seconds'), expr: job.of(c, 'argus_iteration_duration_seconds_sum', c.settle) },
    { record: total('count'), expr: job.of(c, 'argus_iteration_duration_seconds_count', c.settle) },
    { record: total('squared_seconds'), expr: job.of(c, 'argus_iteration_duration_seconds_squared_total', c.settle) },
    { record: total('work'), expr: job.of(c, 'argus_work_units_total', c.settle, ['unit']) },
  ],
  local regressionRules = totals + std.flattenArrays([
    local name = duration.of(window);
    local scan = { exact: changepoint.new, portable: changepoint.static }[c.flavour](
      c, window, total('seconds'), total('count'), total('squared_seconds'), total('work')
    );
    [
      {
        record: 'job:argus_iteration:split_ratio',
        labels: { window: name, split: '%d' % side.age },
        expr: side.expr,
      }
      for side in scan.sides
    ] + [
      {
        record: 'job:argus_iteration:regression_ratio',
        labels: { window: name },
        expr: scan.ratio,
      },
      {
        record: 'job:argus_iteration:regression_split_timestamp_seconds',
        labels: { window: name },
        expr: scan.split('job:argus_iteration:regression_ratio{window="%s"}' % name),
      },
    ]
    for window in c.scanWindows
  ]),

  // What collectives take in most groups, against the least that they took in the scan's window. Stages of a pipeline wait
  // for one another in theirs, which therefore have none.
  local kinds = 'training_job, phase, kind, source',
  local transfer = 'job:argus_collective_transfer:seconds',
  local grown = 'job:argus_collective_transfer:lost_ratio',
  local transferRules = [
    { record: transfer, expr: 'quantile by (%s) (0.5, group:argus_collective_transfer:seconds)' % kinds },
  ] + [
    {
      record: grown,
      labels: { window: duration.of(window) },
      expr: |||
        max by (training_job) (
          (%(transfer)s - min_over_time(%(transfer)s[%(range)s]))
          * on (%(kinds)s) quantile by (%(kinds)s) (0.5, group:argus_phase_spans:rate)
        )
      ||| % { transfer: transfer, range: duration.range(c, window), kinds: kinds },
    }
    for window in c.scanWindows
  ] + [
    {
      // The regression, where they make up most of it: it is the network.
      record: 'job:argus_collective_transfer:regression_ratio',
      expr: |||
        max by (training_job) (
          job:argus_iteration:regression_ratio
          and on (training_job, window) (
            %(grown)s >= on (training_job, window)
              %(share)g * max by (training_job, window) (1 - 1 / job:argus_iteration:regression_ratio)
          )
        )
      ||| % { grown: grown, share: c.regressionTransferShare },
    },
  ],

  // One sample a step, stamped with its end (opt-in): of few ranks, as the scan below reads them often.
  local step = labels.selector('argus_iteration_seconds', [c.argusSelector, 'rank=~"%s"' % c.exactWidthRanks]),
  local ofCanonical(expr) = '(max by (training_job, rank) (%s) and on (training_job, rank) %s)' % [expr, N],
  local stepEnd = ofCanonical('timestamp(%s)' % step),

  local jitterRules = [
    {
      record: 'job:argus_iteration:jitter_ratio',
      expr: |||
        max by (training_job) (
          job:argus_iteration_seconds:window_max / (job:argus_iteration_seconds:window_min > 0)
        )
        %s
      ||| % training,
    },
    {
      // The mean of the last two scrape intervals; the baseline is its median outside candidate intervals.
      record: 'job:argus_iteration_seconds:recent',
      expr: 'max by (training_job) ((%(S)s - %(S)s offset %(w)s) / (%(N)s - %(N)s offset %(w)s > 0))'
            % { S: S, N: N, w: duration.of(2 * c.scrapeInterval) },
    },
    {
      record: 'job:argus_iteration_seconds:baseline',
      expr: |||
        quantile_over_time(0.5, (
          job:argus_iteration_seconds:recent unless on (training_job) job:argus_iteration:jitter_ratio > %g
        )[%s:%s])
      ||| % [c.jitterRatio, duration.range(c, c.baselineWindow), duration.of(c.evaluationInterval)],
    },
    {
      // Seconds since the longest iteration of the trailing window was last normal. The extremes window smears:
      // this is an upper bound of the run's length.
      record: 'job:argus_iteration:jitter_run_seconds',
      expr: |||
        time() - max_over_time((
          time() + 0 * (%(max)s <= on (training_job) %(k)g * job:argus_iteration_seconds:baseline)
        )[%(range)s:%(step)s])
        and on (training_job) (
          %(max)s > on (training_job) %(k)g * job:argus_iteration_seconds:baseline
        )
      ||| % {
        max: 'max by (training_job) (job:argus_iteration_seconds:window_max)',
        k: c.jitterExceedRatio,
        range: duration.range(c, c.baselineWindow),
        step: duration.of(c.evaluationInterval),
      },
    },
    {
      // The same, exact: from the end of the last normal iteration to the end of each slow one, the longest since the
      // last evaluation. A run that goes on is reported again, longer.
      record: 'job:argus_iteration:jitter_width_seconds',
      expr: |||
        max by (training_job) (max_over_time((
          %(end)s
          - max_over_time((
            %(end)s
            and on (training_job, rank) (
              %(seconds)s <= on (training_job) group_left () %(k)g * job:argus_iteration_seconds:baseline
            )
          )[%(longest)s:%(step)s])
        )[%(evaluation)s:%(step)s])) > 0
      ||| % {
        end: stepEnd,
        seconds: ofCanonical(step),
        k: c.jitterExceedRatio,
        longest: duration.of(c.jitterWidthWindow - c.jitterWidthStep / 2),
        evaluation: duration.of(c.evaluationInterval - c.jitterWidthStep / 2),
        step: duration.of(c.jitterWidthStep),
      },
    },
  ],

  local classRules =
    local regression = 'max by (training_job) (job:argus_iteration:regression_ratio)';
    local jitter = '(job:argus_iteration:jitter_ratio > %g)' % c.jitterRatio;
    local running = 'max by (training_job) (%s > 0)' % N;
    [
      { record: 'job:argus_iteration:class', labels: { class: class }, expr: '(%s) ^ 0' % classes[class] }
      for classes in [{
        both: '%s and on (training_job) %s' % [regression, jitter],
        regression: '%s unless on (training_job) %s' % [regression, jitter],
        jitter: '%s unless on (training_job) %s' % [jitter, regression],
        stable: '%s unless on (training_job) %s unless on (training_job) %s' % [running, regression, jitter],
      }]
      for class in std.objectFields(classes)
    ],

  prometheusRules+:: {
    groups+: [
      {
        name: 'argus-l1-' + part.name,
        interval: duration.of(c.evaluationInterval),
        rules: part.rules,
      }
      for part in [
        { name: 'regression', rules: regressionRules + transferRules },
        { name: 'jitter', rules: jitterRules },
        { name: 'class', rules: classRules },
      ]
    ],
  },
}
