// From evidence to verdicts: one template for every row of the table of causes.
//
// All rules are in the order of the rows, and a later rule of a group sees what an earlier one has just recorded: a
// verdict takes no time beyond the evaluation in which its evidence is there.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local evidence = 'rank:argus_evidence:lost_ratio';
local exclusion = 'rank:argus_exclusion:lost_ratio';
local verdict = 'rank:argus_verdict:lost_ratio';

function(c, l, rows)
  // Two rows of one id are refused by jsonnet. Of hangs there are several, and nothing yields to them.
  local position = { [rows[i].id]: i for i in std.range(0, std.length(rows) - 1) if rows[i].as != 'hang' };
  local index(id) =
    assert std.objectHas(position, id) : 'the table of causes has no row %s' % id;
    position[id];
  // What a job as a whole loses is of no rank.
  local who(row) = if row.level == 'L1' then l.job else l.who;
  // Of one row, or of a family.
  local evidenceOf(some) = evidence + (if std.length(some) == 1 then '{cause="' + some[0].id + '"}' else '{cause=~"' + some[0].family + '-.*"}');
  local of(some) = 'max by (' + who(some[0]) + ') (' + evidenceOf(some) + ')';

  local how(yields, id) =
    if 'by' in yields then yields.by else if yields.at == 'rank' || rows[index(id)].as == 'context' then 'evidence' else 'verdict';
  local checked(row, yields) =
    local below = [id for id in yields.to if index(id) >= index(row.id)];
    assert below == [] : '%s yields to rows that do not come before it: %s' % [row.id, below];
    // Whose evidence excuses in the rest of the job may be excused itself, by those who then excuse the row as well.
    local mine = std.set(std.flattenArrays([other.to for other in row.yields]));
    local gaps = [
      id
      for id in yields.to
      if how(yields, id) == 'evidence' && yields.at == 'job' && std.setDiff(std.set(std.flattenArrays([theirs.to for theirs in rows[index(id)].yields])), mine) != []
    ];
    assert gaps == [] : '%s takes the evidence of rows that yield to others than it does: %s' % [row.id, gaps];
    yields;
  // What a row yields to at one place by one factor is one rule.
  local places(row) = std.foldl(
    function(found, yields) local place = { at: yields.at, factor: yields.factor }; if std.member(found, place) then found else found + [place],
    row.yields,
    []
  );

  // Of one row, or of several that yield to the same.
  local excluded(some, number) =
    local row = some[0];
    local place = places(row)[number];
    local at(other) = [checked(other, yields) for yields in other.yields if [yields.at, yields.factor] == [place.at, place.factor]];
    assert [other for other in some if at(other) != at(row)] == [] : 'not all yield to the same as %s' % row.id;
    local to(what) = [id for yields in at(row) for id in yields.to if std.member(what, how(yields, id))];
    local all = to(['evidence', 'verdict']);
    // What each loses to each of them, for as long as the means remember what they did. What a job has lost as a whole for
    // minutes is not what one or another of its groups then seems to lose by chance for one of them: who comes later must last.
    local lost(series, label, ids) =
      local over(what, seconds) = what + '_over_time(' + series + '{' + label + '=~"' + std.join('|', ids) + '"}[' + duration.range(c, seconds) + '])';
      local leave = c.decision.leave;
      local older = evidenceOf(some) + ' offset ' + duration.of(c.hold);
      'label_replace(' + over('max', c.hold) + (
        if row.level == 'L1' && series == verdict then ' unless on (%s) %s or %s and %s >= %s' % [l.job, older, over('max', leave), over('count', leave), duration.evaluations(c, c.hold)]
        else ''
      ) + ', "by", "$1", "' + label + '", "(.*)")';
    local costs = [
      { of: lost(from.name, from.label, from.ids), detectors: from.name == evidence }
      for from in [
        { name: verdict, label: 'row', ids: to(['verdict']) },
        { name: evidence, label: 'cause', ids: to(['evidence']) },
      ]
      if from.ids != []
    ];
    local cause = if std.length(some) == 1 then row.id else row.family;
    local ofJobs = [id for id in [row.id] + all if rows[index(id)].as == 'context' || rows[index(id)].level != 'L1'] == [];
    {
      about:: 'What %s is excused by: it costs at most %g times what %s cost the %s.' % [
        cause,
        place.factor,
        std.join(', ', all),
        place.at,
      ],
      record: exclusion,
      labels: { cause: cause, at: place.at, rule: '%d' % number },
      expr: text.fill(if std.length(some) == 1 && ofJobs then |||
        max by (%(job)s, by) (%(costs)s)
        >= on (%(job)s) group_left () %(own)s / %(factor)s
      ||| else |||
        label_replace(
          topk by (%(on)s) (1,
            %(sums)s
          ), "by_rank", "$1", "rank", "(.+)"
        ) >= on (%(on)s) group_right (by, by_rank) (%(own)s / %(factor)s)
      |||, {
        job: l.job,
        own: of(some),
        on: { rank: l.rank, job: l.job }[place.at],
        factor: place.factor,
        costs: std.join(' or ', [one.of for one in costs]),
        // The sum over the phases of a rank, which do not overlap. Several detectors may see one loss, and a row has one verdict of it.
        sums: std.join('\n      or ', [
          'sum by (' + l.rank + ', set, view, by) (' + (if one.detectors then 'max by (' + l.who + ', by) (' + one.of + ')' else one.of) + ')'
          for one in costs
        ]),
      }),
    };

  local name(row) = if 'cause' in row then row.cause else row.id;
  local without(labels, matcher) = '\nunless on (' + labels + ') ' + exclusion + '{cause' + matcher + '}';
  // What is told as info yields to all that is told, as it says less, and for as long as that may be in its window.
  local quiet(row) = {
    about:: 'What silences %s: that anything else is told of the job, or was.' % row.id,
    memory:: true,
    record: exclusion,
    labels: { cause: row.id, at: 'job' },
    local lesser = [name(other) for other in rows[index(row.id):] if other.as == 'culprit' && other.info],
    expr: text.fill(|||
      label_replace(
        topk by (%(job)s) (1, max by (%(job)s, cause) (max_over_time(rank:argus_decision:lost_ratio{cause!~"%(lesser)s"}[%(window)s]))),
        "by", "$1", "cause", "(.*)"
      ) and on (%(job)s) %(own)s
    |||, { job: l.job, lesser: std.join('|', lesser), window: duration.range(c, 900 * c.second), own: of([row]) }),
  };
  local ruling(row) = [excluded([row], number) for number in std.range(0, std.length(places(row)) - 1)] + (if row.info then [quiet(row)] else []) + [
    {
      about:: 'A rank, set, group or job that %s, and that nothing excuses: the share of wall time lost.' % row.words,
      record: verdict,
      labels: { verdict: 'culprit', row: row.id, cause: name(row), team: row.team, level: row.level, most: row.most },
      expr: of([row]) + without(who(row), '="' + row.id + '"') + without(l.job, '="all"'),
    },
  ];

  // Rows that explain one loss: what all of them yield to, then each to those above it; the rest is one verdict.
  local family(some) =
    local first = some[0];
    local common = std.length(places(first));
    local label(source, name, value, pattern) = 'label_replace(' + std.join(', ', [source] + ['"' + text + '"' for text in [name, value, 'cause', pattern]]) + ')';
    local causes = l.list(['cause']);
    local left = 'max by (' + causes + ') (' + evidence + '{cause=~"' + first.family + '-.*"})'
                 + without(causes, '=~"' + first.family + '-.*"') + without(l.job, '=~"all|' + first.family + '"');
    local differing = [other.id for other in some if [other.level, other.most] != [first.level, first.most] || other.id != other.family + '-' + other.cause];
    assert differing == [] : '%s differ from %s in level, severity or the way of their names' % [differing, first.id];
    [excluded(some, number) for number in std.range(0, common - 1)]
    + [excluded([row], common) for row in some[1:]]
    + [
      {
        about:: 'What the first explanation is that has evidence, and that nothing excuses: the share of wall time lost.',
        record: verdict,
        labels: { verdict: 'culprit', row: first.family, level: first.level, most: first.most },
        expr: std.foldl(
          function(source, team) label(source, 'team', team, std.join('|', [row.cause for row in some if row.team == team])),
          std.set([row.team for row in some]),
          label('\n' + left + '\n', 'cause', '$1', first.family + '-(.*)')
        ),
      },
    ];

  // Of every cause at once: nobody is judged in a job that stands still or does something else, nor in a group of whose
  // ranks too few are heard.
  local everything = [
    {
      about:: 'A job that does something other than training, or did within the window: its means say nothing.',
      record: exclusion,
      labels: { cause: 'all', by: 'activity', at: 'job' },
      expr: 'job:argus_other_activity:seconds < %g' % c.window,
    },
    {
      // Before, one step may take that long.
      about:: 'A job that stands still, as a page: the rules on stalls tell whom it waits for.',
      record: exclusion,
      labels: { cause: 'all', by: 'stall', at: 'job' },
      expr: 'max by (%s) (job:argus_stalled:seconds >= %g)' % [l.job, c.stallUnprovedSeconds],
    },
  ];
  // What the job as a whole loses is of no group.
  local families = std.set([row.family for row in rows if 'family' in row]);
  local loaded = [row for row in rows if row.as == 'culprit' && !('family' in row)];
  local ofJobs = std.join('|', [row.id for row in loaded if row.level == 'L1'] + [family + '-.*' for family in families]);
  {
    rules: everything + [
      {
        about:: 'Where too few ranks of a group report: the rest is no majority.',
        record: exclusion,
        labels: { by: 'coverage', at: 'group' },
        expr: 'max by (' + l.who + ', cause) (' + evidence + '{cause!~"' + ofJobs + '"}) and on (' + l.group + ') group:argus_phase_coverage:low_ratio',
      },
    ] + std.flattenArrays([ruling(row) for row in loaded]),
    // Each for its optional file.
    families: { [name]: family([row for row in rows if 'family' in row && row.family == name]) for name in families },
  }
