// The job's series: those of the lowest live rank, which is one of `canonicalRanks`, else the lowest of all.
//
// It keeps its rank label, so that a change of rank starts a new series and every scan abstains until its window is
// filled again.
local duration = import 'duration.libsonnet';
local labels = import 'labels.libsonnet';

{
  // metric: of every rank. age: seconds at which it is read. by: labels that its series have beside the base labels.
  of(config, metric, age=0, by=[])::
    local c = config;
    local series(name, matchers=[]) = labels.selector(name, [c.argusSelector] + matchers);
    local at = if age > 0 then ' offset ' + duration.of(age) else '';
    local kept = std.join(', ', ['training_job', 'rank'] + by);
    std.join('\nor on (training_job)\n', [
      |||
        max by (%(kept)s) (
          %(metric)s unless on (training_job, rank, instance) (%(up)s == 0)
        )
      ||| % {
        kept: kept,
        metric: series(metric, ['rank="%s"' % rank]) + at,
        up: series('argus_rank_up', ['rank="%s"' % rank]),
      }
      for rank in c.canonicalRanks
    ] + [
      'max by (%s) (\n  %s and on (training_job, rank) job:argus_canonical_rank:number\n)\n'
      % [kept, series(metric) + at],
    ]),
}
