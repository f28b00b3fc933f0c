// For demos and tests: a scrape and an evaluation each second, and every window shrunk to match.
{
  _config+:: {
    scrapeInterval: 1,
    evaluationInterval: 1,
    statisticsInterval: 1,
    // Statistics, verdicts and alerts are three hops: half a second keeps the last two within one evaluation.
    verdictInterval: 0.5,
    slowInterval: 2,
    rangeEpsilon: 0.1,
    // On a busy machine a scrape takes half a second.
    settle: 1,

    scanWindows: [30, 90, 180],
    // Four ranks on the host clock of a shared machine: single iterations spread far more than on a GPU.
    regressionRatio: 1.1,
    regressionRelativeStddev: 0.3,
    jitterRatio: 3,
    jitterExceedRatio: 2,
    baselineWindow: 120,
    jitterTicketWindow: 60,
    jitterWidthWindow: 20,
    jitterWidthStep: 0.25,

    meanWindows: [10, 30, 90],
    // One group for all phases: a demo has a few ranks.
    phases: [],
    // The counters advance every two seconds: over six, two increments or three would be a third apart.
    kernelCostRange: 12,
    pauseWindow: 30,
    spikeWindow: 180,
    fastWindow: 2,
    // Ten seconds hold few spans: one spike of 4x moves such a mean by 6 %.
    culpritRatio: 1.25,
    minLostRatio: 0.03,
    pageStays: 10,
    // A tenth of the usual number of steps in a window: waits wander further, so two windows more must agree.
    collectiveFor: 20,
    lateExplainFor: 20,

    historyMean: 20,
    historyInterval: 2,
    historyWindow: 7200,
    historyMinSamples: 10,

    imbalanceFor: 30,
    stallMinSeconds: 10,
    stallOutsideTrainSeconds: 60,

    l3KeepFiringFor: 10,
    l3BehindSeconds: 30,
    l3LookbackSeconds: 120,

    rankMissingFor: 5,
    channelDownFor: 5,
    healthWindow: 20,
    droppedFor: 5,
    // Steps of some milliseconds make the fixed cost of a step a larger share than it is in production.
    overheadRatio: 0.05,
    overheadFor: 20,
  },
}
