// One exporter for each GPU host. Training pods of the host reach its socket through a folder of the host.
local common = import 'common.libsonnet';
// Of the container, and of its files in overlays; the objects' name is `config.exporter`.
local name = 'argus-exporter';

{
  // The exporter's own configuration. Any user of the host may train: the socket tells who connects.
  configuration(config, stacks):: {
    web: { listen_address: ':9877' },
    socket: { path: config.socketFolder + '/exporter.sock', allowed_users: ['*'] },
    stacks: { enabled: stacks },
  },

  container(config):: {
    name: name,
    image: config.exporterImage,
    args: ['serve', '--config=/etc/argus/exporter.yaml'],
    ports: [{ name: config.found.port, containerPort: 9877 }],
    readinessProbe: common.get('/readyz', config.found.port),
    livenessProbe: common.get('/healthz', config.found.port),
    resources: config.exporterResources,
    volumeMounts: [
      { name: 'argus-config', mountPath: '/etc/argus', readOnly: true },
      { name: 'argus-socket', mountPath: config.socketFolder },
      { name: 'argus-scratch', mountPath: '/tmp' },
    ],
  },
  volumes(map):: [
    { name: 'argus-config', configMap: { name: map } },
    { name: 'argus-scratch', emptyDir: { sizeLimit: '64Mi' } },
  ],

  objects(config):: [
    common.account(config.exporter),
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: common.metadata(config.exporter),
      spec: {
        selector: { matchLabels: { 'app.kubernetes.io/name': config.exporter } },
        // Producers wait for nobody and send their names again: all hosts at once lose nothing.
        updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '10%' } },
        template: {
          metadata: { labels: common.metadata(config.exporter).labels + config.found.label },
          spec: {
            serviceAccountName: config.exporter,
            automountServiceAccountToken: false,
            nodeSelector: config.nodeSelector,
            tolerations: config.tolerations,
            // The owner of the host's folder; without capabilities it is root in name only.
            securityContext: { runAsUser: 0, runAsGroup: 0 },
            containers: [$.container(config) { securityContext: common.confined }],
            volumes: $.volumes(config.exporter) + [
              { name: 'argus-socket', hostPath: { path: config.socketFolder, type: 'DirectoryOrCreate' } },
            ],
          },
        },
      },
    },
  ],

  // Kustomize component: py-spy looks into the processes of other pods.
  stacks():: {
    apiVersion: 'kustomize.config.k8s.io/v1alpha1',
    kind: 'Component',
    configMapGenerator: [{ name: name, behavior: 'replace', files: ['exporter.yaml'] }],
    patches: [{
      target: { kind: 'DaemonSet', name: name },
      patch: [
        { op: 'add', path: '/spec/template/spec/hostPID', value: true },
        { op: 'add', path: '/spec/template/spec/containers/0/securityContext/capabilities/add', value: ['SYS_PTRACE'] },
      ],
    }],
  },
}
