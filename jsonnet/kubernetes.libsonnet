// The same for the Prometheus Operator: one PrometheusRule a concern, and a PodMonitor that finds the exporters.
{
  new(mixin, namespace='monitoring'):: {
    local metadata(name) = { name: name, namespace: namespace, labels: { 'app.kubernetes.io/part-of': 'argus' } },
    local rule(name, groups) = {
      apiVersion: 'monitoring.coreos.com/v1',
      kind: 'PrometheusRule',
      metadata: metadata('argus-' + name),
      spec: { groups: groups },
    },

    rules:: {
      apiVersion: 'v1',
      kind: 'List',
      items: [
        rule(file, mixin.prometheusRulesByFile[file])
        for file in std.objectFields(mixin.prometheusRulesByFile)
      ] + [rule('alerts', mixin.prometheusAlerts.groups)],
    },
    podMonitor:: {
      apiVersion: 'monitoring.coreos.com/v1',
      kind: 'PodMonitor',
      metadata: metadata('argus-exporter'),
      spec: {
        namespaceSelector: { any: true },
        selector: { matchLabels: { 'app.kubernetes.io/name': 'argus-exporter' } },
        podMetricsEndpoints: [{ port: 'metrics', interval: '%ds' % mixin._config.scrapeInterval }],
      },
    },
  },
}
