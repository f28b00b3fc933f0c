// Uneven work: a rank that has more to do takes longer, and nothing is wrong with it.
//
// Where a job reports its work (argus_work_units_total): work a step, both counted between the same two scrapes of a rank. Work a
// second would tell when a host is scraped: between two scrapes lies a step more or less, 4 % of two minutes at 4 s a step.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local who = l.list(['rank', 'phase', 'group']),
  local rate = 'rank:argus_work:rate',
  local units = l.raw('argus_work_units_total'),
  local steps = l.raw('argus_iteration_duration_seconds_count'),
  local perStep = text.fill(|||
    (
      max by (%(rank)s, unit) (rate(%(units)s[%(window)s]))
      / on (%(rank)s) group_left () (max by (%(rank)s) (rate(%(steps)s[%(window)s])) >= %(often)s)
      or on (%(rank)s, unit)
      max by (%(rank)s, unit) (%(recent)s)
    )
  |||, {
    rank: l.rank,
    units: units,
    steps: steps,
    window: duration.range(c, c.window),
    often: l.often,
    recent: l.raw('argus_work_recent_units_per_step'),
  }),
  local evidence(cause, detector, about, expr) = {
    about:: about,
    record: 'rank:argus_evidence:lost_ratio',
    labels: { cause: cause, detector: detector },
    expr: expr,
  },
  // What a rank takes longer in a phase of computation by its work: its share of more work, of the time that the median
  // needs. Of the ranks and phases of a series.
  local expected(series) = text.fill(|||
    max by (%(who)s) (
      %(series)s{kind="compute"} ^ 0
      * on (%(group)s) group_left () (group:argus_phase_duration_seconds:median * group:argus_phase_spans:rate)
    ) * on (%(rank)s) group_left () (
      (%(uneven)s / on (%(job)s) group_left () (quantile by (%(job)s) (0.5, %(uneven)s) > 0) > 1) - 1
    )
  |||, { who: who, series: series, group: l.phaseGroup, rank: l.rank, uneven: uneven, job: l.job }),
  local excess = 'rank:argus_phase_excess:lost_ratio',
  local slow = 'rank:argus_phase_slow:lost_ratio',

  // In the unit that is spread most; of jobs whose work is even, of no rank.
  local uneven = 'max by (' + l.rank + ') (' + rate + ' and on (' + l.job + ') job:argus_work:uneven)',

  measures: [
    {
      about:: 'Work a step of each rank, against the average of its job.',
      record: rate,
      expr: text.fill('%(work)s / on (%(job)s, unit) group_left () (avg by (%(job)s, unit) (%(work)s) > 0)', { job: l.job, work: perStep }),
    },
    {
      about:: 'Jobs whose work is spread unevenly over their ranks: the relative deviation, in the unit that is spread most.',
      record: 'job:argus_work:uneven',
      expr: text.fill('max by (%(job)s) (stddev by (%(job)s, unit) (%(rate)s)) >= 0.02', { job: l.job, rate: rate }),
    },
  ],

  evidence: [
    evidence(
      'more-work',
      'units',
      'What a rank needs longer in a phase for the work that it has beyond the median: it may take so much.',
      '%s >= %g' % [expected(excess), c.contextRatio]
    ),
    evidence(
      'workload',
      'units',
      'Of a rank that stands out in the phase: what it needs longer, at most the same.',
      text.fill(|||
        %(slow)s - clamp_min(%(slow)s - on (%(who)s)
        %(expected)s, 0) >= %(least)s
      |||, {
        slow: 'max by (' + who + ') (' + slow + '{kind!="comm"})',
        who: who,
        expected: expected(slow),
        least: c.evidenceRatio,
      })
    ),
    {
      // What it costs is not known: who has more in one step may have less in the next.
      about:: 'A job whose work is spread unevenly: each step waits for the rank that has most, at least a deviation more than the average.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'work-uneven', detector: 'units' },
      expr: 'max by (' + l.job + ') (job:argus_work:uneven)',
    },
  ],
}
