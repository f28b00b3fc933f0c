// From verdicts to findings, what they cost, and how serious each is: one recorded decision with memory of its own.
// Alerts and dashboards read it and decide nothing.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local verdict = 'rank:argus_verdict:lost_ratio';
local finding = 'rank:argus_finding:lost_ratio';
local decision = 'rank:argus_decision:lost_ratio';
local kept = 'cause, team, level, most';

function(c, l, rows)
  local d = c.decision;
  local name(row) = if 'cause' in row then row.cause else row.id;
  local range(seconds) = '[' + duration.range(c, seconds) + ']';
  local ofRank(matchers) = text.fill(
    'max by (%(rank)s, %(kept)s) (sum by (%(rank)s, view, %(kept)s) (' + verdict + '{rank!="", set="", %(matchers)s}))',
    { rank: l.rank, kept: kept, matchers: matchers }
  );
  local costs = [
    {
      about:: 'What a finding costs the job: the sum over the phases of a rank, which do not overlap; of two views of one collective the larger. Kernels run inside phases, so they count only for a rank whose phases say nothing; it is one finding, now of these and now of those.',
      record: finding,
      expr: text.fill(|||
        %(phases)s
        or on (%(rank)s, cause) label_replace(%(kernels)s, "level", "L2", "", "")
        or max by (%(sets)s, %(kept)s) (sum by (%(sets)s, rank, %(kept)s) (%(verdict)s{set!=""}))
        or max by (%(groups)s, %(kept)s) (sum by (%(groups)s, view, %(kept)s) (%(verdict)s{rank=""}))
      |||, {
        phases: ofRank('level!="L3"'),
        kernels: ofRank('level="L3"'),
        rank: l.rank,
        sets: l.list(['set']),
        groups: l.list(['group']),
        kept: kept,
        verdict: verdict,
      }),
    },
    {
      about:: 'Node and GPU of the ranks that are named, and of no others; of one that moved where it lives.',
      record: 'rank:argus_finding:place',
      expr: text.fill(|||
        topk by (%(rank)s) (1, max by (%(rank)s, node, gpu_uuid) (
          (
            %(info)s and on (%(rank)s, instance) %(up)s == 1
            or on (%(rank)s) last_over_time(%(info)s%(leave)s)
          )
          and on (%(rank)s) last_over_time(%(finding)s%(leave)s)
        ))
      |||, { rank: l.rank, info: l.raw('argus_rank_info'), up: l.raw('argus_rank_up'), leave: range(d.leave), finding: finding }),
    },
    {
      // A link, or a rank among stages of a pipeline, can cost more than what is measured of it.
      about:: 'Share of the wall time that the job loses: ranks that hold up the same step do so at the same time, so the largest, not the sum; at least what it has become slower by, and what far longer iterations cost.',
      record: 'job:argus_lost:ratio',
      expr: text.fill(|||
        max by (%(job)s) (
          sum by (%(job)s, rank, set, group) (%(finding)s{most!="info"})
          or rank:argus_evidence:lost_ratio{cause=~"regression|jitter"}
          or job:argus_stalled:seconds ^ 0
        )
      |||, { job: l.job, finding: finding }),
    },
    {
      about:: 'GPUs that produce nothing because of a cause.',
      record: 'job:argus_lost_gpus:current',
      expr: text.fill(|||
        clamp_max(max by (%(job)s, cause) (%(finding)s{most!="info"} or label_replace(job:argus_stalled:seconds ^ 0, "cause", "hang", "", "")), 1)
        * on (%(job)s) group_left () job:argus_ranks:count
      |||, { job: l.job, finding: finding }),
    },
  ];

  // A mean over the window tells little of what has just begun, so the average and not the least.
  local decide(name, matcher, enters='', also='', above=[]) = {
    local severity = c.severities[name],
    about:: '%s: where it costs %g now and on the average of %d seconds, in all of which it was found, until it was below %g for %d.' % [name, d[name].enter, d[name].lasting, d[name].exit, d.leave],
    memory:: true,
    record: decision,
    labels: { severity: severity },
    expr: text.fill(|||
      (
        last_over_time(%(finding)s%(matcher)s%(leave)s)
        and on (%(key)s) (
          %(finding)s%(matcher)s >= %(enter)s
          and avg_over_time(%(finding)s%(matcher)s%(lasting)s) >= %(enter)s
          and count_over_time(%(finding)s%(matcher)s%(lasting)s) >= %(evaluations)s%(enters)s
          or max_over_time(%(finding)s%(matcher)s%(leave)s) >= %(exit)s
          and on (%(key)s) %(decision)s{severity="%(severity)s"}
        )%(also)s
      )
      and on (%(job)s) job:argus_ranks:count%(above)s
    |||, {
      finding: finding,
      matcher: matcher,
      decision: decision,
      severity: severity,
      key: l.finding,
      job: l.job,
      leave: range(d.leave),
      lasting: range(d[name].lasting),
      enter: d[name].enter,
      exit: d[name].exit,
      evaluations: duration.evaluations(c, d[name].lasting),
      enters: enters,
      also: also,
      above: std.join('', ['\nunless on (%s) %s{severity="%s"}' % [l.finding, decision, c.severities[higher]] for higher in above]),
    }),
  };
  {
    rules: costs + [
      decide('page', '{most="page"}', enters=text.fill(|||

        and on (%(key)s) (%(finding)s >= on (%(job)s) group_left () %(costliest)s * max by (%(job)s) (%(finding)s{most="page"}))
      |||, { key: l.finding, job: l.job, finding: finding, costliest: c.costliest })),
      decide('ticket', '{most!="info"}', above=['page']),
      decide(
        'info',
        '{cause=~"%s"}' % std.join('|', [name(row) for row in rows if row.as == 'culprit' && row.info]),
        also=text.fill(|||

          or on (%(key)s) last_over_time(%(finding)s{level!="L1"}%(window)s)
          and on (%(rank)s) last_over_time(rank:argus_phase_fast:confirmed%(window)s)
        |||, { key: l.finding, rank: l.rank, finding: finding, window: range(c.window) }),
        above=['page', 'ticket']
      ) {
        about:: 'info: a finding that two scrape intervals in a row show by themselves, as a single pause is in one; and what is told as such once it has lasted.',
      },
      {
        about:: 'Who is to blame, as others read it: 1.',
        record: 'rank:argus_verdict:active',
        labels: { verdict: 'culprit' },
        expr: 'max by (' + l.finding + ', team, level) (' + finding + '{most!="info"} ^ 0)',
      },
      {
        about:: 'Who only waits for another rank: what it seems to lose is what that one costs. 1.',
        record: 'rank:argus_verdict:active',
        labels: { verdict: 'victim', cause: 'waiting', team: 'none', level: 'L2' },
        expr: text.fill(|||
          (
            max by (%(rank)s) (rank:argus_exclusion:lost_ratio{rank!="", by_rank!=""} ^ 0)
            or max by (%(rank)s) (rank:argus_stall_open:timestamp_seconds ^ 0 and on (%(job)s) rank:argus_stall_suspect:bool{stage="named"})
          )
          unless on (%(rank)s) label_replace(
            max by (%(job)s, by_rank) (rank:argus_exclusion:lost_ratio{by_rank!=""}), "rank", "$1", "by_rank", "(.+)"
          )
          unless on (%(rank)s) %(finding)s
          unless on (%(rank)s) rank:argus_stall_suspect:bool{stage="named"}
        |||, { rank: l.rank, job: l.job, finding: finding }),
      },
      {
        about:: 'Of whom nothing is said: too few ranks of a group are heard, or the job does something else. 1.',
        record: 'rank:argus_verdict:active',
        labels: { verdict: 'abstain', team: 'none', level: 'L2' },
        expr: text.fill('label_replace(max by (%(job)s, phase, group, by) (rank:argus_exclusion:lost_ratio{by=~"activity|stall|coverage"} ^ 0), "cause", "$1", "by", "(.+)")', { job: l.job }),
      },
    ],
    // Of the group that has their evidence.
    hangs: [
      {
        about:: 'Who or what holds up a job that stands still (%s): 1.' % row.words,
        record: 'rank:argus_verdict:active',
        labels: { verdict: 'culprit', cause: name(row), team: row.team, level: 'L1' },
        local others = std.join('|', [other.phases for other in rows if other.id == row.id && 'phases' in other]),
        expr: 'max by (' + l.who + ') (rank:argus_evidence:lost_ratio{cause="' + row.id + '"'
              + (if 'phases' in row then ', phase=~"' + row.phases + '"' else if others != '' then ', phase!~"' + others + '"' else '') + '})',
      }
      for row in rows
      if row.as == 'hang'
    ],
  }
