// What the stacks of a rank say of its main thread: the share of the wall time in frames that tell a cause.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l) {
  local ratio = 'rank:argus_stack_frames:ratio',
  // Two scrapers see the same samples: the larger of what they say of one frame.
  local samples(matchers) = text.fill('sum by (%(rank)s) (max by (%(rank)s, thread, frame) (rate(%(samples)s[%(range)s])))', {
    rank: l.rank,
    samples: l.raw('argus_stack_samples_total', ['thread=~"%s"' % c.mainThread] + matchers),
    range: duration.range(c, c.slowInterval),
  }),
  local frames(cause, about, matchers) = {
    about:: about,
    record: ratio,
    labels: { cause: cause },
    // py-spy leaves out a thread that waits, so the rate that was asked for is the whole, where it is known.
    expr: text.fill('%(some)s / on (%(rank)s) (max by (%(rank)s) (%(hertz)s) > 0 or %(all)s > 0) >= %(least)s', {
      rank: l.rank,
      some: samples(matchers),
      hertz: l.raw('argus_stack_sampling_hertz'),
      all: samples([]),
      least: c.evidenceRatio,
    }),
  },
  // Reads all frames of the main threads, and hardly changes.
  measures: [
    frames('host-jit', "Share of a rank's time in which its main thread compiles.", ['frame=~"%s"' % c.compileFrames, 'frame!~"%s"' % c.compileFramesNot]),
    frames('host-alloc', "Share of a rank's time in which its main thread allocates or pins memory.", ['frame=~"%s"' % c.allocationFrames]),
  ],
  evidence: [
    {
      about:: 'A rank whose main thread compiles more than that of the median rank.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'host-jit', detector: 'frames', phase: 'all' },
      expr: text.fill(|||
        %(frames)s - on (%(job)s) group_left () quantile by (%(job)s) (0.5,
          %(frames)s or on (%(rank)s) 0 * max by (%(rank)s) (%(up)s)
        ) >= %(least)s
      |||, { frames: ratio + '{cause="host-jit"}', job: l.job, rank: l.rank, up: l.raw('argus_rank_up'), least: c.evidenceRatio }),
    },
    {
      about:: "Ranks that are slow in a phase of the host because the job's own code allocates or pins memory there.",
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'host-alloc', detector: 'frames' },
      expr: text.fill('max by (%(job)s) (%(frames)s and on (%(rank)s) rank:argus_phase_slow:lost_ratio{kind="host"})', {
        job: l.job,
        frames: ratio + '{cause="host-alloc"}',
        rank: l.rank,
      }),
    },
  ],
}
