// The ARGUS monitoring mixin: hidden roots that users extend, as in the Prometheus monitoring mixins.
//
//   local argus = (import 'mixin.libsonnet') + { _config+:: { argusSelector: 'cluster="a"' } };
//   { 'argus.rules.yaml': std.manifestYamlDoc(argus.prometheusRules) }
//
// Rules and alerts need each other; `prometheusRulesByFile` has both, by concern.
(import 'config.libsonnet') + {
  local files = (import 'rules/files.libsonnet')(self._config),
  local isAlerts(file) = std.member(['decision', 'health'], file),

  prometheusRulesByFile:: { [file]: files[file].groups for file in std.objectFields(files) },
  prometheusRules+:: { groups+: std.flattenArrays([files[file].groups for file in std.objectFields(files) if !isAlerts(file)]) },
  prometheusAlerts+:: { groups+: std.flattenArrays([files[file].groups for file in std.objectFields(files) if isAlerts(file)]) },
}
