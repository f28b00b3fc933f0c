// What is known about a job as a whole: its size, its activity, and the iteration counters of its lowest live rank.
local job = import '../lib/canonical.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local series(metric, matchers=[]) = labels.selector(metric, [c.argusSelector] + matchers),

  local canonical(metric, age=0) = job.of(c, metric, age),

  // PromQL has no numbers from label values: the number of a rank is the sum of its digits, each found by a matcher.
  // Only for jobs of whose first ranks none lives, so normally over nothing.
  local fallback = 'rank:argus_rank_live:fallback',
  local digit(place) = std.join(' or ', [
    // Joined, as C++ jsonnet takes a millisecond for a format.
    fallback + '{rank=~".*' + value + '.{' + place + '}"} * 0 + ' + value * std.pow(10, place)
    for value in std.range(1, 9)
  ] + [fallback + ' * 0']),
  local lowestRank = [
    {
      record: fallback,
      about:: 'Live ranks of jobs none of whose first ranks lives: only there the lowest rank is looked for by its number.',
      expr: text.fill(|||
        max by (training_job, rank) (
          %(up)s == 1 unless on (training_job) (%(first)s == 1)
        )
      |||, {
        up: series('argus_rank_up'),
        first: series('argus_rank_up', ['rank=~"%s"' % std.join('|', c.canonicalRanks)]),
      }),
    },
    {
      record: 'rank:argus_rank:number',
      about:: 'The number of a rank, digit by digit, as PromQL makes no number of a label.',
      expr: std.join('\n+ ', ['(%s)' % digit(place) for place in std.range(0, c.rankDigits - 1)]),
    },
    {
      record: 'job:argus_canonical_rank:number',
      about:: 'The lowest live rank of a job none of whose first ranks lives: its counters then stand for the job.',
      expr: 'rank:argus_rank:number == on (training_job) group_left () min by (training_job) (rank:argus_rank:number)',
    },
  ],

  prometheusRules+:: {
    groups+: [
      {
        name: 'argus-job',
        interval: duration.of(c.evaluationInterval),
        rules: lowestRank + [
          {
            record: 'job:argus_ranks:count',
            about:: 'Live ranks of the job: what shares of its ranks are taken of, and whether it runs at all.',
            expr: 'count by (training_job) (max by (training_job, rank) (%s) == 1)' % series('argus_rank_up'),
          },
          {
            record: 'rank:argus_rank:lost',
            about:: 'Ranks whose process died, or whose exporter lost them; the value is 0.',
            expr: 'max by (training_job, rank) (%s) == 0' % series('argus_rank_up'),
          },
          {
            record: 'rank:argus_rank:left',
            about:: 'Ranks that said something within the shortest mean and no longer do: their rates go on for as long as its window.',
            expr: text.fill(|||
              max by (training_job, rank) (last_over_time(%(up)s[%(window)s]))
              unless on (training_job, rank) %(up)s
            |||, { up: series('argus_rank_up'), window: duration.range(c, c.meanWindows[0]) }),
          },
          {
            record: 'job:argus_other_activity:timestamp_seconds',
            about:: 'When a rank was last seen doing anything but training: a checkpoint or an evaluation makes nobody slow.',
            expr: 'max by (training_job) (timestamp(%s))' % series('argus_activity', ['activity!="train"']),
          },
          {
            record: 'job:argus_train:seconds',
            about:: 'Seconds since a rank was last seen doing anything but training; no series if none in the longest window, or where no activity is published.',
            expr: 'time() - max_over_time(job:argus_other_activity:timestamp_seconds[%s])'
                  % duration.range(c, c.meanWindows[std.length(c.meanWindows) - 1]),
          },
          {
            record: 'job:argus_iteration_duration_seconds:sum',
            about:: "Total time of the iterations of the job's lowest live rank, read a little late, when the scrape of all its counters is there.",
            expr: canonical('argus_iteration_duration_seconds_sum', c.settle),
          },
          {
            record: 'job:argus_iteration_duration_seconds:count',
            about:: "Iterations of the job's lowest live rank, read as late as their time.",
            expr: canonical('argus_iteration_duration_seconds_count', c.settle),
          },
          {
            record: 'job:argus_iteration_seconds:window_min',
            about:: "Shortest iteration of the exporter's trailing window, on the job's lowest live rank.",
            expr: canonical('argus_iteration_window_min_seconds'),
          },
          {
            record: 'job:argus_iteration_seconds:window_max',
            about:: "Longest iteration of the exporter's trailing window: far above the shortest is jitter, which no mean shows.",
            expr: canonical('argus_iteration_window_max_seconds'),
          },
        ],
      },
      {
        // They change when a job is resized, and there are several of each rank.
        name: 'argus-job-groups',
        interval: duration.of(c.slowInterval),
        rules: [
          {
            record: 'group:argus_ranks:expected',
            about:: 'Ranks that a group has by its topology, whether they report or not: the whole that coverage is a share of.',
            expr: 'max by (training_job, group) (%s)' % series('argus_group_expected_ranks'),
          },
          {
            record: 'group:argus_ranks:reporting',
            about:: 'Ranks of a group whose exporter speaks for them, lost or not.',
            expr: 'count by (training_job, group) (max by (training_job, group, rank) (%s))'
                  % series('argus_group_expected_ranks'),
          },
        ],
      },
    ],
  },
}
