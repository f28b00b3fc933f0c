// The full change-point scan (ARGUS appendix B) as one expression over prefix sums.
//
// S, N and Q are running totals of durations, iterations and squared durations, so the mean and the variance on
// either side of any split are differences of two samples; `@ end()` pins both ends of the window while the
// subquery walks the splits. Equal to numpy to 1e-9 (docs/evidence/iterations.md).
//
// The error of the difference is that of the pooled variance, (nR vR + nL vL) / (nR + nL) * (1/nR + 1/nL), which is
// vR / nL + vL / nR: eight iterations that look calmer than they are count by the variance of the many others.
//
// W is the running total of work, in any units, where the job reports it: a split at which the work grew as the time did
// is a change that somebody made (a larger batch, longer sequences).
local duration = import 'duration.libsonnet';

{
  // S, N, Q, W: names of recorded series. window: seconds.
  new(config, window, S, N, Q, W):: {
    local end(x) = '%s @ end()' % x,
    local start(x) = '%s @ end() offset %s' % [x, duration.of(window)],
    // From a scrape interval after the split: the interval that holds the change belongs to neither side. A side that held a
    // part of the other regime would fail its limit, the sooner the larger the change.
    local right(x) = '(%s - %s offset -%s)' % [end(x), x, duration.of(config.scrapeInterval)],
    local left(x) = '(%s - %s)' % [x, start(x)],
    local mean(side) = '(%s / %s)' % [side(S), side(N)],
    // Variance over squared mean. Cancellation may leave it a hair below zero.
    local relativeVariance(side) = 'clamp_min(%s / %s / %s ^ 2 - 1, 0)' % [side(Q), side(N), mean(side)],
    local subquery = '[%s:%s]' % [duration.range(config, window), duration.of(config.scrapeInterval)],

    local splits = |||
      %(muR)s / %(muL)s > %(ratio)g
      and %(nR)s >= %(minimum)d
      and %(nL)s >= %(minimum)d
      and %(vR)s < %(limit)g
      and %(vL)s < %(limit)g
      and %(muR)s / %(muL)s - 1 > %(errors)g * sqrt(%(vR)s / %(nL)s + %(vL)s / %(nR)s)
    ||| % {
      muR: mean(right),
      muL: mean(left),
      nR: right(N),
      nL: left(N),
      vR: relativeVariance(right),
      vL: relativeVariance(left),
      ratio: config.regressionRatio,
      minimum: config.regressionMinIterations,
      limit: config.regressionRelativeStddev * config.regressionRelativeStddev,
      errors: config.regressionMinErrors,
    } + $.unlessWork(config, [right(W), left(W)], [right(S), left(S)]),
    local guard = $.guard(config, window, N),

    // Nothing to record beside the ratio and its split.
    sides:: [],
    // The largest valid mu_R / mu_L.
    ratio:: 'max_over_time((\n%s)%s)\n%s' % [splits, subquery, guard],
    // Unix time of the split with that ratio; `best` is the series that recorded it.
    split(best):: |||
      max_over_time((
        time() + 0 * ((
      %(splits)s) >= on (training_job, rank) (%(best)s @ end() * (1 - 1e-9)))
      )%(at)s)
    ||| % { splits: splits, best: best, at: subquery },
  },
  // The same at a few fixed splits, for engines that disagree about `@ end()` under an offset in a subquery
  // (VictoriaMetrics): plain differences of samples, no state. What lies between two neighbours belongs to neither side, so
  // a change of any size is between some two of them at any moment. Finds a shift once it has lasted as long as the shortest
  // right side, and its time as the split after it.
  static(config, window, S, N, Q, W):: {
    local at(x, age) = if age == 0 then x else '%s offset %s' % [x, duration.of(age)],
    local side(x, from, to) = '(%s - %s)' % [at(x, to), at(x, from)],
    local splitBetween(before, after) =
      local right(x) = side(x, after, 0);
      local left(x) = side(x, window, before);
      local mean(of) = '(%s / %s)' % [of(S), of(N)];
      local relativeVariance(of) = 'clamp_min(%s / %s / %s ^ 2 - 1, 0)' % [of(Q), of(N), mean(of)];
      |||
        %(muR)s / %(muL)s > %(ratio)g
        and %(nR)s >= %(minimum)d
        and %(nL)s >= %(minimum)d
        and %(vR)s < %(limit)g
        and %(vL)s < %(limit)g
        and %(muR)s / %(muL)s - 1 > %(errors)g * sqrt(%(vR)s / %(nL)s + %(vL)s / %(nR)s)
      ||| % {
        muR: mean(right),
        muL: mean(left),
        nR: right(N),
        nL: left(N),
        vR: relativeVariance(right),
        vL: relativeVariance(left),
        ratio: config.regressionRatio,
        minimum: config.regressionMinIterations,
        limit: config.regressionRelativeStddev * config.regressionRelativeStddev,
        errors: config.regressionMinErrors,
      } + $.unlessWork(config, [right(W), left(W)], [right(S), left(S)]),
    local ages = [std.floor(window * share / config.scrapeInterval + 0.5) * config.scrapeInterval for share in config.staticSplits],
    local recorded(matchers) = 'job:argus_iteration:split_ratio{%s}' % std.join(', ', ['window="%s"' % duration.of(window)] + matchers),

    // One record a split: in one expression they are longer than the 16 KiB that VictoriaMetrics takes.
    sides:: [
      { age: ages[nth], expr: '%s%s' % [splitBetween(ages[nth + 1], ages[nth]), $.guard(config, window, N)] }
      for nth in std.range(0, std.length(ages) - 2)
    ],
    ratio:: 'max by (training_job, rank) (%s)' % recorded([]),
    split(best):: 'max by (training_job, rank) (\n%s\n)' % std.join('\nor ', [
      'time() - %d + 0 * (%s >= on (training_job, rank) (%s * (1 - 1e-9)))'
      % [age, recorded(['split="%d"' % age]), best]
      for age in ages[:std.length(ages) - 1]
    ]),
  },
  // Later and earlier totals: both grew by the same ratio with the number of iterations, which therefore cancels.
  unlessWork(config, work, seconds):: |||
    unless on (training_job, rank) (
      %(ratio)g * %(workR)s / (%(workL)s > 0)
      >= on (training_job, rank) group_left () (%(secondsR)s / %(secondsL)s)
    )
  ||| % {
    ratio: config.regressionRatio,
    workR: work[0],
    workL: work[1],
    secondsR: seconds[0],
    secondsL: seconds[1],
  },
  // A restart inside the window, or since the total that it begins with, makes a difference of two totals meaningless
  // (1.56 for a true 1.25).
  guard(config, window, N)::
    'unless resets(%s[%s]) > 0' % [N, duration.range(config, window + config.scrapeInterval)],
}
