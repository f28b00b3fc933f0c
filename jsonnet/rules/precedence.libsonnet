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
  local index(id) =
    local found = [i for i in std.range(0, std.length(rows) - 1) if rows[i].id == id];
    assert std.length(found) == 1 : 'the table of causes has no row %s, or several' % id;
    found[0];
  local of(id) = 'max by (' + l.who + ') (' + evidence + '{cause="' + id + '"})';

  local excluded(row, number) =
    local yields = row.yields[number];
    local below = [id for id in yields.to if index(id) >= index(row.id)];
    assert below == [] : '%s yields to rows that do not come before it: %s' % [row.id, below];
    local how = if 'by' in yields then yields.by else if yields.at == 'rank' then 'evidence' else 'verdict';
    local read_as(what) = [id for id in yields.to if (if rows[index(id)].as == 'context' then 'evidence' else how) == what];
    // Whose evidence excuses in the rest of the job may be excused itself, by those who then excuse the row as well.
    local mine = std.set(std.flattenArrays([other.to for other in row.yields]));
    local gaps = [
      id
      for id in yields.to
      if how == 'evidence' && yields.at == 'job' && std.setDiff(std.set(std.flattenArrays([theirs.to for theirs in rows[index(id)].yields])), mine) != []
    ];
    assert gaps == [] : '%s takes the evidence of rows that yield to others than it does: %s' % [row.id, gaps];
    // What each rank loses to each of them: the sum over its phases, which do not overlap; for as long as the means
    // remember what they did.
    local costs = [
      text.fill('sum by (%(rank)s, set, by) (max by (%(who)s, by) (label_replace(max_over_time(%(series)s[%(hold)s]), "by", "$1", "%(label)s", "(.*)")))', {
        rank: l.rank,
        who: l.who,
        label: from.label,
        hold: duration.range(c, c.hold),
        series: from.name + '{' + from.label + '=~"' + std.join('|', from.ids) + '"}',
      })
      for from in [
        { name: verdict, label: 'row', ids: read_as('verdict') },
        { name: evidence, label: 'cause', ids: read_as('evidence') },
      ]
      if from.ids != []
    ];
    {
      about:: 'What %s is excused by: it costs at most %g times what %s cost the %s.' % [row.id, yields.factor, std.join(', ', yields.to), yields.at],
      record: exclusion,
      labels: { cause: row.id, at: yields.at, rule: '%d' % number },
      expr: text.fill(|||
        (
          0 * %(own)s
          + on (%(on)s) group_left (by, by_rank) label_replace(
            topk by (%(on)s) (1,
              %(costs)s
            ), "by_rank", "$1", "rank", "(.+)"
          )
        ) >= on (%(who)s) group_left () (%(own)s / %(factor)s)
      |||, {
        own: of(row.id),
        on: { rank: l.rank, job: l.job }[yields.at],
        who: l.who,
        factor: yields.factor,
        costs: std.join('\n      or ', costs),
      }),
    };

  local ruling(row) = [excluded(row, number) for number in std.range(0, std.length(row.yields) - 1)] + [
    {
      about:: 'A rank, set, group or job that %s, and that nothing excuses: the share of wall time lost.' % row.words,
      record: verdict,
      labels: { verdict: 'culprit', row: row.id, cause: if 'cause' in row then row.cause else row.id, team: row.team, level: row.level, most: row.most },
      expr: of(row.id) + '\nunless on (' + l.who + ') ' + exclusion + '{cause="' + row.id + '"}'
            + '\nunless on (' + l.job + ') ' + exclusion + '{cause="all"}',
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
      about:: 'A job that stands still: the rules on stalls tell whom it waits for.',
      record: exclusion,
      labels: { cause: 'all', by: 'stall', at: 'job' },
      expr: 'max by (' + l.job + ') (job:argus_stalled:seconds)',
    },
  ];
  // What the job as a whole loses is of no group.
  local ofJobs = std.join('|', [row.id for row in rows if row.as == 'culprit' && row.level == 'L1']);
  everything + [
    {
      about:: 'Where too few ranks of a group report: the rest is no majority.',
      record: exclusion,
      labels: { by: 'coverage', at: 'group' },
      expr: 'max by (' + l.who + ', cause) (' + evidence + '{cause!~"' + ofJobs + '"}) and on (' + l.group + ') group:argus_phase_coverage:low_ratio',
    },
  ] + std.flattenArrays([ruling(row) for row in rows if row.as == 'culprit'])
