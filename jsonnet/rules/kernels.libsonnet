// L3: what the worker found in kernels, and no finding tells.
//
// A rank whose kernels cost the job enough is a finding like any other, and told as ArgusStragglerRank (or as what explains it):
// an alert does not change its name when the worker has spoken. What is left are kernels that cost little and may be the
// beginning of more: one alert a job and cause, however many ranks and kernels. The worker has judged effect and persistence.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local writing = import '../lib/words.libsonnet';

function(c, l)
  local words = writing(c);
  // The worker's series end when it does: a restart withdraws nothing.
  local lately(series) = 'last_over_time(' + series + '[' + duration.range(c, c.kernelLookback) + '])';
  local anomaly(matchers) = lately(l.raw('argus_l3_anomaly', ['verdict="culprit"'] + matchers));
  local shift(matchers) = lately(l.raw('argus_l3_group_shift', matchers));
  // Worker and phases find the same rank within some minutes of each other, and a finding must last before it is told.
  local patience = c.decision.ticket.lasting + c.window;
  local at = { job: l.job, rank: l.rank, least: c.kernelShift };
  // `usual`, but `other` where a label has one of these values.
  local severity(of, usual, other, label, values) = text.fill('label_replace(label_replace(%(of)s, "severity", "%(usual)s", "", ""), "severity", "%(other)s", "%(label)s", "%(values)s")', {
    of: of,
    usual: c.severities[usual],
    other: c.severities[other],
    label: label,
    values: values,
  });
  // Causes that a group of ranks may have in common, the first of which it gets; and what people read of them.
  local ofGroups = ['link-slow', 'gpu-compute', 'gpu-transfer', 'workload'];
  local coordinate = l.list(['coordinate', 'value']);
  local cause(sentences) = std.join('', ['{{ if eq $labels.cause "' + name + '" }}' + sentences[name] + '{{ end }}' for name in std.objectFields(sentences)]);
  [
    words.alert({
      about:: 'A part that fails is a ticket, whatever it costs by now: memory, and the way to the GPU. Of the rest a finding tells what costs enough.',
      alert: 'ArgusKernelDegraded',
      expr: severity(text.fill(|||

        count by (%(job)s, cause, team) (
          max by (%(rank)s, cause, team) (%(anomaly)s) > %(least)s
          unless on (%(rank)s) rank:argus_decision:lost_ratio
        )
      |||, at { anomaly: anomaly([]) }), 'info', 'ticket', 'cause', 'gpu-memory|gpu-transfer'),
      'for': duration.of(patience),
      labels: { level: 'L3' },
      annotations: {
        summary: words.text(
          '{{ $value }} rank{{ if ne $value 1.0 }}s{{ end }} of ' + words.job + ' ' + cause({
            'gpu-compute': '{{ if eq $value 1.0 }}computes{{ else }}compute{{ end }} some kernels more slowly than the ranks that do the same work',
            'gpu-transfer': '{{ if eq $value 1.0 }}copies{{ else }}copy{{ end }} more slowly between host and GPU than the ranks that do the same work',
            'gpu-memory': '{{ if eq $value 1.0 }}has{{ else }}have{{ end }} kernels that take far longer now and then, as memory errors leave them',
            workload: '{{ if eq $value 1.0 }}runs{{ else }}run{{ end }} some kernels longer and in other numbers than the ranks of the same role: another share of the work',
          })
          + words.each(
            'topk(4, max by (rank, kernel) (' + std.strReplace(anomaly(['@']), '@', '<job>,cause=<cause>') + ') unless on (rank) rank:argus_decision:lost_ratio{<job>})',
            'rank {{ $one.Labels.rank }}' + words.first('argus_rank_info{<job>,rank=<one>}', '{{ with .Labels.node }} on {{ . }}{{ end }}')
            + ' {{ if eq $one.Labels.kernel "all" }}in all kernels{{ else }}in {{ $one.Labels.kernel }}{{ end }} by {{ $one.Value | humanizePercentage }}',
            before=': '
          ) + '.'
        ),
        description: 'It costs the job too little to be told by rank. {{ if eq $labels.cause "workload" }}The GPU may be sound{{ else }}It may be the beginning of a fault{{ end }}.',
      },
    }),
    words.alert({
      alert: 'ArgusKernelGroupShift',
      expr: severity('\n' + std.join('or on (' + coordinate + ')\n', [
        '  max by (' + l.list(['coordinate', 'value', 'cause', 'team']) + ') (' + shift(['cause="' + name + '"']) + ') > ' + text.of(c.kernelShift) + '\n'
        for name in ofGroups
      ]), 'ticket', 'info', 'coordinate', 'none'),
      'for': duration.of(patience),
      labels: { level: 'L3' },
      annotations: {
        summary: words.text(
          '{{ if eq $labels.coordinate "none" }}Some of the ranks of ' + words.job + '{{ else }}The ranks of ' + words.job
          + ' with {{ $labels.coordinate }} {{ $labels.value }}{{ end }} take {{ $value | humanizePercentage }} longer than the others'
          + words.each(
            'topk(4, max by (kernel) (' + std.strReplace(shift(['@']), '@', '<job>,coordinate=<coordinate>,value=<value>') + '))',
            '{{ $one.Labels.kernel }}',
            before=' for '
          ) + '.'
        ),
        description: '{{ if eq $labels.coordinate "none" }}Nothing that is known of them says why these: compare their hardware, drivers and settings.'
                     + '{{ else }}Look for what those ranks share.{{ end }}',
      },
    }),
  ]
