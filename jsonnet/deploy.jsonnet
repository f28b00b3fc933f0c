// What `python -m tools.generate_deploy` writes: paths in the repository to the documents of that file.
local kubernetes = (import 'kubernetes.libsonnet').new(import 'mixin.libsonnet');

{ ['deploy/kubernetes/' + path]: kubernetes.files[path] for path in std.objectFields(kubernetes.files) } + {
  'rules/kubernetes/prometheusrule.yaml': kubernetes.rules,
  'rules/kubernetes/podmonitor.yaml': kubernetes.podMonitors,
  'rules/kubernetes/kustomization.yaml': [{
    apiVersion: 'kustomize.config.k8s.io/v1beta1',
    kind: 'Kustomization',
    resources: ['prometheusrule.yaml'],
  }],
}
