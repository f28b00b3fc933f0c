// The label sets by which series are aggregated and joined. No rule keeps `job`, `instance` or `pod`.
{
  rank: 'training_job, rank',
  phaseRank: 'training_job, rank, phase, kind, group, source',
  phaseGroup: 'training_job, phase, kind, group, source',
  verdict: 'training_job, rank, phase, group',

  // selector('m', ['a="b"', '']) -> m{a="b"}; without matchers just m.
  selector(metric, matchers)::
    local present = std.filter(function(m) m != '', matchers);
    if std.length(present) == 0 then metric else metric + '{' + std.join(', ', present) + '}',
}
