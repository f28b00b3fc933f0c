// One alert a kind of finding: what it says, and where it leads. What fires, and how severe, is the decision's.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local decision = 'rank:argus_decision:lost_ratio';

function(c, l, rows)
  local key = std.join(',', ['%s=%%q' % name for name in c.jobLabels]);
  local values = std.join(' ', ['$labels.%s' % name for name in c.jobLabels]);
  local name(row) = if 'cause' in row then row.cause else row.id;
  // What the job as a whole loses has a page of its own: what else it tells, by cause.
  local ofJobs = [row for row in rows if row.as == 'culprit' && row.level == 'L1'];
  local others = [row for row in rows if row.as == 'culprit' && row.level != 'L1'];
  local causes = std.set([name(row) for row in others]);
  local named = {
    ArgusStragglerRank: ['gpu-compute', 'host-cpu'],
    ArgusHostStall: ['host-gc', 'host-jit', 'host-alloc', 'data-input'],
    ArgusGroupImbalance: ['workload'],
    ArgusCollectiveLateRank: ['collective-late'],
    ArgusCollectiveSlowLink: ['link-slow'],
  };
  local all = std.set(std.flattenArrays(std.objectValues(named)));
  assert all == causes : 'causes without an alert, or alerts without a cause: %s' % [std.setUnion(std.setDiff(causes, all), std.setDiff(all, causes))];
  // What people read of a cause: the words of its row.
  local words(names) = std.join('', [
    '{{ if eq $labels.cause "%s" }}%s{{ end }}' % [cause, [row.words for row in others if name(row) == cause][0]]
    for cause in names
  ]);
  // Nothing says why, of a regression or against history: that may page, and that may not.
  local wordsOfJobs = std.join('', [
    '{{ if and (eq $labels.cause "%s") (eq $labels.most "%s") }}%s{{ end }}' % [name(row), row.most, row.words]
    for row in ofJobs
  ]);
  // What the history knows of a job that became slower within its run, which is told as that.
  local byHistory =
    '{{ if eq $labels.most "page" }}{{ range query (printf "rank:argus_evidence:lost_ratio{' + key + ',detector=%q} unless on (cause) '
    + 'rank:argus_exclusion:lost_ratio{' + key + ',by=~%q}" ' + values + ' "history" ' + values + ' "history-.*") }}{{ $cause := .Labels.cause }}'
    + std.join('', [
      '{{ if eq $cause "%s" }} It also %s.{{ end }}' % [row.id, row.words]
      for row in ofJobs
      if 'family' in row && row.cause != 'unexplained'
    ]) + '{{ end }}{{ end }}';
  local members =
    '{{ range $i, $rank := query (printf "topk(8, max by (rank) (rank:argus_evidence:lost_ratio{' + key + ',set=%q}))" ' + values + ' .) }}'
    + '{{ if $i }}, {{ end }}{{ $rank.Labels.rank }}{{ end }}';
  // What its hardware says of a rank, where the optional file is loaded.
  local hardware =
    '{{ with $labels.rank }}{{ with query (printf "rank:argus_hardware:current{' + key + ',rank=%q,field!=%q} > 0" ' + values + ' . "throttle_reasons") }} Its hardware:'
    + '{{ range $i, $field := sortByLabel "field" . }}{{ if $i }},{{ end }} {{ reReplaceAll "_" " " $field.Labels.field }}'
    + '{{ if not (match "throttled" $field.Labels.field) }} {{ $field.Value | humanize }}{{ end }}{{ end }}.{{ end }}{{ end }}';
  // Not a finding: a job that stands still loses everything, and at once.
  local stalled = {
    alert: 'ArgusTrainingStalled',
    expr: text.fill(|||
      job:argus_stalled:seconds * on (%(job)s) group_right () rank:argus_verdict:active{verdict="culprit", cause=~"%(causes)s"}
      or on (%(job)s) label_replace(job:argus_stalled:seconds, "team", "operations", "", "")
    |||, { job: l.job, causes: std.join('|', std.set([name(row) for row in rows if row.as == 'hang'])) }),
    'for': duration.of(c.stallFor),
    labels: { severity: c.severities.page, level: 'L1' },
    annotations: {
      summary: '{{ $labels.training_job }} has finished no iteration for {{ $value | humanizeDuration }}'
               + '{{ if $labels.rank }}: rank {{ $labels.rank }} hangs{{ if ne $labels.phase "none" }} in {{ $labels.phase }}{{ end }}'
               + '{{ else if $labels.phase }}: all ranks{{ with $labels.group }} of {{ . }}{{ end }} are in {{ $labels.phase }}{{ end }}.',
      description: 'The last iteration ended {{ $value | humanizeDuration }} ago, more than %g times the usual duration. ' % c.stallFactor
                   + '{{ if $labels.rank }}The others wait for rank {{ $labels.rank }}.{{ else if $labels.phase }}Nobody is elsewhere, so it '
                   + 'is the collective itself.{{ else }}Nothing tells whom the others wait for.{{ end }}',
    },
  };
  local told(alert, matchers, sentence, more='') = {
    alert: alert,
    local mine = decision + '{' + matchers + '}',
    // With node and GPU where they are known; both are in the labels, so that whoever is paged can route by them.
    expr: text.fill(|||
      %(mine)s * on (%(rank)s) group_left (node, gpu_uuid) rank:argus_finding:place ^ 0
      or on (%(finding)s) %(mine)s
    |||, { mine: mine, rank: l.rank, finding: l.finding }),
    annotations: {
      summary: '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ else if $labels.set }}One of the ranks {{ with $labels.set }}' + members
               + '{{ end }} of {{ else if $labels.group }}Group {{ $labels.group }} of {{ end }}{{ $labels.training_job }}'
               + '{{ with $labels.node }} on {{ . }}{{ end }} ' + sentence + '.',
      description: 'The job loses {{ $value | humanizePercentage }} of its time to it'
                   + '{{ with query (printf "%f * max(job:argus_ranks:count{' + key + '})" $value ' + values + ') }}: '
                   + '{{ . | first | value | printf "%.1f" }} GPUs stand idle{{ end }}.' + more,
    },
  };
  [stalled] + [
    told(alert, 'cause=~"%s", level!="L1"' % std.join('|', named[alert]), words(named[alert]), hardware)
    for alert in std.objectFields(named)
  ] + [told('ArgusIterationRegression', 'level="L1"', wordsOfJobs, byHistory)]
