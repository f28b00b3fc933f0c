// What people read of an alert, in Go's templates: who and where, how much, since when, and links.
//
// Prometheus and vmalert fill them at each evaluation; a text may ask queries. In a query <job> stands for the matchers of the
// alert's job, <cost> for its value, <rank> and so on for the value of a label, and <one> for the rank of one of several samples.
local asks = (import '../card/questions.libsonnet').trace;
local text = import 'text.libsonnet';

function(c) {
  local words = self,
  // vmalert has nil where an alert lacks the label, and `index` an empty text as Prometheus has it.
  value(name):: '(index $labels "' + name + '")',
  local labels(names) = std.join(' ', [words.value(name) for name in names]),

  // "llm", and what else of it is known: "llm in cluster a".
  job: '{{ $labels.training_job }}' + std.join('', [
    '{{ with $labels.' + name + ' }} in ' + name + ' {{ . }}{{ end }}'
    for name in c.jobLabels
    if name != 'training_job'
  ]),

  // A text in which queries may be asked.
  text(parts)::
    local job = '{{ $job := printf "' + std.join(',', [name + '=%q' for name in c.jobLabels]) + '" ' + labels(c.jobLabels) + ' }}';
    (if text.has(parts, '$job') then job else '') + parts,
  local places = { job: { is: '$job', as: '%s' }, cost: { is: '$value', as: '%f' }, one: { is: '$one.Labels.rank', as: '%q' } } + {
    [label]: { is: words.value(label), as: '%q' }
    for label in ['rank', 'group', 'set', 'cause', 'coordinate', 'value', 'node', 'training_job']
  } + {
    // Variables of the card.
    [name]: { is: '$' + name, as: if std.member(['phase', 'part_group'], name) then '%q' else '%s' }
    for name in ['phase', 'part_group', 'lasted', 'step', 'step_s']
  },
  // A query as a template has it, with more places by name: { is: an expression, as: how it is printed }.
  printed(query, more={})::
    local all = places + more;
    local used = [name for name in std.objectFields(all) if text.has(query, '<' + name + '>')];
    local numbered = std.foldl(
      function(filled, i) std.strReplace(filled, '<' + used[i] + '>', std.strReplace(all[used[i]].as, '%', '%[' + (i + 1) + ']')),
      std.range(0, std.length(used) - 1),
      std.strReplace(query, '"', '\\"')
    );
    // Go complains of what it is given and does not need.
    if used == [] then '"' + numbered + '"'
    else '(printf "' + numbered + '" ' + std.join(' ', [all[name].is for name in used]) + ')',
  asked(query):: 'query ' + words.printed(query),
  local either(found, otherwise) = found + (if otherwise == '' then '' else '{{ else }}' + otherwise) + '{{ end }}',
  // `found` of the first sample of a query, which is `.`; nothing where there is none.
  first(query, found):: '{{ with ' + words.asked(query) + ' }}{{ with first . }}' + found + '{{ end }}{{ end }}',
  number(query, format, before='', after=''):: words.first(query, before + '{{ .Value | printf "' + format + '" }}' + after),
  // `one` of each of its samples, which is `$one` there; in the order of a label, or in that of the query.
  each(query, one, before='', after='', otherwise='', between=', ', order='')::
    local all = if order == '' then '.' else 'sortByLabel "' + order + '" .';
    '{{ with ' + words.asked(query) + ' }}'
    + either(before + '{{ range $i, $one := ' + all + ' }}{{ if $i }}' + between + '{{ end }}' + one + '{{ end }}' + after, otherwise),

  // Ranks with their hosts: "3 (gpu-0), 4 (gpu-1)".
  ranks(query, before, after='', otherwise='')::
    local node = words.first('argus_rank_info{<job>,rank=<one>}', '{{ with .Labels.node }} ({{ . }}){{ end }}');
    words.each(query, '{{ $one.Labels.rank }}' + node, before, after, otherwise),

  // ", since 14:03 UTC": by a series whose value is when it was first there.
  since(onset):: words.first(onset, ', since {{ .Value | humanizeTimestamp | reReplaceAll "^.* (..:..):.*$" "$1" }} UTC'),

  local site = [name for name in c.jobLabels if name != 'training_job'],
  local variables(names) = std.join('', [
    '{{ with $labels.' + name + ' }}var-' + name + '={{ . | urlquery }}&{{ end }}'
    for name in names
  ]),
  local links(alert, dashboard) = {
    runbook_url: std.strReplace(c.runbookUrl, '%s', alert),
    dashboard_url: dashboard,
  },
  // A site's address may have a query of its own, as `?orgId=2`.
  local asked(url) = url + if std.member(url, '?') then '&' else '?',
  jobUrl:: asked(c.dashboardUrl) + variables(site + ['rank']) + 'var-training_job={{ $labels.training_job | urlquery }}',
  local itselfUrl = asked(c.itselfUrl) + variables(site),
  // Where the worker asked for one.
  local trace(found) = words.text('{{ if $labels.rank }}' + words.first(asks.rank, found)
                                  + '{{ else }}' + words.first(asks.other, found) + '{{ end }}'),

  // An alert whole: what every one has is added here, so that none can forget it.
  //   about: a 'job', which may have a trace; a job's 'coverage', which has none; or ARGUS 'itself'.
  alert(alert, about='job'):: alert {
    [if c.alertLabels != {} || 'labels' in alert then 'labels']: c.alertLabels + (if 'labels' in alert then alert.labels else {}),
    annotations+: links(alert.alert, if about == 'itself' then itselfUrl else words.jobUrl) + (
      if about != 'job' then {}
      else { trace_key: trace('{{ .Labels.trace_key }}') }
           + (if c.traceUrl == '' then {} else { trace_url: trace(c.traceUrl + '/traces/{{ .Labels.trace_key }}?ui=1') })
    ),
  },
}
