// Copies between host and GPU that nothing hides, by the anatomy of the iteration: where kernels are observed.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local grown(matchers) = 'rate(%s[%s])' % [l.raw('argus_iteration_gpu_seconds_total', matchers), duration.range(c, c.window)];
  [
    {
      about:: 'What a rank copies longer than the median of those that do the same work. Of its own iterations, which the exporter counts with their parts: of the wall time it would tell when a host is scraped.',
      record: 'rank:argus_evidence:lost_ratio',
      labels: { cause: 'gpu-transfer', detector: 'anatomy', phase: 'all' },
      expr: text.fill(|||
        max by (%(rank)s) (
          %(share)s - on (%(role)s) group_left () quantile by (%(role)s) (0.5, %(share)s)
        ) >= %(least)s
      |||, {
        rank: l.rank,
        role: l.list(['role']),
        least: c.evidenceRatio,
        share: text.fill('(max by (%(rank)s) (%(copy)s) / on (%(rank)s) (sum by (%(rank)s) (max by (%(rank)s, part) (%(all)s)) > 0) * on (%(rank)s) group_left (role) max by (%(rank)s, role) (%(info)s))', {
          rank: l.rank,
          copy: grown(['part="copy"']),
          all: grown([]),
          info: l.raw('argus_rank_info'),
        }),
      }),
    },
  ]
