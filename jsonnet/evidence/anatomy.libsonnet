// What a rank's GPU does longer than those of the ranks that do the same work, where kernels are observed: copies that nothing
// hides, and waits for launches within phases of computation, which do not show in the time of its kernels.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local rate(series, matchers=[]) = 'rate(%s[%s])' % [l.raw(series, matchers), duration.range(c, c.window)];
  local launches(total) = 'rate(%s[%s])' % [l.raw('argus_issue_latency_seconds_' + total, ['kernel_class="compute"']), duration.range(c, c.kernelRange)];
  local pause = 'rank:argus_pause:ratio';
  local iteration = 'argus_iteration_gpu_seconds_total';
  [
    {
      about:: "Share of a rank's iterations in which its GPU copies, or communicates, and computes nothing, and in which it is idle in phases of computation. Of the wall time it would tell when a host is scraped.",
      record: pause,
      labels: { pause: 'gpu' },
      expr: text.fill(|||
        sum by (%(part)s) (max by (%(part)s, phase) (%(alone)s or %(idle)s))
        / on (%(rank)s) group_left () (sum by (%(rank)s) (max by (%(part)s) (%(all)s)) > 0)
        * on (%(rank)s) group_left (role) topk by (%(rank)s) (1, max by (%(rank)s, role) (%(info)s))
      |||, {
        rank: l.rank,
        part: l.list(['rank', 'part']),
        alone: rate(iteration, ['part=~"copy|exposed"']),
        idle: rate('argus_phase_gpu_seconds_total', ['part="idle"']),
        all: rate(iteration),
        info: 'last_over_time(%s[%s])' % [l.raw('argus_rank_info'), duration.range(c, 4 * c.scrapeInterval)],
      }),
    },
    {
      // Nine tenths, so that of two ranks nearly all counts.
      about:: 'Share of its iterations by which the GPU of a rank waits less for others, with nothing to compute, than those of a process group.',
      record: pause,
      labels: { pause: 'late' },
      expr: text.fill('quantile by (%(group)s) (0.9, %(waits)s) - on (%(group)s) group_right () (%(waits)s)', {
        group: l.list(['group']),
        waits: text.fill('max by (%(member)s) (%(mean)s{kind="comm", source="kernel"}) ^ 0 * on (%(rank)s) group_left () max by (%(rank)s) (%(pause)s{pause="gpu", part="exposed"})', {
          member: l.list(['rank', 'group']),
          rank: l.rank,
          mean: 'rank:argus_phase_duration_seconds:mean',
          pause: pause,
        }),
      }),
    },
    {
      about:: 'A rank that copies longer than the median of those that do the same work (gpu-transfer), or whose GPU is idle longer and whose kernels wait far less than others between launch and start (host-cpu).',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { detector: 'anatomy', phase: 'all' },
      expr: text.fill(|||
        label_replace(label_replace(
          max by (%(part)s) (
            (%(gpu)s - on (%(role)s) group_left () quantile by (%(role)s) (0.5, %(gpu)s))
            * on (%(role)s) group_left () (1 + (count by (%(role)s) (%(gpu)s) == bool 2))
          ) >= %(least)s
          unless on (%(part)s) label_replace(
            %(latency)s >= on (%(job)s) group_left () %(late)s * quantile by (%(job)s) (0.5, %(latency)s),
            "part", "idle", "", ""
          ),
        "cause", "gpu-transfer", "part", "copy"), "cause", "host-cpu", "part", "idle")
      |||, {
        // The median of two is half-way between them.
        gpu: pause + '{part=~"copy|idle"}',
        rank: l.rank,
        job: l.job,
        part: l.list(['rank', 'part']),
        role: l.list(['role', 'part']),
        least: c.evidenceRatio,
        late: c.hostLatencyRatio,
        // The mean of the last minute: the quantiles are of a window that ends later.
        latency: text.fill('max by (%(rank)s) (%(sum)s / %(count)s)', { rank: l.rank, sum: launches('sum'), count: launches('count') }),
      }),
    },
  ]
