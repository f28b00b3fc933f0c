// Every knob of the rules: unit, meaning, and where its value comes from. Durations are seconds; override with `_config+::`.
{
  _config+:: {
    local c = self,

    // What makes a job one job. A label that no series has costs nothing and changes nothing.
    jobLabels: ['cluster', 'training_job'],
    // PromQL matchers put into every selector of raw series, for example 'cluster="a"'.
    argusSelector: '',
    // Values of the label `severity`; another value changes the routing and no rule.
    severities: { page: 'page', ticket: 'ticket', info: 'info' },

    // Labels that every alert has beside its own, for example { site: 'north' }.
    alertLabels: {},
    // Where alerts lead: to the runbook (%s is the alert's name), and to the dashboards of the job and of ARGUS itself. traceUrl is
    // where people reach the L3 worker ('https://argus.example'): then alerts lead to traces, too.
    runbookUrl: 'https://github.com/argus-for-prometheus/argus/blob/main/docs/runbooks/%s.md',
    dashboardUrl: '/d/argus-job/argus-job',
    itselfUrl: '/d/argus-itself/argus-itself',
    traceUrl: '',

    // How long a second of all that follows is. The demo and the lab play with a tenth; nothing else differs.
    second: 1,

    // ---- cadence --------------------------------------------------------------------------------------------
    // Between scrapes; between evaluations of what follows each scrape; of means of every rank; of what hardly changes; and of
    // what decides, which reads few series, so that a chain of rules takes little longer than its first.
    scrapeInterval: 15 * c.second,
    interval: 15 * c.second,
    statisticsInterval: 30 * c.second,
    slowInterval: 60 * c.second,
    decisionInterval: 5 * c.second,
    // Age at which a scrape is surely stored: what compares two samples looks no later.
    settle: 5 * c.second,
    // Ranges are so much shorter, so that closed and left-open ones hold the same samples.
    rangeEpsilon: c.second,

    // ---- evidence -------------------------------------------------------------------------------------------
    // Phases with rule groups of their own: beyond some thousand ranks list all that cost most, for example
    // ['forward', 'backward', 'optimizer'], and they are evaluated side by side.
    phases: [],
    // Over which means are taken, and the spans that make one. Of ranks whose steps take long exporters say the means: of steps of
    // 25 s, of which scrapes a minute apart may have seen two (`_LONG_S` in exporter/argus_exporter/ranks/long_steps.py).
    window: std.max(120 * c.second, 3 * c.scrapeInterval),
    minSpans: 3,
    // Who stands out: 'spread' compares with the spread of the phase itself, 'z' is the paper's method: so many deviations
    // above the mean of the group, whose cv is 0.02 and more.
    l2Method: 'spread',
    zThreshold: 3,
    // Share of the wall time from which a loss is kept as context, which excuses, and from which it is evidence.
    contextRatio: 0.005,
    evidenceRatio: 0.015,
    // Ratio to the group's median, less 1, from which a rank stands out: so many standard deviations of the ranks of the
    // phase, within these bounds (court: thresholds from the group's own spread); for the first `spreadMinSamples` minutes of
    // a job, whose spread is known by few steps, no less than `spreadYoung`; of three ranks at most, or two pairs, who have
    // none, just that.
    spreadFactor: 5,
    spreadLeast: 0.05,
    spreadMost: 1,
    spreadWindow: 1800 * c.second,
    spreadMinSamples: 10,
    spreadYoung: 0.2,
    // Ratio over one scrape interval that is told at once, where the spread of the phase is known and does not explain it: 1.5 less
    // the noise of three spans.
    fastRatio: 1.4,
    // The same from which a rank counts among those that have become slower together.
    fastSome: 1.2,
    // Share of the ranks of a group that must have kernels for their compute time to be compared instead of durations.
    kernelCoverage: 0.8,
    // A host phase that is slow by this share of what compute is slow by: the host is slow, not the GPU. So is a host that
    // launches this much less ahead of its GPU than its peers do.
    slowHostShare: 0.5,
    hostLatencyRatio: 0.5,
    // Phases (regular expression) with counters of their own.
    pausePhases: 'gc|compile|jit',
    // Over which pauses of all ranks are averaged, at least so many times one rank's own.
    pauseWindow: 600 * c.second,
    pauseSpread: 2,
    // Transfers between two ranks (regular expression): who is shortest there is not late, its partner was early.
    pointToPointPhases: 'pp-.*|.*(send|recv|isend|irecv).*',
    // The shortest transfer of a group to that of its peers, and the peers that it needs.
    linkRatio: 1.5,
    linkMinGroups: 3,
    // Over which the share of a kernel is taken: its counters advance every two seconds.
    kernelRange: 60 * c.second,

    // Frames of the main thread (regular expressions over `function (module)`, a method is `Class.function`) that hold a rank
    // up: it compiles, but not regular expressions or templates; or it does what is dear now on one rank and now on another.
    compileFrames: '(.*[.])?_?compile(_(fx|fx_inner|graph|kernel|model|module|program))? .*',
    compileFramesNot: '.*[(](re|regex|sre_compile|jinja2)([.].*)?[)]',
    allocationFrames: '(.*[.])?(empty_cache|_?pin_memory|malloc|cuda(Malloc|Free)(Host|Async)?) .*',
    mainThread: 'MainThread.*',

    // ---- history (an optional file) -----------------------------------------------------------------------------
    history: {
      // Over which the signatures of a run are means; between recordings of healthy ones, less than the 5 minutes after which
      // a series is gone; how far back they are looked at, which Prometheus must keep (--storage.tsdb.retention.time); and
      // recordings of a run (two hours of them) before anything is compared with it.
      mean: 300 * c.second,
      interval: 240 * c.second,
      window: 14 * 86400 * c.second,
      samples: 30,
      // Slowdown against the best healthy run that is a finding whatever its cause, and that is one where something says why.
      ratio: 1.05,
      explained: 1.03,
    },

    // ---- hardware (an optional file) ----------------------------------------------------------------------------
    // Matchers of the series of dcgm-exporter and node_exporter, as argusSelector.
    hardwareSelector: '',

    // ---- stall --------------------------------------------------------------------------------------------------
    // No iteration for so many usual durations (known after three iterations), and at least so many seconds; outside
    // training (a checkpoint, an evaluation) it is this many seconds.
    stallFactor: 5,
    stallMinSeconds: 60 * c.second,
    // A page comes then where something proves who holds the job up: a rank is dead or stopped, or has called less or something
    // else than the others. Without that it is an info, and a page from so many seconds on: the others may go on after all.
    stallUnprovedSeconds: 180 * c.second,
    stallOutsideTrainSeconds: 1800 * c.second,
    // Share of the ranks that must wait for one that is elsewhere, and the largest share that can be to blame.
    stallShare: 0.5,

    // ---- precedence and decision ------------------------------------------------------------------------------
    // Share of a group's ranks below which nothing is said of it.
    minCoverage: 0.5,
    // A set is named where it has at most so many ranks, and at most this share of the job's.
    setMost: 8,
    setMostShare: 0.25,
    // Seconds for which who is to blame still excuses others: the mean is full of what it did.
    hold: c.window,
    // Share of wall time: enters where it is at least `enter` now and on the average of `lasting` seconds, in all of which it
    // was found; leaves `leave` seconds after it was last above `exit`.
    decision: {
      page: { enter: 0.05, exit: 0.03, lasting: 180 * c.second },
      ticket: { enter: 0.02, exit: 0.015, lasting: 180 * c.second },
      info: { enter: 0, exit: 0, lasting: c.hold },
      leave: 300 * c.second,
    },
    // Only what costs at least this share of the job's costliest finding enters as a page.
    costliest: 0.8,

    // ---- kernels ----------------------------------------------------------------------------------------------
    // Shift of a kernel (ratio to its peers, less 1) that is told where no finding tells it.
    kernelShift: 0.03,

    // ---- ARGUS itself -----------------------------------------------------------------------------------------
    health: {
      // Before a ticket: ranks that are lost or missing; two jobs of one name, longer than an exporter remembers a rank that it
      // has lost; a channel that is down or loses records.
      missing: 120 * c.second,
      clash: 600 * c.second,
      channel: 300 * c.second,
      // Channels that are off on purpose, and stacks that the rank samples itself (regular expression over `reason`).
      ignoredReasons: 'disabled|not_configured|launch_rate|.+_inprocess',
      // Share of records that may be lost, and of a core that ARGUS may use inside a training process; over which they are taken.
      dropped: 0.01,
      overhead: 0.01,
      overheadFor: 600 * c.second,
      window: 300 * c.second,
      // Without a cycle of the worker; and how far back its last one is looked for: so long a dead worker is missed.
      worker: 300 * c.second,
      workerLookback: 7 * 86400 * c.second,
      // Share of evaluations that may be left out.
      missed: 0.2,
    },
  },
}
