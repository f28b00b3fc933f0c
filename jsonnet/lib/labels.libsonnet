// What many rules are made of: every list of labels, from `jobLabels`, and the windows by how often a job steps.
function(config) {
  local list(names) = std.join(', ', config.jobLabels + names),
  job: list([]),
  rank: list(['rank']),
  // A phase of a rank; of all ranks that are compared with each other; what one piece of evidence is about.
  phaseRank: list(['rank', 'phase', 'kind', 'group', 'source']),
  phaseGroup: list(['phase', 'kind', 'group', 'source']),
  phase: list(['phase', 'kind', 'source']),
  // view: what an instrument of its own saw of the same seconds, or a group beside others, so that nothing counts twice.
  who: list(['rank', 'phase', 'group', 'set', 'view']),
  group: list(['phase', 'group']),
  finding: list(['rank', 'set', 'group', 'cause']),
  list: list,
  // All that makes a job one job, but its name: of all runs of one model, or of what watches all jobs.
  ofRuns(names):: std.join(', ', [name for name in config.jobLabels if name != 'training_job'] + names),

  // selector('m', ['a="b"', '']) -> m{a="b"}, with the site's own matchers.
  raw(metric, matchers=[]):: $.selector(metric, [config.argusSelector] + matchers),
  selector(metric, matchers)::
    local present = [m for m in matchers if m != ''];
    if present == [] then metric else metric + '{' + std.join(', ', present) + '}',

  // As often as this a second something must be counted for a mean over the short window.
  often: '%.4g' % (config.minSpans / config.window),
}
