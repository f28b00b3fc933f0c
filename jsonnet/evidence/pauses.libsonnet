// Pauses of the host that have counters of their own: garbage collection and compilation.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  // The largest of what several scrapers say, then the sum over generations or compilers.
  local ofRank(by, expr) = 'sum by (%s) (max by (%s, %s) (%s))' % [l.rank, l.rank, by, expr],
  local window = duration.range(c, c.window),
  local pause(cause, what, metric, by) = [
    {
      about:: 'Share of the wall time in which a rank %s.' % what,
      record: 'rank:argus_pause:ratio',
      labels: { pause: cause },
      expr: ofRank(by, 'rate(%s[%s])' % [l.raw(metric), window]),
    },
    {
      about:: 'A rank that %s more than the median rank of its job.' % what,
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: cause, detector: 'pause', phase: 'all' },
      expr: text.fill(|||
        (
          %(pause)s - on (%(job)s) group_left () quantile by (%(job)s) (0.5,
            %(pause)s or on (%(rank)s) 0 * max by (%(rank)s) (%(up)s)
          )
        ) >= %(least)s
        and on (%(job)s) job:argus_ranks:count > 1
      |||, {
        pause: 'rank:argus_pause:ratio{pause="%s"}' % cause,
        job: l.job,
        rank: l.rank,
        up: l.raw('argus_rank_up'),
        least: c.evidenceRatio,
      }),
    },
  ],
  local slowest = 'avg_over_time(job:argus_gc_pause:slowest_ratio[%s])' % duration.range(c, c.pauseWindow),
  local average = 'avg by (%s) (avg_over_time(rank:argus_pause:ratio{pause="host-gc"}[%s]))' % [l.job, duration.range(c, c.pauseWindow)],

  evidence: pause('host-gc', 'collects garbage', 'argus_gc_pause_seconds_sum', 'generation')
            + pause('host-jit', 'compiles', 'argus_compile_seconds_sum', 'compiler')
            + [
              {
                about:: 'What collections of the last scrape intervals cost if they coincide: the longest of any rank.',
                record: 'job:argus_gc_pause:slowest_ratio',
                expr: text.fill('max by (%(job)s) (%(grown)s >= 0) / %(interval)s', {
                  job: l.job,
                  interval: 3 * c.scrapeInterval,
                  grown: ofRank('generation', text.fill('%(sum)s - %(sum)s offset %(interval)s', {
                    sum: l.raw('argus_gc_pause_seconds_sum'),
                    interval: duration.of(3 * c.scrapeInterval),
                  })),
                }),
              },
              {
                about:: 'All ranks collect alike, but never at the same step: each waits for all.',
                record: 'rank:argus_evidence:lost_ratio',
                labels: { cause: 'host-gc', detector: 'unsynchronised', phase: 'all' },
                expr: text.fill(|||
                  (%(slowest)s - on (%(job)s) %(average)s) >= %(least)s
                  and on (%(job)s) (%(slowest)s >= on (%(job)s) %(spread)s * %(average)s)
                  and on (%(job)s) job:argus_gc_pause:slowest_ratio
                |||, { slowest: slowest, average: average, job: l.job, least: c.evidenceRatio, spread: c.pauseSpread }),
              },
            ],
}
