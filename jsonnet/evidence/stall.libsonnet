// Has the job stopped, and whom do the others wait for? Its own evidence only.
//
// The page that a producer shares with its exporter survives a stopped process: its open spans, the number of the last
// collective that it entered, and by torch's flight recorder which ones have started and ended. Who is in a collective that
// has not ended waits. Of the others, whoever has entered fewer than its group holds the group up; so does, where
// collectives are not numbered, whoever is elsewhere while most ranks wait, and where all have called, whose GPU has not
// started what the others' have. Where all of a group are in one collective, it is the collective that does not end. Of a
// group that has called different collectives under one number, who called what most did not is to blame, and of two halves nobody.
// NCCL's RAS, where the exporter asks it, tells of processes that no longer answer, and of launches that a rank lacks though it
// has called.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local stalled = 'job:argus_stalled:seconds';
  local open = 'rank:argus_stall_open:timestamp_seconds';
  local lag(of) = 'rank:argus_stall_lag:collectives{of="' + of + '"}';
  local broken = 'group:argus_stall_broken:bool';
  local candidate(why) = 'rank:argus_stall_suspect:bool{stage="' + why + '"}';
  local suspect = candidate('named');
  local lost = 'rank:argus_stall_suspect:bool{stage="lost", rank!=""}';
  // In two windows there may be one evaluation alone, where this is asked shortly before the next.
  local twice = duration.range(c, 3 * c.interval);
  local at = {
    job: l.job,
    rank: l.rank,
    group: l.list(['group']),
    rankGroup: l.list(['rank', 'group']),
    stalled: stalled,
    open: open,
    entered: lag('entered'),
    started: lag('started'),
    ended: lag('ended'),
    broken: broken,
    suspect: suspect,
    link: candidate('link'),
    still: candidate('still'),
    called: l.raw('argus_collective_operation_sequence', ['operation!="other"']),
    operation: l.list(['group', 'operation']),
    // In a collective, or in a phase that may hold one.
    waiting: text.fill('(%(open)s{kind="comm"} or %(open)s{waits!="none"})', { open: open }),
    // In no collective, though the others may be; or waited for by whom the others wait.
    apart: text.fill('(%(open)s{kind="host"} unless on (%(rank)s) %(open)s{kind="comm"} or %(entered)s == 0 and on (%(group)s) %(entered)s > 0)', {
      rank: l.rank,
      group: l.list(['group']),
      open: open,
      entered: lag('entered'),
    }),
    ranks: 'job:argus_ranks:count',
    // Of the dead, too.
    lost: lost,
    known: text.fill('sum by (%(job)s) (job:argus_ranks:count or %(dead)s)', { job: l.job, dead: candidate('dead') }),
    unheard: text.fill('on (%(job)s) (count_over_time(%(unheard)s[%(twice)s]) >= 2)', {
      job: l.job,
      unheard: candidate('unheard'),
      twice: twice,
    }),
    number: 'max by (%s) (%s)' % [l.rank, l.raw('argus_rank_overdue_number')],
    last: l.raw('argus_job_last_iteration_timestamp_seconds'),
    share: c.stallShare,
  };
  // Behind in a collective and first in none. Whose host waits in a collective has one that has not ended; who has more of
  // them runs ahead of its GPU, and has stopped before the others.
  local last(of) = text.fill(|||
    (max by (%(rank)s) (%(lag)s) > 0) ^ 0
    unless on (%(rank)s) (%(lag)s == 0 and on (%(group)s) %(lag)s > 0)
    unless on (%(rank)s) %(ended)s == 1
  |||, at { lag: lag(of) });
  // A rank that moved: its former exporter still tells where the process that died was.
  local overdue(lost) = l.raw('argus_rank_overdue_number', ['lost="%s"' % lost]);
  local living = text.fill('unless on (%(rank)s, instance) (%(lost)s and on (%(rank)s) %(here)s)', { rank: l.rank, lost: overdue('true'), here: overdue('') });
  local ofStalled(metric) = text.fill('max by (%(rankGroup)s) (%(metric)s and on (%(job)s) %(stalled)s %(living)s)', at { metric: l.raw(metric), living: living });
  local count(expr) = text.fill('count by (%(job)s) (max by (%(rank)s) (%(expr)s))', at { expr: expr });
  // Some of the job's ranks, not most of them.
  local few(expr, of) = text.fill('%(expr)s and on (%(job)s) (count by (%(job)s) (%(expr)s) <= on (%(job)s) %(share)s * %(of)s)', at { expr: expr, of: of });
  [
    {
      about:: 'Seconds since the last iteration of a job, only while that is far beyond the usual, or beyond all measure.',
      record: stalled,
      expr: text.fill(|||
        %(age)s > on (%(job)s) (
          clamp(%(factor)s * max by (%(job)s) (%(usual)s), %(floor)s, %(outside)s)
          unless on (%(job)s) (job:argus_other_activity:seconds < %(floor)s)
          or on (%(job)s) 0 * max by (%(job)s) (%(last)s) + %(outside)s
        )
      |||, at {
        // 0 +: where the store keeps the metric's type as a label, a time has none, so what is subtracted may have none.
        age: text.fill('min by (%(job)s) (timestamp(%(last)s) - (0 + %(last)s > 0))', { job: l.job, last: at.last }),
        factor: c.stallFactor,
        floor: c.stallMinSeconds,
        outside: c.stallOutsideTrainSeconds,
        usual: l.raw('argus_job_usual_iteration_seconds'),
      }),
    },
    {
      about:: 'When the spans that are open on the ranks of a stalled job began.',
      record: open,
      expr: text.fill(|||
        max by (%(who)s) (%(open)s and on (%(job)s) %(stalled)s %(living)s)
      |||, at { living: living, who: l.list(['rank', 'phase', 'kind', 'waits']), open: l.raw('argus_phase_open_timestamp_seconds', ['overdue="true"']) }),
    },
    {
      about:: 'How many collectives fewer than the first of its group a rank of a stalled job has entered.',
      record: 'rank:argus_stall_lag:collectives',
      labels: { of: 'entered' },
      expr: text.fill('(max by (%(group)s) (%(all)s) > 0) - on (%(group)s) group_right () %(all)s', at { all: ofStalled('argus_collective_sequence') }),
    },
    {
      about:: 'How many fewer its GPU has started, where NCCL tells.',
      record: 'rank:argus_stall_lag:collectives',
      labels: { of: 'started' },
      expr: text.fill('max by (%(group)s) (%(all)s) - on (%(group)s) group_right () %(all)s', at { all: ofStalled('argus_collective_started_sequence') }),
    },
    {
      about:: 'How many collectives it has started, or entered where that is not known, that have not ended.',
      record: 'rank:argus_stall_lag:collectives',
      labels: { of: 'ended' },
      expr: text.fill('(%(started)s or %(entered)s) - %(completed)s', {
        started: ofStalled('argus_collective_started_sequence'),
        entered: ofStalled('argus_collective_sequence'),
        completed: ofStalled('argus_collective_completed_sequence'),
      }),
    },
    {
      // Of a collective that a computation of the host waits for, and of one of NCCL without torch's recorder, nothing says who is
      // in it: a group whose members have all stopped at one number waits in it, rather than that each of them has stopped alone.
      about:: 'Groups that have called different collectives under one number; else that lose something between two members; else of which all have entered one collective and are in it, or by no record elsewhere, and in no other or behind in some other group and, where nothing is recorded, first in none.',
      record: broken,
      expr: text.fill(|||
        (
          label_replace(
            count by (%(group)s) (count by (%(operation)s) (%(called)s)) > 1 and on (%(group)s) stddev by (%(group)s) (%(called)s) == 0, "by", "calls", "", ""
          )
          or on (%(job)s) max by (%(group)s) (%(link)s)
        ) ^ 0 and on (%(job)s) %(stalled)s
        or on (%(job)s) (
          count by (%(group)s) (
            %(entered)s == 0
            and on (%(rank)s) (%(entered)s > 0 or count by (%(rank)s) (%(ended)s > 0) == 1)
            and on (%(rankGroup)s) (%(ended)s > 0 or on (%(job)s) %(entered)s unless on (%(rank)s) %(apart)s)
          ) == on (%(group)s) (count by (%(group)s) (%(entered)s) > 1)
        ) ^ 0
      |||, at),
    },
    {
      // Heard are those whose iteration is overdue, as all are in a stalled job: that is known at the scrape that misses some.
      about:: "Ranks of a stalled job that are stopped, or lost to their exporter or to NCCL's RAS; else one without rank, where some are not heard.",
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'lost' },
      expr: text.fill(|||
        (
          max by (%(rank)s) (%(dead)s or on (%(rank)s) max by (%(rank)s) (%(absent)s or %(stopped)s))
          or on (%(job)s) max by (%(job)s) (%(world)s) > on (%(job)s) count by (%(job)s) (%(number)s)
        ) ^ 0 and on (%(job)s) %(stalled)s
      |||, at {
        world: l.raw('argus_job_world_size'),
        dead: candidate('dead'),
        // Who is missing may have left a communicator that nobody waits in.
        absent: l.raw('argus_nccl_ras_rank_absent', ['absence!="missing"']),
        stopped: l.raw('argus_rank_stopped'),
      }),
    },
    {
      // Who waits in a receive is behind too, and is in a span that says so where its host waits.
      about:: 'Ranks that are behind in a collective and first in none, but for collectives that do not end; those that are in no collective before the others. None where something is lost between two, for whom they may all wait.',
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'behind' },
      expr: text.fill(|||
        (
          (%(behind)s) unless on (%(rank)s) %(open)s{kind="comm"}
          or on (%(job)s) (%(behind)s) unless on (%(job)s) %(broken)s
        )
        unless on (%(job)s) %(link)s
      |||, at { behind: last('entered') + text.fill('unless on (%(rank)s) (%(entered)s and on (%(group)s) %(broken)s)', at) }),
    },
    {
      // Who waits in a collective is in a span of it on the GPU too, where hooks see it. What they do not see of one is within a
      // computation, of all members alike.
      about:: 'In how many groups a rank is behind whose GPU has not started what others have, where no collective is broken; else the one rank whose GPU is in a computation, where those of all others are in communication.',
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'idle' },
      expr: text.fill(|||
        count by (%(rank)s) (%(started)s > 0)
        and on (%(rank)s) (%(last)s)
        unless on (%(job)s) %(broken)s
        or on (%(job)s) (
          %(onGpu)s ^ 0
          unless on (%(rank)s) %(waits)s
          and on (%(job)s) (count by (%(job)s) (%(onGpu)s) == on (%(job)s) %(ranks)s)
          and on (%(job)s) (count by (%(job)s) (%(waits)s) == on (%(job)s) %(ranks)s - 1)
          and on (%(job)s) %(stalled)s
          unless on (%(job)s) %(link)s
        )
      |||, at {
        last: last('started'),
        onGpu: 'max by (%s) (%s)' % [l.rank, l.raw('argus_phase_gpu_timestamp_seconds')],
        waits: 'max by (%s) (%s)' % [l.rank, l.raw('argus_phase_gpu_timestamp_seconds', ['kind="comm"'])],
      }),
    },
    {
      // RAS counts what NCCL itself has launched, so it is asked last, and not of who has called less: that is told above. Whose GPU waits for a receive of another stage is idle too,
      // in fewer groups.
      about:: "Of ranks that have all called: the fewer of a group, which called something else than the most; else the one whose GPU is idle in most groups, or alone computes; else the one on the host on which a GPU stands; else those that have launched less though they have called, by NCCL's RAS.",
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'called' },
      expr: text.fill(|||
        max by (%(rank)s) (
          %(called)s
          and on (%(operation)s) (count by (%(operation)s) (%(called)s) < on (%(group)s) group_left () 0.5 * count by (%(group)s) (%(called)s))
          and on (%(group)s) %(broken)s{by="calls"}
        ) ^ 0
        or on (%(job)s) max by (%(rank)s) (
          topk by (%(job)s) (1, %(idle)s)
          unless on (%(job)s) count by (%(job)s) (%(idle)s == on (%(job)s) group_left () max by (%(job)s) (%(idle)s)) > 1
        ) ^ 0
        or on (%(job)s)
        max by (%(rank)s) (
          (%(alone)s or on (%(job)s) %(lacking)s > 0 unless on (%(rank)s) %(entered)s > 0 unless on (%(job)s) (%(differs)s or %(broken)s{by="calls"}))
          and on (%(job)s) %(stalled)s
          unless on (%(job)s) %(link)s
        ) ^ 0
      |||, at {
        idle: candidate('idle'),
        alone: candidate('alone'),
        differs: candidate('differs'),
        lacking: l.raw('argus_nccl_ras_rank_lacking_launches'),
      }),
    },
    {
      about:: 'Ranks that do not wait while most ranks do.',
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'elsewhere' },
      expr: text.fill(|||
        max by (%(rank)s) (%(open)s or %(entered)s) ^ 0
        unless on (%(rank)s) %(waiting)s
        unless on (%(rank)s) %(ended)s > 0
        unless on (%(job)s) (%(broken)s or %(still)s)
        and on (%(job)s) (%(count)s >= on (%(job)s) %(share)s * %(ranks)s)
      |||, at { count: count(at.waiting) }),
    },
    {
      about:: 'Whom a stalled job waits for, and where: lost ranks before ranks that are behind, those before ranks that are elsewhere. While some are not heard, or most are lost, for whom all may wait: only who was named before.',
      record: 'rank:argus_stall_suspect:bool',
      labels: { stage: 'named' },
      memory:: true,
      expr: text.fill(|||
        max by (%(rank)s) (
          %(few)s
          or on (%(job)s) (%(called)s or on (%(job)s) %(elsewhere)s)
          and on (%(rank)s) (%(any)s unless on (%(job)s) %(gap)s or %(before)s)
        )
        * on (%(rank)s) group_left (node, gpu_uuid) (
          topk by (%(rank)s) (1, max by (%(rank)s, node, gpu_uuid) (%(here)s or on (%(rank)s) %(gone)s) ^ 0)
          or on (%(rank)s) max by (%(rank)s) (%(any)s)
        )
      |||, at {
        few: few(lost, at.known),
        gap: 'rank:argus_stall_suspect:bool{stage=~"lost|unheard"}',
        before: 'last_over_time(%s[%s])' % [suspect, twice],
        called: few(text.fill('(%(behind)s or on (%(job)s) %(called)s)', { job: l.job, behind: candidate('behind'), called: candidate('called') }), at.ranks),
        elsewhere: candidate('elsewhere'),
        any: 'rank:argus_stall_suspect:bool{stage!="named"}',
        here: overdue(''),
        gone: overdue('true'),
      }),
    },
    {
      about:: 'The rank that hangs, with the innermost of its open spans, the latest to begin.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'hang', detector: 'stall' },
      expr: text.fill(|||
        (
          max by (%(rank)s, phase) (topk by (%(rank)s) (1, %(open)s) ^ 0 and on (%(rank)s) %(suspect)s)
          or on (%(rank)s) label_replace(max by (%(rank)s) (%(suspect)s), "phase", "none", "", "")
        )
        and on (%(rank)s) bottomk by (%(job)s) (%(most)s, %(number)s and on (%(rank)s) %(suspect)s or on (%(rank)s) max by (%(rank)s) (0 * %(suspect)s))
      |||, at { most: c.setMost }),
    },
    {
      // Nobody is elsewhere or behind.
      about:: 'The collective that does not end: of the groups that go no further, else the one in which nearly all ranks are.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'hang-comm', detector: 'stall' },
      expr: text.fill(|||
        (
          (
            topk by (%(group)s) (1, count by (%(job)s, phase, group) (
              max by (%(rankGroup)s) (%(entered)s and on (%(group)s) %(broken)s)
              * on (%(rank)s) group_left (phase) topk by (%(rank)s) (1, %(open)s{kind="comm"})
            ))
            or on (%(group)s) label_replace(%(broken)s, "phase", "none", "", "")
          )
          and on (%(group)s) bottomk by (%(job)s) (%(most)s, min by (%(group)s) (
            (0 * %(entered)s and on (%(group)s) %(broken)s) + on (%(rank)s) group_left () %(number)s
          ))
          or on (%(job)s)
          count by (%(job)s, phase) (max by (%(rank)s, phase) (%(open)s{kind="comm"}))
          >= on (%(job)s) group_left () 0.8 * %(ranks)s
        ) ^ 0
        unless on (%(job)s) (%(suspect)s or %(lost)s)
        unless %(unheard)s
      |||, at { most: c.setMost }),
    },
  ]
