// For other jsonnet projects: `jb install` a checkout or your copy of this repository as argus, then
//
//   local argus = (import 'argus/mixin.libsonnet') + { _config+:: { argusSelector: 'cluster="a"' } };
//
// gives `prometheusAlerts`, `prometheusRules` and `grafanaDashboards`, as every Prometheus monitoring mixin does.
local boards = import 'dashboards/generated/index.libsonnet';
(import 'jsonnet/mixin.libsonnet') + {
  local c = self._config,
  local chosen(query) =
    local series = 'argus_rank_up';
    local narrowed = std.strReplace(query, series + '{', series + '{' + c.argusSelector + ', ');
    std.strReplace(narrowed, series + ',', series + '{' + c.argusSelector + '},'),
  // What is shown begins with what can be chosen: clusters and jobs within `argusSelector`; traces by `traceUrl`.
  local variable(it) = it {
    [if c.argusSelector != '' && it.type == 'query' then 'query']: chosen(it.query),
    [if c.traceUrl != '' && it.name == 'traces' then 'query']: c.traceUrl,
    [if c.traceUrl != '' && it.name == 'traces' then 'current']: { text: c.traceUrl, value: c.traceUrl },
  },
  grafanaDashboards+:: {
    [name]: boards[name] { templating+: { list: std.map(variable, super.list) } }
    for name in std.objectFields(boards)
  },
}
