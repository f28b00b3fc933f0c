// One alert a kind of finding: what it says, and where it leads. What fires, and how severe, is the decision's.
local cards = import '../card/annotation.libsonnet';
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local writing = import '../lib/words.libsonnet';
local decision = 'rank:argus_decision:lost_ratio';

function(c, l, rows)
  local words = writing(c);
  local card = cards(c, words);
  local name(row) = if 'cause' in row then row.cause else row.id;
  local culprits = [row for row in rows if row.as == 'culprit'];
  local onset = 'rank:argus_finding:onset_timestamp_seconds{<job>,rank=<rank>,group=<group>,set=<set>,cause=<cause>}';

  // How much it is, where something tells: of a rank, in the phase in which it loses most.
  local ofGroup = words.first(
    'rank:argus_phase_duration_seconds:median_ratio{<job>,rank=<rank>,kind!="comm"} and on (phase, kind, group, source) '
    + 'topk(1, rank:argus_phase_slow:lost_ratio{<job>,rank=<rank>,kind!="comm"})',
    ': phase {{ .Labels.phase }} takes {{ .Value | printf "%.2f" }} times as long as in its group'
  );
  local times(query, before, after='times as long', format='%.2f') = words.number(query, format, ': ' + before + ' ', ' ' + after);

  // What its hardware says of a rank, where the optional file is loaded.
  local hardware = '{{ if $labels.rank }}' + words.each(
    'rank:argus_hardware:current{<job>,rank=<rank>,field!="throttle_reasons"} > 0',
    '{{ reReplaceAll "_" " " $one.Labels.field }}{{ if not (match "throttled" $one.Labels.field) }} {{ $one.Value | humanize }}{{ end }}',
    before=' Its hardware: ',
    after='.',
    order='field'
  ) + '{{ end }}';
  // What the history knows of a job that became slower within its run, which is told as that.
  local history = '{{ if eq $labels.most "page" }}' + words.each(
    'rank:argus_evidence:lost_ratio{<job>,detector="history"} unless on (cause) rank:argus_exclusion:lost_ratio{<job>,by=~"history-.*"}',
    std.join('', [
      '{{ if eq $one.Labels.cause "' + row.id + '" }} It also ' + row.words + '.{{ end }}'
      for row in culprits
      if 'family' in row && row.cause != 'unexplained'
    ]),
    between=''
  ) + '{{ end }}';

  // Kinds of cards, by what is accused.
  local ofRank = { subject: 'rank', kind: 'slow_rank', 'if': '$labels.rank' };
  local ofSet = { subject: 'set', kind: 'suspect_set', 'if': '$labels.set' };
  local ofJob = { subject: 'job', kind: 'job_regression', 'if': 'true' };
  local ofLink = { subject: 'group', kind: 'slow_link', 'if': '$labels.group' };
  // By alert: whose rows it tells, how much that is, what else people should know, and its kinds of cards.
  local told = {
    ArgusStragglerRank: {
      kinds: [ofSet, ofRank],
      causes: ['gpu-compute', 'gpu-transfer', 'host-cpu'],
      much: ofGroup,
      more: '{{ if $labels.set }} They wait for one another within a phase, and nothing tells which of them it is.{{ end }}' + hardware,
    },
    ArgusHostStall: {
      kinds: [ofRank { kind: 'data_stall', 'if': 'and $labels.rank (eq $labels.cause "data-input")' }, ofRank, ofJob],
      causes: ['host-gc', 'host-jit', 'host-alloc', 'data-input'],
      much: ofGroup,
      more: '{{ if and (eq $labels.cause "host-gc") (not $labels.rank) }} All ranks do so, each at a step of its own, and each time all wait.{{ end }}' + hardware,
    },
    ArgusGroupImbalance: {
      kinds: [ofRank { kind: 'more_work' }, ofJob],
      causes: ['workload', 'work-uneven'],
      much: times('max(rank:argus_work:rate{<job>,rank=<rank>}) / quantile(0.5, rank:argus_work:rate{<job>})', 'it has', 'times the work of the median rank'),
    },
    ArgusCollectiveLateRank: { kinds: [ofRank { kind: 'late_rank' }], causes: ['collective-late'], more: hardware },
    ArgusCollectiveSlowLink: {
      kinds: [ofLink],
      causes: ['link-slow'],
      much: times('max(group:argus_collective_transfer:ratio{<job>,group=<group>})', 'transfers take', 'times as long as in the other groups'),
      more: words.ranks('bottomk(8, argus_rank_number{<job>} and on (rank) argus_group_expected_ranks{<job>,group=<group>})', ' Its first ranks: ', '.')
            + words.each(
              'topk(4, rank:argus_network_wire:ratio{<job>} and on (rank) argus_group_expected_ranks{<job>,group=<group>} and on (to_rank) label_replace(argus_group_expected_ranks{<job>,group=<group>}, "to_rank", "$1", "rank", "(.*)"))',
              'what rank {{ $one.Labels.rank }}{{ with $one.Labels.node }} on {{ . }}{{ end }} sends to rank {{ $one.Labels.to_rank }}{{ with $one.Labels.to_node }} on {{ . }}{{ end }} is {{ $one.Value | printf "%.1f" }} times as long on the wire as elsewhere',
              before=' By the steps of NCCL, ',
              after='.',
              order='rank'
            ),
    },
    ArgusIterationRegression: {
      kinds: [ofJob],
      causes: [name(row) for row in culprits if row.level == 'L1' && !row.info],
      much: '{{ if eq $labels.most "page" }}' + times('max(job:argus_iteration:regression_ratio{<job>})', 'an iteration takes') + '{{ end }}',
      more: history,
    },
    ArgusIterationJitter: {
      kinds: [ofJob],
      causes: ['jitter'],
      much: times('max(max_over_time(job:argus_iteration:jitter_ratio{<job>}[' + duration.range(c, 900 * c.second) + ']))', 'up to', 'times the mean', '%.1f'),
    },
  };
  local mine(alert, row) =
    std.member(told[alert].causes, name(row)) && (row.info || (row.level == 'L1') == (alert == 'ArgusIterationRegression'));
  local alerts = std.objectFields(told);
  local untold = [row.id for row in culprits if std.length([alert for alert in alerts if mine(alert, row)]) != 1];
  assert untold == [] : 'no alert tells of %s, or several do' % std.join(', ', untold);
  // What people read of a cause: the words of its row, of those that end in one cause the first.
  local sentence(alert) = std.join('', std.foldl(
    function(parts, row)
      local when = '{{ if and (eq $labels.cause "' + name(row) + '") (eq $labels.most "' + row.most + '") }}';
      if std.length([part for part in parts if std.startsWith(part, when)]) > 0 then parts else parts + [when + row.words + '{{ end }}'],
    [row for row in culprits if mine(alert, row)],
    []
  ));
  local members = words.ranks('topk(8, max by (rank) (rank:argus_evidence:lost_ratio{<job>,set=<set>}))', ' ');
  local uneven = 'Work differs by {{ $value | humanizePercentage }} between ranks (standard deviation), and each step waits for the rank that has '
                 + 'most. Nothing is wrong with any of them.';
  local lost = 'The job loses {{ $value | humanizePercentage }} of its time to it'
               + words.number('<cost> * max(job:argus_ranks:count{<job>})', '%.1f', ': ', ' GPUs stand idle') + '.';
  local of(alert) = words.alert({
    alert: alert,
    local it = { much: '', more: '' } + told[alert],
    local rows = [row for row in culprits if mine(alert, row)],
    local ofJobs = std.set(['%s"L1"' % (if row.level == 'L1' then '=' else '!=') for row in rows]),
    local ours = decision + '{cause=~"' + std.join('|', std.set([name(row) for row in rows])) + '"'
                 + (if std.length(ofJobs) == 1 then ', level' + ofJobs[0] else '') + '}',
    // With node and GPU where they are known; both are in the labels, so that whoever is paged can route by them.
    expr: text.fill(|||
      %(mine)s * on (%(rank)s) group_left (node, gpu_uuid) rank:argus_finding:place ^ 0
      or on (%(finding)s) %(mine)s
    |||, { mine: ours, rank: l.rank, finding: l.finding }),
    annotations: {
      summary: words.text(
        '{{ if $labels.rank }}Rank {{ $labels.rank }} of {{ else if $labels.set }}One of the ranks' + members + ' of '
        + '{{ else if $labels.group }}Group {{ $labels.group }} of {{ end }}' + words.job + '{{ with $labels.node }} on {{ . }}{{ end }} '
        + sentence(alert) + it.much + words.since(onset) + '.'
      ),
      description: words.text((if std.member(it.causes, 'work-uneven') then '{{ if eq $labels.cause "work-uneven" }}' + uneven + '{{ else }}' + lost + '{{ end }}' else lost) + it.more),
      card: card.of(alert, '{{ $labels.severity }}', [kind { mine: rows } for kind in it.kinds]),
    },
  });

  // Not a finding: a job that stands still loses everything, and at once. Of a job whose ranks are all dead others tell.
  local suspects = 'rank:argus_stall_suspect:bool';
  local at = {
    job: l.job,
    rank: l.rank,
    who: l.who,
    hangs: 'rank:argus_verdict:active{verdict="culprit", cause=~"' + std.join('|', std.set([name(row) for row in rows if row.as == 'hang'])) + '"}',
    named: suspects + '{stage="named"}',
    proven: suspects + '{stage=~"lost|behind|called"}',
    network: suspects + '{stage=~"link|still"}',
    diverged: 'group:argus_stall_broken:bool{by="calls"}',
    unproved: c.stallUnprovedSeconds,
  };
  local whom = text.fill(|||
    (
      job:argus_stalled:seconds * on (%(job)s) group_right () (
        %(hangs)s * on (%(rank)s) group_left (node, gpu_uuid) %(named)s
        or on (%(who)s) %(hangs)s
      )
      or on (%(job)s) label_replace(job:argus_stalled:seconds, "team", "operations", "", "")
    )
    and on (%(job)s) job:argus_ranks:count
  |||, at);
  local certain = text.fill('on (%(job)s) (%(named)s and on (%(rank)s) %(proven)s or %(network)s or %(diverged)s or job:argus_stalled:seconds >= %(unproved)s)', at);
  // What the rank has not done that others have, and what all are in, each in a line.
  local behind = 'rank:argus_stall_lag:collectives{<job>,rank=<rank>,of="entered"} > 0';
  // A thread that waits has no samples: py-spy leaves it out.
  local frames = 'argus_stack_samples_total{<job>,rank=<rank>,thread=~"%s",frame!="other"}[%s]' % [c.mainThread, duration.range(c, c.slowInterval)];
  local why = '{{ if $labels.rank }}'
              + words.first('argus_rank_stopped{<job>,rank=<rank>}', ' Its process is stopped.')
              + words.first('max(argus_rank_up{<job>,rank=<rank>}) == 0', ' Its process is gone.')
              + words.each('argus_nccl_ras_rank_absent{<job>,rank=<rank>}', '{{ $one.Labels.absence }}', before=" By NCCL's RAS it is ", after='.', order='absence')
              + words.first('topk(1, argus_collective_sequence{<job>,rank=<rank>} and on (group) (' + behind + '))', ' Its last collective of {{ .Labels.group }} is number {{ .Value | printf "%.0f" }}.')
              + words.first('topk(1, max by (frame) (rate(' + frames + ')) > 0)', ' Its main thread runs in {{ .Labels.frame }}.')
              + '{{ end }}';
  local all = words.each(
                'topk(4, count by (phase) (topk by (rank) (1, rank:argus_stall_open:timestamp_seconds{<job>})))',
                '{{ $one.Value }} in {{ $one.Labels.phase }}',
                before=' Ranks by where they are: ',
                after='.',
                order='phase'
              )
              + words.each(
                'topk(4, count_values by (group, operation) ("number", argus_collective_operation_sequence{<job>}))',
                '{{ $one.Value }} in {{ $one.Labels.operation }} {{ $one.Labels.number }} of {{ $one.Labels.group }}',
                before=' By the collective that they wait in, or ended last: ',
                after='.',
                order='group'
              )
              + words.each(
                'topk(4, argus_nccl_ras_rank_error{<job>})',
                '{{ $one.Labels.error }} of rank {{ $one.Labels.rank }}',
                before=" By NCCL's RAS: ",
                after='.',
                order='rank'
              );
  // Where nobody is behind: between whom nothing arrives, or on which host a GPU stands.
  local link = suspects + '{<job>,stage="link"}';
  local end(rank, node) = 'rank {{ .Labels.' + rank + ' }}{{ with .Labels.' + node + ' }} on host {{ . }}{{ end }}';
  local still = 'bottomk(8, argus_rank_number{<job>} and on (rank) ' + suspects + '{<job>,stage="still"})';
  local network(otherwise) =
    '{{ with ' + words.asked('topk(1, ' + link + ')') + ' }}{{ with first . }}: nobody is behind: network between ' + end('rank', 'node')
    + ' and ' + end('to_rank', 'to_node') + '{{ end }}{{ else }}'
    + words.each('topk(1, max by (node) (' + suspects + '{<job>,stage="still"}))', ': nobody is behind: what stands is on host {{ $one.Labels.node }}, a GPU or NVLink', otherwise=otherwise)
    + '{{ end }}';
  local diverged(found, otherwise) = words.each('group:argus_stall_broken:bool{<job>,group=<group>,by="calls"}', found, otherwise=otherwise);
  local arrives = words.each(
                    'topk(4, ' + link + ')',
                    '{{ if eq $one.Labels.lacks "data" }}what rank {{ $one.Labels.rank }} has sent does not arrive at rank {{ $one.Labels.to_rank }}'
                    + '{{ else }}that rank {{ $one.Labels.rank }} has room does not arrive at rank {{ $one.Labels.to_rank }}{{ end }}',
                    before=' By the steps of NCCL, ',
                    after='.',
                    order='rank'
                  )
                  + words.ranks(still, ' By the steps of NCCL, what others have sent waits for a GPU of rank ', '.');
  // Why nobody is named.
  local unknown = words.each(
    'count(' + suspects + '{<job>,stage="lost",rank!=""})',
    '{{ $one.Value }} of its ranks are lost or stopped: the others may wait for any of them.',
    otherwise=words.each(
      'count(' + suspects + '{<job>,stage=~"lost|unheard",rank=""})',
      'Some of its ranks are not heard: the others may wait for them.',
      otherwise='Nothing tells for which rank the others wait.'
    )
  );
  local stalled(severity, expr) = words.alert({
    alert: 'ArgusTrainingStalled',
    expr: expr,
    labels: { severity: c.severities[severity], level: 'L1' },
    annotations: {
      summary: words.text(
        words.job + ' has finished no iteration for {{ $value | humanizeDuration }}'
        + '{{ if $labels.rank }}: rank {{ $labels.rank }}{{ with $labels.node }} on {{ . }}{{ end }}{{ with $labels.gpu_uuid }} ({{ . }}){{ end }} hangs{{ if ne $labels.phase "none" }} in {{ $labels.phase }}{{ end }}{{ else }}'
        + network(diverged(
          ': ranks of {{ $labels.group }} have called different collectives',
          '{{ if $labels.phase }}: all ranks{{ with $labels.group }} of {{ . }}{{ end }} are in {{ if eq $labels.phase "none" }}one collective{{ else }}{{ $labels.phase }}{{ end }}{{ end }}'
        ))
        + '{{ end }}.'
      ),
      description: words.text(
        'The last iteration ended {{ $value | humanizeDuration }} ago, more than %g times the usual duration. ' % c.stallFactor
        + '{{ if $labels.rank }}The others wait for rank {{ $labels.rank }}.{{ else if $labels.phase }}'
        + diverged('No majority has called the same, so who is wrong cannot be told.', 'Nobody is elsewhere, so it is the collective itself.') + '{{ else }}' + unknown + '{{ end }}'
        + why + arrives + all + hardware
      ),
      local hangs = [row for row in rows if row.as == 'hang'] + [{ id: 'stalled', words: 'stands still' }],
      card: card.of('ArgusTrainingStalled', c.severities[severity], [
        kind { kind: 'hang', mine: hangs }
        for kind in [ofRank, ofLink, ofJob]
      ]),
    },
  });
  {
    stalled: [
      stalled('page', whom + 'and ' + certain),
      stalled('info', whom + 'unless ' + certain),
    ],
    findings: [of(alert) for alert in alerts],
  }
