// For the Prometheus Operator: PrometheusRules, PodMonitors, and leave for its Prometheus to find our pods.
local common = import 'common.libsonnet';
local api = 'monitoring.coreos.com/v1';

{
  // One PrometheusRule a concern: an object has a size limit, and a site takes what it needs.
  rules(config, mixin)::
    local rule(name, groups) = {
      apiVersion: api,
      kind: 'PrometheusRule',
      metadata: common.metadata('argus-' + name) { namespace: config.monitoring },
      spec: { groups: groups },
    };
    // jsonnet evaluates a field anew at each use.
    local byFile = mixin.prometheusRulesByFile;
    [
      rule(file, byFile[file])
      for file in std.objectFields(byFile)
    ],

  podMonitors(config)::
    local monitor(name, labels, namespaces) = {
      apiVersion: api,
      kind: 'PodMonitor',
      metadata: common.metadata(name) { namespace: config.namespace },
      spec: {
        namespaceSelector: namespaces,
        selector: { matchLabels: labels },
        podMetricsEndpoints: [{ port: config.found.port, interval: config.scrapeInterval }],
      },
    };
    [
      // Sidecars live where training does.
      monitor(config.exporter, config.found.label, { any: true }),
      monitor(
        config.worker, { 'app.kubernetes.io/name': config.worker }, { matchNames: [config.namespace] }
      ),
    ],

  discovery(config)::
    local name = config.discovery;
    [
      {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRole',
        metadata: common.metadata(name),
        rules: [{ apiGroups: [''], resources: ['pods'], verbs: ['get', 'list', 'watch'] }],
      },
      {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRoleBinding',
        metadata: common.metadata(name),
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: name },
        subjects: [{ kind: 'ServiceAccount', name: config.prometheusAccount, namespace: config.monitoring }],
      },
    ],
}
