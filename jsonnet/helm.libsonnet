// The Helm chart, of the objects that kubernetes.libsonnet makes: what a release may change is a template in them.
//
// Templates stand in strings, in five ways (tools/generate_chart.py):
//   'a {{ E }} b'          text in a string
//   key: '{{= E }}'        any value, as JSON
//   key: '{{? E }}'        the same, and no key where it is empty
//   '{{> E }}': null       the entries of a mapping, beside those that stand here
//   ['{{+ E }}']           the items of a list, after those that stand here
// `templates` are [{ when: condition, object: object }] by file, `defines` values by the name that templates include.
local kubernetes = import 'kubernetes.libsonnet';
local name = '{{ include "argus.fullname" . }}';
local values = function(path) '.Values.' + path;

local labels = 'include "argus.labels" . | fromYaml';
local ours = '{{> %s }}' % labels;

local accountName(of, suffix) =
  '{{ default (printf "%%s-%s" (include "argus.fullname" .)) .Values.%s.serviceAccount.name }}' % [suffix, of];
local account(of, suffix) = {
  metadata+: { name: accountName(of, suffix), annotations: '{{? .Values.%s.serviceAccount.annotations }}' % of },
};

// What users of charts expect to set on any workload, at the place where Kubernetes has it.
local pod(of, suffix) = {
  metadata+: {
    labels+: { ['{{> .Values.%s.podLabels }}' % of]: null },
    annotations: {
      // A pod reads its file once: another file is another pod. Kustomize has the hash in the file's name.
      'checksum/config': '{{ include "argus.%sConfig" . | sha256sum }}' % of,
      ['{{> .Values.%s.podAnnotations }}' % of]: null,
    },
  },
  spec+: {
    serviceAccountName: accountName(of, suffix),
    imagePullSecrets: '{{? .Values.imagePullSecrets }}',
    affinity: '{{? .Values.%s.affinity }}' % of,
    priorityClassName: '{{? .Values.%s.priorityClassName }}' % of,
    volumes+: ['{{+ .Values.%s.extraVolumes }}' % of],
  },
};
local container(of) = {
  imagePullPolicy: '{{? .Values.%s.image.pullPolicy }}' % of,
  args+: ['{{+ .Values.%s.extraArgs }}' % of],
  volumeMounts+: ['{{+ .Values.%s.extraVolumeMounts }}' % of],
};
local withContainer(patch) = { spec+: { template+: { spec+: { containers: [one + patch for one in super.containers] } } } };

local changes = {
  DaemonSet:
    { spec+: { template+: pod('exporter', 'exporter'), updateStrategy: '{{= .Values.exporter.updateStrategy }}' } }
    + withContainer(container('exporter') {
      env: '{{? .Values.exporter.extraEnv }}',
      securityContext+: {
        capabilities+: { add: '{{? ternary (list "SYS_PTRACE") list .Values.exporter.stacks.enabled }}' },
      },
    })
    + { spec+: { template+: { spec+: { hostPID: '{{? .Values.exporter.stacks.enabled }}' } } } },
  Deployment:
    {
      spec+: {
        replicas: '{{= .Values.l3Worker.replicas }}',
        template+: pod('l3Worker', 'l3-worker') + {
          spec+: {
            nodeSelector: '{{? .Values.l3Worker.nodeSelector }}',
            tolerations: '{{? .Values.l3Worker.tolerations }}',
          },
        },
      },
    }
    + withContainer(container('l3Worker') { env+: ['{{+ .Values.l3Worker.extraEnv }}'] }),
  // One mapping: a label that is in both would be there twice.
  PodMonitor: {
    metadata+: {
      labels+: {
        [ours]:: null,
        ['{{> merge (deepCopy .Values.podMonitor.additionalLabels) (%s) }}' % labels]: null,
      },
    },
  },
};

