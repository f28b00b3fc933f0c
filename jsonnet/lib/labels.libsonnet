// Every list of labels of every rule is made here, from `jobLabels`.
function(config) {
  local list(names) = std.join(', ', config.jobLabels + names),
  job: list([]),
  rank: list(['rank']),
  // A phase of a rank; of all ranks that are compared with each other; what one piece of evidence is about.
  phaseRank: list(['rank', 'phase', 'kind', 'group', 'source']),
  phaseGroup: list(['phase', 'kind', 'group', 'source']),
  phase: list(['phase', 'kind', 'source']),
  who: list(['rank', 'phase', 'group', 'set']),
  group: list(['phase', 'group']),
  finding: list(['rank', 'set', 'group', 'cause']),
  list: list,
  // Of all runs of one model: all that makes a job one job, but its name.
  ofRuns(names):: std.join(', ', [name for name in config.jobLabels if name != 'training_job'] + names),

  // selector('m', ['a="b"', '']) -> m{a="b"}, with the site's own matchers.
  raw(metric, matchers=[]):: $.selector(metric, [config.argusSelector] + matchers),
  selector(metric, matchers)::
    local present = [m for m in matchers if m != ''];
    if present == [] then metric else metric + '{' + std.join(', ', present) + '}',
}
