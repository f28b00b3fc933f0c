// A run against earlier runs (FLARE 5.2): what changes all ranks alike shows in no comparison between ranks. Optional.
//
// Runs of one model, backend and size (argus_job_info) are compared with what the best of their healthy runs did, by
// signatures: one number of the whole job each, of a phase, kernel or frame at most. While a run is healthy its
// signatures are recorded; what was learned is their median of each run, and the best of all runs. A slower run then gets
// its cause from the signature that moved with it; the table of causes says which comes first where several did.
local duration = import '../lib/duration.libsonnet';
local text = import '../lib/text.libsonnet';

function(c, l)
  local h = c.history;
  local current = 'job:argus_signature:current';
  local healthy = 'job:argus_signature:healthy';
  local learned = 'job:argus_signature:learned';
  local change = 'job:argus_signature:history_ratio';
  local excess = 'job:argus_signature:excess_ratio';
  local slowdown = 'job:argus_history:slowdown_ratio';
  local run = 'job:argus_history:run';
  local iterations = 'job:argus_iteration_scan:total';
  local parts = ['signature', 'kind', 'phase', 'source', 'kernel', 'stream', 'unit', 'frame'];
  local same = ['model', 'backend', 'world_size'];
  local mean = duration.range(c, h.mean);
  local of(series, signature) = series + '{signature="' + signature + '"}';
  // All ranks are alike, so those of the first host speak for them: the kernels and frames of all would be dear to read.
  local first = 'rank=~"[0-7]"';
  local kernel = [first, 'stream=~"compute.*"'];
  local frames = 'rate(' + l.raw('argus_stack_samples_total', [first, 'thread=~"' + c.mainThread + '"']) + '[' + mean + '])';
  // The host also waits where the GPU is slow; but then kernels wait in the queue for as long as ever. FLARE's example
  // falls from 42 ms to 1 ms, and healthy runs differ by tens of percent.
  local latency = 0.5;
  // Ratio by which a launch of one kernel must have grown to be a cause, and the least share of the main thread's samples by
  // which frames must have.
  local kernelRatio = 1.1;
  local frameShare = 0.05;
  // Share of the wall time that counts.
  local least = 0.02;
  // Frames that wait for data or for the GPU; and all others that are not the job's own code.
  local dataFrames = '(.*[.])?(recv_into|readinto|_recv|_recv_bytes|_next_data|_try_get_data|_get_data) .*';
  local waitFrames = '(.*[.])?(synchronize|item|nonzero|tolist|cpu|is_nonzero) .*';
  local otherFrames = std.join('|', [dataFrames, waitFrames, c.allocationFrames, '.*[(]torch[.]distributed.*', 'other']);
  // Names of Megatron and DeepSpeed for sends between stages: who receives is there first, so they hold little of a wait.
  local sends = 'pp-(forward-send|backward-send|send-activation|send-grad)';

  local signature(name, about, expr) = {
    about:: about,
    record: current,
    [if name != '' then 'labels']: { signature: name },
    expr: text.fill('(\n%(expr)s\n) * on (%(job)s) group_left (%(same)s) %(run)s', {
      expr: expr,
      job: l.job,
      same: std.join(', ', same),
      run: run,
    }),
  };
  // The means of a run that has just begun, or begun anew, are not full, or hold its first iterations, which are slow.
  local oldEnough(later=0) = 'job:argus_iteration_start:total{total="timestamp"} <= time() - ' + (2 * h.mean + later);
  local undisturbed = text.fill(|||
    unless on (%(job)s) job:argus_stalled:seconds
    unless on (%(job)s) (job:argus_other_activity:seconds < %(mean)s)
  |||, { job: l.job, mean: h.mean });

  local best(how, matcher) = text.fill(|||
    %(how)s by (%(run)s) (
      quantile_over_time(0.5, %(healthy)s[%(window)s])
      and count_over_time(%(healthy)s[%(window)s]) >= %(samples)s
    )
  |||, {
    how: how,
    run: l.ofRuns(same + parts),
    healthy: healthy + '{signature' + matcher + '}',
    window: duration.range(c, h.window),
    samples: h.samples,
  });

  // Shares of the time that have grown, all together.
  local allOf(signature, matcher) = 'sum by (' + l.job + ') (' + l.selector(excess, ['signature="' + signature + '"', matcher]) + ' > 0)';
  local grown(signature, matcher='') = allOf(signature, matcher) + ' >= ' + least;
  // The main thread spends what a run loses by them in these frames: others grow a little by chance.
  local enoughFrames = text.fill(' >= on (%(job)s) clamp_min((1 - 1 / %(slowdown)s) / 3, %(share)s)', { job: l.job, slowdown: slowdown, share: frameShare });
  local framesGrown(frames) = allOf('frame_share', 'frame=~"' + frames + '"') + enoughFrames;
  local queueIsDry = 'max by (' + l.job + ') (' + of(change, 'issue_latency') + ') <= ' + latency;
  local queueIsFull = 'max by (' + l.job + ') (' + of(change, 'issue_latency') + ') > ' + latency;
  local evidence(cause, about, expr) = {
    about:: 'What a run loses against the best healthy one of its model, where %s.' % about,
    record: 'rank:argus_evidence:lost_ratio',
    labels: { cause: 'history-' + cause, detector: 'history' },
    expr: text.fill('(1 - 1 / %(slowdown)s)\nand on (%(job)s) (\n%(expr)s\n)', { slowdown: slowdown, job: l.job, expr: expr }),
  };
  // How many times longer than in the best healthy run some phases take, of those that count.
  local longer(matcher) = text.fill('(%(change)s and %(current)s >= %(least)s) * on (%(job)s) group_left () %(slowdown)s', {
    change: l.selector(change, ['signature="phase_share"', matcher]),
    current: of(current, 'phase_share'),
    least: least,
    job: l.job,
    slowdown: slowdown,
  });
  // Some of what waits has grown, and what is waited for takes as long as ever: FSDP2 tells a gather and the wait for it apart, and
  // where kernels are observed, so do collectives of all frameworks.
  local unhidden = std.join(' or on (%s) ' % l.job, [
    '(%s unless on (%s) (%s >= %g))' % [grown('phase_share', some.waits), l.job, longer(some.itself), h.ratio]
    + (if some.known then ' and on (%s) %s' % [l.job, l.selector(change, ['signature="phase_share"', some.itself])] else '')
    for some in [
      { waits: 'phase="dp-unshard-wait"', itself: 'phase=~"all_gather.*|reduce_scatter.*"', known: false },
      // A send is what takes the time, not a wait for it.
      { waits: 'kind="comm", source!="kernel", phase!~"' + sends + '"', itself: 'kind="comm", source="kernel"', known: true },
    ]
  ]);
  local or(exprs) = std.join('\nor on (%s) ' % l.job, ['(' + expr + ')' for expr in exprs]);

  {
    signatures: [
      {
        about:: 'What a job says that it trains, with what, on how many ranks: runs that agree are compared. One line a job, also while it is resized.',
        record: run,
        expr: text.fill('topk by (%(job)s) (1, max by (%(labels)s) (%(info)s))', {
          job: l.job,
          labels: l.list(same),
          info: l.raw('argus_job_info'),
        }),
      },
      signature('iteration', 'Seconds of a rank for a unit of its work, where the job counts work, else for an iteration.', text.fill(|||
        1 / avg by (%(unit)s) (rate(%(units)s[%(mean)s]) > 0)
        or on (%(job)s)
        max by (%(job)s) (rate(%(total)s{total="seconds"}[%(mean)s]) / on (%(rank)s) (rate(%(total)s{total="count"}[%(mean)s]) > 0))
      |||, {
        unit: l.list(['unit']),
        units: l.raw('argus_work_units_total'),
        mean: mean,
        job: l.job,
        rank: l.rank,
        total: iterations,
      })),
      signature('phase_share', 'Share of wall time of each phase, without what the stages of a pipeline wait for one another, which says nothing of it.', text.fill(|||
        quantile by (%(phase)s) (0.5,
          (%(median)s{group!~"stage:.*"} or on (%(group)s) %(median)s{phase=~"%(sends)s"}) * on (%(group)s) group:argus_phase_spans:rate
        )
      |||, { phase: l.phase, group: l.phaseGroup, median: 'group:argus_phase_duration_seconds:median', sends: sends })),
      // The plugin's rules are optional too. The median, as of one slow hop the comparison between hops tells.
      signature('wire', "Seconds a byte on the wire of the median hop between hosts, where NCCL's plugin is on.", 'quantile by (%s) (0.5, avg_over_time(rank:argus_network_wire:seconds_per_byte[%s]))' % [
        l.job,
        mean,
      ]),
      signature('issue_latency', 'How far the host runs ahead of the GPU, on the median rank.', 'quantile by (%s) (0.5, %s)' % [
        l.job,
        l.raw('argus_issue_latency_seconds', ['kernel_class="compute"', 'quantile="0.5"']),
      ]),
      signature('', 'Shares of wall time without a running kernel: between two steps, where the GPU waits for data; within one, where the host is late with launches.', text.fill(|||
        avg by (%(signature)s) (label_replace(rate(%(seconds)s[%(mean)s]), "signature", "${1}_void", "void", "(.*)"))
      |||, {
        signature: l.list(['signature']),
        seconds: l.raw('argus_void_seconds_total', ['void=~"inter_step|minority"']),
        mean: mean,
      })),
      signature('kernel', "Seconds a launch of each kernel of the first host's ranks.", text.fill(|||
        sum by (%(kernel)s) (rate(%(seconds)s[%(mean)s])) / on (%(kernel)s) (sum by (%(kernel)s) (rate(%(launches)s[%(mean)s])) > 0)
      |||, {
        kernel: l.list(['kernel', 'stream']),
        seconds: l.raw('argus_kernel_duration_seconds_total', kernel),
        launches: l.raw('argus_kernel_launches_total', kernel),
        mean: mean,
      })),
      signature('kernel_share', 'Share of wall time of each of them.', text.fill(|||
        avg by (%(kernel)s) (max by (%(ranks)s) (rate(%(seconds)s[%(mean)s])))
      |||, {
        kernel: l.list(['kernel', 'stream']),
        ranks: l.list(['rank', 'kernel', 'stream']),
        seconds: l.raw('argus_kernel_duration_seconds_total', kernel),
        mean: mean,
      })),
      signature('frame_share', "Share of each innermost frame in the samples of the main thread, of the first host's ranks.", text.fill(|||
        sum by (%(frame)s) (%(samples)s) / on (%(job)s) group_left () (sum by (%(job)s) (%(samples)s) > 0)
      |||, { frame: l.list(['frame']), job: l.job, samples: frames })),
      {
        about:: 'Share of wall time in which the GPU runs and nothing computes: communication that nothing hides.',
        record: current,
        labels: { signature: 'exposed' },
        expr: text.fill(|||
          1 - sum by (%(run)s) (%(current)s{signature=~"kernel_share|.*_void"})
          and on (%(job)s) %(kernels)s
          and on (%(job)s) %(void)s
        |||, {
          run: l.list(same),
          job: l.job,
          current: current,
          kernels: of(current, 'kernel_share'),
          void: of(current, 'inter_step_void'),
        }),
      },
    ],

    comparison: [
      {
        about:: 'Durations, and shares of phases, of a run against the best healthy one of the same model, backend and size.',
        record: change,
        expr: text.fill('%(current)s{signature=~"iteration|issue_latency|kernel|phase_share|wire"}\n/ on (%(run)s) group_left () (%(learned)s > 0)', {
          current: current,
          run: l.ofRuns(same + parts),
          learned: learned,
        }),
      },
      {
        about:: 'Shares of time of a run less those of the best healthy one; of a kernel or frame that no healthy run had, all of it.',
        record: excess,
        expr: text.fill(|||
          %(current)s{signature=~".*_void|.*_share|exposed"} - on (%(run)s) group_left () %(learned)s
          or on (%(parts)s) (%(current)s{signature=~".*_share"} and on (%(kind)s) %(learned)s)
        |||, {
          current: current,
          run: l.ofRuns(same + parts),
          parts: l.list(parts),
          kind: l.ofRuns(same + ['signature']),
          learned: learned,
        }),
      },
      {
        about:: 'How many times slower a run is than the best healthy one, by the unit of work that explains most; from its first full means on.',
        record: slowdown,
        // A step waits for the rank that has most to do, and how much that is comes by chance. On average, as a single value may
        // come of where the scrapes of hosts cut the steps.
        expr: text.fill(|||
          min by (%(job)s) (%(iteration)s) >= %(least)s
          unless on (%(job)s) (min by (%(job)s) (%(iteration)s) - 1 < on (%(job)s) %(uneven)s * sum_over_time(job:argus_work:uneven[%(mean)s]))
          and on (%(job)s) (%(old)s)
          %(undisturbed)s
        |||, {
          job: l.job,
          iteration: of(change, 'iteration'),
          mean: mean,
          uneven: 2 * c.statisticsInterval / h.mean,
          least: h.explained,
          old: oldEnough(),
          undisturbed: undisturbed,
        }),
      },
    ],

    learning: [
      {
        // A finding that costs less than that cannot bend it by what counts as slow. Later than the comparison, whose first
        // answer must be there.
        about:: 'Signatures of runs that are neither slower than what was learned nor have a costly finding: a slow run must not become the norm.',
        record: healthy,
        memory:: true,
        expr: text.fill(|||
          %(current)s
          and on (%(job)s) (%(old)s)
          unless on (%(job)s) (rank:argus_finding:lost_ratio{most!="info"} >= %(lost)s)
          unless on (%(job)s) (%(slowdown)s >= %(ratio)s)
          %(undisturbed)s
        |||, {
          current: current,
          job: l.job,
          old: oldEnough(2 * c.slowInterval),
          lost: 1 - 1 / h.ratio,
          slowdown: slowdown,
          ratio: h.ratio,
          undisturbed: undisturbed,
        }),
      },
      {
        about:: 'The best of all healthy runs, by the median of each: the longest lead of the host, and the least of everything else.',
        record: learned,
        expr: best('max', '="issue_latency"') + 'or on (%s)\n' % l.ofRuns(same + parts) + best('min', '!="issue_latency"'),
      },
    ],

    evidence: [
      // Kernels know it best. A kernel of another shape, or one more, is in some phases; a host that is slower shows in its stacks.
      evidence(
        'colocation',
        'every kernel is slower, also the fastest quarter, or every phase of computation: something else runs on the GPUs',
        or([
          'quantile by (%s) (0.25, %s) >= %g' % [l.job, of(change, 'kernel'), h.ratio],
          text.fill(|||
            min by (%(job)s) (%(longer)s) >= %(ratio)s
            unless on (%(job)s) %(kernels)s
            unless on (%(job)s) %(excess)s{signature="frame_share", frame!~"%(waits)s"} >= %(frames)s
          |||, {
            job: l.job,
            longer: longer('kind="compute"'),
            ratio: h.ratio,
            kernels: of(change, 'kernel'),
            excess: excess,
            waits: waitFrames,
            frames: frameShare,
          }),
        ])
      ),
      evidence('kernel-shape', 'launches of some kernel take longer, and that costs enough', text.fill(|||
        max by (%(job)s) (
          (1 - 1 / (%(change)s >= %(ratio)s)) * on (%(kernel)s) group_left () max by (%(kernel)s) (%(share)s)
        ) >= %(least)s
      |||, {
        job: l.job,
        kernel: l.list(['kernel', 'stream']),
        change: of(change, 'kernel'),
        ratio: kernelRatio,
        share: of(current, 'kernel_share'),
        least: least,
      })),
      evidence(
        'kernel-inefficient',
        'it runs kernels that healthy runs did not have, or had less often',
        grown('kernel_share')
      ),
      evidence('host-alloc', 'its stacks show more of the frames that allocate or pin memory', framesGrown(c.allocationFrames)),
      evidence(
        'data-input',
        'its stacks show more of the frames that wait for data, its GPUs idle between steps, or the data phase takes longer',
        or([framesGrown(dataFrames), grown('inter_step_void'), grown('phase_share', 'phase="data"')])
      ),
      // What idles within steps as well launches too late. Where nobody sees the queue, a host that waits for a GPU whose collectives take
      // longer has no other reason.
      evidence('host-sync', 'its stacks show more of the frames that wait for the GPU, or the queue of launches runs dry, though the GPUs hardly idle', or([
        text.fill('%(frames)s unless on (%(job)s) %(full)s unless on (%(job)s) (%(comm)s unless on (%(job)s) %(queue)s)', {
          frames: framesGrown(waitFrames),
          job: l.job,
          full: queueIsFull,
          comm: grown('phase_share', 'kind="comm"'),
          queue: of(change, 'issue_latency'),
        }),
        queueIsDry + ' unless on (%s) %s' % [l.job, grown('minority_void')],
      ])),
      evidence('host-code', 'its GPUs idle within steps, as the host launches too late, or its stacks show far more of some frame', or([
        grown('minority_void'),
        'max by (' + l.job + ') (' + l.selector(excess, ['signature="frame_share"', 'frame!~"' + otherFrames + '"']) + ')' + enoughFrames,
      ])),
      evidence(
        'fabric-config',
        'it waits longer for its collectives, or what it sends is far longer on the wire between hosts',
        '%s unless on (%s) (%s)\nor on (%s) max by (%s) (%s) >= %g' % [
          grown('phase_share', 'kind="comm"'),
          l.job,
          unhidden,
          l.job,
          l.job,
          of(change, 'wire'),
          c.linkRatio,
        ]
      ),
      evidence(
        'overlap-config',
        'kernels and collectives take as long as ever, but no longer at the same time',
        // A third of what is lost, or more than what counts anyway. Each evaluation holds another number of the kernels'
        // windows.
        or([
          'max by (%s) (avg_over_time(%s[%s])) >= on (%s) clamp_max((1 - 1 / %s) / 3, %g)' % [l.job, of(excess, 'exposed'), mean, l.job, slowdown, least],
          unhidden,
        ])
      ),
      evidence('unexplained', 'nothing else that is known has changed', '%s >= %g' % [slowdown, h.ratio]),
    ],
  }