local released(object) =
  object
  {
    metadata+: {
      [if std.startsWith(object.kind, 'ClusterRole') then null else 'namespace']: '{{ .Release.Namespace }}',
      labels+: { [ours]: null },
    },
  }
  + std.get(changes, object.kind, {});

{
  new(mixin)::
    local made = kubernetes.new(mixin, {
      exporter: name + '-exporter',
      worker: name + '-l3-worker',
      discovery: name + '-prometheus-discovery',
      monitoring: '{{ .Values.prometheus.namespace }}',
      prometheusAccount: '{{ .Values.prometheus.serviceAccount }}',
      prometheusUrl: '{{ .Values.prometheus.url }}',
      prometheusPort: '{{= include "argus.prometheusPort" . | int }}',
      scrapeInterval: '{{ .Values.podMonitor.interval }}',
      namespace: '{{ .Release.Namespace }}',
      exporterImage: '{{ include "argus.image" (list . .Values.exporter.image) }}',
      workerImage: '{{ include "argus.image" (list . .Values.l3Worker.image) }}',
      nodeSelector: '{{? .Values.exporter.nodeSelector }}',
      tolerations: '{{? .Values.exporter.tolerations }}',
      socketFolder: '{{ .Values.exporter.socketFolder }}',
      exporterResources: '{{? .Values.exporter.resources }}',
      workerResources: '{{? .Values.l3Worker.resources }}',
    });
    local entry(part, suffix, object) =
      if object.kind == 'ServiceAccount' then {
        when: 'and %s %s' % [values(part + '.enabled'), values(part + '.serviceAccount.create')],
        object: released(object) + account(part, suffix),
      } else { when: values(part + '.enabled'), object: released(object) };
    local of(part, suffix, file) = [entry(part, suffix, object) for object in made.files[file]];
    local part(object) = if object.metadata.name == name + '-exporter' then 'exporter' else 'l3Worker';
    local configMap(part, suffix, file) = {
      when: values(part + '.enabled'),
      object: released({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: '%s-%s' % [name, suffix] },
        data: { [file]: '{{= include "argus.%sConfig" . }}' % part },
      }),
    };
    {
      defines: {
        'argus.exporterDefaults':
          made.files['base/config/exporter.yaml'][0] {
            stacks+: { enabled: '{{= .Values.exporter.stacks.enabled }}' },
          },
        'argus.l3WorkerDefaults': made.files['base/config/l3-worker.yaml'][0],
      },
      templates: {
        'exporter.yaml':
          of('exporter', 'exporter', 'base/exporter.yaml') + [configMap('exporter', 'exporter', 'exporter.yaml')],
        'l3-worker.yaml':
          of('l3Worker', 'l3-worker', 'base/worker.yaml') + [configMap('l3Worker', 'l3-worker', 'l3-worker.yaml')],
        'network.yaml': [
          {
            when: 'and .Values.networkPolicy.enabled .Values.%s.enabled' % part(object),
            object: released(object) + if part(object) == 'exporter' then {} else {
              spec+: { egress+: ['{{+ .Values.networkPolicy.workerEgress }}'] },
            },
          }
          for object in made.files['base/network.yaml']
        ],
        'pod-monitors.yaml': [
          // Sidecars are found by the same one: it is of use without the DaemonSet.
          if part(object) == 'exporter' then {
            when: values('podMonitor.enabled'),
            object: released(object) {
              spec+: {
                podMetricsEndpoints: [
                  endpoint { '{{> .Values.podMonitor.exporterEndpoint }}': null }
                  for endpoint in super.podMetricsEndpoints
                ],
              },
            },
          } else {
            when: 'and .Values.podMonitor.enabled .Values.l3Worker.enabled',
            object: released(object),
          }
          for object in made.podMonitors
        ],
        'discovery.yaml': [
          { when: values('rbac.create'), object: released(object) }
          for object in made.files['base/prometheus.yaml']
          if std.startsWith(object.kind, 'ClusterRole')
        ],
      },
    },
}
