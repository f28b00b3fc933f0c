// Every tunable of the mixin: its unit, what it does and where its value comes from.
// Durations are numbers of seconds; override them with `_config+::`.
{
  _config+:: {
    local c = self,

    // PromQL matchers put into every first-level selector, for example 'cluster="a"'. Empty: every argus series.
    argusSelector: '',
    // Where the links in alerts lead. %s is the alert name; the dashboard link ends in the job (and the rank).
    runbookUrl: 'https://github.com/argus-for-prometheus/argus/blob/main/docs/runbooks/%s.md',
    dashboardUrl: '/d/argus-job/argus-job',
    // Where people reach the L3 worker, such as 'https://argus.example': alerts then carry `trace_url` beside
    // `trace_key`, a page that opens the trace in the Perfetto UI. Empty: no such annotation.
    traceUrl: '',

    // 'exact' scans every split for a change point; 'portable' has no `@` under an offset in a subquery and compares what
    // was before two neighbours of `staticSplits` (shares of the window) with what is after, for engines whose evaluation
    // differs.
    flavour: 'exact',
    staticSplits: [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875],

    // ---- cadence --------------------------------------------------------------------------------------------
    // Seconds between scrapes of the exporters; every window below is a multiple of it.
    scrapeInterval: 15,
    // Seconds between evaluations of all that may tell something within a scrape interval: the fast path, stalls, jobs.
    evaluationInterval: 15,
    // Seconds between evaluations of what is read over the minutes of `meanWindows`: means, deviations, medians, pauses
    // of the host. They read every series of every rank. The same as `evaluationInterval`: in one group with the rest.
    statisticsInterval: 2 * c.evaluationInterval,
    // Seconds between evaluations of verdicts and alerts, which read few series. A third of the evaluation
    // interval: suspect -> verdict -> alert then takes less than the two evaluations promised.
    verdictInterval: 5,
    // Seconds between choices of the window and of the span rate, which change slowly and read every series.
    slowInterval: 60,
    // Persistence of a finding before it leaves `info`: three evaluations of what is told at once, and longer than
    // `statisticsInterval`, so that never one evaluation of the statistics alone makes a ticket.
    persistence: 3 * c.evaluationInterval,
    // Seconds that a finding must last before it pages: a single pause stays in the shortest mean for as long as that and one
    // grid of the statistics, and is no straggler.
    pageFor: c.meanWindows[0] + c.statisticsInterval,
    // Seconds that a page stays after its finding: a fault whose evidence comes and goes is one page.
    pageStays: 300,
    // Ranges are W minus this, so that 2.x (closed) and 3.x or VictoriaMetrics (left-open) hold the same samples.
    rangeEpsilon: 1,
    // Age in seconds at which a scrape is surely committed: the three iteration counters are recorded at this
    // offset, because a scrape that lands between two of the rules would bend every later split of the scan.
    settle: 5,

    // ---- L1: the job's iteration time -----------------------------------------------------------------------
    // The job's series is that of the lowest live rank: cheap to find among these, the ranks of the first host; where
    // none of them lives, the lowest of all, by number.
    // Digits of the largest rank.
    rankDigits: 6,
    canonicalRanks: ['0', '1', '2', '3', '4', '5', '6', '7'],
    // Windows of the change-point scan, seconds. The short one recovers soonest after a counter reset.
    scanWindows: [600, 1800, 3600],
    // Smallest mu_R / mu_L that is a regression (paper: "minimum threshold", no value given).
    regressionRatio: 1.05,
    // Largest standard deviation over mean of either side (paper: "upper limit", no value given).
    regressionRelativeStddev: 0.1,
    // Smallest segment on either side, in iterations.
    regressionMinIterations: 8,
    // The shift in standard errors of the two means: over all splits of plain noise at a relative deviation of 0.08 the
    // largest ratio passes 1.05 in one window of ten; at 5 errors in none of 5,000 (docs/evidence/iterations.md).
    regressionMinErrors: 5,
    // Age in seconds of a change that pages: the shortest mean is full of what came after it, so a culprit is known, which
    // says more and reaches another team.
    regressionAge: c.meanWindows[0],
    // Share of a regression by which the collectives of most groups must have grown to be its cause.
    regressionTransferShare: 0.5,
    // theta: max/min of the iteration time inside the exporter's extremes window that makes a jitter candidate.
    jitterRatio: 1.5,
    // k: an iteration "significantly exceeds" the baseline above k times; it must clear the noise
    // (1.2 counts normal steps where they take 4 and 5 s: docs/evidence/iterations.md).
    jitterExceedRatio: 1.5,
    // Seconds of history for the baseline (a median outside candidate intervals) and longest run reported.
    baselineWindow: 3600,
    // Longest run of slow iterations that the exact width reports, seconds, and the resolution in which it looks for
    // the samples of argus_iteration_seconds: not above the shortest iteration.
    jitterWidthWindow: 120,
    jitterWidthStep: 1,
    // Ranks (regular expression) among which the job's series has exact widths: a few hosts, as each of their samples is
    // looked at many times. Beyond them there is the upper bound in scrapes.
    exactWidthRanks: '[0-9]{1,2}',
    // Share of `jitterTicketWindow` seconds spent in candidate intervals that turns info into a ticket.
    jitterTicketShare: 0.25,
    jitterTicketWindow: 600,

    // ---- L2: phases -----------------------------------------------------------------------------------------
    // One rule group each (they run in parallel and fail alone: 12 groups of 0.5 s instead of one of 8 s at
    // 10,240 ranks); every other phase name falls into the group `argus-l2-other`.
    phases: ['data', 'forward', 'backward', 'optimizer'],
    // Phases (beginnings of names) inside others of the same kind, such as the layers of a forward: they have means and
    // verdicts, but the fast path and the long windows are those of the phase around them.
    nestedPhases: ['attention', 'mlp', 'moe', 'experts', 'router', 'embedding', 'loss', 'clip', 'norm'],
    nestedPattern: '(' + std.join('|', c.nestedPhases) + ').*',
    // The mean's windows, seconds, shortest first: the first that holds `minSpans` on `minCoverage` of the group.
    meanWindows: [120, 600, 1800],
    minSpans: 3,
    // Share of the group's expected ranks below which rules abstain.
    minCoverage: 0.8,
    // The paper's levels of imbalance (coefficient of variation).
    cvMild: 0.02,
    cvSevere: 0.05,
    // z and ratios are computed for groups with cv >= cvMild or an extreme this far from the mean: cv dilutes
    // as 1/sqrt(n), one 1.4x rank among 640 has cv 0.016.
    gateRatio: 1.1,
    // z threshold, scaled to what n ranks can reach: min(zMax, zAttainable (n-1)/sqrt(n)).
    zMax: 3,
    zAttainable: 0.9,
    // Ranks from which z is used; below, the ratio to the median decides alone.
    zMinRanks: 4,
    // Effect a culprit needs beside z: ratio to the group's median. Host-clock means of four ranks on shared
    // cores wander by 5-10 %.
    culpritRatio: 1.15,
    // Effect that needs no z: finds what z masks (two 2x ranks of eight reach z 1.62 of a possible 2.47).
    robustRatio: 1.3,
    // The slower of two against the faster; there is no majority, so this is the only evidence.
    pairRatio: 1.5,
    // Smallest share of wall time that a finding costs the job: a data phase of 0.1 ms may double unnoticed.
    minLostRatio: 0.02,
    // Fast path: mean over this many seconds (a scrape interval), with `fastMinSpans`, without the longest span in the exporter's
    // extremes window (a single spike is jitter, not a straggler).
    fastWindow: c.scrapeInterval,
    fastMinSpans: 3,
    // Measured ratio that counts as "1.5x and more": 1.5 less the noise of three spans.
    fastRatio: 1.4,
    // Phases (regular expression) whose span may contain a synchronous collective, so that ranks which wait for
    // a late peer look slow in it: the gradient all-reduce of DDP, the reduce-scatter of ZeRO.
    waitingPhases: 'backward.*|optimizer.*',
    // Phases (regular expression) of transfers between two ranks each: who is shortest there is not late, its partner
    // was early.
    pointToPointPhases: 'send_recv|pp-.*',
    // Those of them that hold little of a wait, as who receives is there first: the names of Megatron and DeepSpeed.
    sendingPhases: 'pp-(forward-send|backward-send|send-activation|send-grad)',
    // A wait is explained by a culprit that costs at least the wait divided by this.
    explainedRatio: 1.5,
    // A rank that is late by at most this factor of its own excess is slow, not late; excess below this share of
    // wall time is not kept.
    excuseRatio: 2,
    excuseLeastRatio: 0.005,
    // A rank that is slow in compute has a slow host if a host phase is slow by this share of the excess.
    slowHostShare: 0.5,
    // So has one that launches this much less ahead of its GPU than its peers (share of their median issue latency): a slow
    // GPU lengthens the queue instead.
    hostLatencyRatio: 0.5,
    // Seconds that a finding about collectives must last. What ranks wait for one another wanders by chance, and then stays
    // for as long as the mean's window: two of them, side by side, must agree.
    collectiveFor: c.meanWindows[0],
    // Age in seconds at which lateness without a known reason may page: the worker has had the time to find the reason in
    // the rank's kernels (two windows of 60 s, and its cycle). From `collectiveFor` on it is a ticket.
    lateExplainFor: 180,
    // Share of a group's ranks that are never all to blame: what half of them do is no straggler.
    mostToBlame: 0.5,
    // Slow link: the group's shortest mean against the median of the peer groups', and the peers it needs.
    linkRatio: 1.5,
    linkMinGroups: 3,

    // A group's durations follow its work where the middle half of its ranks, divided by their work, lies within this
    // share of its spread in time. Half: noise alone, or a phase that does not depend on the work, does not come near.
    workFitShare: 0.5,

    // ---- history ---------------------------------------------------------------------------------------------
    // Seconds over which a run's signatures (throughput, issue latency, voids, kernels) are means; between recordings
    // of healthy ones (below the 5 minutes after which a series is gone); and how far back they are looked at, which
    // Prometheus must keep (--storage.tsdb.retention.time).
    historyMean: 300,
    historyInterval: 240,
    historyWindow: 14 * 86400,
    // Recordings (two hours of them) of one healthy run before anything is compared with it.
    historyMinSamples: 30,
    // Slowdown against the best healthy run of the same model, backend and size that is a finding whatever its cause, and
    // that is one where something of the run's signature says why.
    historyRatio: 1.05,
    historyExplainedRatio: 1.03,
    // Duration of a launch against history that makes one kernel the cause.
    historyKernelRatio: 1.1,
    // Issue latency against history below which the host has become the bottleneck: FLARE's example falls from 42 ms to
    // 1 ms; the latency of healthy runs wanders by tens of percent.
    historyLatencyRatio: 0.5,
    // Share of the main thread's stack samples by which frames must have grown, and the frames (regular expressions over
    // `function (module)`, where a method is `Class.function`) that speak for a cause.
    historyFrameShare: 0.05,
    mainThread: 'MainThread.*',
    historyFrames: [
      { cause: 'host-alloc', team: 'infrastructure', frames: '(.*[.])?(empty_cache|_?pin_memory|malloc|cuda(Malloc|Free)(Host|Async)?|memory_stats([.]<locals>[.].*|_.*)?) .*' },
      { cause: 'data-input', team: 'algorithm', frames: '(.*[.])?(recv_into|readinto|_recv|_recv_bytes|_next_data|_try_get_data|_get_data) .*' },
      { cause: 'host-sync', team: 'algorithm', frames: '(.*[.])?(synchronize|item|nonzero|tolist|cpu|is_nonzero) .*' },
    ],

    // ---- host pauses and masked stragglers --------------------------------------------------------------------
    // A rank that pauses in two of these intervals in a row, seconds, does so again and again.
    pauseInterval: 4 * c.scrapeInterval,
    // Pauses of different ranks in one of these intervals, seconds, count as simultaneous. Hosts are scraped at different
    // moments, so one pause is seen in two evaluations of one scrape interval, but in 4 of 3 of this one.
    simultaneousInterval: 3 * c.scrapeInterval,
    // Seconds over which they are averaged, and how many times one rank's own pauses they must cost.
    pauseWindow: 600,
    pauseSpread: 2,
    // Phases (regular expression) with counters of their own, judged by these: spans so rare have no steady mean.
    countedPauses: 'gc|compile',
    // Phases (regular expression) whose cost explains that other phases of the rank are slow: they lie inside.
    pausePhases: 'gc|compile|jit',
    // `windows.extremes_seconds` of the exporters.
    extremesWindow: 60,
    // Share of wall time by which frames of the main thread count, and the frames (regular expressions over
    // `function (module)`) that say what holds a rank up: it compiles, which makes its host slow; or the code has every
    // rank do something that is dear now on one and now on another, such as pinning memory (EROICA, case 2).
    framesShare: 0.05,
    compileFrames: {
      cause: 'host-jit',
      // The exporter counts all that a compiler does under its entry, which it finds by the same names. Regular expressions
      // and templates are compiled too, but not for the GPU.
      frames: '(.*[.])?_?compile(_(fx|fx_inner|graph|kernel|model|module|program))? .*',
      notFrames: '.*[(](re|regex|sre_compile|jinja2)([.].*)?[)]',
    },
    codeFrames: [{ cause: 'host-alloc', team: 'algorithm', frames: '(.*[.])?_?pin_memory .*' }],
    // Share of wall time in kernels beyond which the totals cannot be right: streams of computation overlap a little.
    busyMost: 1.05,
    // A span that is this many times the group's median is a spike.
    spikeRatio: 3,
    // Seconds over which spikes are counted, the windows that must have one, and how many times the average rank of
    // the group must have (1: all alike; n: all on one of n).
    spikeWindow: 1800,
    spikeMinWindows: 5,
    spikeOutlyingRatio: 3,

    // ---- causes and teams -----------------------------------------------------------------------------------
    // The first line whose phases match a host phase wins, the rest is hostCpu.
    causes: {
      compute: { cause: 'gpu-compute', team: 'operations' },
      late: { cause: 'collective-late', team: 'operations' },
      link: { cause: 'link-slow', team: 'operations' },
      // The collectives of most groups take longer than they did.
      fabric: { cause: 'fabric', team: 'operations' },
      hostCpu: { cause: 'host-cpu', team: 'operations' },
      // More to do than the others, by argus_work_units_total.
      workload: { cause: 'workload', team: 'algorithm' },
      // A pipeline stage that is longer than the others.
      stages: { cause: 'stage-imbalance', team: 'algorithm' },
      // Job-wide, against history.
      history: {
        colocation: { cause: 'colocation', team: 'infrastructure' },
        kernelShape: { cause: 'kernel-shape', team: 'infrastructure' },
        kernelInefficient: { cause: 'kernel-inefficient', team: 'infrastructure' },
        dataInput: { cause: 'data-input', team: 'algorithm' },
        hostCode: { cause: 'host-code', team: 'algorithm' },
        hostSync: { cause: 'host-sync', team: 'algorithm' },
        fabric: { cause: 'fabric-config', team: 'operations' },
        overlap: { cause: 'overlap-config', team: 'infrastructure' },
        unexplained: { cause: 'unexplained', team: 'infrastructure' },
      },
      hang: { cause: 'hang-host', team: 'operations' },
      hangCollective: { cause: 'hang-comm', team: 'operations' },
      // A rank that hangs in one of these phases.
      hangData: { phases: 'data', cause: 'hang-data', team: 'algorithm' },
      host: [
        { phases: 'data', cause: 'data-input', team: 'algorithm' },
        { phases: 'gc', cause: 'host-gc', team: 'algorithm' },
        { phases: 'compile|jit', cause: 'host-jit', team: 'infrastructure' },
      ],
    },

    // ---- severities -----------------------------------------------------------------------------------------
    // Share of wall time below which a persistent finding is a ticket.
    pageLostRatio: 0.05,
    // A finding pages if it costs at least this share of the job's costliest one. Not 1: the noise of two
    // equally slow ranks would swap them and restart each other's persistence.
    pageCostliestShare: 0.8,
    // Imbalance without a culprit: cost and persistence that make it worth a ticket.
    imbalanceLostRatio: 0.05,
    imbalanceFor: 600,

    // ---- stall ----------------------------------------------------------------------------------------------
    // No iteration for this many usual durations, and at least so many seconds.
    stallFactor: 5,
    stallMinSeconds: 60,
    // Iterations before the usual duration is known: compilation comes before.
    stallMinIterations: 3,
    // Share of the job's ranks that must wait for a rank that is elsewhere to be to blame, and the largest share
    // that can be to blame.
    stallWaitingShare: 0.5,
    stallCulpritShare: 0.5,
    // Outside `train` (a checkpoint, an evaluation) a stall is this many seconds without an iteration.
    stallOutsideTrainSeconds: 1800,

    // ---- L3 -------------------------------------------------------------------------------------------------
    // Smallest signed shift (ratio - 1) that alerts; the worker has judged persistence (2 of 3 windows).
    kernelShiftRatio: 0.03,
    // Shift that is `info` at once.
    kernelInfoShiftRatio: 0.5,
    // Seconds over which a kernel's share of time is taken. The counters advance every two seconds.
    kernelCostRange: 4 * c.scrapeInterval,
    // Share of wall time of a kernel's excess that may page.
    kernelPageLostRatio: 0.01,
    // Seconds a worker restart may take before an L3 alert resolves.
    l3KeepFiringFor: 180,
    // Seconds without a successful cycle: five of 60 s.
    l3BehindSeconds: 300,
    // How far back the last success is looked for, as remote-written series vanish 5 minutes after the last sample: so long
    // the alert on a worker that is gone stays.
    l3LookbackSeconds: 7 * 86400,

    // ---- hardware beside verdicts -----------------------------------------------------------------------------
    // Matchers of the series below, as argusSelector; what is recorded of the GPU (by its UUID) and of the host (by
    // its name, argus_rank_info's `node`) of a guilty rank. Absent exporters give no series.
    hardwareSelector: '',
    hardwareGpu: {
      sm_clock_megahertz: 'DCGM_FI_DEV_SM_CLOCK',
      temperature_celsius: 'DCGM_FI_DEV_GPU_TEMP',
      power_watts: 'DCGM_FI_DEV_POWER_USAGE',
      throttle_reasons: 'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS',
      last_xid: 'DCGM_FI_DEV_XID_ERRORS',
      nvlink_megabytes_per_second: 'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL',
    },
    hardwareNode: {
      nic_transmitted_bytes_per_second: { metric: 'node_infiniband_port_data_transmitted_bytes_total', counter: true },
      nic_link_downs_per_second: { metric: 'node_infiniband_link_downed_total', counter: true },
      // Of any GPU of the host: a sick neighbour.
      last_xid_on_host: { metric: 'DCGM_FI_DEV_XID_ERRORS', counter: false },
    },

    // ---- health of ARGUS itself -----------------------------------------------------------------------------
    rankMissingFor: 120,
    // Lost ranks that the alert lists.
    rankMissingNamed: 8,
    // Longer than an exporter remembers a rank that it has lost (5 minutes).
    nameClashFor: 600,
    channelDownFor: 300,
    // Channels that are off on purpose raise nothing (regular expression over `reason`).
    channelIgnoredReasons: 'disabled|not_configured',
    // Rate window of the health counters, seconds.
    healthWindow: 300,
    // Share of records lost on a channel.
    droppedRatio: 0.01,
    droppedFor: 300,
    // CPU seconds per second that ARGUS may use inside a training process.
    overheadRatio: 0.01,
    overheadFor: 600,
  },
}
