// The ARGUS monitoring mixin: hidden roots that users extend, as in the Prometheus monitoring mixins.
//
//   local argus = (import 'mixin.libsonnet') + { _config+:: { argusSelector: 'cluster="a"' } };
//   { 'argus.rules.yaml': std.manifestYamlDoc(argus.prometheusRules) }
//
// `prometheusRules` is everything; `prometheusRulesByFile` is the same by concern.
local files = import 'lib/files.libsonnet';

(import 'config.libsonnet')
+ (import 'rules/job.libsonnet')
+ (import 'rules/iteration.libsonnet')
+ (import 'rules/work.libsonnet')
+ (import 'rules/stall.libsonnet')
+ (import 'rules/phases.libsonnet')
+ (import 'rules/host.libsonnet')
+ (import 'rules/stacks.libsonnet')
+ (import 'rules/masked.libsonnet')
+ (import 'rules/verdicts.libsonnet')
+ (import 'rules/history.libsonnet')
+ (import 'rules/cost.libsonnet')
+ (import 'rules/hardware.libsonnet')
+ (import 'alerts/iteration.libsonnet')
+ (import 'alerts/ranks.libsonnet')
+ (import 'alerts/collectives.libsonnet')
+ (import 'alerts/kernels.libsonnet')
+ (import 'alerts/health.libsonnet')
+ {
  prometheusRulesByFile:: files.split(self.prometheusRules.groups),
}
