// Training that is watched: example jobs to take the parts from. Either the exporter of the host (the DaemonSet), through
// a folder of the host, or an exporter inside each pod: no folder of the host, no root.
local common = import 'common.libsonnet';
local exporter = import 'exporter.libsonnet';
local producer = '/argus';
local image = 'your-training-image';
local packages = '/opt/argus/lib/python3.11/site-packages';

{
  // A job whose image knows nothing of ARGUS. sidecars: containers that start before it; volumes: theirs and the socket's.
  local job(config, socket, labels, sidecars, volumes) = {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: common.metadata('train'),
    spec: {
      // One pod: those of a larger job must find one another, as your launcher has them do (torchrun: --nnodes, --rdzv-endpoint).
      backoffLimit: 0,
      template: {
        metadata: { labels: common.metadata('train').labels + labels },
        spec: {
          restartPolicy: 'Never',
          automountServiceAccountToken: false,
          securityContext: { runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
          initContainers: [{
            // What attaches inside the training process: standard library and one C++ library.
            name: 'argus-producer',
            image: config.exporterImage,
            command: ['cp', '-r', packages + '/argus_core', packages + '/argus_training', producer],
            securityContext: common.confined,
            volumeMounts: [{ name: 'argus-producer', mountPath: producer }],
          }, {
            // Loads that library in your image; where it cannot, ranks train without it and say why on /metrics.
            // Whatever happens here, training starts.
            name: 'argus-library',
            image: image,
            command: ['sh', '-c', 'python3 -I -S "$0"/argus_training/try_library.py "$0"/argus_core/libargus_cupti.so || true', producer],
            securityContext: common.confined,
            volumeMounts: [{ name: 'argus-producer', mountPath: producer }],
          }] + sidecars,
          containers: [{
            name: 'train',
            image: image,
            command: ['torchrun', '--nproc-per-node=8', 'train.py'],
            env: [
              { name: 'ARGUS_SOCKET', value: socket },
              // Unlike another namespace's job of that name, and the job first: 64 bytes count, and tell one from another of its
              // own namespace. Operators write labels of their own: docs/deployment.md.
              { name: 'POD_NAMESPACE', valueFrom: { fieldRef: { fieldPath: 'metadata.namespace' } } },
              { name: 'POD_JOB', valueFrom: { fieldRef: { fieldPath: "metadata.labels['batch.kubernetes.io/job-name']" } } },
              { name: 'ARGUS_JOB', value: '$(POD_JOB).$(POD_NAMESPACE)' },
              { name: 'ARGUS_NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } },
              // In front of your own, if the image sets one.
              { name: 'PYTHONPATH', value: producer + '/argus_training/boot' },
              // No CUDA_INJECTION64_PATH: the producer sets it where the image's C library can load ours.
            ],
            resources: { limits: { 'nvidia.com/gpu': '8' } },
            volumeMounts: [
              { name: 'argus-producer', mountPath: producer, readOnly: true },
              { name: 'argus-socket', mountPath: config.socketFolder, readOnly: true },  // enough to connect
            ],
          }],
          volumes: [{ name: 'argus-producer', emptyDir: { sizeLimit: '64Mi' } }] + volumes,
        },
      },
    },
  },

  // Beside the DaemonSet. Where that is not, kubelet makes the folder, and training starts without an exporter.
  withDaemonSet(config)::
    job(config, config.socketFolder + '/exporter.sock', {}, [], [
      { name: 'argus-socket', hostPath: { path: config.socketFolder, type: 'DirectoryOrCreate' } },
    ]),

  // With a sidecar: restartPolicy makes it one (Kubernetes 1.29); it starts first and ends with the training.
  withSidecar(config)::
    local sidecar = exporter.container(config) { restartPolicy: 'Always', securityContext: common.confined };
    job(config, $.socketInPod(config), config.found.label, [sidecar], exporter.volumes('argus-exporter') + [
      { name: 'argus-socket', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
    ]),
  // An emptyDir is open to every user, and the exporter listens in no such folder: it makes one of its own in it.
  socketInPod(config):: config.socketFolder + '/own/exporter.sock',
  // Of that sidecar. One user, so the socket stays 0600.
  sidecarConfiguration(config, stacks):: {
    web: { listen_address: ':9877' },
    socket: { path: $.socketInPod(config) },
    stacks: { enabled: stacks },
  },
  // Kustomize component for it. No capability: one user may look at its own processes, and where Yama says only at
  // children, ARGUS_PTRACER lets the exporter in.
  sidecarStacks():: {
    apiVersion: 'kustomize.config.k8s.io/v1alpha1',
    kind: 'Component',
    configMapGenerator: [{ name: 'argus-exporter', behavior: 'replace', files: ['exporter.yaml'] }],
    patches: [{
      target: { kind: 'Job', name: 'train' },
      patch: [
        { op: 'add', path: '/spec/template/spec/shareProcessNamespace', value: true },
        {
          op: 'add',
          path: '/spec/template/spec/containers/0/env/-',
          value: { name: 'ARGUS_PTRACER', value: 'exporter' },
        },
      ],
    }],
  },
}
