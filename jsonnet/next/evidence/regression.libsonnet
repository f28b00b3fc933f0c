// L1: has the job become slower? Found once, and held until the job recovers, starts anew or its work has changed.
//
// The job's series is that of its lowest live rank. A change point is looked for among the splits of two windows (paper,
// appendix B): the two sides differ by more than the noise of their means explains. What the job then needs is compared
// with the side before the change, which is held, so a baseline never follows the fault. Both by iteration and by work: a
// job that is given more to do is not slower.
local duration = import '../../lib/duration.libsonnet';
local text = import '../../lib/text.libsonnet';

function(c, l)
  local K = l.rank;
  local on = 'on (%s)' % K;
  // Smallest ratio of the two sides, and that below which the job has recovered; standard errors that a change and a
  // recovery must be clear of; relative variance of the iterations of a side beyond which it is no steady state; iterations that make a side; max/min of the last minute beyond which an interval counts on no
  // side: it holds a pause, or the change itself.
  local found = 1.035;
  local recovered = 1.018;
  local errors = 5;
  local certain = 3;
  local limit = 0.01;
  local least = 8;
  local jitter = 1.5;
  // Windows, and the steps of the splits in them; the shortest of the recent ones that holds enough iterations counts.
  local windows = [{ seconds: 600, step: c.interval }, { seconds: 3600, step: 4 * c.interval }];
  local recents = [120, 600, 1800, 3600];
  local per = ['count', 'work'];
  local parts = {
    seconds: l.raw('argus_iteration_duration_seconds_sum'),
    count: l.raw('argus_iteration_duration_seconds_count'),
    squares: l.raw('argus_iteration_duration_seconds_squared_total'),
    work: l.raw('argus_work_units_total'),
  };
  local totals = std.objectFields(parts);
  local scan(total) = 'job:argus_iteration_scan:total{total="' + total + '"}';
  local clean(total) = 'job:argus_iteration_clean:total{total="' + total + '"}';
  local start(total) = 'job:argus_iteration_start:total{total="' + total + '"}';
  local left(total, window) = 'job:argus_iteration_left:total{total="' + total + '", window="' + duration.of(window) + '"}';
  local split = 'job:argus_iteration_split:ratio';
  local before = 'job:argus_iteration_split:left_seconds';
  local recent = 'job:argus_iteration_recent:seconds';
  local suspected = 'job:argus_iteration_suspected:seconds';
  local healthy = 'job:argus_iteration_healthy:seconds';
  local started = 'resets(' + scan('count') + '[' + duration.of(2 * c.interval) + ']) > 0';

  // What a rule has said last, also after some evaluations without a scrape.
  local remembered(series, offset='') = 'last_over_time(' + series + '[' + duration.range(c, 300) + ']' + offset + ')';

  local mean(side, by) = '(' + side('seconds') + ' / ' + on + ' ' + side(by) + ')';
  // Relative variance of an iteration.
  local variance(side) = text.fill('clamp_min(%(squares)s * %(on)s %(count)s / %(on)s %(seconds)s ^ 2 - 1, 0)', {
    on: on,
    squares: side('squares'),
    count: side('count'),
    seconds: side('seconds'),
  });
  // At a split the evaluation's own moment is @ end(); the interval in which the change falls belongs to neither side.
  local ofSplit(window) = {
    local R(total) = '(' + clean(total) + ' @ end() - ' + clean(total) + ' offset -' + duration.of(window.step) + ')',
    local L(total) = '(' + clean(total) + ' - ' + on + ' ' + left(total, window.seconds) + ' @ end())',
    local at = {
      on: on,
      nR: R('count'),
      nL: L('count'),
      vR: variance(R),
      vL: variance(L),
      byCount: mean(R, 'count') + ' / ' + on + ' ' + mean(L, 'count'),
      byWork: mean(R, 'work') + ' / ' + on + ' ' + mean(L, 'work'),
      start: start('timestamp'),
      found: found,
      errors: errors,
      limit: limit,
      least: least,
    },
    mean(by):: mean(L, by),
    ratio: text.fill(|||
      %(byCount)s > %(found)s
      and %(on)s %(byWork)s > %(found)s
      and %(on)s %(nR)s >= %(least)s
      and %(on)s %(nL)s >= %(least)s
      and %(on)s (
        %(byCount)s - 1 > %(on)s %(errors)s * sqrt(((%(vR)s > %(on)s %(vL)s or %(on)s %(vL)s) < %(limit)s) * %(on)s (1 / %(nR)s + %(on)s 1 / %(nL)s))
      )
      and %(on)s time() >= %(start)s @ end()
    |||, at),
  };
  local over(expr, window) = 'max_over_time((\n' + expr + '\n)[' + duration.range(c, window.seconds) + ':' + duration.of(window.step) + '])';

  local last(total, seconds) = '(' + clean(total) + ' - ' + clean(total) + ' offset ' + duration.of(seconds) + ')';
  local lastOf(seconds) = function(total) last(total, seconds);
  local enough(seconds) = text.fill('%(on)s (%(n)s >= %(least)s) and %(on)s (%(start)s <= time() - %(seconds)s)', {
    on: on,
    n: last('count', seconds),
    least: least,
    start: start('timestamp'),
    seconds: seconds,
  });
  // Of one of the two measures.
  local one(name, by) = name + '{per="' + by + '"}';

  {
    canonical: [
      {
        about:: 'The lowest live rank of a job, which speaks for it: all make the same steps.',
        record: 'job:argus_canonical_rank:number',
        expr: text.fill(|||
          max by (%(rank)s) (%(number)s) == on (%(job)s) group_left () min by (%(job)s) (
            max by (%(rank)s) (%(number)s) and on (%(rank)s) max by (%(rank)s) (%(up)s) == 1
          )
        |||, { rank: l.rank, job: l.job, number: l.raw('argus_rank_number'), up: l.raw('argus_rank_up') }),
      },
    ] + [
      {
        about:: 'Totals of the iterations of that rank, read once they are surely stored: %s.' % total,
        record: 'job:argus_iteration_scan:total',
        labels: { total: total },
        // Work that nobody counts is one unit an iteration.
        expr: text.fill('max by (%(rank)s) (%(part)s offset %(settle)s) and on (%(rank)s) job:argus_canonical_rank:number', {
          rank: l.rank,
          part: parts[total],
          settle: duration.of(c.settle),
        }) + (if total == 'work' then '\nor ' + on + ' label_replace(' + scan('count') + ', "total", "work", "", "")' else ''),
      }
      for total in totals
    ] + [
      {
        about:: 'The same without the intervals in which an iteration was far longer than another: a pause, or a change.',
        record: 'job:argus_iteration_clean:total',
        labels: { total: total },
        memory:: true,
        expr: text.fill(|||
          %(last)s + (
            %(scan)s - %(scan)s offset %(interval)s >= 0
            unless on (%(rank)s) max by (%(rank)s) (%(longest)s offset %(settle)s) / max by (%(rank)s) (%(shortest)s offset %(settle)s) > %(jitter)s
          )
          or %(last)s and %(on)s %(scan)s
          or 0 * %(scan)s
        |||, {
          last: remembered(clean(total)),
          on: on,
          scan: scan(total),
          interval: duration.of(c.interval),
          rank: l.rank,
          longest: l.raw('argus_iteration_window_max_seconds'),
          shortest: l.raw('argus_iteration_window_min_seconds'),
          settle: duration.of(c.settle),
          jitter: jitter,
        }),
      }
      for total in totals
    ] + [
      {
        about:: 'The same when the job had made its first iterations after its last start, and when that was.',
        record: 'job:argus_iteration_start:total',
        labels: { total: total },
        memory:: true,
        expr: text.fill(|||
          %(last)s and %(on)s %(before)s unless %(on)s %(started)s
          or %(on)s %(now)s and %(on)s %(count)s >= %(least)s
        |||, {
          last: remembered(start(total)),
          before: remembered(clean('count'), ' offset ' + duration.of(c.interval)),
          on: on,
          started: started,
          now: if total == 'timestamp' then '(0 * ' + scan('count') + ' + time())' else clean(total),
          count: scan('count'),
          least: least,
        }),
      }
      for total in totals + ['timestamp']
    ],
    scan: [
      {
        about:: 'Where the left side of a window begins: with the window, or with the job.',
        record: 'job:argus_iteration_left:total',
        labels: { total: total, window: duration.of(window.seconds) },
        expr: clean(total) + ' offset ' + duration.of(window.seconds) + ' and ' + on + ' ' + start('timestamp')
              + ' <= time() - %d' % window.seconds + '\nor ' + start(total),
      }
      for window in windows
      for total in totals
    ] + [
      {
        about:: 'The largest ratio of the mean iterations on either side of a split that the noise does not explain.',
        record: split,
        labels: { window: duration.of(window.seconds) },
        expr: over(ofSplit(window).ratio, window),
      }
      for window in windows
    ] + [
      {
        about:: 'Seconds of an iteration, and of a unit of work, before that split.',
        record: before,
        labels: { window: duration.of(window.seconds), per: by },
        expr: over(text.fill('%(mean)s and %(on)s (\n%(ratio)s) >= %(on)s (%(split)s{window="%(window)s"} @ end() * (1 - 1e-9))', {
          mean: ofSplit(window).mean(by),
          on: on,
          ratio: ofSplit(window).ratio,
          split: split,
          window: duration.of(window.seconds),
        }), window),
      }
      for window in windows
      for by in per
    ],
    held: [
      {
        about:: 'Seconds of an iteration, or of a unit of work, in the shortest of the last windows that holds enough.',
        record: recent,
        labels: { per: by },
        expr: std.join('\nor %s ' % on, [mean(lastOf(seconds), by) + ' and ' + enough(seconds) for seconds in recents]),
      }
      for by in per
    ] + std.flattenArrays([
      [
        {
          about:: 'The same while the job was healthy: held from before, or just found.',
          record: suspected,
          labels: { per: by },
          memory:: true,
          expr: text.fill(|||
            %(last)s and %(on)s %(start)s unless %(on)s %(started)s
            or %(on)s min by (%(rank)s) (%(before)s)
            and %(on)s (%(recent)s / %(on)s min by (%(rank)s) (%(before)s) >= %(found)s)
          |||, { last: remembered(one(healthy, by)), start: start('count'), on: on, started: started, rank: l.rank, before: one(before, by), recent: one(recent, by), found: found }),
        },
        {
          about:: 'The same, held until the job has surely recovered.',
          record: healthy,
          labels: { per: by },
          expr: one(suspected, by) + ' unless ' + on + ' (\n(' + one(recent, by) + ' / ' + on + ' ' + one(suspected, by)
                + ' < %g)\nand %s (\n' % [recovered, on]
                + std.join('\nor ', [
                  text.fill('(%(mean)s / %(on)s %(suspected)s < %(on)s %(recovered)s - %(certain)s * sqrt(%(variance)s / %(on)s %(n)s)) and %(enough)s', {
                    mean: mean(lastOf(seconds), by),
                    on: on,
                    suspected: one(suspected, by),
                    recovered: recovered,
                    certain: certain,
                    variance: variance(lastOf(seconds)),
                    n: last('count', seconds),
                    enough: enough(seconds),
                  })
                  for seconds in recents
                ]) + '\n))',
        },
      ]
      for by in per
    ]) + [
      {
        about:: 'How many times longer than while it was healthy a job needs, for an iteration and for its work.',
        record: 'job:argus_iteration:regression_ratio',
        expr: text.fill('min by (%(rank)s) (%(recent)s / on (%(rank)s, per) %(healthy)s) >= 1 and on (%(rank)s) (count by (%(rank)s) (%(healthy)s) == 2)', {
          rank: l.rank,
          recent: recent,
          healthy: healthy,
        }),
      },
      {
        // A step waits for the rank that has most to do, and how much that is comes by chance.
        about:: 'A job that needs longer than it did, by more than its work is uneven.',
        record: 'rank:argus_evidence:lost_ratio',
        labels: { cause: 'regression', detector: 'scan' },
        expr: text.fill(|||
          1 - 1 / max by (%(job)s) (%(ratio)s) >= %(least)s
          unless on (%(job)s) (
            max by (%(job)s) (%(ratio)s) - 1 < on (%(job)s) 2 * max_over_time(job:argus_work:uneven[%(window)s])
          )
        |||, {
          job: l.job,
          ratio: 'job:argus_iteration:regression_ratio',
          least: c.evidenceRatio,
          window: duration.range(c, windows[0].seconds),
        }),
      },
    ],
  }
