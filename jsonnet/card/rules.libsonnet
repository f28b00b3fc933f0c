// What cards read and no rule needs: since when, who waits, and what was on a host before.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local name = 'rank:argus_finding:onset_timestamp_seconds';
  local range(seconds) = '[' + duration.range(c, seconds) + ']';
  local waits = 'sum by (' + l.rank + ') (rank:argus_phase_duration_seconds:mean{kind="comm"})';
  {
    onset: {
      about:: 'When a finding was first there, Unix time; it ends with it, some minutes later.',
      memory:: true,
      record: name,
      // Kept for as long as the finding, whatever evaluations were missed within a minute.
      expr: text.fill(|||
        min by (%(by)s) (last_over_time(%(record)s%(minute)s)) and on (%(by)s) last_over_time(rank:argus_finding:lost_ratio%(leave)s)
        or on (%(by)s) max by (%(by)s) (timestamp(rank:argus_finding:lost_ratio))
      |||, { by: l.finding, record: name, minute: range(60 * c.second), leave: range(c.decision.leave) }),
    },
    waiting: [
      {
        about:: 'Ranks of a job that spend more time in collectives than a rank, or one of a set, that is named.',
        record: 'job:argus_waiting_ranks:count',
        expr: text.fill(|||
          count by (%(job)s) (
            %(waits)s > on (%(job)s) group_left () 1.05 * min by (%(job)s) (
              %(waits)s and on (%(rank)s) (
                rank:argus_finding:lost_ratio{rank!=""}
                or on (%(rank)s) rank:argus_evidence:lost_ratio{rank!="", set!=""} and on (%(set)s) rank:argus_finding:lost_ratio{set!=""}
              )
            )
          )
        |||, { job: l.job, rank: l.rank, set: l.list(['set']), waits: waits }),
      },
    ],
    // For as long as history is kept.
    places: [
      {
        about:: 'Jobs of which a rank was named on a node.',
        record: 'group:argus_named_jobs:count',
        expr: text.fill('count by (%(node)s) (count by (%(nodeJob)s) (last_over_time(rank:argus_finding:place{node!=""}%(window)s)))', {
          node: l.ofRuns(['node']),
          nodeJob: l.list(['node']),
          window: range(c.history.window),
        }),
      },
    ],
  }
