// The annotation `card`: what `argus-l3-worker explain` prints, line for line, as a Go template.
//
// Prometheus and vmalert fill it at each evaluation of an alert, so it asks three queries: where it loses most, for how long, and
// all numbers at once. Each sample of that says in its label `card` where it stands, its unit and its words: two digits, a letter, a
// text (questions.libsonnet). A set or a group also asks for its ranks. A test plays jobs, lets Prometheus and vmalert fill
// it, and compares it with what the worker prints.
local text = import '../lib/text.libsonnet';
local asks = import 'questions.libsonnet';
// By unit: its letter, the number as people read it, and what the query is multiplied by.
local units = {
  s: { letter: 's', number: 'humanizeDuration .Value' },
  share: { letter: 'p', number: 'printf "%.3g%%" .Value', scale: '100 * ' },
  change: { letter: 'c', number: 'printf "%+.0f%%" .Value', scale: '100 * ' },
  times: { letter: 'x', number: 'printf "%.2fx" .Value' },
  count: { letter: 'n', number: 'printf "%.0f" .Value' },
  GPUs: { letter: 'g', number: 'printf "%.1f" .Value' },
  'GPU-hours': { letter: 'h', number: 'printf "%.2f GPU-hours" .Value' },
  'Unix s': { letter: 't', number: 'reReplaceAll "^.* (..:..:..).*$" "$1 UTC" (humanizeTimestamp .Value)' },
  minute: { letter: 'm', number: 'reReplaceAll "^(....-..-..) (..:..).*$" "$1 $2 UTC" (humanizeTimestamp .Value)' },
};
local label(name) = '\n' + name + std.repeat(' ', 9 - std.length(name));
local set(variable, to) = '{{ ' + variable + ' = ' + to + ' }}';
local chain(cases) = '{{ ' + std.join('{{ else ', ['if ' + one.when + ' }}' + one.so for one in cases]) + '{{ end }}';
// The beginning of what a row says, up to the first sign.
local short(words) = std.foldl(function(found, sign) std.split(found, sign)[0], [';', ',', ':'], words);

