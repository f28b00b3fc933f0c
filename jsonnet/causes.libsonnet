// The table of causes: who yields to whom, who can mend it, and what people read.
//
// A row may yield to rows above it only, so there is no circle, and the order of rows is the order of evaluation.
//   id: the label `cause` of the evidence.
//   cause: that of the finding, where it differs: several kinds of evidence of one cause.
//   as: 'context' is never named, it only excuses; 'hang' is named at once and excuses all, as the job stands still;
//     'program' is named by the worker alone.
//   team, level: who can mend it, and which level of the paper tells it.
//   most: the highest severity.
//   info: told as such from `hold` seconds on, while it does not last or cost enough for more, and nothing else is told.
//   yields: [{to: ids, at: 'rank' or 'job', factor}]: excused where it costs at most `factor` times what they cost there.
//     At the same rank their evidence counts: it is of one thing, measured in several ways. In the rest of the job only
//     those do who stand themselves, and who last where the whole job's loss is older; or the evidence of those
//     (`by: 'evidence'`) who yield to nobody that the row itself does not yield to: what excuses them excuses the row.
//   family: rows that explain one loss, each in another way, in an optional file. They yield to the same rows, and to those
//     of the family above them: the first that has evidence is the cause.
//   words: what it is, in a sentence about a rank, a set, a group or the job.
local context = { as: 'context', yields: [] };
local culprit = { as: 'culprit', yields: [], level: 'L2', most: 'page', info: false };
// What two ways of measuring one thing differ by.
local tie = 1.5;
// Where ranks wait within the backward, unseen (`waits`), what is seen of a rank is what it does in the forward: a third.
local hidden = 4;
local pauses = ['host-gc', 'host-jit'];
local host = pauses + ['host-cpu', 'host-alloc', 'data-input'];
// What only kernels tell of a rank.
local kernels = ['kernel', 'gpu-transfer'];
local ofRanks = host + kernels + ['gpu-compute'];
// A whole job is slower by what a pipeline, or a host that launches late, makes of a rank's own loss.
local explained = [
  { to: ofRanks + ['workload', 'more-work', 'suspect-set', 'link-slow', 'collective-late'], at: 'job', factor: 2 * tie },
  { to: ['fabric'], at: 'job', by: 'evidence', factor: 2 * tie },
];
// Slower than earlier runs of its model: a ticket, as a run that was slow from its first step on has waited for long. A job
// that became slower within its run is told as that, at once, and its page says what the history knows.
local ofHistory(rows) = [
  culprit {
    id: 'history-' + rows[number].cause,
    family: 'history',
    level: 'L1',
    most: 'ticket',
    yields: [explained[0], explained[1] { to: ['fabric', 'regression'] }] + (
      if number == 0 then []
      else [{ to: ['history-' + row.cause for row in rows[:number]], at: 'job', by: 'evidence', factor: tie }]
    ),
  } + rows[number]
  for number in std.range(0, std.length(rows) - 1)
];
// Who is slow beyond what it has more to do stands as such.
local moreWork = [
  { to: host + kernels, at: 'rank', factor: tie },
  { to: ['gpu-compute'], at: 'rank', by: 'verdict', factor: tie },
];
[
  { id: 'hang', cause: 'hang-host', as: 'hang', team: 'operations', words: 'hangs' },
  { id: 'hang', cause: 'hang-data', as: 'hang', team: 'algorithm', phases: 'data', words: 'hangs while it fetches data' },
  { id: 'hang-comm', as: 'hang', team: 'operations', words: 'waits for a collective that does not end' },
  context { id: 'own-excess', words: 'loses time in phases of its own, suspicious or not' },
  context { id: 'more-work', words: 'needs longer because it has more to do' },
  context { id: 'suspect-many', words: 'is one of so many ranks, which wait for one another within this phase, that naming them helps nobody' },
  context { id: 'kept-waiting', words: 'waits in other collectives' },
  culprit { id: 'host-gc', team: 'algorithm', words: 'pauses to collect garbage' },
  culprit { id: 'host-jit', team: 'infrastructure', words: 'pauses to compile' },
  culprit {
    id: 'host-cpu',
    team: 'operations',
    words: 'has a slow host',
    yields: [{ to: pauses, at: 'rank', factor: tie }],
  },
  culprit {
    id: 'host-alloc',
    team: 'algorithm',
    words: 'is held up by its own code, which allocates or pins memory, now on one rank and now on another',
  },
  culprit {
    id: 'data-input',
    team: 'algorithm',
    words: 'waits for its input data',
    yields: [{ to: pauses + ['host-cpu'], at: 'rank', factor: tie }, { to: ['host-alloc'], at: 'job', factor: tie }],
  },
  culprit {
    id: 'kernel',
    cause: 'gpu-compute',
    team: 'operations',
    level: 'L3',
    words: 'computes slowly on its GPU',
    yields: [{ to: pauses + ['host-cpu'], at: 'rank', factor: tie }],
  },
  culprit {
    id: 'gpu-transfer',
    team: 'operations',
    words: 'needs longer for copies of memory than the ranks that do the same work',
    yields: [{ to: pauses + ['host-cpu'], at: 'rank', factor: tie }, { to: ['more-work'], at: 'rank', factor: tie }],
  },
  culprit {
    id: 'gpu-compute',
    team: 'operations',
    words: 'computes slowly',
    yields: [
      { to: host + ['gpu-transfer'], at: 'rank', factor: tie },
      { to: ['more-work'], at: 'rank', factor: tie },
      { to: ['host-gc'], at: 'job', factor: tie },
    ],
  },
  culprit {
    id: 'workload',
    team: 'algorithm',
    most: 'ticket',
    words: 'has more to do than the others',
    yields: moreWork,
  },
  culprit {
    id: 'kernel-work',
    cause: 'workload',
    team: 'algorithm',
    level: 'L3',
    most: 'ticket',
    words: 'has more to do than the others',
    yields: moreWork,
  },
  culprit {
    id: 'suspect-set',
    cause: 'gpu-compute',
    team: 'operations',
    words: 'computes slowly; its ranks wait for one another within this phase, and nothing tells which of them it is',
    yields: [
      { to: ofRanks, at: 'job', factor: tie },
      { to: ['more-work'], at: 'job', factor: tie },
    ],
  },
  culprit {
    id: 'link-slow',
    team: 'operations',
    words: 'has a slow link',
    // What many ranks lose at moments of their own is known by a lower bound.
    yields: [{ to: ['host-gc'], at: 'job', factor: 2 * tie }],
  },
  culprit {
    id: 'collective-late',
    team: 'operations',
    words: 'comes late to collectives, and none of its own phases says why',
    yields: [
      { to: ['own-excess', 'kept-waiting'], at: 'rank', factor: hidden },
      { to: ofRanks + ['link-slow', 'own-excess', 'more-work'], at: 'job', factor: tie },
      { to: ['suspect-set'], at: 'job', by: 'evidence', factor: tie },
    ],
  },
  culprit {
    id: 'fabric',
    team: 'operations',
    level: 'L1',
    words: 'has slower collectives than before in most of its groups',
    yields: [{ to: ofRanks + ['more-work', 'suspect-set', 'link-slow', 'collective-late'], at: 'job', factor: tie }],
  },
  culprit {
    id: 'regression',
    cause: 'unexplained',
    team: 'infrastructure',
    level: 'L1',
    words: 'is slower than before, on all ranks alike',
    yields: explained,
  },
  culprit {
    id: 'work-uneven',
    team: 'algorithm',
    level: 'L1',
    most: 'info',
    info: true,
    words: 'has work that is spread unevenly over its ranks',
  },
  culprit {
    id: 'jitter',
    team: 'infrastructure',
    level: 'L1',
    most: 'ticket',
    info: true,
    words: 'has iterations that take far longer than the others, again and again',
  },
] + ofHistory([
  { cause: 'colocation', team: 'infrastructure', words: 'computes slower than earlier runs of its model, whatever it computes: something else runs on its GPUs, or their clocks are lower' },
  { cause: 'kernel-shape', team: 'infrastructure', words: 'has kernels that take longer than in earlier runs of its model: another shape or backend' },
  { cause: 'kernel-inefficient', team: 'infrastructure', words: 'runs kernels that earlier runs of its model did not have, or had less often' },
  { cause: 'host-alloc', team: 'infrastructure', words: 'allocates or pins memory more often than earlier runs of its model' },
  { cause: 'data-input', team: 'algorithm', words: 'waits longer for its input data than earlier runs of its model' },
  { cause: 'host-sync', team: 'algorithm', words: 'waits for its GPUs where earlier runs of its model did not: somebody synchronises' },
  { cause: 'host-code', team: 'algorithm', words: 'spends more time in Python code than earlier runs of its model: its GPUs wait for launches' },
  { cause: 'fabric-config', team: 'operations', words: 'waits longer for its collectives than earlier runs of its model: they are slower, or less of them is hidden behind computation' },
  { cause: 'overlap-config', team: 'infrastructure', words: 'no longer hides its communication behind computation, as earlier runs of its model did' },
  { cause: 'unexplained', team: 'infrastructure', words: 'is slower than earlier runs of its model, and nothing says why' },
]) + [
  // What the kernels or the trace of a rank tell, and no rule: the worker names them, who reads its series passes them on.
  { id: 'gpu-memory', as: 'program', team: 'operations', words: 'has kernels that take far longer now and then, as memory errors leave them' },
  { id: 'undetermined', as: 'program', team: 'infrastructure', words: 'waits, and its trace does not show for what' },
]
