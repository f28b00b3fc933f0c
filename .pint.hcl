# pint (github.com/cloudflare/pint) on the rule files: `pint lint rules/*.yaml`, in CI of a site or against its Prometheus.
# Not run here: pint is no package of this project. What is switched off, and why:

parser {
  # rules/kubernetes has the same rules as objects; rules/test has them ten times as fast.
  include = ["rules/argus\\..*\\.rules\\.yaml"]
}

checks {
  disabled = [
    # Names have the form that Prometheus' own guide asks for, level:metric:operation; pint knows it as an option only.
    "rule/name",
    # Means over windows are asked as often as the fault that they find is short.
    "promql/range_query",
    # Each rule is a part of a table or chain: where the left side has a label the right one may lack, `on (...)` says so,
    # and the project's own lint holds it (tools/lint).
    "promql/vector_matching",
    # Series of a cause exist while somebody is named: absent for most of the time.
    "promql/series",
  ]
}

rule {
  match {
    kind = "alerting"
  }
  # What every alert of ARGUS has.
  annotation "summary" {
    required = true
    severity = "bug"
  }
  annotation "description" {
    required = true
    severity = "bug"
  }
  annotation "runbook_url" {
    required = true
    severity = "bug"
  }
}