function(c, words)
  local value(label) = words.value(label);
  local said(query, at, says) = 'label_replace(' + query + ', "card", "' + at + says + '", "", "")';

  // Whose queries others name: their texts are variables, so that they stand there once.
  local variable(id) = 'q_' + std.strReplace(id, '.', '_');
  local named(facts, by=facts) = [fact for fact in facts if std.length([1 for other in by if text.has(other[4], '<' + fact[0] + '>')]) > 0];
  local variables(facts) = { [fact[0]]: { is: '$' + variable(fact[0]), as: '(%s)' } for fact in named(facts) };
  local who = 'rank=<rank>,set=<set>,group=<group>';
  local printed(query, facts) = words.printed(std.strReplace(query, '<who>', who), variables(facts));
  local declared(some, facts, by=facts) = std.join('', ['{{ $' + variable(fact[0]) + ' := ' + printed(fact[4], facts) + ' }}' for fact in named(facts, by) if std.member(some, fact)]);

  // What facts say, and what would refute a kind: what is so comes first, then what people must say.
  local ofFacts(some, facts) = [
    said(std.get(units[fact[1]], 'scale', '') + (if std.member(named(facts), fact) then '<' + fact[0] + '>' else '(' + fact[4] + ')'), at + units[fact[1]].letter, fact[5][at])
    for fact in some
    for at in std.objectFields(fact[5])
  ];
  local ofClaims(claims) = std.flattenArrays([
    if claims[i][1] == '' then [said('vector(1)', '7' + (i + 3) + 'n', '; [ask] ' + claims[i][0])]
    else [
      said('(' + claims[i][1] + ') ^ 0', '7' + i + 'n', '; [YES] ' + claims[i][0]),
      said('(vector(1) unless (' + claims[i][1] + '))', '7' + (i + 6) + 'n', '; [no] ' + claims[i][0]),
    ]
    for i in std.range(0, std.length(claims) - 1)
  ]);
  local union(some, facts) = printed(std.join(' or ', some), facts);

  // Of all kinds of an alert.
  local common(hang) =
    local of(section) = asks[section + (if hang && std.objectHas(asks, section + '_of_hang') then '_of_hang' else '')];
    of('job') + of('onset') + of('cost') + of('so_far') + of('victims');
  local sizes(kind) = asks.size[kind];

  // For how long: the range of what it has cost so far.
  local lasted(hang) =
    local onset = asks[if hang then 'onset_of_hang' else 'onset'];
    local steps = [{ when: 'le .Value %.1f' % one[0], so: set('$step', '"' + one[1] + 's"') + set('$step_s', '"' + one[1] + '"') } for one in asks.steps];
    declared(onset, onset) + '{{ $lasted := "1s" }}{{ $step := "15s" }}{{ $step_s := "15" }}{{ range query ' + printed(onset[1][4], onset) + ' }}'
    + set('$lasted', 'printf "%.0fs" .Value') + chain(steps) + '{{ end }}';

  local advice(kind, causes) =
    local written(step) = std.strReplace(step, '<where>', '{{ or $node "its host" }}');
    local known = [cause for cause in causes if std.objectHas(asks.advice, cause)];
    if std.objectHas(asks.advice, kind) then written(asks.advice[kind])
    else chain([{ when: 'eq $cause "' + cause + '"', so: written(asks.advice[cause]) } for cause in known] + [{ when: 'true', so: written(asks.advice.other) }]);

  // What is of one kind only.
  local subjects = {
    rank: 'rank {{ $labels.rank }}{{ with $node }} on {{ . }}{{ end }} ',
    set: 'one rank of {{ $labels.set }} ',
    group: 'group {{ $labels.group }} ',
    job: 'the job ',
  };
  local branch(kind) =
    local facts = common(kind.kind == 'hang') + sizes(kind.kind);
    local places = { rank: [said(asks.place, '10l', '#')] };
    (if kind.kind == 'hang' then set('$phase', value('phase'))
     else '{{ range ' + words.asked(asks.part[kind.subject]) + ' }}' + std.join('', [
       set(one[0], 'index .Labels "' + one[1] + '"')
       for one in [['$phase', 'phase'], ['$part_group', 'group'], ['$row', 'row']]
     ]) + '{{ end }}')
    + declared(sizes(kind.kind), facts)
    + set('$more', union(
      ofFacts(sizes(kind.kind), facts) + ofClaims(asks.refuted[kind.kind])
      + std.get(places, kind.subject, [said('vector(1)', '10r', '')])
      + [said(asks.trace[if kind.subject == 'rank' then 'rank' else 'other'], '99k', '')],
      facts
    ))
    + subjects[kind.subject];

  local place = '{{ $between := ", " }}' + std.join('', ['{{ with index .Labels "node" }}' + set('$n', 'printf ", on %s" .') + '{{ end }}']
                                                        + ['{{ with index .Labels "gpu_uuid" }}' + set('$n', 'printf "%s, %s" $n .') + '{{ end }}']
                                                        + [
                                                          '{{ with index .Labels "' + axis + '" }}' + set('$n', 'printf "%s%s' + axis + '%s" $n $between .') + set('$between', '" "') + '{{ end }}'
                                                          for axis in asks.axes
                                                        ]);
  local members(kind) =
    local of = asks.members[kind.subject];
    local first = 'bottomk(8, ' + of + ')';
    local more = words.number('count(' + of + ') - 8 > 0', '%.0f', ' and ', ' more');
    if kind.subject == 'job' then words.each(first, '{{ $one.Labels.node }}', label('who') + 'all ranks, on ', more)
    else words.ranks(first, label('who') + 'ranks ', more);
  local loop(kinds) =
    local many = [kind for kind in kinds if std.objectHas(asks.members, kind.subject)];
    local cases = [{ when: 'eq $unit "' + units[unit].letter + '"', so: set('$n', units[unit].number) + (if unit == 'minute' then '{{ if eq $line "2" }}' + set('$onset', '$n') + '{{ end }}' else '') } for unit in std.objectFields(units)] + [
      { when: 'eq $unit "l"', so: place },
      { when: 'eq $unit "k"', so: set('$trace', 'index .Labels "trace_key"') },
      { when: 'eq $unit "a"', so: set('$now', 'reReplaceAll "[.]000$" "" (printf "%.3f" .Value)') },
    ] + (if many == [] then [] else [{ when: 'eq $unit "r"', so: chain([{ when: kind['if'], so: members(kind) } for kind in many]) }]);
    '{{ $last := "0" }}{{ range sortByLabel "card" (query (printf "%s or %s" $common $more)) }}'
    + '{{ $card := index .Labels "card" }}{{ $line := slice $card 0 1 }}{{ $unit := slice $card 2 3 }}{{ $n := "" }}' + chain(cases)
    + '{{ $text := reReplaceAll "@" (or $phase "it") (reReplaceAll "#" $n (slice $card 3)) }}'
    + '{{ if and $text (lt $line "8") }}{{ if eq $line $last }}{{ $text }}{{ else }}'
    + chain([{ when: 'eq $line "' + i + '"', so: label(asks.lines[i]) } for i in std.range(1, std.length(asks.lines) - 1)])
    + '{{ slice $text 2 }}{{ end }}{{ $last = $line }}{{ end }}{{ end }}';

  // Words of a shell for a name that users choose.
  local shell(name) =
    '{{ if match "^[a-zA-Z0-9_@%+=:,./-]+$" ' + name + ' }}{{ ' + name + " }}{{ else }}'{{ reReplaceAll \"'\" \"'\\\"'\\\"'\" " + name + " }}'{{ end }}";
  local id = 'av1-{{ $cause }}-{{ or ' + std.join(' ', [value(name) for name in ['rank', 'set', 'group']]) + ' "job" }}-'
             + '{{ reReplaceAll "^(....)-(..)-(..) (..):(..).*$" "${1}${2}${3}T${4}${5}" $onset }}';
  {
    // alert: its name. severity: a template or a word.
    // kinds: [{ if: a condition, kind, subject: 'rank', 'set', 'group' or 'job', mine: rows of causes }], the last without a condition.
    of(alert, severity, kinds)::
      local hang = kinds[0].kind == 'hang';
      local facts = common(hang);
      local each(of) = chain([{ when: kind['if'], so: of(kind) } for kind in kinds]);
      // Where no row is known, the one that is called as the cause.
      local rows(kind) = std.sort([{ row: if 'family' in row then row.family else row.id, cause: if 'cause' in row then row.cause else row.id, words: row.words } for row in kind.mine], function(one) if one.row == one.cause then 0 else 1);
      local causes = std.set([one.cause for one in rows(kinds[0])]);
      words.text(
        '{{ $phase := "" }}{{ $part_group := "" }}{{ $row := "" }}{{ $more := "" }}{{ $onset := "" }}{{ $trace := "" }}{{ $now := "" }}'
        + '{{ $node := ' + value('node') + ' }}{{ $cause := or ' + value('cause') + ' "stalled" }}'
        + lasted(hang)
        + declared([fact for fact in facts if fact[0] != 'onset.time'], facts, std.flattenArrays([facts] + [sizes(kind.kind) for kind in kinds]))
        + '{{ $common := ' + union(ofFacts(facts, facts) + [said('vector(time())', '99a', '')], facts) + ' }}'
        + '[' + severity + '] {{ $labels.training_job }}: ' + each(branch)
        + chain([{ when: 'and (or (eq $row "' + one.row + '") (eq $row "")) (eq $cause "' + one.cause + '")', so: short(one.words) } for one in rows(kinds[0])])
        + '{{ if or (eq $phase "all") (eq $phase "none") }}{{ $phase = "" }}{{ end }}'
        + loop(kinds)
        + label('do') + (if std.length(kinds) == 1 then advice(kinds[0].kind, causes) else each(function(kind) advice(kind.kind, causes)))
        + label('look') + std.strReplace(c.runbookUrl, '%s', alert)
        + (if std.startsWith(c.dashboardUrl, 'http') then '  ' + words.jobUrl else '')
        + '{{ with $trace }}  ' + (if c.traceUrl == '' then '{{ . }}' else c.traceUrl + '/traces/{{ . }}?ui=1') + '{{ end }}'
        + label('id') + id + '  argus-l3-worker explain --job ' + shell('$labels.training_job')
        + '{{ with ' + value('cluster') + ' }} --cluster ' + shell('.') + '{{ end }} --time {{ $now }}'
      ),
  }
