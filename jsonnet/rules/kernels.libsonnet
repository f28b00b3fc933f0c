// L3: what the worker found in kernels, and no finding tells.
//
// A rank whose kernels cost the job enough is a finding like any other, and told as ArgusStragglerRank (or as what explains it):
// an alert does not change its name when the worker has spoken. What is left are kernels that cost little and may be the
// beginning of more: one alert a job and cause, however many ranks and kernels. The worker has judged effect and persistence.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local writing = import '../lib/words.libsonnet';

function(c, l, rows)
  local words = writing(c);
  // The worker's series end when it does: a restart, which takes less than this, withdraws nothing.
  // `cycle_seconds` of the worker is bounded by it.
  local lately(series) = 'last_over_time(' + series + '[' + duration.range(c, 180 * c.second) + '])';
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
  // Causes of which the worker accuses ranks.
  local ofRanks = ['gpu-compute', 'gpu-transfer', 'gpu-memory', 'workload'];
  // Causes that a group of ranks may have in common, the first of which it gets; and what people read of them.
  local ofGroups = ['link-slow', 'gpu-compute', 'gpu-transfer', 'workload'];
  local coordinate = l.list(['coordinate', 'value']);
  // What people read of a cause: the words of its first row.
  local said(name) = [row.words for row in rows if row.as != 'context' && name == (if 'cause' in row then row.cause else row.id)][0];
  [
    words.alert({
      about:: 'A part that fails is a ticket, whatever it costs by now: memory, and the way to the GPU. Of the rest a finding tells what costs enough. 0: work is uneven over a role, and no rank of it stands out.',
      alert: 'ArgusKernelDegraded',
      expr: severity(text.fill(|||

        count by (%(job)s, cause, team) (
          max by (%(rank)s, cause, team) (%(anomaly)s) > %(least)s
          unless on (%(rank)s) rank:argus_decision:lost_ratio
        )
        or
        0 * (max by (%(job)s, cause, team) (%(uneven)s) > %(least)s)
      |||, at { anomaly: anomaly(['rank!=""']), uneven: anomaly(['rank=""']) }), 'info', 'ticket', 'cause', 'gpu-memory|gpu-transfer'),
      'for': duration.of(patience),
      labels: { level: 'L3' },
      annotations: {
        summary: words.text(
          '{{ if eq $value 0.0 }}' + words.job + ' ' + said('work-uneven') + '{{ else }}'
          + '{{ if eq $value 1.0 }}1 rank{{ else }}Each of {{ $value }} ranks{{ end }} of ' + words.job + ' '
          + '{{ ' + std.join('{{ else ', ['if eq $labels.cause "' + name + '" }}' + said(name) for name in ofRanks])
          + '{{ else }}is slow in some kernels{{ end }}{{ end }}'
          + words.each(
            'topk(4, max by (rank, kernel) (' + std.strReplace(anomaly(['@']), '@', '<job>,cause=<cause>,rank!=""') + ') unless on (rank) rank:argus_decision:lost_ratio{<job>})',
            'rank {{ $one.Labels.rank }}' + words.first('argus_rank_info{<job>,rank=<one>}', '{{ with .Labels.node }} on {{ . }}{{ end }}')
            + ' by {{ $one.Value | humanizePercentage }} in {{ if eq $one.Labels.kernel "all" }}all kernels{{ else }}{{ $one.Labels.kernel }}{{ end }}',
            before=': '
          ) + '.'
        ),
        description: 'It costs the job little so far. {{ if eq $labels.cause "workload" }}Their GPUs may be sound: look at their work.{{ else }}It may be the beginning of a fault.{{ end }}',
      },
    }),
    words.alert({
      about:: 'What ranks have in common whose kernels are slow. A slow link that is told already says whose it is.',
      alert: 'ArgusKernelGroupShift',
      expr: severity('\n' + std.join('or on (' + coordinate + ')\n', [
        '  max by (' + l.list(['coordinate', 'value', 'cause', 'team']) + ') (' + shift(['cause="' + name + '"']) + ') > ' + text.of(c.kernelShift) + '\n'
        + (if name == 'link-slow' then '  unless on (' + l.list(['cause']) + ') rank:argus_decision:lost_ratio\n' else '')
        for name in ofGroups
      ]), 'ticket', 'info', 'coordinate', 'none'),
      'for': duration.of(patience),
      labels: { level: 'L3' },
      annotations: {
        summary: words.text(
          '{{ if eq $labels.coordinate "none" }}Some of the ranks of ' + words.job + '{{ else }}The ranks of ' + words.job
          + ' with {{ $labels.coordinate }} {{ $labels.value }}{{ end }}'
          + words.each(
            'topk(4, max by (role) (' + std.strReplace(shift(['@']), '@', '<job>,coordinate=<coordinate>,value=<value>,role!=""') + '))',
            '{{ $one.Labels.role }}',
            before=' (role ',
            after=')'
          )
          + ' need longer for kernels than the others that do the same work'
          + words.each(
            'topk(4, max by (kernel) (' + std.strReplace(shift(['@']), '@', '<job>,coordinate=<coordinate>,value=<value>') + '))',
            '{{ $one.Value | humanizePercentage }} for {{ if eq $one.Labels.kernel "all" }}all kernels{{ else }}{{ $one.Labels.kernel }}{{ end }}',
            before=': '
          ) + '.'
        ),
        description: '{{ if eq $labels.coordinate "none" }}Nothing that is known of them says why these: compare their hardware, drivers and settings.'
                     + '{{ else }}Look for what those ranks share.{{ end }}',
      },
    }),
  ]
