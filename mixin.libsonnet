// For other jsonnet projects: `jb install github.com/argus-for-prometheus/argus`, then
//
//   local argus = (import 'argus/mixin.libsonnet') + { _config+:: { argusSelector: 'cluster="a"' } };
//
// gives `prometheusAlerts`, `prometheusRules` and `grafanaDashboards`, as every Prometheus monitoring mixin does.
(import 'jsonnet/mixin.libsonnet') + {
  grafanaDashboards+:: import 'dashboards/generated/index.libsonnet',
}
