// What explains something silences it, within one job, and only if it pages: tickets go out in working hours only.
//
// Who is to blame for what, and whether that is all of it, is weighed by the rules. No page silences another here, but that
// the job stands still.
local findings = 'Argus(Iteration|Straggler|Group|Collective|Kernel|Host).+';

function(job) [
  {
    // A stalled job has no speed to judge; what was found before is told for some minutes more. A lost rank or a dead channel
    // may be why, and stays.
    source_matchers: ['alertname="ArgusTrainingStalled"', 'severity="page"'],
    target_matchers: ['alertname=~"%s"' % findings],
    equal: job,
  },
  {
    // Who is paged for a job learns no more from "the work is uneven", "the job is slower than earlier runs" or "iterations
    // take very different times".
    source_matchers: ['alertname=~"%s"' % findings, 'severity="page"'],
    target_matchers: ['alertname=~"ArgusIteration.+|ArgusGroupImbalance"', 'severity!="page"', 'rank=""'],
    equal: job,
  },
  {
    // Who looks after a rank already needs no ticket and no news of it. Other ranks keep theirs.
    source_matchers: ['alertname=~"%s"' % findings, 'severity="page"'],
    target_matchers: ['alertname=~"%s"' % findings, 'severity!="page"', 'rank!=""'],
    equal: job + ['rank'],
  },
]
