// What the hardware says of the ranks that are named: series of dcgm-exporter and node_exporter. Optional.
//
// Read for the text of alerts and for dashboards alone: it confirms or explains what was found, and accuses nobody. Joined by
// the GPU's UUID and the host's name of argus_rank_info; without those exporters there is nothing.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local hardware = 'rank:argus_hardware:current';
  local place = 'rank:argus_finding:place';
  // Names of dcgm-exporter's default counters, and of others that sites turn on.
  local gpu(name) = l.selector('DCGM_FI_DEV_' + name, [c.hardwareSelector]);
  local rate(series) = 'rate(' + series + '[' + duration.range(c, 2 * c.window) + '])';
  local fields = {
    sm_clock_megahertz: gpu('SM_CLOCK'),
    temperature_celsius: gpu('GPU_TEMP'),
    power_watts: gpu('POWER_USAGE'),
    // A bit mask; its name changed.
    throttle_reasons: gpu('CLOCK_THROTTLE_REASONS') + ' or on (UUID) ' + gpu('CLOCKS_EVENT_REASONS'),
    last_xid: gpu('XID_ERRORS'),
    ecc_double_bit_errors: gpu('ECC_DBE_VOL_TOTAL'),
    row_remap_failure: gpu('ROW_REMAP_FAILURE'),
    uncorrectable_remapped_rows: gpu('UNCORRECTABLE_REMAPPED_ROWS'),
    pcie_link_generation: gpu('PCIE_LINK_GEN'),
    pcie_link_width: gpu('PCIE_LINK_WIDTH'),
    pcie_replays_per_second: rate(gpu('PCIE_REPLAY_COUNTER')),
    nvlink_replays_per_second: rate(gpu('NVLINK_REPLAY_ERROR_COUNT_TOTAL')),
    nvlink_megabytes_per_second: gpu('NVLINK_BANDWIDTH_TOTAL'),
  };
  local reasons = { power_cap: 4, hardware_slowdown: 8, software_thermal: 32, hardware_thermal: 64, power_brake: 128 };
  // Of any GPU of the host: a sick neighbour.
  local hosts = {
    last_xid_on_host: gpu('XID_ERRORS'),
    nic_transmitted_bytes_per_second: rate(l.selector('node_infiniband_port_data_transmitted_bytes_total', [c.hardwareSelector])),
    nic_link_downs_per_second: rate(l.selector('node_infiniband_link_downed_total', [c.hardwareSelector])),
  };
  local label(series, name, value, from='', pattern='') = 'label_replace(' + std.join(', ', [series] + ['"' + part + '"' for part in [name, value, from, pattern]]) + ')';
  local byGpu(series) = label(series, 'gpu_uuid', '$1', 'UUID', '(.+)');
  // dcgm-exporter renamed the label Hostname to hostname; node_exporter has only the address in `instance`.
  local byNode(series) = std.foldl(
    function(found, from) label(found, 'node', '$1', from.name, from.pattern),
    [{ name: 'instance', pattern: '([^:]+)(:[0-9]+)?' }, { name: 'Hostname', pattern: '(.+)' }, { name: 'hostname', pattern: '(.+)' }],
    series
  );
  [
    {
      // Of ranks that share a GPU, one.
      about:: "What dcgm-exporter says of a named rank's GPU, by field: clock, temperature, power, mask of reasons to throttle, last Xid, ECC and remapped rows, PCIe link and replays, NVLink.",
      record: hardware,
      expr: text.fill(|||
        topk by (gpu_uuid) (1, %(place)s{gpu_uuid!=""}) * on (gpu_uuid) group_right (%(rank)s) max by (gpu_uuid, field) (
          %(gpu)s
        )
      |||, {
        place: place,
        rank: l.rank,
        gpu: byGpu('\n    ' + std.join('\n    or ', [label(fields[field], 'field', field) for field in std.objectFields(fields)]) + '\n  '),
      }),
    },
    {
      about:: "The clock of a named rank's GPU to that of the median GPU of its job.",
      record: hardware,
      labels: { field: 'sm_clock_to_peers_ratio' },
      expr: text.fill(|||
        %(hardware)s{field="sm_clock_megahertz"} / on (%(job)s) group_left () quantile by (%(job)s) (0.5,
          (max by (%(gpu)s) (%(info)s) and on (%(job)s) %(place)s) * on (gpu_uuid) group_left () max by (gpu_uuid) (%(clock)s)
        )
      |||, {
        hardware: hardware,
        job: l.job,
        gpu: l.list(['gpu_uuid']),
        info: l.raw('argus_rank_info', ['gpu_uuid!=""']),
        place: place,
        clock: byGpu(fields.sm_clock_megahertz),
      }),
    },
  ] + [
    {
      about:: '1: what throttles the GPU of a named rank, from the mask of reasons: %s.' % std.strReplace(reason, '_', ' '),
      record: hardware,
      labels: { field: 'throttled_by_' + reason },
      expr: text.fill('floor(%(hardware)s{field="throttle_reasons"} / %(bit)s) % 2 == 1', { hardware: hardware, bit: reasons[reason] }),
    }
    for reason in std.objectFields(reasons)
  ] + [
    {
      about:: "What exporters say of a named rank's host: %s." % std.strReplace(field, '_', ' '),
      record: hardware,
      labels: { field: field },
      expr: text.fill('max by (%(node)s) (%(place)s{node!=""} * on (node) group_left () max by (node) (%(series)s))', {
        node: l.list(['rank', 'node']),
        place: place,
        series: byNode(hosts[field]),
      }),
    }
    for field in std.objectFields(hosts)
  ]
