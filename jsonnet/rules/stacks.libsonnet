// What the stacks of a rank say of it: the share of wall time that its main thread spends in frames that tell a cause, of
// ranks where it is a share that counts. It compares with what a rank loses.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local ratio = 'rank:argus_stack_frames:ratio',

  // Two scrapers see the same samples: the maximum of what they say of one frame.
  local samples(matchers) =
    'sum by (%s) (\n  max by (%s, thread, frame) (rate(%s[%s]))\n)' % [
      labels.rank,
      labels.rank,
      labels.selector('argus_stack_samples_total', [c.argusSelector, 'thread=~"%s"' % c.mainThread] + matchers),
      duration.range(c, c.pauseInterval),
    ],

  local framesThat(kind) = ['frame=~"%s"' % kind.frames] + (if 'notFrames' in kind then ['frame!~"%s"' % kind.notFrames] else []),
  local framesOf(kind) = {
    record: ratio,
    about:: "Share of wall time that a rank's main thread spends in frames that tell a cause, where it counts.",
    labels: { cause: kind.cause },
    expr: '%s\n/ on (%s) rank:argus_stack_samples:rate >= %g' % [samples(framesThat(kind)), labels.rank, c.framesShare],
  },

  prometheusRules+:: {
    groups+: [
      {
        // Reads all of a main thread's frames, and hardly changes.
        name: 'argus-stacks-samples',
        interval: duration.of(c.slowInterval),
        rules: [{
          record: 'rank:argus_stack_samples:rate',
          about:: 'Stack samples a second of a main thread that never waits, which shares of time are taken of: py-spy leaves out a thread that waits.',
          expr: 'max by (%s) (%s) > 0\nor\n%s > 0'
                % [labels.rank, labels.selector('argus_stack_sampling_hertz', [c.argusSelector]), samples([])],
        }],
      },
      {
        name: 'argus-stacks',
        interval: duration.of(c.statisticsInterval),
        rules: [framesOf(kind) for kind in [c.compileFrames] + c.codeFrames] + [
          {
            record: 'job:argus_stack_code:lost_ratio',
            about:: "What ranks lose, now one and now another, to what the code has all of them do: nobody's host is slow.",
            labels: { cause: kind.cause, team: kind.team },
            expr: text.fill(|||
              max by (training_job, phase) (
                rank:argus_phase_suspect:lost_ratio{kind="host"}
                <= on (%(rank)s) group_left () %(factor)s * max by (%(rank)s) (%(ratio)s{cause="%(cause)s"})
              )
            |||, { rank: labels.rank, factor: c.explainedRatio, ratio: ratio, cause: kind.cause }),
          }
          for kind in c.codeFrames
        ],
      },
    ],
  },
}
