// ARGUS itself: who is not observed, what is lost on the way, what observing costs, and whether worker and rules keep up.
// Its own evidence only, straight from what is scraped.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';
local version = import '../lib/version.libsonnet';
local writing = import '../lib/words.libsonnet';
local beat = 'argus_rules_interval_seconds';

{
  // What each group of rules writes beside its own.
  heartbeat(name, seconds): {
    about:: 'Seconds between the evaluations of this group, written at each of them: ArgusRulesBehind counts them.',
    record: beat,
    labels: { rule_group: name },
    expr: 'vector(' + text.of(seconds) + ')',
  },

  rules(c, l):
    local words = writing(c);
    local h = c.health;
    // Ranks of a job that a text names.
    local most = 8;
    local ticket(team, level='L1') = { severity: c.severities.ticket, team: team, level: level };
    local channel = l.list(['rank', 'channel']);
    local at = {
      job: l.job,
      rank: l.rank,
      group: l.list(['group']),
      place: l.list(['rank', 'node', 'gpu_uuid']),
      channel: channel,
      reason: l.list(['rank', 'channel', 'reason']),
      jobChannel: l.list(['channel']),
      jobReason: l.list(['channel', 'reason']),
      site: l.ofRuns([]),
      ofGroup: l.ofRuns(['rule_group']),
      window: '[' + duration.range(c, h.window) + ']',
    };
    local ranks(one) = '{{ $value }} rank{{ if ne $value 1.0 }}s{{ end }} of ' + words.job + ' {{ if eq $value 1.0 }}is{{ else }}are{{ end }} ' + one;
    // Evaluations of a group that are looked at: of all that are made at least once a minute, fifteen and more.
    local looked = 15 * c.slowInterval;
    local missed = text.fill('1 - sum_over_time(%(beat)s[%(range)s]) / %(looked)s', {
      beat: beat,
      range: duration.range(c, looked),
      looked: looked,
    });
    [
      {
        about:: 'Which rules these are, by flavour and version: 1. Where it is absent nobody evaluates them, which only another ruler can tell.',
        record: 'argus_rules_info',
        labels: { flavour: if c.second == 1 then 'rules' else 'rules/test', version: version },
        expr: 'vector(1)',
      },
      words.alert(about='coverage', alert={
        about:: 'One for all ranks that a job has lost, and for who is missing besides: of the size of the job, where it is known, all that do not live. Who never came is missing from the job, or from groups of its topology: hidden by two scrapers in one store, as counting each rank once takes three times as long.',
        alert: 'ArgusRankMissing',
        expr: text.fill(|||
          max by (%(job)s) (
            max by (%(job)s) (%(world)s) - on (%(job)s) job:argus_ranks:count > 0
            or count by (%(job)s) (max by (%(rank)s) (%(up)s) == 0)
            or group:argus_ranks:expected - on (%(group)s) count by (%(group)s) (%(expected)s) > 0 and on (%(job)s) job:argus_ranks:count
          )
        |||, at { up: l.raw('argus_rank_up'), expected: l.raw('argus_group_expected_ranks'), world: l.raw('argus_job_world_size') }),
        'for': duration.of(h.missing),
        labels: ticket('operations'),
        annotations: {
          local lost = 'bottomk(' + most + ', max by (rank) (argus_rank_number{<job>}) and on (rank) max by (rank) (argus_rank_up{<job>}) == 0)',
          local missing = 'max(argus_job_world_size{<job>}) - count(max by (rank) (argus_rank_up{<job>})) > 0',
          local groups = 'topk(3, group:argus_ranks:expected{<job>} - on (group) count by (group) (argus_group_expected_ranks{<job>}) > 0)',
          summary: words.text(ranks(words.ranks(
            lost,
            before='lost: ',
            after='{{ if and (eq (len .) ' + most + ') (gt $value ' + most + '.0) }} and others{{ end }}'
                  + words.number(missing, '%.0f', before=', or missing: '),
            otherwise='missing' + words.each(groups, '{{ $one.Labels.group }}', before=' from ', order='group')
          )) + '.'),
          description: 'Lost: the processes ended in failure or without a word, crashed or killed, or the host is gone. Missing: the job should have them, by its world size or its topology, and no exporter reports them.',
        },
      }),
      words.alert(about='coverage', alert={
        about:: 'Whoever moved is there twice for as long as the old exporter remembers it, five minutes.',
        alert: 'ArgusJobNameClash',
        expr: text.fill('count by (%(job)s) (count by (%(rank)s) (max by (%(place)s) (%(info)s)) > 1)', at { info: l.raw('argus_rank_info') }),
        'for': duration.of(h.clash),
        labels: ticket('infrastructure'),
        annotations: {
          summary: 'Two jobs are called ' + words.job + ': {{ $value }} rank{{ if ne $value 1.0 }}s run{{ else }} runs{{ end }} in two places.',
          description: 'Their ranks are taken for one: neither job is judged right, and if one of them hangs nobody is told. Give each a name of its own.',
        },
      }),
      words.alert(about='itself', alert={
        alert: 'ArgusChannelDown',
        expr: text.fill(|||
          count by (%(jobReason)s) (
            max by (%(reason)s) (%(why)s) and on (%(channel)s) %(up)s == 0
            or max by (%(channel)s) (%(up)s) == 0 unless on (%(channel)s) %(info)s
          )
        |||, at {
          up: l.raw('argus_channel_up'),
          info: l.raw('argus_channel_info'),
          why: l.raw('argus_channel_info', ['reason!~"%s"' % h.ignoredReasons]),
        }),
        'for': duration.of(h.channel),
        labels: ticket('infrastructure'),
        annotations: {
          summary: 'Channel {{ $labels.channel }} of ' + words.job + ' is down on {{ $value }} rank{{ if ne $value 1.0 }}s{{ end }}'
                   + '{{ with $labels.reason }}: {{ . | reReplaceAll "_" " " }}{{ end }}.',
          description: 'What it observes is not known there. The other channels and the training go on.',
        },
      }),
      words.alert(about='itself', alert={
        alert: 'ArgusRecordsDropped',
        expr: text.fill(|||
          sum by (%(jobReason)s) (rate(%(dropped)s%(window)s))
          / on (%(jobChannel)s) group_left () sum by (%(jobChannel)s) (rate(%(received)s%(window)s) or rate(%(dropped)s%(window)s))
          > %(least)s
        |||, at { dropped: l.raw('argus_records_dropped_total'), received: l.raw('argus_records_total'), least: h.dropped }),
        'for': duration.of(h.channel),
        labels: ticket('infrastructure'),
        annotations: {
          summary: 'Channel {{ $labels.channel }} of ' + words.job + ' loses {{ $value | humanizePercentage }} of its records'
                   + '{{ with $labels.reason }}: {{ . | reReplaceAll "_" " " }}{{ end }}.',
          description: 'What is found of it rests on fewer samples. The training is not slowed, which is why records are dropped.',
        },
      }),
      words.alert(about='itself', alert={
        alert: 'ArgusOverheadBudget',
        expr: text.fill('max by (%(job)s) (sum by (%(rank)s) (max by (%(channel)s) (rate(%(cpu)s%(window)s)))) > %(most)s', at {
          cpu: l.raw('argus_producer_cpu_seconds_total'),
          most: h.overhead,
        }),
        'for': duration.of(h.overheadFor),
        labels: ticket('infrastructure'),
        annotations: {
          summary: 'ARGUS takes {{ $value | humanizePercentage }} of a core inside a process of ' + words.job + '.',
          description: 'The budget is %g %%. Where Python is the bottleneck, steps are longer by as much.' % (100 * h.overhead),
        },
      }),
      words.alert(about='itself', alert={
        about:: 'Series that a worker has written vanish minutes after the last sample, so the last success is looked up.',
        alert: 'ArgusL3WorkerBehind',
        expr: text.fill(|||
          time() - max by (%(site)s) (max_over_time(%(last)s[%(lookback)s])) > %(most)s
          and on () count(job:argus_ranks:count)
        |||, at {
          last: l.raw('argus_l3_last_success_timestamp_seconds'),
          lookback: duration.range(c, h.workerLookback),
          most: h.worker,
        }),
        labels: ticket('infrastructure', 'L3'),
        annotations: {
          summary: 'The L3 worker has finished no cycle for {{ $value | humanizeDuration }}.',
          description: 'What is found in kernels is missing or old. All else goes on.',
        },
      }),
      words.alert(about='itself', alert={
        about:: 'A ruler that leaves out evaluations, of some groups or of all, or that stores them minutes late. As it is a rule itself, it sees nothing of a ruler that stands still, nor of groups that are not loaded: let another Prometheus watch argus_rules_info.',
        alert: 'ArgusRulesBehind',
        expr: text.fill(|||
          max by (%(site)s) (
            %(missed)s > %(share)s
            and on (%(ofGroup)s) %(beat)s offset %(looked)s <= %(slow)s
          )
        |||, at { missed: missed, share: h.missed, beat: beat, looked: duration.of(looked), slow: c.slowInterval }),
        'for': duration.of(looked),
        labels: ticket('infrastructure'),
        annotations: {
          summary: words.text('The rules of ARGUS are evaluated too seldom: {{ $value | humanizePercentage }} of the evaluations are missing'
                              + words.each('topk(3, ' + missed + ' > ' + text.of(h.missed) + ')', '{{ $one.Labels.rule_group }}', before=' in ') + '.'),
          description: 'Faults are told late or not at all. The Prometheus or ruler that evaluates them is short of CPU or memory, or its queries are too slow.',
        },
      }),
    ],
}
