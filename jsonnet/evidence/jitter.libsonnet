// L1: single iterations that take far longer than the others, again and again, while the job's pace stays what it is.
//
// The exporter tells the longest iteration of the last minute; a candidate is a minute in which it is more than `theta` times the
// mean. Not the shortest, as in the paper: where lengths vary by nature, the shortest is far from the longest all the time. One
// pause is one such minute and tells nothing.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local theta = 1.5;
  local ratio = 'job:argus_iteration:jitter_ratio';
  // A pause is among the extremes for a minute, so in five scrapes at most: more than two pauses within this time are jitter,
  // until none has come for as long as this.
  local window = duration.range(c, 900 * c.second);
  local pauses = 11;
  local ends = duration.range(c, 240 * c.second);
  local at = {
    job: l.job,
    rank: l.rank,
    longest: 'max by (' + l.rank + ') (' + l.raw('argus_iteration_window_max_seconds') + ')',
    shortest: 'max by (' + l.rank + ') (' + l.raw('argus_iteration_window_min_seconds') + ')',
    theta: theta,
    ratio: ratio,
    window: window,
    ends: ends,
    pauses: pauses,
    least: c.evidenceRatio,
    activity: c.window,
  };
  local pace(totals, window=at.window) = text.fill('rate(%(totals)s{total="seconds"}[%(window)s]) / on (%(rank)s) (rate(%(totals)s{total="count"}[%(window)s]) > 0)', at { totals: totals, window: window });
  [
    {
      about:: 'The longest iteration of the last minute by the mean of two, where it is more than %g times as long and the job trains.' % theta,
      record: ratio,
      expr: text.fill(|||
        max by (%(job)s) (
          %(longest)s / on (%(rank)s) (%(lately)s) > %(theta)s
        )
        unless on (%(job)s) (job:argus_other_activity:seconds < %(activity)s)
      |||, at { lately: pace('job:argus_iteration_scan:total', duration.range(c, c.window)) }),
    },
    {
      about:: 'What iterations that are far longer than others cost: the pace of all against that of the intervals without them, or the shortest.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'jitter', detector: 'extremes' },
      expr: text.fill(|||
        max by (%(job)s) (
          1 - (
            %(clean)s
            or on (%(rank)s) %(shortest)s
          ) / on (%(rank)s) (%(all)s)
        ) >= %(least)s
        and on (%(job)s) count_over_time(%(ratio)s[%(window)s]) >= %(pauses)s
        and on (%(job)s) count_over_time(%(ratio)s[%(ends)s])
      |||, at { clean: pace('job:argus_iteration_clean:total'), all: pace('job:argus_iteration_scan:total') }),
    },
    {
      about:: 'What the iterations of a job are like: stable, or with jitter, a regression, or both. 1.',
      record: 'job:argus_iteration:class',
      local regression = 'max by (' + l.job + ') (rank:argus_evidence:lost_ratio{cause="regression"} ^ 0)',
      local jitter = ratio + ' ^ 0',
      local running = 'max by (' + l.job + ') (job:argus_iteration_scan:total{total="count"} > 0) ^ 0',
      expr: std.join('\nor on (' + l.job + ') ', [
        'label_replace(' + class[0] + ', "class", "' + class[1] + '", "", "")'
        for class in [
          [regression + ' and on (' + l.job + ') ' + ratio, 'both'],
          [regression, 'regression'],
          [jitter, 'jitter'],
          [running, 'stable'],
        ]
      ]),
    },
  ]
