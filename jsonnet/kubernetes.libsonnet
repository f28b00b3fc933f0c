// ARGUS on Kubernetes: kustomize bases as { path below deploy/kubernetes: [objects of that file] }.
//
//   local argus = (import 'kubernetes.libsonnet').new(import 'mixin.libsonnet', { namespace: 'gpu-watch' });
//
// What may be overridden stands in `defaults`. `rules` and `podMonitors` are of use without the rest.
local exporter = import 'kubernetes/exporter.libsonnet';
local network = import 'kubernetes/network.libsonnet';
local operator = import 'kubernetes/operator.libsonnet';
local training = import 'kubernetes/training.libsonnet';
local worker = import 'kubernetes/worker.libsonnet';
local version = import 'lib/version.libsonnet';

{
  defaults:: {
    namespace: 'argus',
    // Names of the objects of each, and of the role by which Prometheus finds pods.
    exporter: 'argus-exporter',
    worker: 'argus-l3-worker',
    discovery: 'argus-prometheus-discovery',
    // Where Prometheus runs, by whose name, and how pods reach it.
    monitoring: 'monitoring',
    prometheusAccount: 'prometheus-k8s',
    prometheusUrl: 'http://prometheus-operated.monitoring.svc:9090',
    prometheusPort: 9090,
    exporterImage: 'argus-exporter:' + version,
    workerImage: 'argus-l3-worker:' + version,
    // Nodes that train, and what keeps others off them.
    nodeSelector: { 'nvidia.com/gpu.present': 'true' },
    tolerations: [{ key: 'nvidia.com/gpu', operator: 'Exists', effect: 'NoSchedule' }],
    // On the host and in every pod that trains there.
    socketFolder: '/run/argus',
    // Measured with 8 ranks at 1e5 kernels a minute each: 0.01 of a core, 190 MB (docs/overhead.md).
    exporterResources: { requests: { cpu: '50m', memory: '256Mi' }, limits: { cpu: '1', memory: '512Mi' } },
    // 10,000 ranks x 20 pairs: seconds of one core a minute (docs/l3-worker.md).
    workerResources: { requests: { cpu: '250m', memory: '512Mi' }, limits: { cpu: '2', memory: '4Gi' } },
  },
  // What a PodMonitor finds exporters by, whatever else their pod is: training pods keep their own names and ports.
  // `worker`: what the exporters' network policy admits, so the worker of another release too.
  found:: { label: { 'argus-exporter': 'true' }, worker: { 'argus-l3-worker': 'true' }, port: 'argus-metrics' },

  new(mixin, overrides={}):: {
    local config =
      $.defaults { scrapeInterval: '%ds' % mixin._config.scrapeInterval } + overrides + { found: $.found },

    rules:: operator.rules(config, mixin),
    podMonitors:: operator.podMonitors(config),

    files:: {
      'base/namespace.yaml': [{
        apiVersion: 'v1',
        kind: 'Namespace',
        // The socket's hostPath is beyond the `baseline` standard of pod security.
        metadata: { name: config.namespace, labels: { 'pod-security.kubernetes.io/enforce': 'privileged' } },
      }],
      'base/exporter.yaml': exporter.objects(config),
      'base/worker.yaml': worker.objects(config),
      'base/network.yaml': network.objects(config),
      'base/prometheus.yaml': operator.podMonitors(config) + operator.discovery(config),
      'base/config/exporter.yaml': [exporter.configuration(config, stacks=false)],
      'base/config/l3-worker.yaml': [worker.configuration(config)],
      'base/kustomization.yaml': [{
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        namespace: config.namespace,
        resources: ['namespace.yaml', 'exporter.yaml', 'worker.yaml', 'network.yaml', 'prometheus.yaml'],
        configMapGenerator: [
          { name: 'argus-exporter', files: ['exporter.yaml=config/exporter.yaml'] },
          { name: 'argus-l3-worker', files: ['l3-worker.yaml=config/l3-worker.yaml'] },
        ],
      }],
      // Rules and dashboards go where Prometheus and Grafana look for them.
      'monitoring/kustomization.yaml': [{
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        namespace: config.monitoring,
        resources: ['../../../rules/kubernetes', '../../../dashboards/generated'],
      }],
      'all/kustomization.yaml': [{
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        resources: ['../base', '../monitoring'],
      }],
      'stacks/exporter.yaml': [exporter.configuration(config, stacks=true)],
      'stacks/kustomization.yaml': [exporter.stacks()],
      'training/job.yaml': [training.withDaemonSet(config)],
      'training/kustomization.yaml': [{
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        resources: ['job.yaml'],
      }],
      'sidecar/job.yaml': [training.withSidecar(config)],
      'sidecar/exporter.yaml': [training.sidecarConfiguration(config, stacks=false)],
      'sidecar/kustomization.yaml': [{
        apiVersion: 'kustomize.config.k8s.io/v1beta1',
        kind: 'Kustomization',
        resources: ['job.yaml'],
        configMapGenerator: [{ name: 'argus-exporter', files: ['exporter.yaml'] }],
      }],
      'sidecar-stacks/exporter.yaml': [training.sidecarConfiguration(config, stacks=true)],
      'sidecar-stacks/kustomization.yaml': [training.sidecarStacks()],
    },
  },
}
