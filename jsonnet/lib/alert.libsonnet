// Alerts: the links every alert carries, and the severities of a finding.
local duration = import 'duration.libsonnet';

{
  local traceKey =
    '{{ $found := printf "argus_l3_trace_info{training_job=%q,suspect=%q}" $labels.training_job "true" }}'
    + '{{ with $labels.rank }}{{ $found = printf "argus_l3_trace_info{training_job=%q,rank=%q}" '
    + '$labels.training_job . }}{{ end }}'
    + '{{ with query (printf "topk(1, %s)" $found) }}{{ . | first | label "trace_key" }}{{ else }}'
    + '{{ $labels.training_job }}/{{ with query "vector(time())" }}{{ . | first | value | humanizeTimestamp'
    + ' | reReplaceAll " .*" "" }}{{ end }}/{{ with $labels.rank }}{{ . }}/{{ end }}{{ end }}',

  // A label of the rank's argus_rank_info; empty without a rank, or where the rank did not say.
  local whereabouts(label) =
    '{{ with $labels.rank }}{{ with query (printf "argus_rank_info{training_job=%q,rank=%q}" '
    + '$labels.training_job .) }}{{ . | first | label "' + label + '" }}{{ end }}{{ end }}',

  // What the alert's cause costs the job, in GPUs that produce nothing; empty where that is not known.
  local cost =
    '{{ $cause := "unexplained" }}{{ with $labels.cause }}{{ $cause = . }}{{ end }}'
    + '{{ with query (printf "max(job:argus_lost_gpus:current{training_job=%q,cause=%q})" '
    + '$labels.training_job $cause) }}{{ . | first | value | printf "%.1f" }} GPUs stand idle{{ end }}',

  // What DCGM and the node say of the rank; empty where they are absent (rules/hardware.libsonnet).
  local hardware =
    '{{ with $labels.rank }}{{ with query (printf "rank:argus_hardware:current{training_job=%q,rank=%q}" '
    + '$labels.training_job .) }} Its hardware:{{ range . }} {{ label "field" . }} {{ value . | humanize }};{{ end }}'
    + '{{ end }}{{ end }}',

  // Runbook, dashboard and trace links, added here so that no alert can forget them. `trace_key` is the trace that
  // the worker asked for (argus_l3_trace_info); until there is one, the prefix of the rank's traces of that day in the
  // object store: training_job/date/rank/. An alert without a rank names the trace of one of its job's suspects.
  withLinks(config, alert):: alert {
    annotations+: {
      // Not of what ARGUS itself lacks, which names ranks without a verdict.
      description: super.description + hardware,
      runbook_url: config.runbookUrl % alert.alert,
      dashboard_url: config.dashboardUrl + '{{ with $labels.training_job }}?var-training_job={{ . }}{{ end }}'
                     + '{{ with $labels.rank }}&var-rank={{ . }}{{ end }}',
      trace_key: traceKey,
      host: whereabouts('node'),
      gpu: whereabouts('gpu_uuid'),
      [if config.traceUrl != '' then 'trace_url']: config.traceUrl + '/traces/' + traceKey + '?ui=1',
    },
  },

  group(config, name, alerts):: {
    name: 'argus-alerts-' + name,
    // What ARGUS itself lacks is read from every rank's series, and is in no hurry.
    interval: duration.of(if name == 'health' then config.evaluationInterval else config.verdictInterval),
    rules: [
      // What ARGUS itself lacks has no price.
      $.withLinks(config, alert) + (if name == 'health' then {} else { annotations+: { cost: cost } })
      for alert in alerts
    ],
  },

  // What is found, and for `pageStays` after it was, while the job runs and the page fires. Not `keep_firing_for`, which would
  // outlive the job and which old vmalerts refuse.
  //   memory: a function of a range to what was found in it.
  //   page: matchers of the alert's own ALERTS; on: labels by which the two are the same.
  staying(config, found, memory, page, on):: |||
    (
      %(found)s
      or on (%(on)s) (
        %(memory)s
        and on (%(on)s) ALERTS{alertstate="firing", severity="page", %(page)s}
        and on (training_job) job:argus_ranks:count
      )
    )
  ||| % { found: found, memory: memory('[%s]' % duration.range(config, config.pageStays)), page: page, on: on },

  // The three severities of one finding. `finding` selects culprits in rank:argus_verdict:lost_ratio.
  //   info: at once, for effects of 1.5x and more; ticket and page: after persistence; page: only a finding that
  //   costs enough, is about the job's costliest, and has a majority to compare with.
  //   `infoFor`: seconds that `info` waits for a confirmation; 0 for direct evidence.
  //   `ticketFor`: seconds that the finding must have lasted before it may page; it is a ticket from `persistence` on.
  //   `info` leaves the first window of a job alone, in which it warms up.
  //   `isPause`: the finding is itself a pause of the host, which is not told of a rank whose turn it is in what the code has
  //   all of them do. Else a recent pause excuses from `info` what it may have cost within the fast path's few scrapes: the
  //   rank's own, and any of the job's, as the rank's is known a little later.
  severities(config, name, matchers, annotations, infoFor=0, ticketFor=0, persistence=config.persistence, isPause=false)::
    // What may page: neither uneven work nor what changed for the whole job.
    local culprits = 'rank:argus_verdict:lost_ratio{verdict="culprit", level!="L1", cause!="%s"}'
                     % config.causes.workload.cause;
    local finding = 'rank:argus_verdict:lost_ratio{verdict="culprit", level="L2", %s}' % matchers;
    local beyondPauses = (
      if isPause then |||
        (
          %(finding)s
          unless on (training_job, phase) max_over_time(job:argus_stack_code:lost_ratio[%(range)s])
        )
      ||| else |||
        (
          %(finding)s
          unless on (training_job, rank, phase) (
            %(finding)s <= on (training_job, rank) group_left () %(own)g * max by (training_job, rank) (
              rank:argus_host_pause:recent_seconds
            )
          )
          unless on (training_job, rank, phase) (
            %(finding)s <= on (training_job) group_left () %(anybody)g * max_over_time(
              job:argus_gc_pause:slowest_ratio[%(mean)s]
            )
          )
        )
      |||
    ) % {
      finding: finding,
      range: duration.range(config, config.pauseWindow),
      mean: duration.range(config, config.meanWindows[0]),
      own: config.explainedRatio / config.fastWindow,
      anybody: config.explainedRatio * config.simultaneousInterval / config.fastWindow,
    };
    // What is in no phase with a mean of its own strikes in whichever of the rank's.
    local anywhere = 'rank:argus_verdict:lost_ratio{verdict="culprit", level="L2", phase=~"all|%s", %s}'
                     % [config.countedPauses, matchers];
    // At each third of that time: lateness comes and goes with work that is drawn anew.
    local lasting = std.join('', [
      '\n  and on (training_job, rank, phase, group, cause) (%s offset %s)' % [finding, duration.of(ticketFor * third / 3)]
      for third in (if ticketFor > 0 then [1, 2, 3] else [])
    ]);
    local paging = |||
      (
        %(finding)s >= %(lost)g
        and on (training_job, rank, phase, group, cause) (
          %(finding)s >= on (training_job) group_left () %(share)g * max by (training_job) (%(culprits)s)
        )
        unless on (training_job, phase, group) group:argus_phase_ranks:few%(lasting)s
      )
    ||| % { lasting: lasting, finding: finding, lost: config.pageLostRatio, share: config.pageCostliestShare, culprits: culprits };
    [
      {
        alert: name,
        expr: |||
          (
            %s
            and on (training_job, rank, phase) rank:argus_phase_striking:ratio
            or %s
            and on (training_job, rank) rank:argus_phase_striking:ratio{kind!="comm"}
          )
          and on (training_job) job:argus_ranks:count offset %s
        ||| % [beyondPauses, anywhere, duration.of(config.meanWindows[0])],
        [if infoFor > 0 then 'for']: duration.of(infoFor),
        labels: { severity: 'info' },
        annotations: annotations,
      },
      {
        alert: name,
        expr: '%s\nunless on (training_job, rank, phase, group, cause) %s' % [finding, paging],
        'for': duration.of(persistence),
        labels: { severity: 'ticket' },
        annotations: annotations,
      },
      {
        alert: name,
        expr: $.staying(
          config,
          paging,
          function(range) 'max_over_time(%s%s) >= %g' % [finding, range, config.pageLostRatio],
          'alertname="%s"' % name,
          'training_job, rank, phase, group, cause'
        ),
        // Whatever had to last before it may page has lasted.
        [if ticketFor == 0 then 'for']: duration.of(std.max(persistence, config.pageFor)),
        labels: { severity: 'page' },
        annotations: annotations,
      },
    ],
}
