// What explains something silences it, if it pages: tickets go out in working hours only. Every rule holds within one job of
// one cluster.
local findings = 'Argus(Iteration|Straggler|Group|Collective|Kernel|Host).+';
local named = 'Argus(StragglerRank|HostStall|CollectiveLateRank|CollectiveSlowLink)';
local job = ['cluster', 'training_job'];
local rank = job + ['rank'];

[
  {
    // A stalled job has no speed to judge. A lost rank or a dead channel may be why, and stays.
    source_matchers: ['alertname="ArgusTrainingStalled"'],
    target_matchers: ['alertname=~"%s"' % findings],
    equal: job,
  },
  {
    // A named rank says more than "the job is slow" or "the work is uneven". Not of a page: whether the culprit explains it
    // is a matter of size, which the rules know.
    source_matchers: ['alertname=~"%s"' % named, 'severity="page"'],
    target_matchers: ['alertname=~"ArgusIteration(Jitter|Regression)|ArgusGroupImbalance"', 'severity!="page"'],
    equal: job,
  },
  {
    // Whoever is slow by itself makes others late.
    source_matchers: ['alertname=~"Argus(StragglerRank|HostStall)"', 'severity="page"'],
    target_matchers: ['alertname="ArgusCollectiveLateRank"'],
    equal: job,
  },
  {
    // One rank, one page: a GPU that is slow makes its loader look slow too, and the team of the first is at work.
    source_matchers: ['alertname="ArgusStragglerRank"', 'severity="page"'],
    target_matchers: ['alertname=~"%s"' % findings, 'severity="page"', 'team!="operations"', 'rank!=""'],
    equal: rank,
  },
  {
    // Who looks after a rank already needs no ticket for what else it shows. Other ranks keep theirs.
    source_matchers: ['alertname=~"%s"' % findings, 'severity="page"'],
    target_matchers: ['alertname=~"%s"' % findings, 'severity="ticket"', 'rank!=""'],
    equal: rank,
  },
  {
    // What was news has become a finding. Not the health alerts: a dead channel says nothing about speed.
    source_matchers: ['severity="page"', 'alertname=~"%s"' % findings],
    target_matchers: ['severity="info"', 'alertname=~"%s"' % findings],
    equal: rank,
  },
]
