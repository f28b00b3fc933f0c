// What the host does beside the phases: garbage collection and compilation. A rank far above the median of its job is a
// suspect like one that is slow in a host phase; collections that fall at different steps on different ranks delay the
// job by their sum, though no rank collects more than another.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local series(metric) = labels.selector(metric, [c.argusSelector]),
  local short = duration.range(c, c.meanWindows[0]),
  local training = 'unless on (training_job) (job:argus_train:seconds < %g)' % c.meanWindows[0],
  // Of a rank, over what its pauses are counted by: the maximum of what several scrapers or instances say, then the sum.
  local ofRank(expr) =
    'sum by (training_job, rank) (max by (training_job, rank, generation, compiler) (%s))' % expr,
  local share(metric) = ofRank('rate(%s[%s])' % [series(metric), short]),
  local paused(metric, interval) = ofRank('%s - %s offset %s' % [series(metric), series(metric), duration.of(interval)]),
  // Collections come by chance: an excess counts beyond what as many of the job's usual ones scatter by, at least one.
  local scatter =
    local seconds = 'avg by (training_job) (rank:argus_gc_pause:ratio)';
    local count = 'avg by (training_job) (%s)' % share('argus_gc_pause_seconds_count');
    '%g * %s / (%s > 0) * sqrt(clamp_min(%g * %s, 1)) / %g'
    % [c.zMax, seconds, count, c.meanWindows[0], count, c.meanWindows[0]],
  // Of a kind of pause: the share of every rank, those that count, those of the last interval, and who makes a habit of it.
  local pauses(phase, name, ratio, metric, beyond='', otherwise='') = [
    {
      record: ratio,
      about:: 'Share of wall time that a rank spends in %s.' % name,
      expr: share(metric),
    },
    {
      record: 'rank:argus_host_pause:lost_ratio',
      about:: 'Share of wall time in %s, where it counts: pauses lie inside phases, and explain why those are slow.' % name,
      labels: { phase: phase },
      expr: 'max by (training_job, rank) (\n  %s >= %g%s\n)' % [ratio, c.excuseLeastRatio, otherwise],
    },
    {
      record: 'rank:argus_host_pause:recent_seconds',
      about:: 'Seconds of %s in the last interval, where they count: what is over explains nothing new.' % name,
      labels: { phase: phase },
      expr: '%s >= %g' % [paused(metric, c.pauseInterval), c.minLostRatio * c.pauseInterval],
    },
    {
      record: 'rank:argus_phase_suspect:lost_ratio',
      about:: 'Ranks that lose more to %s than the usual one of the job, in both of the last two intervals: a single pause now and then is no habit.' % name,
      labels: { phase: phase, kind: 'host', group: 'host', source: 'host' },
      expr: text.fill(|||
        (
          %(pause)s - on (training_job) group_left () quantile by (training_job) (0.5, %(ratio)s)
        ) >= %(lost)s
        and on (training_job) count by (training_job) (%(ratio)s) > 2
        and on (training_job, rank) %(recent)s
        and on (training_job, rank) %(recent)s offset %(interval)s
        %(beyond)s%(training)s
      |||, {
        pause: 'rank:argus_host_pause:lost_ratio{phase="%s"}' % phase,
        ratio: ratio,
        recent: 'rank:argus_host_pause:recent_seconds{phase="%s"}' % phase,
        interval: duration.of(c.pauseInterval),
        beyond: beyond,
        lost: c.minLostRatio,
        training: training,
      }),
    },
  ],
  // How far the host runs ahead of the GPU, for the ranks of one stage: stages differ.
  local lead = |||
    max by (training_job, rank) (%s)
      * on (training_job, rank) group_right () max by (training_job, rank, group) (rank:argus_compute_busy:ratio ^ 0)
  ||| % labels.selector('argus_issue_latency_seconds', [c.argusSelector, 'kernel_class="compute"', 'quantile="0.5"']),
  local slowest = 'avg_over_time(job:argus_gc_pause:slowest_ratio[%s])' % duration.range(c, c.pauseWindow),
  local average = 'avg_over_time(job:argus_gc_pause:mean_ratio[%s])' % duration.range(c, c.pauseWindow),

  local rules = pauses('gc', 'garbage collection', 'rank:argus_gc_pause:ratio', 'argus_gc_pause_seconds_sum', text.fill(|||
    and (
      %(pause)s - on (training_job) group_left () quantile by (training_job) (0.5, rank:argus_gc_pause:ratio)
    ) >= on (training_job) group_left () (%(scatter)s)
  |||, { pause: 'rank:argus_host_pause:lost_ratio{phase="gc"}', scatter: scatter })) + [
    {
      record: 'job:argus_gc_pause:mean_ratio',
      about:: 'What collections cost the average rank, and the job too if all ranks collected at the same step.',
      expr: 'avg by (training_job) (rank:argus_gc_pause:ratio)',
    },
    {
      record: 'job:argus_gc_pause:slowest_ratio',
      about:: 'What collections cost if those of one interval coincide: the longest of any rank.',
      expr: |||
        max by (training_job) (
          %s >= 0
        ) / %g
      ||| % [paused('argus_gc_pause_seconds_sum', c.simultaneousInterval), c.simultaneousInterval],
    },
    {
      record: 'rank:argus_issue_latency:low_ratio',
      about:: 'Ranks whose GPU waits for launches while those of their peers do not: whatever takes longer there, the host does.',
      expr: text.fill(|||
        %(lead)s / on (training_job, group) group_left () (quantile by (training_job, group) (0.5, %(lead)s) > 0)
          <= %(ratio)s
      |||, { lead: lead, ratio: c.hostLatencyRatio }),
    },
  ] + pauses(
    'compile',
    'compilation',
    'rank:argus_compile:ratio',
    'argus_compile_seconds_sum',
    // Compilers that say nothing of themselves show in the stacks.
    otherwise='\n  or rank:argus_stack_frames:ratio{cause="%s"}' % c.compileFrames.cause
  ) + [
    {
      // The averages outlast the job, and a rank that was to blame.
      record: 'job:argus_gc_unsynchronised:lost_ratio',
      about:: "What the job loses as its ranks collect at different steps: some rank's pauses in each interval cost far more than any rank's own.",
      labels: { phase: 'gc' },
      expr: text.fill(|||
        (%(slowest)s - %(average)s) >= %(lost)s
        and %(slowest)s >= %(spread)s * %(average)s
        and on (training_job) job:argus_gc_pause:slowest_ratio
        unless on (training_job) (
          count_over_time(rank:argus_phase_suspect:lost_ratio{phase="gc"}[%(range)s]) > %(evaluations)s
        )
        %(training)s
      |||, {
        slowest: slowest,
        average: average,
        range: duration.range(c, c.pauseWindow),
        evaluations: std.ceil(c.persistence / c.statisticsInterval),
        lost: c.minLostRatio,
        spread: c.pauseSpread,
        training: training,
      }),
    },
  ],

  prometheusRules+:: {
    groups+: [{ name: 'argus-host', interval: duration.of(c.statisticsInterval), rules: rules }],
  },
}
