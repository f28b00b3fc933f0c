// What the hardware of guilty ranks says, beside their verdict: series of dcgm-exporter and node_exporter, joined by
// the topology on argus_rank_info. No series where those exporters are absent.
local duration = import '../lib/duration.libsonnet';
local labels = import '../lib/labels.libsonnet';
local text = import '../lib/text.libsonnet';

{
  local c = $._config,
  local guilty = 'max by (training_job, rank) (rank:argus_verdict:active{verdict="culprit", rank!=""})',
  local info(label) = text.fill(|||
    max by (training_job, rank, %(label)s) (%(info)s)
      and on (training_job, rank) %(guilty)s
  |||, {
    label: label,
    info: labels.selector('argus_rank_info', [c.argusSelector, label + '!=""']),
    guilty: guilty,
  }),
  local join(label, series) = text.fill(|||
    max by (training_job, rank, %(label)s) (
      (
        %(info)s
      ) * on (%(label)s) group_left ()
      max by (%(label)s) (%(series)s)
    )
  |||, { label: label, info: info(label), series: series }),
  local selected(metric) = labels.selector(metric, [c.hardwareSelector]),
  // dcgm-exporter renamed the label Hostname to hostname; node_exporter has only the address in `instance`.
  local withNode(series) =
    'label_replace(label_replace(label_replace(%s, "node", "$1", "instance", "([^:]+)(:[0-9]+)?"), ' % series
    + '"node", "$1", "Hostname", "(.+)"), "node", "$1", "hostname", "(.+)")',

  prometheusRules+:: {
    groups+: [{
      name: 'argus-hardware',
      interval: duration.of(c.evaluationInterval),
      rules: [
        {
          record: 'rank:argus_hardware:current',
          about:: "What dcgm-exporter says of a guilty rank's GPU, by field, for the text of its alert.",
          labels: { field: field },
          expr: join('gpu_uuid', 'label_replace(%s, "gpu_uuid", "$1", "UUID", "(.+)")' % selected(c.hardwareGpu[field])),
        }
        for field in std.objectFields(c.hardwareGpu)
      ] + [
        {
          record: 'rank:argus_hardware:current',
          about:: "What exporters say of a guilty rank's host, by field; of its other GPUs too, as a sick neighbour may be the reason.",
          labels: { field: field },
          expr: join('node', withNode(
            if c.hardwareNode[field].counter
            then 'rate(%s[%s])' % [selected(c.hardwareNode[field].metric), duration.range(c, c.healthWindow)]
            else selected(c.hardwareNode[field].metric)
          )),
        }
        for field in std.objectFields(c.hardwareNode)
      ],
    }],
  },
}
