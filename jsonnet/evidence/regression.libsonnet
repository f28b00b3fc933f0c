// L1: has the job become slower? Found once, and held until the job recovers, starts anew or its work has changed.
//
// The job's series is that of its lowest live rank. A change point (paper, appendix B) is looked for among some moments of
// two windows: what came after is slower than what came before, by more than the noise of the two means explains. What the
// job then needs is compared with what it needed before the change; that is held, so a baseline never follows the fault.
// Both by iteration and by work: a job that is given more to do is not slower.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local K = l.rank;
  local on = 'on (%s)' % K;
  // Smallest ratio of after to before, and that below which the job has recovered, held for so many seconds; standard
  // errors that a change must be clear of; relative variance of what came after, beyond which it is no steady state;
  // iterations that make a side; max/min of the last minute beyond which an interval counts on no side: it holds a pause,
  // or the change itself.
  local found = 1.035;
  local recovered = 1.018;
  local holds = 600 * c.second;
  local errors = 5;
  local limit = 0.01;
  local least = 8;
  local jitter = 1.5;
  // How long ago the change may have been; the shortest of the recent ones with enough iterations tells what the job needs now.
  local seconds(numbers) = [number * c.second for number in numbers];
  local agos = seconds([30, 60, 90, 120, 180, 300, 450, 600, 900, 1800, 2700, 3600]);
  local recents = seconds([120, 300, 600, 1800]);
  local windows = seconds([600, 3600]);
  local parts = {
    seconds: l.raw('argus_iteration_duration_seconds_sum'),
    count: l.raw('argus_iteration_duration_seconds_count'),
    squares: l.raw('argus_iteration_duration_seconds_squared_total'),
    work: l.raw('argus_work_units_total'),
  };
  local scan = 'job:argus_iteration_scan:total';
  local clean = 'job:argus_iteration_clean:total';
  local start = 'job:argus_iteration_start:total';
  local after = 'job:argus_iteration_after:total';
  local before = 'job:argus_iteration_before:total';
  local window = 'job:argus_iteration_window:total';
  local change = 'job:argus_iteration_change:before_seconds';
  local recent = 'job:argus_iteration_recent:seconds';
  local healthy = 'job:argus_iteration_healthy:seconds';
  local ratio = 'job:argus_iteration:regression_ratio';
  local of(series, matchers) = series + '{' + std.join(', ', ['%s="%s"' % [key, matchers[key]] for key in std.objectFields(matchers)]) + '}';
  local count(series) = of(series, { total: 'count' });
  local measures = '{total=~"count|work"}';
  // What a rule has said last, also after some evaluations without a scrape.
  local last(series) = 'last_over_time(' + series + '[' + duration.range(c, 300 * c.second) + '])';

  local totals = [
    {
      about:: 'The lowest live rank of a job, which speaks for it: all make the same steps.',
      record: 'job:argus_canonical_rank:number',
      expr: 'max by (%s) (bottomk by (%s) (1, %s))' % [K, l.job, l.raw('argus_rank_lead_number')],
    },
  ] + [
    {
      about:: 'Totals of the iterations of that rank, read once they are surely stored: %s.' % total,
      record: scan,
      labels: { total: total },
      // Work that nobody counts is one unit an iteration.
      expr: text.fill('max by (%(rank)s) (%(part)s offset %(settle)s and on (%(rank)s) job:argus_canonical_rank:number)', {
        rank: K,
        part: parts[total],
        settle: duration.of(c.settle),
      }) + (if total == 'work' then '\nor ' + on + ' label_replace(' + count(scan) + ', "total", "work", "", "")' else ''),
    }
    for total in std.objectFields(parts)
  ] + [
    {
      about:: 'The same without the intervals in which an iteration was far longer than another: a pause, or a change.',
      record: clean,
      memory:: true,
      expr: text.fill(|||
        %(last)s + on (%(rank)s, total) (
          %(scan)s offset %(once)s - on (%(rank)s, total) %(scan)s offset %(twice)s >= 0
          unless on (%(rank)s) max by (%(rank)s) (%(longest)s offset %(before)s) / on (%(rank)s) max by (%(rank)s) (%(shortest)s offset %(before)s) > %(jitter)s
        )
        or on (%(rank)s, total) (%(last)s and on (%(rank)s) %(scan)s)
        or on (%(rank)s, total) (0 * %(scan)s offset %(once)s and on (%(rank)s) count by (%(rank)s) (%(scan)s offset %(once)s) == %(totals)s)
      |||, {
        // All of them at once, as an engine that is late has not seen all of them at first: else one is ahead for ever.
        totals: std.length(parts),
        last: last(clean),
        scan: scan,
        // The last two evaluations, without this one: those that an engine has which sees records an evaluation late.
        once: duration.of(c.interval),
        twice: duration.of(2 * c.interval),
        rank: K,
        longest: l.raw('argus_iteration_window_max_seconds'),
        shortest: l.raw('argus_iteration_window_min_seconds'),
        before: duration.of(c.settle + c.interval),
        jitter: jitter,
      }),
    },
    {
      about:: 'The same when the job had made its first iterations after its last start; and when that was, Unix time.',
      record: start,
      memory:: true,
      expr: text.fill(|||
        (%(now)s and %(on)s (min_over_time(%(count)s[%(twice)s]) < %(least)s or %(anew)s))
        or on (%(rank)s, total) (%(last)s and %(on)s %(count)s)
        or on (%(rank)s, total) %(now)s
      |||, {
        // Each total of its own: an engine that is late has not seen all of them at first.
        last: last(start),
        rank: K,
        on: on,
        count: count(scan),
        twice: duration.range(c, 2 * c.interval),
        // Fewer iterations than were counted last, also minutes before, as between two runs nothing is. Seen by two evaluations,
        // lest one is missed.
        anew: text.fill('%(count)s < %(on)s last_over_time(%(count)s[%(minutes)s] offset %(twice)s)', {
          count: count(scan),
          on: on,
          minutes: duration.range(c, 300 * c.second),
          twice: duration.of(2 * c.interval),
        }),
        least: least,
        now: text.fill('(%(clean)s or label_replace(0 * %(count)s + time(), "total", "timestamp", "", ""))', { clean: clean, count: count(scan) }),
      }),
    },
  ] + [
    {
      about:: 'Of them, what came in the last %s; nothing while the job is younger.' % duration.of(ago),
      record: after,
      labels: { ago: duration.of(ago) },
      expr: text.fill('%(clean)s - on (%(rank)s, total) %(clean)s offset %(ago)s and %(on)s %(start)s <= time() - %(seconds)s', {
        clean: clean,
        rank: K,
        ago: duration.of(ago),
        on: on,
        start: of(start, { total: 'timestamp' }),
        seconds: ago,
      }),
    }
    for ago in agos
  ];

  local at = {
    rank: K,
    on: on,
    split: 'on (%s)' % l.list(['rank', 'ago', 'window']),
    // From what came after, which is the same in both windows.
    after: 'on (%s) group_left ()' % l.list(['rank', 'ago']),
    measures: measures,
    before: before,
    bs: of(before, { total: 'seconds' }),
    bn: count(before),
    bq: of(before, { total: 'squares' }),
    as: of(after, { total: 'seconds' }),
    an: count(after),
    aq: of(after, { total: 'squares' }),
    recent: recent,
    change: change,
    healthy: healthy,
    found: found,
    recovered: recovered,
    least: least,
    limit: 1 + limit,
    errors: errors * errors,
  };
  local split = [
    {
      about:: 'Of them, what came before that in a window of %s, or since the job began.' % duration.of(seconds),
      record: before,
      labels: { window: duration.of(seconds) },
      expr: text.fill('(%(whole)s or on (%(rank)s) (%(clean)s - on (%(rank)s, total) %(start)s)) - on (%(rank)s, total) group_right () %(after)s', {
        whole: of(after, { ago: duration.of(seconds) }),
        rank: K,
        clean: clean,
        start: start,
        after: after,
      }),
    }
    for seconds in windows
  ] + [
    {
      about:: 'Seconds of an iteration, and of a unit of work, before a change that is clear of the noise by %d standard errors.' % errors,
      record: change,
      // The two means differ by more than their standard error allows, which is pooled over both sides (a t test).
      expr: text.fill(|||
        min by (%(rank)s, total) (
          %(bs)s / %(split)s group_right () (%(before)s%(measures)s > 0)
          and %(split)s (
            %(bs)s / %(split)s %(bn)s
            - %(after)s (%(as)s / %(after_on)s %(an)s)
          ) ^ 2 > %(split)s (
            %(errors)s * (
              %(bq)s - %(split)s %(bs)s ^ 2 / %(split)s %(bn)s
              + %(after)s (%(aq)s - %(after_on)s %(as)s ^ 2 / %(after_on)s %(an)s)
            ) * %(split)s (1 / %(bn)s + %(after)s 1 / %(an)s)
            / %(split)s (%(bn)s + %(after)s %(an)s - 2)
          )
          and %(split)s %(bn)s >= %(least)s
          and %(after_on)s %(an)s >= %(least)s
          and %(after_on)s %(aq)s * %(after_on)s %(an)s / %(after_on)s %(as)s ^ 2 < %(limit)s
          unless %(split)s (
            %(bs)s / %(split)s group_right () (%(before)s%(measures)s > 0) * %(found)s
            > on (%(rank)s, ago, total) group_left () (%(as)s / %(after_on)s group_right () (%(after_name)s%(measures)s > 0))
          )
        )
      |||, at { after_on: 'on (%s)' % l.list(['rank', 'ago']), after_name: after }),
    },
    {
      about:: 'The same of the shortest of the last %s that holds enough iterations: what the job needs now.' % std.join(', ', [duration.of(seconds) for seconds in recents]),
      record: recent,
      expr: 'max by (%s, total) (\n' % K + std.join('\nor %s ' % on, [
        text.fill('(%(seconds)s / %(on)s group_right () (%(units)s > 0) and %(on)s %(count)s >= %(least)s)', {
          on: on,
          seconds: of(after, { total: 'seconds', ago: duration.of(ago) }),
          units: after + '{total=~"count|work", ago="%s"}' % duration.of(ago),
          count: of(after, { total: 'count', ago: duration.of(ago) }),
          least: least,
        })
        for ago in recents
      ]) + '\n)',
    },
    {
      about:: 'The same before the job became slower: held until it has needed no more for %s, or starts anew.' % duration.of(holds),
      record: healthy,
      memory:: true,
      expr: text.fill(|||
        (
          %(last)s and %(on)s %(start)s
          unless %(on)s %(anew)s
          unless %(on)s max_over_time(%(recent)s[%(holds)s]) / on (%(rank)s, total) %(last)s < %(recovered)s
        )
        or %(on)s (
          %(change)s and %(on)s min by (%(rank)s) (%(recent)s / on (%(rank)s, total) %(change)s) >= %(found)s
        )
        or (Inf * %(last)s and %(on)s %(anew)s)
      |||, at {
        last: last(healthy),
        start: count(start),
        // What was held is overwritten, lest it is looked up again once the start is out of sight.
        anew: text.fill('%(start)s > time() - %(seconds)s', { start: of(start, { total: 'timestamp' }), seconds: 3 * c.interval }),
        holds: duration.range(c, holds),
      }),
    },
    {
      about:: 'How many times longer than while it was healthy a job needs, for an iteration and for its work.',
      record: ratio,
      expr: text.fill('min by (%(rank)s) (%(recent)s / on (%(rank)s, total) %(healthy)s) >= 1', at),
    },
    {
      // A step waits for the rank that has most to do, and how much that is comes by chance.
      about:: 'A job that needs longer than it did, by more than its work is uneven.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'regression', detector: 'change' },
      expr: text.fill(|||
        1 - 1 / max by (%(job)s) (%(ratio)s) >= %(least)s
        unless on (%(job)s) (
          max by (%(job)s) (%(ratio)s) - 1 < on (%(job)s) 2 * max_over_time(job:argus_work:uneven[%(window)s])
        )
      |||, { job: l.job, ratio: ratio, least: c.evidenceRatio, window: duration.range(c, windows[0]) }),
    },
  ];

  totals + split
