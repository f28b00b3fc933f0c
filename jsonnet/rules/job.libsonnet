// What is known of a job as a whole: how many ranks, what it does, how large its groups are.
local duration = import '../lib/duration.libsonnet';

function(c, l)
  local world = 'max by (%s) (%s)' % [l.job, l.raw('argus_job_world_size')];
  {
    activity: [
      {
        about:: 'Ranks that are alive.',
        record: 'job:argus_ranks:count',
        expr: 'count by (%s) (max by (%s) (%s) == 1)' % [l.job, l.rank, l.raw('argus_rank_up')],
      },
      {
        about:: 'Ranks that are lost to their exporter, and are still of the job: it may have become smaller.',
        record: 'rank:argus_stall_suspect:bool',
        labels: { stage: 'dead' },
        expr: '(max by (%(rank)s) (%(up)s) == 0) ^ 0 unless on (%(rank)s) %(number)s >= on (%(job)s) group_left () %(world)s' % {
          job: l.job,
          rank: l.rank,
          up: l.raw('argus_rank_up'),
          number: l.raw('argus_rank_number'),
          world: world,
        },
      },
      {
        about:: 'When a rank of the job was last seen doing anything but training, Unix time.',
        record: 'job:argus_other_activity:timestamp_seconds',
        expr: 'max by (%s) (timestamp(%s))' % [l.job, l.raw('argus_activity', ['activity!="train"'])],
      },
      {
        about:: 'Seconds since then; nothing where it was longer ago than half an hour.',
        record: 'job:argus_other_activity:seconds',
        expr: 'time() - max_over_time(job:argus_other_activity:timestamp_seconds[%s])' % duration.range(c, c.spreadWindow),
      },
      {
        about:: 'Jobs of which some ranks are not heard, by their world size or by the groups of those who are: 1. If such a job stands still, others may only seem to hold it up.',
        record: 'rank:argus_stall_suspect:bool',
        labels: { stage: 'unheard' },
        expr: 'max by (%(job)s) (group:argus_ranks:expected - on (%(group)s) count by (%(group)s) (%(expected)s) > 0 or %(world)s - on (%(job)s) count by (%(job)s) (max by (%(rank)s) (%(up)s)) > 0) ^ 0' % {
          job: l.job,
          rank: l.rank,
          up: l.raw('argus_rank_up'),
          world: world,
          group: l.list(['group']),
          expected: l.raw('argus_group_expected_ranks'),
        },
      },
    ],
    // They change when a job is resized, and there are several of each rank.
    groups: [
      {
        about:: 'Ranks that a group should have by the topology.',
        record: 'group:argus_ranks:expected',
        expr: 'max by (%s) (%s)' % [l.list(['group']), l.raw('argus_group_expected_ranks')],
      },
    ],
  }
