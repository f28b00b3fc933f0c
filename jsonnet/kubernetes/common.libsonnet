// What all objects share.
{
  metadata(name, labels={}):: {
    name: name,
    labels: { 'app.kubernetes.io/name': name, 'app.kubernetes.io/part-of': 'argus' } + labels,
  },
  // No process of ours needs a capability, a writable image or the Kubernetes API.
  confined:: {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
    seccompProfile: { type: 'RuntimeDefault' },
  },
  account(name):: {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: $.metadata(name),
    automountServiceAccountToken: false,
  },
  get(path, port):: { httpGet: { path: path, port: port } },
}
