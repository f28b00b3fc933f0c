// Who may talk to whom. None for sidecars: a policy would cut the training pod, and NCCL with it, off from the rest.
local common = import 'common.libsonnet';

{
  objects(config)::
    local from(namespace) = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } } };
    local worker = { podSelector: { matchLabels: config.found.worker } };
    local policy(name, spec) = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: common.metadata(name),
      spec: { podSelector: { matchLabels: { 'app.kubernetes.io/name': name } } } + spec,
    };
    local names = {
      to: [{ namespaceSelector: {}, podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } } }],
      ports: [{ port: 53, protocol: 'UDP' }, { port: 53, protocol: 'TCP' }],
    };
    [
      // Scraped by Prometheus; asked for traces by the worker. It calls nobody: stores and remote write need a rule.
      policy(config.exporter, {
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [from(config.monitoring), worker], ports: [{ port: 9877, protocol: 'TCP' }] }],
        egress: [],
      }),
      policy(config.worker, {
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [from(config.monitoring)], ports: [{ port: 9878, protocol: 'TCP' }] }],
        egress: [
          names,
          { to: [from(config.monitoring)], ports: [{ port: config.prometheusPort, protocol: 'TCP' }] },
          {
            to: [{ namespaceSelector: {}, podSelector: { matchLabels: config.found.label } }],
            ports: [{ port: 9877, protocol: 'TCP' }],
          },
        ],
      }),
    ],
}
