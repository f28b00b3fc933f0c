// Regression against history (FLARE 5.2): what changes all ranks alike shows in no comparison between ranks. Runs of the
// same model, backend and size (argus_job_info) are compared with what the best of their healthy runs did.
//
// A signature is one number of the whole job. While a run is healthy its signatures are recorded as they are; what was
// learned is their median over `historyWindow`, the best of all runs with the same labels. A slowdown then gets its cause
// from the signature that moved with it.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),
  local firstRanks = 'rank=~"%s"' % std.join('|', c.canonicalRanks),
  local window = duration.range(c, c.historyMean),
  local current(signature, matches='=') = 'job:argus_signature:current{signature%s"%s"}' % [matches, signature],
  local excess(signature) = 'job:argus_signature:excess_ratio{signature="%s"}' % signature,
  local change(signature) = 'job:argus_signature:history_ratio{signature="%s"}' % signature,
  local S = 'job:argus_iteration_duration_seconds:sum',
  local N = 'job:argus_iteration_duration_seconds:count',
  local identity = 'signature, kind, phase, source, kernel, stream, unit',
  local run = 'model, backend, world_size, ' + identity,
  // One line a job, also while it is resized.
  local knownJobs = 'topk by (training_job) (1, max by (training_job, model, backend, world_size) (%s))'
                    % series('argus_job_info'),

  local signature(name, about, expr) = {
    record: 'job:argus_signature:current',
    about:: about,
    labels: { signature: name },
    expr: |||
      (
        %s
      ) * on (training_job) group_left (model, backend, world_size) %s
    ||| % [expr, knownJobs],
  },

  // Without what the stages of a pipeline wait for one another: that says nothing of the phase.
  local medians = |||
    (
      group:argus_phase_duration_seconds:median{group!~"stage:.*"}
      or group:argus_phase_duration_seconds:median{group=~"stage:.*", phase=~"%s"}
    )
  ||| % c.sendingPhases,

  // The exporters say how a run goes; each is one number a job, by phase or kernel at most.
  local signatures = [
    signature('iteration', 'Seconds of a rank for a unit of its work, where the job counts work, else of an iteration: whether the run is slow.', text.fill(|||
      1 / avg by (training_job, unit) (rate(%(units)s[%(window)s]) > 0)
      or max by (training_job) (
        (%(S)s offset %(settled)s - %(S)s offset %(before)s) / (%(N)s offset %(settled)s - %(N)s offset %(before)s > 0)
      )
      unless on (training_job) %(units)s
    |||, {
      units: series('argus_work_units_total'),
      window: window,
      S: S,
      N: N,
      // Another group records the totals, and may be in the middle of it.
      settled: duration.of(c.evaluationInterval),
      before: duration.of(c.evaluationInterval + c.historyMean),
    })),
    signature(
      'phase',
      'Median duration of each phase, without what the stages of a pipeline wait for one another, which says nothing of it.',
      'quantile by (training_job, kind, phase, source) (0.5, %s)' % medians
    ),
    signature('issue_latency', 'How far the host runs ahead of the GPU, on the median rank.', |||
      quantile by (training_job) (0.5, %s)
    ||| % series('argus_issue_latency_seconds', ['kernel_class="compute"', 'quantile="0.5"'])),
    signature(
      'inter_step_void',
      'Share of wall time without a running kernel between two steps: the GPU waits for data.',
      'avg by (training_job) (rate(%s[%s]))'
      % [series('argus_void_seconds_total', ['void="inter_step"']), window]
    ),
    signature(
      'minority_void',
      'Share of wall time without a running kernel within a step: the host is late with launches.',
      'avg by (training_job) (rate(%s[%s]))'
      % [series('argus_void_seconds_total', ['void="minority"']), window]
    ),
    // All ranks are alike, so those of the first host speak for them: seconds a launch, and share of wall time.
    signature('kernel', "Seconds a launch of each kernel of the first host's ranks, which speak for all.", text.fill(|||
      sum by (training_job, kernel, stream) (rate(%(seconds)s[%(window)s]))
      / (sum by (training_job, kernel, stream) (rate(%(launches)s[%(window)s])) > 0)
    |||, {
      seconds: series('argus_kernel_duration_seconds_total', [firstRanks, 'stream=~"compute.*"']),
      launches: series('argus_kernel_launches_total', [firstRanks, 'stream=~"compute.*"']),
      window: window,
    })),
    signature('kernel_share', "Share of wall time of each kernel of the first host's ranks.", |||
      avg by (training_job, kernel, stream) (
        max by (training_job, rank, kernel, stream) (rate(%s[%s]))
      )
    ||| % [series('argus_kernel_duration_seconds_total', [firstRanks, 'stream=~"compute.*"']), window]),
    {
      record: 'job:argus_signature:current',
      about:: 'Share of wall time in which the GPU runs but nothing computes: communication that nothing hides.',
      labels: { signature: 'exposed' },
      expr: |||
        1 - sum by (training_job, model, backend, world_size) (
          %s
        )
        and on (training_job) %s
        and on (training_job) %s
      ||| % [current('kernel_share|.*_void', '=~'), current('kernel_share'), current('inter_step_void')],
    },
  ] + [
    // Of frames that were never seen, 0.
    signature('frames:' + kind.cause, "Share of the main thread's samples in frames that speak for this cause.", text.fill(|||
      (
        sum by (training_job) (rate(%(some)s[%(window)s]))
        or 0 * sum by (training_job) (rate(%(all)s[%(window)s]))
      ) / (sum by (training_job) (rate(%(all)s[%(window)s])) > 0)
    |||, {
      some: series('argus_stack_samples_total', [firstRanks, 'thread=~"%s"' % c.mainThread, 'frame=~"%s"' % kind.frames]),
      all: series('argus_stack_samples_total', [firstRanks, 'thread=~"%s"' % c.mainThread]),
      window: window,
    }))
    for kind in c.historyFrames
  ],

  // A young run's means are not full, or hold its first iterations, which are slow.
  local oldEnough(later=0) = '%s offset %s' % [N, duration.of(2 * c.historyMean + later)],

  local learned(best, matcher) = text.fill(|||
    %(best)s by (%(run)s) (
      quantile_over_time(0.5, job:argus_signature:healthy{%(matcher)s}[%(window)s])
      and count_over_time(job:argus_signature:healthy{%(matcher)s}[%(window)s]) >= %(least)s
    )
  |||, {
    best: best,
    run: run,
    matcher: matcher,
    window: duration.range(c, c.historyWindow),
    least: c.historyMinSamples,
  }),
  local learning = [
    {
      // A rank that costs less than `lost` cannot bend it by what counts as slow.
      record: 'job:argus_signature:healthy',
      about:: 'Signatures of runs that are neither slow nor blamed nor slower than what was learned: a slow run must not become the norm.',
      memory:: true,
      expr: text.fill(|||
        job:argus_signature:current
        and on (training_job) %(old)s
        unless on (training_job) job:argus_iteration:class{class=~"regression|both"}
        unless on (training_job) (rank:argus_verdict:lost_ratio{verdict="culprit"} >= %(lost)s)
        unless on (training_job) (job:argus_history:slowdown_ratio >= %(ratio)s)
        unless on (training_job) job:argus_stalled:seconds
        unless on (training_job) (job:argus_train:seconds < %(mean)s)
      |||, {
        // Later than the comparison, whose first answer must be there.
        old: oldEnough(2 * c.slowInterval),
        lost: 1 - 1 / c.historyRatio,
        ratio: c.historyRatio,
        mean: c.historyMean,
      }),
    },
    {
      record: 'job:argus_signature:learned',
      about:: 'The best of all healthy runs, by the median of each: the longest lead of the host, and the least of everything else.',
      expr: '%sor\n%s' % [learned('max', 'signature="issue_latency"'), learned('min', 'signature!="issue_latency"')],
    },
  ],

  local onRun = 'on (%s) group_left ()' % run,
  local comparison = [
    {
      record: 'job:argus_signature:history_ratio',
      about:: 'Durations of a run against the best healthy one of the same model, backend and size.',
      expr: 'job:argus_signature:current{signature=~"iteration|phase|issue_latency|kernel"}\n/ %s (job:argus_signature:learned > 0)' % onRun,
    },
    {
      record: 'job:argus_signature:excess_ratio',
      about:: 'Shares of time of a run less those of the best healthy one; of a kernel that no healthy run had, all of it.',
      expr: text.fill(|||
        job:argus_signature:current{signature=~".*_void|frames:.*|kernel_share|exposed"} - %(onRun)s job:argus_signature:learned
        or (
          job:argus_signature:current{signature="kernel_share"}
          and on (model, backend, world_size) job:argus_signature:learned{signature="kernel_share"}
        )
      |||, { onRun: onRun }),
    },
    {
      record: 'job:argus_history:slowdown_ratio',
      about:: 'By how much a run is slower than the best healthy one, from its first full means on.',
      expr: text.fill(|||
        max by (training_job) (%(change)s) >= %(ratio)s
        and on (training_job) %(old)s
        unless on (training_job) job:argus_stalled:seconds
        unless on (training_job) (job:argus_train:seconds < %(mean)s)
      |||, { change: change('iteration'), ratio: c.historyExplainedRatio, old: oldEnough(), mean: c.historyMean }),
    },
  ],

  // Evidence of each cause, from what says most to what says least; each is a vector by training_job.
  local evidence =
    local hostRuns = '(\n  max by (training_job) (%s) <= %g\n)' % [change('issue_latency'), c.historyLatencyRatio];
    local share(signature) = 'max by (training_job) (%s) >= %g' % [excess(signature), c.minLostRatio];
    local frames(cause) = 'max by (training_job) (%s) >= %g' % [excess('frames:' + cause), c.historyFrameShare];
    local slowerPhase(matchers) = text.fill(|||
      max by (training_job) (
        (1 - 1 / job:argus_signature:history_ratio{signature="phase", %(matchers)s})
        * on (training_job, kind, phase, source) group_left ()
        max by (training_job, kind, phase, source) (
          %(medians)s * on (%(group)s) group:argus_phase_spans:rate
        )
      ) >= %(lost)s
    |||, { matchers: matchers, medians: medians, group: labels.phaseGroup, lost: c.minLostRatio });
    [
      {
        kind: c.causes.history.colocation { evidence: 'kernels' },
        about: 'every kernel is slower, also the fastest quarter: something else runs on the GPUs',
        expr: 'quantile by (training_job) (0.25, %s) >= %g' % [change('kernel'), c.historyRatio],
      },
      {
        kind: c.causes.history.kernelShape { evidence: 'kernels' },
        about: 'launches of some kernel take longer and cost enough',
        expr: text.fill(|||
          max by (training_job) (
            (1 - 1 / (%(change)s >= %(ratio)s))
            * on (training_job, kernel, stream) group_left ()
            max by (training_job, kernel, stream) (%(share)s)
          ) >= %(lost)s
        |||, {
          change: change('kernel'),
          ratio: c.historyKernelRatio,
          share: current('kernel_share'),
          lost: c.minLostRatio,
        }),
      },
      {
        kind: c.causes.history.kernelInefficient { evidence: 'kernels' },
        about: 'it runs kernels that healthy runs did not have, or had less often',
        expr: 'sum by (training_job) (%s > 0) >= %g' % [excess('kernel_share'), c.minLostRatio],
      },
    ] + [
      // The stacks say it outright. The host also waits where the GPU is slow, but then kernels wait in the queue as long
      // as ever.
      {
        kind: { cause: kind.cause, team: kind.team, evidence: 'stacks' },
        about: 'its stacks show more of the frames that speak for this cause',
        expr: frames(kind.cause)
              + if kind.cause == c.causes.history.hostSync.cause
              then '\nunless on (training_job) max by (training_job) (%s) > %g' % [change('issue_latency'), c.historyLatencyRatio]
              else '',
      }
      for kind in c.historyFrames
    ] + [
      {
        kind: c.causes.history.dataInput { evidence: 'idle' },
        about: 'its GPUs idle between steps, or the data phase takes longer',
        expr: '%s\nor on (training_job) (\n%s)' % [share('inter_step_void'), slowerPhase('phase=~"data"')],
      },
      {
        kind: c.causes.history.hostCode { evidence: 'idle' },
        about: 'its GPUs idle within steps: the host launches too late',
        expr: share('minority_void'),
      },
      {
        kind: c.causes.history.hostSync { evidence: 'latency' },
        about: 'the queue of launches runs dry, though the GPUs hardly idle',
        expr: hostRuns,
      },
      {
        kind: c.causes.history.fabric { evidence: 'phases' },
        about: 'its collectives take longer',
        expr: slowerPhase('kind="comm"'),
      },
      {
        // A third of what is lost, or more than what counts anyway. Each evaluation holds another number of the kernels'
        // windows.
        kind: c.causes.history.overlap { evidence: 'exposed' },
        about: 'kernels and collectives take as long as ever, but no longer at the same time',
        expr: |||
          max by (training_job) (avg_over_time(%s[%s]))
            >= clamp_max((1 - 1 / job:argus_history:slowdown_ratio) / 3, %g)
        ||| % [excess('exposed'), duration.range(c, c.historyMean), c.minLostRatio],
      },
      {
        kind: c.causes.history.unexplained { evidence: 'none' },
        about: 'nothing else that is known has changed',
        expr: 'job:argus_history:slowdown_ratio >= %g' % c.historyRatio,
      },
    ],
  // The first line that holds is the cause: the rules are evaluated in this order.
  local findings = [
    {
      record: 'job:argus_history:lost_ratio',
      about:: 'What a run loses against the best healthy one, as %s.' % evidence[index].about,
      labels: evidence[index].kind,
      expr: '(1 - 1 / job:argus_history:slowdown_ratio)\nand on (training_job) (\n%s\n)\n%s' % [
        evidence[index].expr,
        std.join('', [
          'unless on (training_job) job:argus_history:lost_ratio{cause="%s", evidence="%s"}\n'
          % [earlier.kind.cause, earlier.kind.evidence]
          for earlier in evidence[:index]
        ]),
      ],
    }
    for index in std.range(0, std.length(evidence) - 1)
  ],

  prometheusRules+:: {
    groups+: [
      { name: 'argus-history', interval: duration.of(c.slowInterval), rules: signatures + comparison + findings },
      { name: 'argus-history-learning', interval: duration.of(c.historyInterval), rules: learning },
    ],
  },
}
