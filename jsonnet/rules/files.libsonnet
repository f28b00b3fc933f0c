// The rules by file: series -> evidence -> precedence -> decision -> alerts.
local rows = import '../causes.libsonnet';
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';

function(c)
  local l = labels(c);
  local health = import 'health.libsonnet';
  local job = (import 'job.libsonnet')(c, l);
  local phases = (import '../evidence/phases.libsonnet')(c, l);
  local collectives = (import '../evidence/collectives.libsonnet')(c, l);
  local work = (import '../evidence/work.libsonnet')(c, l);
  local pauses = (import '../evidence/pauses.libsonnet')(c, l);
  local stacks = (import '../evidence/stacks.libsonnet')(c, l);
  local regression = (import '../evidence/regression.libsonnet')(c, l) + (import '../evidence/jitter.libsonnet')(c, l);
  local history = (import '../evidence/history.libsonnet')(c, l);
  local precedence = (import 'precedence.libsonnet')(c, l, rows);
  local cards = (import '../card/rules.libsonnet')(c, l);
  local decision = (import 'decision.libsonnet')(c, l, rows);
  local alerts = (import 'alerts.libsonnet')(c, l, rows);
  local kernels = (import '../evidence/kernels.libsonnet')(c, l);
  local anatomy = (import '../evidence/anatomy.libsonnet')(c, l);
  // Phases with groups of their own are read side by side with all others.
  local subjects = [{ name: '-' + phase, matcher: 'phase="%s"' % phase, labels: { phase: phase } } for phase in c.phases]
                   + [{ name: '', matcher: if c.phases == [] then '' else 'phase!~"%s"' % std.join('|', c.phases), labels: {} }];
  local group(name, seconds, rules) = {
    name: 'argus-' + name,
    interval: duration.of(seconds),
    rules: [health.heartbeat(self.name, seconds)] + rules,
  };
  local ofSubjects(name, seconds, rules) = [
    group(
      name + subject.name,
      seconds,
      // promtool calls records of one name and the same labels duplicates.
      [rule { [if subject.labels != {} || 'labels' in rule then 'labels']+: subject.labels } for rule in rules(subject.matcher)]
    )
    for subject in subjects
  ];
  // An ordered chain, in as few groups as twenty rules allow.
  local chain(name, seconds, rules) = [
    group('%s-%d' % [name, number + 1], seconds, rules[number * 19:(number + 1) * 19])
    for number in std.range(0, std.floor((std.length(rules) - 1) / 19))
  ];
  {
    job: { groups: [
      group('job', c.interval, job.activity),
      group('job-groups', c.slowInterval, job.groups),
    ] },
    phases: {
      groups: ofSubjects('phases', c.statisticsInterval, phases.statistics)
              + ofSubjects('spread', c.slowInterval, phases.slow)
              + ofSubjects('fast', c.interval, phases.fast),
    },
    evidence: { groups: [
      group('kernels', c.slowInterval, kernels.rules),
      group('sets', c.slowInterval, phases.sets),
      group('transfers', c.slowInterval, collectives.transfers),
      group('work', c.statisticsInterval, work.measures),
      group('stacks', c.slowInterval, stacks.measures),
      group('evidence', c.interval, collectives.late + phases.evidence + collectives.evidence + work.evidence),
      group('frames', c.interval, stacks.evidence),
      group('pauses', c.statisticsInterval, pauses.evidence + anatomy),
    ] },
    regression: { groups: chain('regression', c.interval, regression) },
    decision: {
      // A hang is told seconds after the scrape that shows it: from its evidence to its alert in one group.
      groups: [group('stall', c.decisionInterval, (import '../evidence/stall.libsonnet')(c, l) + decision.hangs + alerts.stalled)]
              + chain('precedence', c.decisionInterval, precedence.rules)
              + chain('decision', c.decisionInterval, decision.rules + [cards.onset] + alerts.findings)
              + [group('kernel-alerts', c.slowInterval, (import 'kernels.libsonnet')(c, l, rows))],
    },
    health: { groups: [group('health', c.slowInterval, health.rules(c, l))] },
    // Optional: who does not load them finds less, or is told less, and nothing else changes.
    history: { groups: [
      group('history-signatures', c.slowInterval, history.signatures + history.comparison),
      group('history', c.slowInterval, history.evidence),
      group('history-learning', c.history.interval, history.learning + cards.places),
      group('history-precedence', c.decisionInterval, precedence.families.history),
      group('card', c.slowInterval, cards.waiting),
    ] },
    nccl: { groups: [group('network', c.interval, (import '../evidence/network.libsonnet')(c, l))] },
    hardware: { groups: [group('hardware', c.slowInterval, (import '../evidence/hardware.libsonnet')(c, l))] },
  }
