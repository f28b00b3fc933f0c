// The L3 worker: two replicas judge alike, and the rules take either's word.
local common = import 'common.libsonnet';

{
  configuration(config):: {
    prometheus: { url: config.prometheusUrl },
    write: { spool_dir: '/var/lib/argus/spool' },
    web: { listen_address: '0.0.0.0:9878' },
  },

  objects(config)::
    local name = config.worker;
    local labels = { 'app.kubernetes.io/name': name };
    [
      common.account(name),
      {
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: common.metadata(name),
        spec: {
          replicas: 2,
          selector: { matchLabels: labels },
          strategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 1, maxSurge: 0 } },
          template: {
            metadata: { labels: common.metadata(name).labels + config.found.worker },
            spec: {
              serviceAccountName: name,
              automountServiceAccountToken: false,
              securityContext: {
                runAsNonRoot: true,
                runAsUser: 65532,
                runAsGroup: 65532,
                fsGroup: 65532,
              },
              topologySpreadConstraints: [{
                maxSkew: 1,
                topologyKey: 'kubernetes.io/hostname',
                whenUnsatisfiable: 'ScheduleAnyway',
                labelSelector: { matchLabels: labels },
              }],
              containers: [{
                name: 'argus-l3-worker',
                image: config.workerImage,
                args: ['serve', '--config=/etc/argus/l3-worker.yaml', '--worker=$(POD_NAME)'],
                env: [{ name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
                ports: [{ name: config.found.port, containerPort: 9878 }],
                readinessProbe: common.get('/healthz', config.found.port),
                // Alive as long as it answers: a Prometheus that is away is no reason to restart, the spool bridges it.
                livenessProbe: { tcpSocket: { port: config.found.port } },
                resources: config.workerResources,
                securityContext: common.confined,
                volumeMounts: [
                  { name: 'config', mountPath: '/etc/argus', readOnly: true },
                  { name: 'spool', mountPath: '/var/lib/argus' },
                  { name: 'scratch', mountPath: '/tmp' },
                ],
              }],
              volumes: [
                { name: 'config', configMap: { name: name } },
                { name: 'spool', emptyDir: { sizeLimit: '256Mi' } },
                { name: 'scratch', emptyDir: { sizeLimit: '256Mi' } },
              ],
            },
          },
        },
      },
      {
        apiVersion: 'policy/v1',
        kind: 'PodDisruptionBudget',
        metadata: common.metadata(name),
        // Not minAvailable: of one replica that would let no node be emptied.
        spec: { maxUnavailable: 1, selector: { matchLabels: labels } },
      },
      {
        // For people: /traces of the worker opens timelines.
        apiVersion: 'v1',
        kind: 'Service',
        metadata: common.metadata(name),
        spec: {
          selector: labels,
          ports: [{ name: config.found.port, port: 9878, targetPort: config.found.port }],
        },
      },
    ],
}
