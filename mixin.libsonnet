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
  // Queries and colours by the severities of the alerts; the chart does the same by text (dashboards.yaml). The result is a
  // matcher of another form, so that no name is taken for another's.
  local renamed = { [name]: c.severities[name] for name in std.objectFields(c.severities) if c.severities[name] != name },
  local asks = { [text]: query(text) for text in boards.severities },
  local query(text) = std.foldl(
    function(text, name) std.strReplace(text, 'severity="%s"' % name, 'severity=~"%s"' % renamed[name]),
    std.objectFields(renamed),
    std.strReplace(text, '"page|ticket"', '"%(page)s|%(ticket)s"' % c.severities),
  ),
  local said(it) =
    if std.isObject(it) then {
      [if std.objectHas(renamed, field) then renamed[field] else field]:
        if field == 'expr' && std.objectHas(asks, it.expr) then asks[it.expr] else said(it[field])
      for field in std.objectFields(it)
    }
    else if std.isArray(it) then std.map(said, it)
    else it,
  grafanaDashboards+:: {
    [name]: (if renamed == {} then boards[name] else said(boards[name])) { templating+: { list: std.map(variable, super.list) } }
    for name in std.objectFields(boards)
  },
}
