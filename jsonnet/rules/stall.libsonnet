// L1: has the job stopped, and whom do the others wait for?
//
// The page that a producer shares with its exporter survives a stopped process: its open spans and the number of the
// last collective it entered. Whoever has entered fewer collectives than its group holds the group up; so does, where
// collectives are not numbered, whoever is elsewhere while most ranks wait. Where all of a group are in one collective
// and only other groups have gone on, it is the collective that does not end.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),
  local stalled = 'job:argus_stalled:seconds',
  local ranks = 'job:argus_ranks:count',
  local open(matchers=[]) = labels.selector('rank:argus_stall_open:timestamp_seconds', matchers),
  local sequence = 'rank:argus_stall_sequence:collectives',
  local lag = 'rank:argus_stall_lag:collectives',
  local byRank(expr) = 'max by (%s) (%s)' % [labels.rank, expr],
  local notIn(expr) = 'unless on (%s) %s' % [labels.rank, expr],
  local countRanks(expr) = 'count by (training_job) (%s)' % byRank(expr),

  // In a collective, or in a phase whose span may contain one.
  local waiting = '(%s or %s)' % [open(['kind="comm"']), open(['kind!="comm"', 'phase=~"%s"' % c.waitingPhases])],
  local atMost(share, expr) = '(\n%s\n)\nand on (training_job) (\n  %s <= on (training_job) %g * %s\n)'
                              % [expr, countRanks(expr), share, ranks],

  local lost = '(rank:argus_rank:lost and on (training_job) %s)' % stalled,
  local broken = 'group:argus_stall_broken:bool',
  // Behind in one group, and not waiting for somebody behind in another, nor for a collective that all of its group
  // have entered: the tensor-parallel mates of the culprit are behind in their data-parallel groups too.
  local behind = '(%s > 0 %s %s)' % [
    byRank(lag),
    notIn('(%s == 0 and on (training_job, group) (%s > 0))' % [lag, lag]),
    notIn('(%s and on (training_job, group) %s)' % [lag, broken]),
  ],
  local elsewhere = '(%s %s)' % [byRank('%s or %s' % [open(), lag]), notIn(waiting)],
  local mostWait = 'and on (training_job) (%s >= on (training_job) %g * %s)'
                   % [countRanks(waiting), c.stallWaitingShare, ranks],

  local rules = [
    {
      record: 'job:argus_iteration:age_seconds',
      about:: 'Seconds from the last iteration to the last scrape: without scrapes nobody knows that the job stands still.',
      // 0 +: where the store keeps the metric's type as a label, a time has none, so what is subtracted may have none.
      expr: 'min by (training_job) (timestamp(%(last)s) - (0 + %(last)s > 0))'
            % { last: series('argus_iteration_last_timestamp_seconds') },
    },
    {
      record: stalled,
      about:: 'Seconds since the last iteration, only while that is far beyond the usual duration, or beyond what anything but training takes.',
      expr: text.fill(|||
        (
          job:argus_iteration:age_seconds
            > on (training_job) clamp_min(%(factor)s * max by (training_job) (%(S)s / (%(N)s >= %(minimum)s)), %(floor)s)
          unless on (training_job) (job:argus_train:seconds < %(floor)s)
        )
        or job:argus_iteration:age_seconds > %(outside)s
      |||, {
        factor: c.stallFactor,
        S: 'job:argus_iteration_duration_seconds:sum',
        N: 'job:argus_iteration_duration_seconds:count',
        minimum: c.stallMinIterations,
        floor: c.stallMinSeconds,
        outside: c.stallOutsideTrainSeconds,
      }),
    },
    {
      record: 'rank:argus_stall_open:timestamp_seconds',
      about:: 'When a rank of a stalled job entered each of its open spans, of which one may lie inside the other.',
      expr: 'max by (%s, phase, kind) (\n  %s and on (training_job) %s\n)'
            % [labels.rank, series('argus_phase_open_timestamp_seconds'), stalled],
    },
    {
      record: sequence,
      about:: 'How many collectives of each group a rank of a stalled job has entered.',
      expr: 'max by (%s, group) (\n  %s and on (training_job) %s\n)'
            % [labels.rank, series('argus_collective_sequence'), stalled],
    },
    {
      record: lag,
      about:: 'How many collectives fewer than the first of its group a rank has entered: who is behind holds the group up.',
      expr: 'max by (training_job, group) (%s) - on (training_job, group) group_right () %s' % [sequence, sequence],
    },
    {
      record: broken,
      about:: 'Groups that are all in the same collective while each of their ranks is behind in another group: that collective does not end.',
      expr: text.fill(|||
        (
          count by (training_job, group) (
            %(lag)s == 0
            and on (%(rank)s) (max by (%(rank)s) (%(lag)s) > 0)
            and on (%(rank)s) %(comm)s
          ) == on (training_job, group) (count by (training_job, group) (%(lag)s) > 1)
        ) ^ 0
      |||, { lag: lag, rank: labels.rank, comm: open(['kind="comm"']) }),
    },
    {
      record: 'rank:argus_stall_suspect:bool',
      about:: 'Whom a stalled job waits for: lost ranks, before ranks that are behind, before ranks that are elsewhere while most wait.',
      expr: '(\n%s\nor on (training_job)\n%s\nor on (training_job)\n%s\n) ^ 0' % [
        atMost(c.stallCulpritShare, lost),
        atMost(c.stallCulpritShare, behind),
        '(%s %s)' % [elsewhere, mostWait],
      ],
    },
    {
      record: 'rank:argus_stall_culprit:bool',
      about:: 'The suspects, with the span that they hang in: the innermost of the open ones, which is the latest to begin.',
      expr: text.fill(|||
        max by (training_job, rank, phase) (
          topk by (training_job, rank) (1, %(open)s) ^ 0
          and on (training_job, rank) rank:argus_stall_suspect:bool
        )
        or on (training_job, rank) label_replace(rank:argus_stall_suspect:bool, "phase", "none", "", "")
      |||, { open: open() }),
    },
    {
      record: 'job:argus_stall_collective:bool',
      about:: 'The collective that does not end where nobody is elsewhere or behind: of the groups that go no further, or else the one in which nearly all ranks are.',
      expr: text.fill(|||
        (
          max by (training_job, phase, group) (
            max by (training_job, rank, group) (%(lag)s and on (training_job, group) %(broken)s)
            * on (training_job, rank) group_right (group)
            max by (training_job, rank, phase) (%(comm)s)
          )
          or on (training_job)
          count by (training_job, phase) (max by (training_job, rank, phase) (%(comm)s))
            >= on (training_job) group_left () %(coverage)s * %(ranks)s
        ) ^ 0
        unless on (training_job) rank:argus_stall_suspect:bool
      |||, { lag: lag, broken: broken, comm: open(['kind="comm"']), coverage: c.minCoverage, ranks: ranks }),
    },
    {
      record: 'rank:argus_stall_victim:bool',
      about:: 'All other ranks of a job with a suspect, with the span in which they wait: they are not to blame.',
      expr: text.fill(|||
        max by (training_job, rank, phase) (
          topk by (training_job, rank) (1, %(open)s) ^ 0
          unless on (training_job, rank) rank:argus_stall_suspect:bool
        )
        and on (training_job) rank:argus_stall_suspect:bool
      |||, { open: open() }),
    },
  ],

  prometheusRules+:: {
    groups+: [{ name: 'argus-l1-stall', interval: duration.of(c.evaluationInterval), rules: rules }],
  },
}
