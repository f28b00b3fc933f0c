// Uneven work: sequences of different lengths, images of different sizes, experts with more tokens than others.
//
// A rank that has more to do takes longer, and nothing is wrong with it. Where the job reports its work
// (argus_work_units_total), durations are compared by what the rank had to do. All ranks of a job make the same steps,
// so work a second stands for work a step.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local units = labels.selector('argus_work_units_total', [c.argusSelector]),
  // The maximum of what several scrapers or instances say.
  local byUnit(expr) = 'max by (training_job, rank, unit) (%s)' % expr,
  // Relative deviation over the ranks of the job.
  local spread(expr) = text.fill(|||
    stddev by (training_job, unit) (%(expr)s) / (avg by (training_job, unit) (%(expr)s) > 0)
  |||, { expr: expr }),
  local first = c.meanWindows[0],
  local perSecond = byUnit('rate(%s[%s])' % [units, duration.range(c, first)]),
  local grown(counter) = '(%s - %s offset %s)' % [counter, counter, duration.of(c.fastWindow)],
  // A step: hosts are scraped at different moments, so the last interval holds one step more on some than on others.
  local steps = labels.selector('argus_iteration_duration_seconds_count', [c.argusSelector]),
  local lately = '%s / on (training_job, rank) group_left () (max by (training_job, rank) (%s) > 0)'
                 % [byUnit(grown(units) + ' >= 0'), grown(steps)],

  prometheusRules+:: {
    groups+: [
      {
        name: 'argus-work',
        interval: duration.of(c.evaluationInterval),
        rules: [
          {
            record: 'job:argus_work:cv',
            about:: "How unevenly the job's work is spread over its ranks, by unit, over the shortest mean: who has more to do is not slow.",
            expr: spread(perSecond),
          },
          {
            record: 'job:argus_work:fast_cv',
            about:: 'How unevenly the work of a step is spread over ranks in the last scrape interval alone, as lengths may be drawn anew for each step.',
            expr: spread(lately),
          },
          {
            record: 'rank:argus_work:rate',
            about:: 'Work a second of each rank, of jobs whose work is uneven, in the unit that is spread most: even work explains nothing.',
            expr: text.fill(|||
              max by (training_job, rank) (
                %(perSecond)s > 0
                and on (training_job, unit) (topk by (training_job) (1, job:argus_work:cv) >= %(cv)s)
              )
            |||, { perSecond: perSecond, cv: c.cvMild }),
          },
          {
            record: 'rank:argus_work:excess_ratio',
            about:: 'By how much a rank has more to do than the usual one of its job: it may be late by as much.',
            expr: |||
              rank:argus_work:rate
                / on (training_job) group_left () quantile by (training_job) (0.5, rank:argus_work:rate)
                - 1
              >= %g
            ||| % c.excuseLeastRatio,
          },
        ],
      },
    ],
  },
}
